// A CUDA driver for tests on machines without one: memory is the host's, kernels are those of kernels.c, and work is
// done only when it is waited for, so that whoever forgets to wait sees stale memory. Built as libcuda.so.
// Its functions may be called from every thread, one at a time.
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define V gpu
#define LEVEL 80
#include "kernels.c"

// Held until the function ends that says so.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int lock(void) { return pthread_mutex_lock(&mutex); }
static void unlock(int *held) { (void)held, pthread_mutex_unlock(&mutex); }
#define ALONE int alone __attribute__((cleanup(unlock), unused)) = lock()

typedef int Result;
enum { OK = 0, INVALID_VALUE = 1, CAPTURE_UNSUPPORTED = 900, OUT_OF_MEMORY = 2, INVALID_PTX = 218, ILLEGAL_ADDRESS = 700, NOT_FOUND = 500, NOT_READY = 600 };

typedef struct { const char *name; void (*run)(const Args *); int buffers, params; } Kernel;
static const Kernel KERNELS[] = {
    {"affine", affine_gpu, 2, 1}, {"rowdot", rowdot_gpu, 3, 2}, {"gather", gather_gpu, 3, 2},
    {"positive", positive_gpu, 3, 2}, {"carry", carry_gpu, 2, 5}, {"append", append_gpu, 2, 5}, {"total", total_gpu, 2, 4},
};

// What tests count: work that was submitted, and waits.
enum { SUBMITTED, GRAPHS, WAITS, RECORDED, ALLOCATED, KINDS };
static long counts[KINDS];
long standin_count(int what) { return counts[what]; }

// What a stream has been asked for and not been waited for. A step of another library is asked until it is done.
typedef struct { void *context; double seconds; int is_recorded; } Event;
typedef struct Work { struct Work *next; enum { COPY, FILL, LAUNCH, STEP, MARK } kind; void *to; const void *from; size_t bytes;
    void *owned; const Kernel *kernel; uint64_t arguments[16]; int64_t threads; int (*step)(void *); Event *event; } Work;
// While a stream records, what it is asked for goes to the graph.
typedef struct Graph { Work *first, **last; void *context; } Graph;
typedef struct Stream { struct Stream *next; void *context; Work *first, **last; Graph *recorded; } Stream;
static Stream *streams;

// Each thread has someone else's context, and must have it again in the end.
#define OTHERS ((void *)4)
static __thread void *stack[8] = {OTHERS};
static __thread int depth;
#define current stack[depth]
static pthread_key_t ended;
static void check_end(void *unused) { (void)unused; if (current != OTHERS) abort(); }
__attribute__((constructor)) static void watch(void) { pthread_key_create(&ended, check_end); }

static Work *ask(Stream *stream, int kind) {
    Work *w = calloc(1, sizeof *w);
    w->kind = kind;
    Work ***last = stream->recorded ? &stream->recorded->last : &stream->last;
    counts[stream->recorded ? RECORDED : SUBMITTED]++;
    **last = w;
    *last = &w->next;
    return w;
}

static int known(Stream *stream) {
    for (Stream *s = streams; s; s = s->next)
        if (s == stream) return s->context == current;
    return 0;
}

static void launch(const Work *w) {
    static uint8_t scratch[1 << 16] __attribute__((aligned(64)));
    const Kernel *k = w->kernel;
    int64_t items = (int64_t)w->arguments[k->buffers + k->params - 1];
    Args a = {1, k->buffers, (uint8_t *const *)w->arguments, (const int64_t *)w->arguments + k->buffers, scratch, 0,
              items < w->threads ? items : w->threads, (int64_t *)w->arguments[k->buffers + k->params]};
    k->run(&a);
}

// As far as it goes; whether that is all.
static int progress(Stream *stream) {
    while (stream->first) {
        Work *w = stream->first;
        if (w->kind == STEP && !w->step(w->owned)) return 0;
        if (w->kind == COPY) memmove(w->to, w->from, w->bytes);
        if (w->kind == FILL) memset(w->to, 0, w->bytes);
        if (w->kind == LAUNCH) launch(w);
        if (w->kind == MARK) {
            struct timespec now;
            clock_gettime(CLOCK_MONOTONIC, &now);
            w->event->seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9, w->event->is_recorded = 1;
        }
        stream->first = w->next;
        if (!stream->first) stream->last = &stream->first;
        free(w->owned);
        free(w);
    }
    return 1;
}

static void wait(Stream *stream) {
    while (!progress(stream)) {
        pthread_mutex_unlock(&mutex);
        sched_yield();
        pthread_mutex_lock(&mutex);
    }
}

