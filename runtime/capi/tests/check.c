// What the programs in C check with, and the structs that they pass

#include <sardonyx.h>
#include <stdio.h>
#include <string.h>

static int n_failed = 0;

static void expect(int holds, int line, const char *what) {
    if (!holds) {
        fprintf(stderr, "line %d: %s\n", line, what);
        n_failed++;
    }
}
#define EXPECT(condition) expect((condition) != 0, __LINE__, #condition)

// The error has this code, and this in its message.
static void refused(sdx_error *error, const char *code, const char *message, int line) {
    if (error == NULL) {
        expect(0, line, message);
        return;
    }
    if (strcmp(sdx_error_code(error), code) != 0 || strstr(sdx_error_message(error), message) == NULL) {
        fprintf(stderr, "line %d: %s\n", line, sdx_error_text(error));
        n_failed++;
    }
    sdx_error_free(error);
}
#define REFUSED(call, code, message) refused((call), code, message, __LINE__)
#define WORKS(call) worked((call), __LINE__)

static const sdx_load_options trusting = {sizeof trusting, NULL, 0, 0, 1, NULL, NULL, 0, NULL};

static void worked(sdx_error *error, int line) {
    if (error != NULL) {
        fprintf(stderr, "line %d: %s\n", line, sdx_error_text(error));
        n_failed++;
        sdx_error_free(error);
    }
}

static sdx_tensor input(const char *name, const size_t *dims, uint32_t rank, const float *data, size_t n) {
    sdx_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.struct_bytes = sizeof tensor;
    tensor.name = name;
    tensor.dtype = SDX_F32;
    tensor.rank = rank;
    tensor.dims = dims;
    tensor.data = data;
    tensor.bytes = n * sizeof *data;
    return tensor;
}

static sdx_call call_of(const sdx_tensor *inputs, size_t n) {
    sdx_call call;
    memset(&call, 0, sizeof call);
    call.struct_bytes = sizeof call;
    call.inputs = inputs;
    call.n_inputs = n;
    return call;
}
