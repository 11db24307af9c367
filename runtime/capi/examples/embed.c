// Token ids in, one embedding out: the mean of the last hidden states, of length 1
//
//     cc embed.c $(pkg-config --cflags --libs sardonyx) -lm -o embed
//     ./embed model.sdx 101 7592 2088 102
//
// The model is an encoder with the inputs `input_ids`, `attention_mask` and perhaps `token_type_ids` of [batch, seq].

#include <math.h>
#include <sardonyx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Prints an error, and returns what the program exits with.
static int report(sdx_error *error) {
    int status = sdx_error_exit_status(error);
    fprintf(stderr, "%s\n", sdx_error_text(error));
    sdx_error_free(error);
    return status;
}

// The mean over the tokens, then divided by its length.
static void pool(const float *states, size_t tokens, size_t width, float *out) {
    double length = 0;
    for (size_t k = 0; k < width; k++) {
        double sum = 0;
        for (size_t t = 0; t < tokens; t++) sum += states[t * width + k];
        out[k] = (float)(sum / (double)tokens);
        length += (double)out[k] * (double)out[k];
    }
    for (size_t k = 0; k < width; k++) out[k] = (float)(out[k] / sqrt(length));
}

static int embed(const sdx_model *model, sdx_session *session, const int64_t *ids, size_t tokens) {
    int64_t *ones = (int64_t *)malloc(tokens * sizeof *ones);
    int64_t *zeros = (int64_t *)calloc(tokens, sizeof *zeros);
    size_t dims[2] = {1, tokens};
    sdx_tensor inputs[3];
    sdx_call call;
    sdx_outputs *outputs = NULL;
    sdx_error *error;
    int status = 0;

    memset(inputs, 0, sizeof inputs);
    memset(&call, 0, sizeof call);
    call.struct_bytes = sizeof call;
    call.inputs = inputs;
    call.timeout_ns = 10000000000u;
    for (size_t i = 0; i < tokens; i++) ones[i] = 1;

    // The model says what it wants.
    for (size_t i = 0; i < 3; i++) {
        const sdx_port *port = sdx_model_input(model, 0, i);
        if (port == NULL) break;
        inputs[i].struct_bytes = sizeof inputs[i];
        inputs[i].name = port->name;
        inputs[i].dtype = SDX_I64;
        inputs[i].rank = 2;
        inputs[i].dims = dims;
        inputs[i].data = strcmp(port->name, "input_ids") == 0        ? ids
                         : strcmp(port->name, "attention_mask") == 0 ? ones
                                                                     : zeros;
        inputs[i].bytes = tokens * sizeof *ids;
        call.n_inputs++;
    }

    error = sdx_run(session, &call, &outputs);
    if (error != NULL) {
        status = report(error);
    } else {
        sdx_tensor states;
        memset(&states, 0, sizeof states);
        states.struct_bytes = sizeof states;
        error = sdx_outputs_at(outputs, 0, &states);
        if (error != NULL) {
            status = report(error);
        } else if (states.dtype != SDX_F32 || states.rank != 3) {
            fprintf(stderr, "`%s` is not f32 [batch, seq, width]\n", states.name);
            status = 2;
        } else {
            size_t width = states.dims[2];
            float *embedding = (float *)malloc(width * sizeof *embedding);
            pool((const float *)states.data, tokens, width, embedding);
            for (size_t k = 0; k < width; k++) printf("%.6f\n", (double)embedding[k]);
            free(embedding);
        }
    }
    sdx_outputs_free(outputs);
    free(ones);
    free(zeros);
    return status;
}

int main(int argc, char **argv) {
    sdx_model *model = NULL;
    sdx_session *session = NULL;
    sdx_error *error;
    int status;
    size_t tokens = argc < 3 ? 0 : (size_t)argc - 2;
    // Whoever starts this trusts the file, whose code is executed; a pin or a key would do too.
    sdx_load_options trusting = {sizeof trusting, NULL, 0, 0, 1, NULL, NULL, 0, NULL};
    int64_t *ids;

    if (tokens == 0) {
        fprintf(stderr, "usage: %s MODEL.sdx ID…\n", argv[0]);
        return 2;
    }
    ids = (int64_t *)malloc(tokens * sizeof *ids);
    for (size_t i = 0; i < tokens; i++) ids[i] = atoll(argv[i + 2]);

    error = sdx_model_load(argv[1], &trusting, &model);
    if (error == NULL) error = sdx_session_new(model, NULL, &session);
    status = error != NULL ? report(error) : embed(model, session, ids, tokens);
    sdx_session_free(session);
    sdx_model_free(model);
    free(ids);
    return status;
}
