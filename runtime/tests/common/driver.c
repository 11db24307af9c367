// A CUDA driver for tests on machines without one: memory is the host's, kernels are those of kernels.c, and work is
// done only when it is waited for, so that whoever forgets to wait sees stale memory. Built as libcuda.so.
// Its functions may be called from every thread, one at a time.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define V gpu
#define LEVEL 80
#include "kernels.c"

// Held until the function ends that says so.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int lock(void) { return pthread_mutex_lock(&mutex); }
static void unlock(int *held) { (void)held, pthread_mutex_unlock(&mutex); }
#define ALONE int alone __attribute__((cleanup(unlock), unused)) = lock()

typedef int Result;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_PTX = 218, NOT_FOUND = 500 };

typedef struct { const char *name; void (*run)(const Args *); int buffers, params; } Kernel;
static const Kernel KERNELS[] = {
    {"affine", affine_gpu, 2, 1}, {"rowdot", rowdot_gpu, 3, 2}, {"gather", gather_gpu, 3, 2},
    {"positive", positive_gpu, 3, 2}, {"carry", carry_gpu, 2, 5}, {"append", append_gpu, 2, 5}, {"total", total_gpu, 2, 4},
};

// What has been asked for and not been waited for.
typedef struct Work { struct Work *next; enum { COPY, FILL, LAUNCH } kind; void *to; const void *from; size_t bytes;
    void *owned; const Kernel *kernel; uint64_t arguments[16]; int64_t threads; } Work;
static Work *first, **last = &first;

static Work *ask(int kind) {
    Work *w = calloc(1, sizeof *w);
    w->kind = kind;
    *last = w;
    last = &w->next;
    return w;
}

static void launch(const Work *w) {
    static uint8_t scratch[1 << 16] __attribute__((aligned(64)));
    const Kernel *k = w->kernel;
    int64_t items = (int64_t)w->arguments[k->buffers + k->params - 1];
    Args a = {1, k->buffers, (uint8_t *const *)w->arguments, (const int64_t *)w->arguments + k->buffers, scratch, 0,
              items < w->threads ? items : w->threads, (int64_t *)w->arguments[k->buffers + k->params]};
    k->run(&a);
}

static void wait(void) {
    while (first) {
        Work *w = first;
        if (w->kind == COPY) memmove(w->to, w->from, w->bytes);
        if (w->kind == FILL) memset(w->to, 0, w->bytes);
        if (w->kind == LAUNCH) launch(w);
        first = w->next;
        if (!first) last = &first;
        free(w->owned);
        free(w);
    }
}

// Allocations, so that every range is known to be within one.
typedef struct { uint64_t start; size_t bytes; } Range;
static Range ranges[1024];

static int inside(uint64_t start, size_t bytes) {
    for (int i = 0; i < 1024; i++)
        if (ranges[i].start && start >= ranges[i].start && start - ranges[i].start + bytes <= ranges[i].bytes) return 1;
    return bytes == 0;
}

Result cuInit(unsigned flags) { return flags; }
Result cuDeviceGetCount(int *n) { *n = 1; return OK; }
Result cuDeviceGet(int *gpu, int n) { *gpu = n; return OK; }
Result cuDevicePrimaryCtxRetain(void **context, int gpu) { *context = (void *)8; return gpu; }
Result cuDevicePrimaryCtxRelease_v2(int gpu) { return gpu; }
Result cuCtxSetCurrent(void *context) { return context == (void *)8 ? OK : INVALID_VALUE; }
Result cuCtxSynchronize(void) { ALONE; wait(); return OK; }
// Of sm_90: 75 is the major number, 76 the minor one.
Result cuDeviceGetAttribute(int *value, int which, int gpu) { *value = which == 75 ? 9 : 0; return gpu; }
Result cuGetErrorString(Result e, const char **text) { *text = e == OUT_OF_MEMORY ? "out of memory" : "refused by the test's driver"; return OK; }

