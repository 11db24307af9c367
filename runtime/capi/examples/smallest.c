// cc smallest.c $(pkg-config --cflags --libs sardonyx) -o smallest && ./smallest MODEL.sdx

#include <sardonyx.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int64_t ids[4] = {101, 7592, 2088, 102}, ones[4] = {1, 1, 1, 1}, zeros[4] = {0, 0, 0, 0};
    size_t dims[2] = {1, 4};
    sdx_tensor inputs[3] = {{sizeof inputs[0], "input_ids", SDX_I64, 2, dims, ids, sizeof ids, 0},
                            {sizeof inputs[0], "attention_mask", SDX_I64, 2, dims, ones, sizeof ones, 0},
                            {sizeof inputs[0], "token_type_ids", SDX_I64, 2, dims, zeros, sizeof zeros, 0}};
    sdx_call call = {sizeof call, NULL, inputs, 3, NULL, 0, NULL, 0, NULL, 0, NULL};
    sdx_model *model = NULL;
    sdx_session *session = NULL;
    sdx_outputs *outputs = NULL;
    sdx_tensor out = {sizeof out, NULL, 0, 0, NULL, NULL, 0, 0};
    sdx_load_options trusting = {sizeof trusting, NULL, 0, 0, 1, NULL, NULL, 0, NULL}; // or a pin, or a key
    sdx_error *error = sdx_model_load(argc > 1 ? argv[1] : "", &trusting, &model);
    if (error == NULL) error = sdx_session_new(model, NULL, &session);
    if (error == NULL) error = sdx_run(session, &call, &outputs);
    if (error == NULL) error = sdx_outputs_at(outputs, 0, &out);
    if (error == NULL) printf("%s: %zu numbers, %g\n", out.name, out.bytes / 4, (double)*(const float *)out.data);
    if (error != NULL) fprintf(stderr, "%s\n", sdx_error_text(error));
    int status = sdx_error_exit_status(error);
    sdx_error_free(error);
    sdx_outputs_free(outputs);
    sdx_session_free(session);
    sdx_model_free(model);
    return status;
}