static void wait_all(void) {
    for (Stream *s = streams; s; s = s->next)
        if (s->context == current) wait(s);
}

// For the other library: the state is freed when the step is done.
int standin_enqueue(Stream *stream, int (*step)(void *), void *state) {
    ALONE;
    if (!known(stream)) return 1;
    Work *w = ask(stream, STEP);
    w->step = step, w->owned = state;
    return 0;
}

// Allocations, so that every range is known to be within one; of the GPU, and page-locked ones of the host.
typedef struct { uint64_t start; size_t bytes; } Range;
static Range ranges[1024], locked[64];

static int is_locked(const void *start, size_t bytes) {
    uint64_t at = (uint64_t)(uintptr_t)start;
    for (int i = 0; i < 64; i++)
        if (locked[i].start && at >= locked[i].start && at - locked[i].start + bytes <= locked[i].bytes) return 1;
    return 0;
}

static int inside(uint64_t start, size_t bytes) {
    for (int i = 0; i < 1024; i++)
        if (ranges[i].start && start >= ranges[i].start && start - ranges[i].start + bytes <= ranges[i].bytes) return 1;
    return bytes == 0;
}

Result cuInit(unsigned flags) { return flags; }
// As many as the variable says.
static int gpus(void) { return getenv("SARDONYX_TEST_GPUS") ? atoi(getenv("SARDONYX_TEST_GPUS")) : 1; }
Result cuDeviceGetCount(int *n) { *n = gpus(); return OK; }
Result cuDeviceGet(int *gpu, int n) { *gpu = n; return n < gpus() ? OK : INVALID_VALUE; }
Result cuDeviceGetName(char *name, int bytes, int gpu) { snprintf(name, bytes, "stand-in %d", gpu); return OK; }
Result cuDriverGetVersion(int *version) { *version = 12040; return OK; }
Result cuDeviceGetUuid_v2(char *id, int gpu) { memset(id, 1 + gpu, 16); return OK; }
Result cuDevicePrimaryCtxRetain(void **context, int gpu) { *context = (void *)(8 + 8ll * gpu); return OK; }
Result cuDevicePrimaryCtxRelease_v2(int gpu) { return gpu < gpus() ? OK : INVALID_VALUE; }
Result cuCtxGetCurrent(void **context) { *context = current; return OK; }
Result cuCtxPushCurrent_v2(void *context) {
    pthread_setspecific(ended, OTHERS);
    if (!context || depth == 7) return INVALID_VALUE;
    stack[++depth] = context;
    return OK;
}
Result cuCtxPopCurrent_v2(void **context) {
    if (!depth) return INVALID_VALUE;
    *context = stack[depth--];
    return OK;
}
// Contexts of callers: the second of GPU 0, and so on.
Result cuCtxCreate_v2(void **context, unsigned flags, int gpu) {
    *context = (void *)(0x1000 + 8ll * gpu);
    return flags || gpu >= gpus() ? INVALID_VALUE : cuCtxPushCurrent_v2(*context);
}
Result cuCtxDestroy_v2(void *context) {
    for (Stream *s = streams; s; s = s->next)
        if (s->context == context) return INVALID_VALUE;
    if (current == context) depth--;
    return OK;
}
Result cuCtxGetDevice(int *gpu) {
    uint64_t at = (uint64_t)(uintptr_t)current;
    *gpu = (int)((at & 0xfff) / 8) - (at < 0x1000);
    return current == OTHERS ? INVALID_VALUE : OK;
}
// Of sm_90: 75 is the major number, 76 the minor one.
Result cuDeviceGetAttribute(int *value, int which, int gpu) { *value = which == 75 ? 9 : 0; return gpu < gpus() ? OK : INVALID_VALUE; }
Result cuGetErrorString(Result e, const char **text) { *text = e == OUT_OF_MEMORY ? "out of memory" : "refused by the test's driver"; return OK; }

Result cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    ALONE;
    if (!bytes) return INVALID_VALUE;
    if (bytes > 1 << 28) return OUT_OF_MEMORY;
    for (int i = 0; i < 1024; i++)
        if (!ranges[i].start) {
            ranges[i].start = *address = (uint64_t)(uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
            ranges[i].bytes = bytes;
            counts[ALLOCATED]++;
            memset((void *)ranges[i].start, 0x5a, bytes);
            return OK;
        }
    return OUT_OF_MEMORY;
}
Result cuMemGetInfo_v2(size_t *free, size_t *total) { *free = 1 << 28, *total = 1 << 30; return OK; }
Result cuMemFree_v2(uint64_t address) {
    ALONE;
    wait_all();
    for (int i = 0; i < 1024; i++)
        if (ranges[i].start == address) { free((void *)address); ranges[i].start = 0; return OK; }
    return INVALID_VALUE;
}

