// Built with a header whose structs have fewer fields: three rows of eight x = 0.5

#include <sardonyx.h>
#include <stdio.h>
#include <string.h>

static int done(sdx_error *error) {
    if (error == NULL) return 1;
    fprintf(stderr, "%s\n", sdx_error_text(error));
    sdx_error_free(error);
    return 0;
}

int main(int argc, char **argv) {
    sdx_load_options load;
    sdx_session_options options;
    sdx_model *model = NULL;
    sdx_session *session = NULL;
    sdx_tensor input;
    sdx_buffer buffer;
    float x[24], y[3];
    size_t dims[2] = {3, 8};
    // What lies behind the structs of a caller is not read.
    struct {
        sdx_call call;
        size_t behind;
    } given;
    memset(&load, 0, sizeof load);
    memset(&options, 0, sizeof options);
    memset(&input, 0, sizeof input);
    memset(&buffer, 0, sizeof buffer);
    memset(&given, 0xff, sizeof given);
    memset(&given.call, 0, sizeof given.call);
    for (int i = 0; i < 24; i++) x[i] = 0.5f;
    load.struct_bytes = sizeof load;
    load.trust = 1;
    options.struct_bytes = sizeof options;
    options.threads = 2;
    input.struct_bytes = sizeof input;
    input.name = "x";
    input.dtype = SDX_F32;
    input.rank = 2;
    input.dims = dims;
    input.data = x;
    input.bytes = sizeof x;
    buffer.struct_bytes = sizeof buffer;
    buffer.name = "y";
    buffer.dtype = SDX_F32;
    buffer.data = y;
    buffer.bytes = sizeof y;
    given.call.struct_bytes = sizeof given.call;
    given.call.inputs = &input;
    given.call.n_inputs = 1;
    given.call.buffers = &buffer;
    given.call.n_buffers = 1;
    if (argc != 2 || !done(sdx_model_load(argv[1], &load, &model)) || !done(sdx_session_new(model, &options, &session)) ||
        !done(sdx_run(session, &given.call, NULL)))
        return 1;
    printf("%g %g %g\n", (double)y[0], (double)y[1], (double)y[2]);
    sdx_session_free(session);
    sdx_model_free(model);
    return 0;
}