Result cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    ALONE;
    if (!bytes) return INVALID_VALUE;
    if (bytes > 1 << 28) return OUT_OF_MEMORY;
    for (int i = 0; i < 1024; i++)
        if (!ranges[i].start) {
            ranges[i].start = *address = (uint64_t)(uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
            ranges[i].bytes = bytes;
            memset((void *)ranges[i].start, 0x5a, bytes);
            return OK;
        }
    return OUT_OF_MEMORY;
}
Result cuMemFree_v2(uint64_t address) {
    ALONE;
    wait();
    for (int i = 0; i < 1024; i++)
        if (ranges[i].start == address) { free((void *)address); ranges[i].start = 0; return OK; }
    return INVALID_VALUE;
}

Result cuModuleLoadDataEx(void **module, const char *text, unsigned n, int *options, void **values) {
    if (strstr(text, ".version 8.0")) { *module = (void *)16; return OK; }
    for (unsigned i = 0; i < n; i++) // 5 is the error log.
        if (options[i] == 5) strcpy(values[i], "ptxas line 1: no version");
    return INVALID_PTX;
}
Result cuModuleUnload(void *module) { return module == (void *)16 ? OK : INVALID_VALUE; }
Result cuModuleGetFunction(void **function, void *module, const char *name) {
    for (unsigned i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++)
        if (!strcmp(KERNELS[i].name, name)) { *function = (void *)&KERNELS[i]; return module == (void *)16 ? OK : INVALID_VALUE; }
    return NOT_FOUND;
}
// 8 is the dynamic shared memory.
Result cuFuncSetAttribute(void *function, int which, int value) { return function && which == 8 && value > 49152 ? OK : INVALID_VALUE; }

Result cuStreamCreate(void **stream, unsigned flags) { *stream = (void *)32; return flags == 1 ? OK : INVALID_VALUE; }
Result cuStreamDestroy_v2(void *stream) { ALONE; wait(); return stream == (void *)32 ? OK : INVALID_VALUE; }
Result cuStreamSynchronize(void *stream) { ALONE; wait(); return stream == (void *)32 ? OK : INVALID_VALUE; }

Result cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t n) {
    ALONE;
    wait();
    if (!inside(to, n)) return INVALID_VALUE;
    memcpy((void *)to, from, n);
    return OK;
}
Result cuMemcpyDtoH_v2(void *to, uint64_t from, size_t n) {
    ALONE;
    wait();
    if (!inside(from, n)) return INVALID_VALUE;
    memcpy(to, (void *)from, n);
    return OK;
}
Result cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *stream) {
    ALONE;
    if (!inside(to, n) || stream != (void *)32) return INVALID_VALUE;
    Work *w = ask(COPY);
    w->to = (void *)to, w->bytes = n, w->from = w->owned = memcpy(malloc(n + 1), from, n);
    return OK;
}
Result cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *stream) {
    ALONE;
    if (!inside(from, n) || stream != (void *)32) return INVALID_VALUE;
    Work *w = ask(COPY);
    w->to = to, w->bytes = n, w->from = (void *)from;
    return OK;
}
Result cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void *stream) {
    ALONE;
    if (!inside(to, n) || !inside(from, n) || stream != (void *)32) return INVALID_VALUE;
    Work *w = ask(COPY);
    w->to = (void *)to, w->bytes = n, w->from = (void *)from;
    return OK;
}
Result cuMemsetD8Async(uint64_t to, unsigned char value, size_t n, void *stream) {
    ALONE;
    if (!inside(to, n) || value || stream != (void *)32) return INVALID_VALUE;
    Work *w = ask(FILL);
    w->to = (void *)to, w->bytes = n;
    return OK;
}
Result cuLaunchKernel(const Kernel *k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, void *stream, void **arguments, void **extra) {
    ALONE;
    if (!gx || gy != 1 || gz != 1 || !bx || bx > 1024 || by != 1 || bz != 1 || extra || stream != (void *)32) return INVALID_VALUE;
    if (shared > 227 << 10) return INVALID_VALUE;
    Work *w = ask(LAUNCH);
    w->kernel = k, w->threads = (int64_t)gx * bx;
    for (int i = 0; i < k->buffers + k->params + 1; i++) memcpy(&w->arguments[i], arguments[i], 8);
    return OK;
}