Result cuMemHostAlloc(void **start, size_t bytes, unsigned flags) {
    ALONE;
    if (!bytes || flags || current == OTHERS) return INVALID_VALUE;
    for (int i = 0; i < 64; i++)
        if (!locked[i].start) {
            *start = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
            locked[i].start = (uint64_t)(uintptr_t)*start, locked[i].bytes = bytes;
            memset(*start, 0xa5, bytes);
            return OK;
        }
    return OUT_OF_MEMORY;
}
Result cuMemFreeHost(void *start) {
    ALONE;
    wait_all();
    for (int i = 0; i < 64; i++)
        if (start && locked[i].start == (uint64_t)(uintptr_t)start) { free(start); locked[i].start = 0; return OK; }
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

Result cuStreamCreate(Stream **stream, unsigned flags) {
    ALONE;
    *stream = calloc(1, sizeof **stream);
    (*stream)->last = &(*stream)->first, (*stream)->context = current, (*stream)->next = streams;
    streams = *stream;
    return flags == 1 ? OK : INVALID_VALUE;
}
Result cuStreamDestroy_v2(Stream *stream) {
    ALONE;
    if (!known(stream)) return INVALID_VALUE;
    wait(stream);
    Stream **at = &streams;
    while (*at != stream) at = &(*at)->next;
    *at = stream->next;
    free(stream);
    return OK;
}
// The default streams belong to every context; nothing is ever enqueued on them.
static int is_default(Stream *stream) { return (uintptr_t)stream == 1 || (uintptr_t)stream == 2; }
Result cuStreamGetCtx(Stream *stream, void **context) {
    ALONE;
    if (is_default(stream)) { *context = current; return OK; }
    for (Stream *s = streams; s; s = s->next)
        if (s == stream) { *context = s->context; return OK; }
    return INVALID_VALUE;
}
Result cuStreamSynchronize(Stream *stream) {
    ALONE;
    if (is_default(stream)) return OK;
    if (!known(stream)) return INVALID_VALUE;
    if (stream->recorded) return CAPTURE_UNSUPPORTED;
    counts[WAITS]++;
    // Where a kernel is to have gone astray: what was asked for is never done.
    for (Work *w = stream->first; w && getenv("SARDONYX_TEST_LOST"); w = w->next)
        if (w->kind == LAUNCH) { stream->last = &stream->first; stream->first = 0; return ILLEGAL_ADDRESS; }
    wait(stream);
    return OK;
}
Result cuStreamQuery(Stream *stream) {
    ALONE;
    if (!known(stream)) return INVALID_VALUE;
    if (stream->recorded) return CAPTURE_UNSUPPORTED;
    return progress(stream) ? OK : NOT_READY;
}

Result cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, Stream *stream) {
    ALONE;
    if (!inside(to, n) || !known(stream)) return INVALID_VALUE;
    // The GPU reads page-locked memory when it comes to the copy, other memory is read at once.
    if (is_locked(from, n)) {
        Work *w = ask(stream, COPY);
        w->to = (void *)to, w->bytes = n, w->from = from;
        return OK;
    }
    if (stream->recorded) return INVALID_VALUE;
    Work *w = ask(stream, COPY);
    w->to = (void *)to, w->bytes = n, w->from = w->owned = memcpy(malloc(n + 1), from, n);
    return OK;
}
Result cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, Stream *stream) {
    ALONE;
    if (!inside(from, n) || !known(stream) || (stream->recorded && !is_locked(to, n))) return INVALID_VALUE;
    Work *w = ask(stream, COPY);
    w->to = to, w->bytes = n, w->from = (void *)from;
    return OK;
}
Result cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, Stream *stream) {
    ALONE;
    if (!inside(to, n) || !inside(from, n) || !known(stream)) return INVALID_VALUE;
    Work *w = ask(stream, COPY);
    w->to = (void *)to, w->bytes = n, w->from = (void *)from;
    return OK;
}
// The caller's own, which wait.
Result cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t n) {
    ALONE;
    if (!inside(to, n) || current == OTHERS) return INVALID_VALUE;
    return memcpy((void *)to, from, n), OK;
}
Result cuMemcpyDtoH_v2(void *to, uint64_t from, size_t n) {
    ALONE;
    if (!inside(from, n) || current == OTHERS) return INVALID_VALUE;
    return memcpy(to, (void *)from, n), OK;
}
// What the driver is told of a copy of rows, in its order; 2 is the memory of a GPU.
typedef struct { size_t x; size_t y; unsigned kind; const void *host; uint64_t address; void *array; size_t pitch; } Side;
typedef struct { Side from, to; size_t width, height; } Rows;
Result cuMemcpy2DAsync_v2(const Rows *r, Stream *stream) {
    ALONE;
    if (!known(stream) || r->from.kind != 2 || r->to.kind != 2 || r->from.x || r->to.y) return INVALID_VALUE;
    if (r->width > r->from.pitch || r->width > r->to.pitch) return INVALID_VALUE;
    for (size_t i = 0; i < r->height; i++) {
        uint64_t from = r->from.address + i * r->from.pitch, to = r->to.address + i * r->to.pitch;
        if (!inside(from, r->width) || !inside(to, r->width)) return INVALID_VALUE;
        Work *w = ask(stream, COPY);
        w->to = (void *)to, w->bytes = r->width, w->from = (void *)from;
    }
    return OK;
}
Result cuMemsetD8Async(uint64_t to, unsigned char value, size_t n, Stream *stream) {
    ALONE;
    if (!inside(to, n) || value || !known(stream)) return INVALID_VALUE;
    Work *w = ask(stream, FILL);
    w->to = (void *)to, w->bytes = n;
    return OK;
}
Result cuLaunchKernel(const Kernel *k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, Stream *stream, void **arguments, void **extra) {
    ALONE;
    if (!gx || gy != 1 || gz != 1 || !bx || bx > 1024 || by != 1 || bz != 1 || extra || !known(stream)) return INVALID_VALUE;
    if (shared > 227 << 10) return INVALID_VALUE;
    Work *w = ask(stream, LAUNCH);
    w->kernel = k, w->threads = (int64_t)gx * bx;
    for (int i = 0; i < k->buffers + k->params + 1; i++) memcpy(&w->arguments[i], arguments[i], 8);
    return OK;
}

