// NCCL for tests on machines without GPUs: ranks are threads of one process, what they exchange lies in memory of the host.
// It begins, never waits, and works when a stream of driver.c does. Built as libnccl.so.2 beside libcuda.so.
// $SARDONYX_TEST_NCCL is a folder: every call is a line in `calls`, and `fault` may have `stall RANK` or `error RANK`.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Result;
enum { OK = 0, INVALID = 4, REMOTE = 6, IN_PROGRESS = 7 };
enum { RANKS = 16, OPS = 4096 };
typedef struct Stream Stream;
int standin_enqueue(Stream *, int (*)(void *), void *);

typedef struct { int n, joined; struct { int arrived; void *brought[RANKS]; } ops[OPS]; } World;
typedef struct { World *world; int rank, aborted, said; unsigned next; } Comm;
typedef struct { char bytes[128]; } Id;
typedef struct { size_t size; unsigned magic, version; int blocking; } Config;
typedef enum { REDUCE, GATHER, BROADCAST } Kind;
typedef struct { Comm *comm; Kind kind; const void *from; void *to; size_t count; int type, f, root, came; unsigned at; } Op;

static World worlds[256];
static int n_worlds = 1;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void unlock(int *held) { (void)held, pthread_mutex_unlock(&mutex); }
#define ALONE int alone __attribute__((cleanup(unlock), unused)) = pthread_mutex_lock(&mutex)

static FILE *file(const char *name, const char *mode) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("SARDONYX_TEST_NCCL"), name);
    return fopen(path, mode);
}
static void tell(int rank, const char *call) {
    FILE *f = file("calls", "a");
    if (f) fprintf(f, "%d %s\n", rank, call), fclose(f);
}
static int fault(const char *kind, int rank) {
    char found[16] = "";
    int whose = -1;
    FILE *f = file("fault", "r");
    if (f) fscanf(f, "%15s %d", found, &whose), fclose(f);
    return !strcmp(found, kind) && whose == rank;
}

Result ncclGetVersion(int *version) { *version = 22403; return OK; }
const char *ncclGetErrorString(Result e) { return e == REMOTE ? "a remote rank is gone" : "refused by the test's library"; }
Result ncclGetUniqueId(Id *id) {
    ALONE;
    memset(id, 0, sizeof *id);
    memcpy(id, &n_worlds, sizeof n_worlds);
    n_worlds++;
    tell(0, "GetUniqueId");
    return OK;
}
Result ncclCommInitRankConfig(Comm **comm, int n, Id id, int rank, Config *config) {
    ALONE;
    int at;
    memcpy(&at, &id, sizeof at);
    if (config->magic != 0xcafebeef || config->version / 100 < 217 || config->blocking != 0) return INVALID;
    if (at < 1 || at >= n_worlds || rank >= n || n > RANKS) return INVALID;
    World *world = &worlds[at];
    world->n = n, world->joined++;
    *comm = calloc(1, sizeof **comm);
    (*comm)->world = world, (*comm)->rank = rank;
    tell(rank, "CommInitRankConfig");
    return IN_PROGRESS;
}
Result ncclCommAbort(Comm *comm) { ALONE; comm->aborted = 1; tell(comm->rank, "CommAbort"); return OK; }
Result ncclCommGetAsyncError(Comm *comm, Result *error) {
    ALONE;
    *error = comm->world->joined < comm->world->n ? IN_PROGRESS : fault("error", comm->rank) ? REMOTE : OK;
    // A call that has begun needs another look.
    if (comm->said) comm->said = 0, *error = *error ? *error : IN_PROGRESS;
    return OK;
}
static __thread int depth;
Result ncclGroupStart(void) { depth++; return OK; }
Result ncclGroupEnd(void) { return depth-- > 0 ? OK : INVALID; }

static size_t width(int type) { return (size_t[]){1, 1, 4, 4, 8, 8, 2, 4, 8, 2}[type]; }

static int combine(const Op *o, void *into, const void *from) {
    for (size_t i = 0; i < o->count; i++) {
        if (o->type == 7 && o->f == 0) ((float *)into)[i] += ((const float *)from)[i];
        else if (o->type == 4 && o->f == 0) ((int64_t *)into)[i] += ((const int64_t *)from)[i];
        else if (o->type == 4 && o->f == 2) { if (((int64_t *)into)[i] < ((const int64_t *)from)[i]) ((int64_t *)into)[i] = ((const int64_t *)from)[i]; }
        else return 0;
    }
    return 1;
}

static int step(void *state) {
    Op *o = state;
    ALONE;
    World *w = o->comm->world;
    if (o->comm->aborted) return 1;
    if (fault("stall", o->comm->rank)) return 0;
    size_t bytes = o->count * width(o->type);
    if (!o->came && (o->kind != BROADCAST || o->root == o->comm->rank))
        w->ops[o->at].brought[o->comm->rank] = memcpy(malloc(bytes + 1), o->from, bytes);
    if (!o->came) o->came = 1, w->ops[o->at].arrived++;
    if (w->ops[o->at].arrived < w->n) return 0;
    void **brought = w->ops[o->at].brought;
    if (o->kind == BROADCAST) memcpy(o->to, brought[o->root], bytes);
    if (o->kind == GATHER) for (int r = 0; r < w->n; r++) memcpy((char *)o->to + r * bytes, brought[r], bytes);
    if (o->kind == REDUCE) {
        memcpy(o->to, brought[0], bytes);
        for (int r = 1; r < w->n; r++) if (!combine(o, o->to, brought[r])) abort();
    }
    return 1;
}

static Result begin(const char *name, Op op, Stream *stream) {
    Op *o = malloc(sizeof op);
    {
        ALONE;
        Comm *comm = op.comm;
        tell(comm->rank, name);
        if (comm->aborted || comm->world->joined < comm->world->n || comm->next == OPS) return free(o), INVALID;
        op.at = comm->next++, comm->said = 1;
        *o = op;
    }
    return standin_enqueue(stream, step, o) ? INVALID : IN_PROGRESS;
}
Result ncclAllReduce(const void *from, void *to, size_t count, int type, int f, Comm *comm, Stream *stream) {
    return begin("AllReduce", (Op){comm, REDUCE, from, to, count, type, f, 0, 0, 0}, stream);
}
Result ncclAllGather(const void *from, void *to, size_t count, int type, Comm *comm, Stream *stream) {
    return begin("AllGather", (Op){comm, GATHER, from, to, count, type, 0, 0, 0, 0}, stream);
}
Result ncclBroadcast(const void *from, void *to, size_t count, int type, int root, Comm *comm, Stream *stream) {
    return depth ? begin("Broadcast", (Op){comm, BROADCAST, from, to, count, type, 0, root, 0, 0}, stream) : INVALID;
}
