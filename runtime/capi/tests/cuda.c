// Tensors in the memory of a GPU, beside other work in one context and on one stream. Argument: an artifact for CPUs and GPUs
//
// Both calls compute y of x for rows of eight; z is x.

#include "check.c"
#include <dlfcn.h>
#include <stdint.h>

#define ROWS 5
#define N (ROWS * 8)

// The part of the driver's interface that a program with other work on the GPU uses.
typedef uint64_t address;
static int (*init)(unsigned flags);
static int (*context_new)(void **context, unsigned flags, int device);
static int (*context_pop)(void **context);
static int (*context_push)(void *context);
static int (*stream_new)(void **stream, unsigned flags);
static int (*allocate)(address *at, size_t bytes);
static int (*to_gpu)(address to, const void *from, size_t bytes);
static int (*from_gpu)(void *to, address from, size_t bytes);

static void *driver;
static void find(void *function, const char *name) {
    void *found = dlsym(driver, name);
    memcpy(function, &found, sizeof found);
    EXPECT(found != NULL);
}

static void *context;

static address on_gpu(const float *values, size_t n) {
    address at = 0;
    EXPECT(context_push(context) == 0 && allocate(&at, n * sizeof *values) == 0);
    EXPECT(to_gpu(at, values, n * sizeof *values) == 0 && context_pop(&context) == 0);
    return at;
}

static sdx_session *session_of(const char *path, const char *device, void *stream, sdx_model **model) {
    sdx_load_options load = trusting;
    sdx_session_options options;
    sdx_session *session = NULL;
    memset(&options, 0, sizeof options);
    load.device = device;
    load.cuda_context = stream == NULL ? NULL : context;
    options.struct_bytes = sizeof options;
    options.cuda_stream = stream;
    WORKS(sdx_model_load(path, &load, model));
    if (*model != NULL) WORKS(sdx_session_new(*model, &options, &session));
    return session;
}

int main(int argc, char **argv) {
    size_t dims[2] = {ROWS, 8}, out_dims[2] = {0, 0};
    float x[N], y[ROWS], expected[ROWS];
    void *stream = NULL;
    address x_at, y_at;
    sdx_model *model = NULL, *on_cpu = NULL;
    sdx_session *gpu, *cpu;
    sdx_outputs *rest = NULL;
    sdx_pool *pool = NULL;
    sdx_tensor in, z;
    sdx_buffer buffer;
    sdx_call call;
    int i;

    if (argc != 2 || (driver = dlopen("libcuda.so", RTLD_NOW)) == NULL) return 1;
    find(&init, "cuInit");
    find(&context_new, "cuCtxCreate_v2");
    find(&context_pop, "cuCtxPopCurrent_v2");
    find(&context_push, "cuCtxPushCurrent_v2");
    find(&stream_new, "cuStreamCreate");
    find(&allocate, "cuMemAlloc_v2");
    find(&to_gpu, "cuMemcpyHtoD_v2");
    find(&from_gpu, "cuMemcpyDtoH_v2");
    if (n_failed > 0) return 1;
    EXPECT(init(0) == 0 && context_new(&context, 0, 0) == 0 && stream_new(&stream, 1) == 0 && context_pop(&context) == 0);
    gpu = session_of(argv[1], "cuda:0", stream, &model);
    cpu = session_of(argv[1], NULL, NULL, &on_cpu);
    if (gpu == NULL || cpu == NULL) return 1;

    memset(&buffer, 0, sizeof buffer);
    for (i = 0; i < N; i++) x[i] = (float)(i * 7 % 33) * 0.25f - 4.0f;
    in = input("x", dims, 2, x, N);
    call = call_of(&in, 1);
    buffer.struct_bytes = sizeof buffer;
    buffer.name = "y";
    buffer.dtype = SDX_F32;
    buffer.data = expected;
    buffer.bytes = sizeof expected;
    call.buffers = &buffer;
    call.n_buffers = 1;
    WORKS(sdx_run(cpu, &call, NULL));

    // Both tensors on the GPU; an output without a buffer is returned in the host's memory.
    x_at = on_gpu(x, N);
    memset(y, 0, sizeof y);
    y_at = on_gpu(y, ROWS);
    in.data = (const void *)(uintptr_t)x_at;
    in.on_device = 1;
    buffer.data = (void *)(uintptr_t)y_at;
    buffer.on_device = 1;
    buffer.rank = 2;
    buffer.dims = out_dims;
    WORKS(sdx_run(gpu, &call, &rest));
    EXPECT(buffer.rank == 1 && out_dims[0] == ROWS);
    EXPECT(context_push(context) == 0 && from_gpu(y, y_at, sizeof y) == 0 && context_pop(&context) == 0);
    EXPECT(memcmp(y, expected, sizeof y) == 0);
    z.struct_bytes = sizeof z;
    WORKS(sdx_outputs_find(rest, "z", &z));
    EXPECT(sdx_outputs_count(rest) == 1 && z.on_device == 0 && z.bytes == sizeof x && memcmp(z.data, x, sizeof x) == 0);
    sdx_outputs_free(rest);

    // An input of the host, an output on the GPU.
    memset(y, 0, sizeof y);
    EXPECT(context_push(context) == 0 && to_gpu(y_at, y, sizeof y) == 0 && context_pop(&context) == 0);
    in.data = x;
    in.on_device = 0;
    buffer.rank = 2;
    WORKS(sdx_run(gpu, &call, NULL));
    EXPECT(context_push(context) == 0 && from_gpu(y, y_at, sizeof y) == 0 && context_pop(&context) == 0);
    EXPECT(memcmp(y, expected, sizeof y) == 0);

    // Mistakes.
    buffer.rank = 0;
    REFUSED(sdx_run(gpu, &call, NULL), "E0001", "`dims` has room for 0");
    buffer.dims = NULL;
    buffer.bytes = 4;
    REFUSED(sdx_run(gpu, &call, NULL), "E0301", "its buffer only 4");
    buffer.bytes = sizeof y;
    REFUSED(sdx_run(cpu, &call, NULL), "E0301", "the model runs on 1 x `cpu`");
    in.data = (const void *)(uintptr_t)x_at;
    in.on_device = 1;
    in.bytes = 4;
    REFUSED(sdx_run(gpu, &call, NULL), "E0001", "have 160 bytes, not 4");
    in.bytes = sizeof x;
    buffer.data = (void *)(uintptr_t)x_at;
    REFUSED(sdx_run(gpu, &call, NULL), "E0301", "overlaps that of `x`");
    buffer.data = NULL;
    REFUSED(sdx_run(gpu, &call, NULL), "E0001", "`sdx_buffer.data` is null");
    buffer.data = (void *)(UINTPTR_MAX - 3);
    REFUSED(sdx_run(gpu, &call, NULL), "E0202", "beyond the largest address");
    buffer.data = y;
    buffer.on_device = 0;
    REFUSED(sdx_run(gpu, &call, NULL), "E0001", "no buffer in the host's");
    WORKS(sdx_pool_new(model, NULL, &pool));
    call.buffers = NULL;
    call.n_buffers = 0;
    REFUSED(sdx_pool_submit(pool, &call, NULL, NULL), "E0001", "no tensors in the memory of a GPU");

    sdx_pool_free(pool);
    sdx_session_free(gpu);
    sdx_session_free(cpu);
    sdx_model_free(model);
    sdx_model_free(on_cpu);
    printf("%d failed\n", n_failed);
    return 0;
}