// 2 is the mode in which other threads and streams are not restricted.
Result cuStreamBeginCapture_v2(Stream *stream, unsigned mode) {
    ALONE;
    if (!known(stream) || stream->recorded || mode != 2) return INVALID_VALUE;
    stream->recorded = calloc(1, sizeof(Graph));
    stream->recorded->last = &stream->recorded->first, stream->recorded->context = current;
    return OK;
}
Result cuStreamEndCapture(Stream *stream, Graph **graph) {
    ALONE;
    if (!known(stream) || !stream->recorded) return INVALID_VALUE;
    *graph = stream->recorded, stream->recorded = 0;
    return OK;
}
static void repeat(const Work *first, Work ***last) {
    for (; first; first = first->next) {
        Work *w = malloc(sizeof *w);
        *w = *first, w->next = 0;
        **last = w, *last = &w->next;
    }
}
Result cuGraphInstantiateWithFlags(Graph **exec, const Graph *graph, unsigned long long flags) {
    ALONE;
    if (flags || !graph->first) return INVALID_VALUE;
    *exec = calloc(1, sizeof(Graph));
    (*exec)->last = &(*exec)->first, (*exec)->context = graph->context;
    repeat(graph->first, &(*exec)->last);
    return OK;
}
static Result drop_graph(Graph *graph) {
    ALONE;
    if (graph->context != current) return INVALID_VALUE;
    for (Work *w = graph->first, *next; w; w = next) next = w->next, free(w);
    free(graph);
    return OK;
}
Result cuGraphDestroy(Graph *graph) { return drop_graph(graph); }
Result cuGraphExecDestroy(Graph *exec) { return drop_graph(exec); }
Result cuGraphLaunch(const Graph *exec, Stream *stream) {
    ALONE;
    if (!known(stream) || exec->context != current || stream->recorded) return INVALID_VALUE;
    counts[GRAPHS]++;
    repeat(exec->first, &stream->last);
    return OK;
}

Result cuEventCreate(Event **event, unsigned flags) {
    *event = calloc(1, sizeof **event);
    (*event)->context = current;
    return flags || current == OTHERS ? INVALID_VALUE : OK;
}
Result cuEventDestroy_v2(Event *event) { free(event); return OK; }
// 1 means that each launch of the graph records the event.
Result cuEventRecordWithFlags(Event *event, Stream *stream, unsigned flags) {
    ALONE;
    if (!known(stream) || event->context != current || flags != (stream->recorded != 0)) return INVALID_VALUE;
    ask(stream, MARK)->event = event;
    return OK;
}
Result cuEventElapsedTime(float *ms, const Event *start, const Event *end) {
    *ms = (float)((end->seconds - start->seconds) * 1e3);
    return start->is_recorded && end->is_recorded ? OK : NOT_READY;
}
