// Every function, and every mistake that can be detected. Arguments: two_layers.sdx, decoder.sdx
//
// y[b] = 4 (4 x + 3) where all eight x of a row are x.

#include "check.c"
#include <pthread.h>
#include <stdlib.h>

static void models(const char *path, const char *decoder) {
    sdx_model *model = NULL;
    sdx_load_options options;
    const sdx_port *port;
    const sdx_symbol *symbol;
    sdx_call_bytes bytes;
    const char *names[1] = {"batch"};
    int64_t sizes[1] = {3};

    memset(&options, 0, sizeof options);
    options.struct_bytes = sizeof options;
    REFUSED(sdx_model_load(NULL, NULL, &model), "E0001", "`path` is null");
    REFUSED(sdx_model_load(path, NULL, NULL), "E0001", "`model` is null");
    REFUSED(sdx_model_load("\xff", NULL, &model), "E0001", "not UTF-8");
    REFUSED(sdx_model_load("nowhere.sdx", NULL, &model), "E0002", "nowhere.sdx");
    options.verify = 7;
    REFUSED(sdx_model_load(path, &options, &model), "E0001", "verify");
    options.verify = 1;
    options.device = "gpu:0";
    REFUSED(sdx_model_load(path, &options, &model), "E0001", "gpu:0");
    options.device = "cpu";
    options.struct_bytes = 3;
    REFUSED(sdx_model_load(path, &options, &model), "E0001", "`struct_bytes` of `sdx_load_options` is 3");
    options.struct_bytes = sizeof options;
    REFUSED(sdx_model_load(path, (const sdx_load_options *)((const char *)&options + 1), &model), "E0001", "aligned");
    options.verify = 1;
    REFUSED(sdx_model_load(path, &options, &model), "E0001", "stands for the weights too");
    EXPECT(model == NULL);
    options.trust = 1;
    WORKS(sdx_model_load(decoder, &options, &model));
    EXPECT(sdx_model_entry_count(model) == 2 && strcmp(sdx_model_entry_name(model, 1), "decode") == 0);
    EXPECT(sdx_model_entry_name(model, 2) == NULL && sdx_model_input(model, 1, 2) == NULL);
    port = sdx_model_output(model, 1, 0);
    EXPECT(strcmp(port->name, "present") == 0 && port->dtype == SDX_F32 && port->rank == 3 && port->is_state == 1);
    EXPECT(strcmp(port->dims[1], "past + seq") == 0 && strcmp(port->dims[2], "4") == 0);
    symbol = sdx_model_symbol(model, 1, 0);
    EXPECT(strcmp(symbol->name, "batch") == 0 && symbol->lo == 0 && symbol->hi == 1000 && symbol->is_data == 0);
    EXPECT(sdx_model_symbol(model, 1, 1)->hi == -1);
    sdx_model_free(model);

    options.verify = 0;
    options.trust = 0;
    REFUSED(sdx_model_load(path, &options, &model), "E0409", "and the caller trusts nothing");
    options.pin = "0123";
    REFUSED(sdx_model_load(path, &options, &model), "E0001", "\"0123\" is not the seal of an artifact");
    options.pin = "0000000000000000000000000000000000000000000000000000000000000000";
    REFUSED(sdx_model_load(path, &options, &model), "E0409", "that is not the pinned one");
    options.pin = NULL;
    options.key = "no key";
    REFUSED(sdx_model_load(path, &options, &model), "E0001", "is not a public key of Ed25519");
    options.key = NULL;
    options.trust = 1;
    options.copied = 1;
    WORKS(sdx_model_load(path, &options, &model));
    memset(&bytes, 0, sizeof bytes);
    bytes.struct_bytes = sizeof bytes;
    WORKS(sdx_model_call_bytes(model, NULL, names, sizes, 1, &bytes));
    EXPECT(bytes.is_exact == 1 && bytes.is_bounded == 1 && bytes.outputs == 12 && bytes.arena == 256 && bytes.struct_bytes == sizeof bytes);
    REFUSED(sdx_model_call_bytes(model, "none", names, sizes, 1, &bytes), "E0301", "no entry point `none`");
    REFUSED(sdx_model_call_bytes(model, NULL, NULL, sizes, 1, &bytes), "E0001", "`names` is null");
    REFUSED(sdx_model_call_bytes(model, NULL, names, sizes, 1, NULL), "E0001", "`sdx_call_bytes` is null");
    sdx_model_free(model);

    // NULL is nobody's handle, and frees nothing.
    sdx_model_free(NULL);
    sdx_session_free(NULL);
    sdx_cache_free(NULL);
    sdx_cancel_free(NULL);
    sdx_outputs_free(NULL);
    sdx_error_free(NULL);
    EXPECT(sdx_model_entry_count(NULL) == 0 && sdx_outputs_count(NULL) == 0);
    EXPECT(sdx_error_code(NULL) == NULL && sdx_error_kind(NULL) == 0);
}

static int n_released = 0;

static void release(void *user) {
    free(user);
    n_released++;
}

static void from_bytes(const char *path) {
    sdx_model *model = NULL;
    FILE *file = fopen(path, "rb");
    char *copy;
    size_t n = 0;
    void *all = malloc(1 << 20);
    if (file == NULL || all == NULL) exit(2);
    n = fread(all, 1, 1 << 20, file);
    fclose(file);
    copy = (char *)malloc(n);
    memcpy(copy, all, n);
    WORKS(sdx_model_from_bytes(all, n, NULL, NULL, NULL, &trusting, &model));
    free(all);
    sdx_model_free(model);
    WORKS(sdx_model_from_bytes(copy, n, release, copy, "a model", &trusting, &model));
    EXPECT(n_released <= 1);
    sdx_model_free(model);
    EXPECT(n_released == 1);
    copy = (char *)calloc(1, 100);
    REFUSED(sdx_model_from_bytes(copy, 100, release, copy, "a model", NULL, &model), "E0401", "not an artifact");
    EXPECT(n_released == 2 && model == NULL);
    REFUSED(sdx_model_from_bytes(NULL, 5, NULL, NULL, NULL, NULL, &model), "E0001", "`data` is null");
    REFUSED(sdx_model_from_bytes(NULL, 0, NULL, NULL, NULL, NULL, &model), "E0401", "short");
}

static void errors(const char *path) {
    sdx_model *model = NULL;
    sdx_session *session = NULL, *none = NULL;
    sdx_session_options options;
    sdx_call call = call_of(NULL, 0);
    sdx_error *error;
    memset(&options, 0, sizeof options);
    options.struct_bytes = sizeof options;
    WORKS(sdx_model_load(path, &trusting, &model));
    options.threads = 100000;
    REFUSED(sdx_session_new(model, &options, &session), "E0001", "at most 1024");
    REFUSED(sdx_session_new(NULL, NULL, &session), "E0001", "`sdx_model` is null");
    WORKS(sdx_session_new(model, NULL, &session));
    REFUSED(sdx_session_new((const sdx_model *)(const void *)session, NULL, &none), "E0001", "to no sdx_model");
    EXPECT(none == NULL);
    error = sdx_run(session, &call, NULL);
    EXPECT(sdx_error_kind(error) == SDX_KIND_INPUT && sdx_error_exit_status(error) == 2);
    EXPECT(strcmp(sdx_error_message(error), "the input `x` is missing") == 0);
    EXPECT(strcmp(sdx_error_help(error), "the model's inputs are `x`") == 0);
    EXPECT(strcmp(sdx_error_file(error), path) == 0 && sdx_error_node(error) == NULL);
    EXPECT(strncmp(sdx_error_text(error), "error[E0301]: the input `x` is missing\n  --> ", 40) == 0);
    sdx_error_free(error);
    sdx_session_free(session);
    sdx_model_free(model);
}

static void calls(const char *path) {
    sdx_model *model = NULL;
    sdx_session *session = NULL;
    sdx_session_options options;
    sdx_outputs *outputs = NULL;
    sdx_cancel *cancel = NULL;
    float x[25] = {0}, y[5] = {-1, -1, -1, -1, -1};
    size_t dims[2] = {3, 8}, huge[2] = {(size_t)-1, 8}, y_dims[1] = {0};
    sdx_tensor in = input("x", dims, 2, x, 24), bad, out;
    sdx_buffer buffer;
    sdx_call call = call_of(&in, 1);
    const char *wanted[1] = {"z"};
    struct {
        sdx_call call;
        size_t more;
    } longer;
    size_t i;
    for (i = 0; i < 25; i++) x[i] = 0.5f;
    memset(&options, 0, sizeof options);
    options.struct_bytes = sizeof options;
    options.threads = 2;
    WORKS(sdx_model_load(path, &trusting, &model));
    WORKS(sdx_session_new(model, &options, &session));
    // A model that is freed lives on in its sessions.
    sdx_model_free(model);

    // The library's outputs, by number and by name.
    WORKS(sdx_run(session, &call, &outputs));
    memset(&out, 0, sizeof out);
    out.struct_bytes = sizeof out;
    EXPECT(sdx_outputs_count(outputs) == 1);
    WORKS(sdx_outputs_at(outputs, 0, &out));
    EXPECT(strcmp(out.name, "y") == 0 && out.rank == 1 && out.dims[0] == 3 && out.bytes == 12);
    EXPECT(((const float *)out.data)[2] == 20 && (size_t)out.data % 64 == 0);
    WORKS(sdx_outputs_find(outputs, "y", &out));
    REFUSED(sdx_outputs_at(outputs, 1, &out), "E0001", "no output 1");
    REFUSED(sdx_outputs_find(outputs, "z", &out), "E0001", "`z`");
    REFUSED(sdx_outputs_find(outputs, "y", NULL), "E0001", "`sdx_tensor` is null");
    sdx_outputs_free(outputs);

    // The caller's.
    memset(&buffer, 0, sizeof buffer);
    buffer.struct_bytes = sizeof buffer;
    buffer.name = "y";
    buffer.dtype = SDX_F32;
    buffer.rank = 1;
    buffer.dims = y_dims;
    buffer.data = y;
    buffer.bytes = sizeof y;
    call.buffers = &buffer;
    call.n_buffers = 1;
    WORKS(sdx_run(session, &call, NULL));
    EXPECT(y[0] == 20 && y[2] == 20 && y[3] == -1 && y_dims[0] == 3 && buffer.rank == 1);
    buffer.rank = 0;
    y[0] = 5;
    REFUSED(sdx_run(session, &call, NULL), "E0001", "`dims` has room for 0");
    /* Nothing has been computed: a cache would have stayed as it was. */
    EXPECT(y[0] == 5);
    buffer.rank = 1;
    buffer.bytes = 8;
    REFUSED(sdx_run(session, &call, NULL), "E0301", "12 bytes");
    buffer.data = x;
    buffer.bytes = sizeof x;
    REFUSED(sdx_run(session, &call, NULL), "E0001", "overlaps");
    buffer.data = NULL;
    REFUSED(sdx_run(session, &call, NULL), "E0001", "`sdx_buffer.data` is null");
    buffer.data = y;
    buffer.bytes = (size_t)-1;
    REFUSED(sdx_run(session, &call, NULL), "E0001", "cannot have");
    buffer.bytes = sizeof y;
    buffer.dtype = SDX_I64;
    REFUSED(sdx_run(session, &call, NULL), "E0301", "i64");
    buffer.dtype = SDX_STRING;
    REFUSED(sdx_run(session, &call, NULL), "E0001", "string");
    call.n_buffers = 0;

    // Inputs that do not fit.
    call.inputs = &bad;
    bad = in;
    bad.name = "nobody";
    REFUSED(sdx_run(session, &call, NULL), "E0301", "no input `nobody`");
    bad = in;
    bad.name = NULL;
    REFUSED(sdx_run(session, &call, NULL), "E0001", "`sdx_tensor.name` is null");
    bad = in;
    bad.bytes = 92;
    REFUSED(sdx_run(session, &call, NULL), "E0302", "96 bytes, but 92");
    bad = in;
    bad.dims = huge;
    REFUSED(sdx_run(session, &call, NULL), "E0202", "size");
    bad = in;
    bad.dims = NULL;
    REFUSED(sdx_run(session, &call, NULL), "E0001", "`sdx_tensor.dims` is null");
    bad = in;
    bad.data = NULL;
    REFUSED(sdx_run(session, &call, NULL), "E0001", "`sdx_tensor.data` is null");
    bad = in;
    bad.rank = 1000000;
    REFUSED(sdx_run(session, &call, NULL), "E0001", "1000000 dimensions");
    bad = in;
    bad.dtype = 99;
    REFUSED(sdx_run(session, &call, NULL), "E0001", "99 is no element type");
    bad = in;
    bad.struct_bytes = 0;
    REFUSED(sdx_run(session, &call, NULL), "E0001", "`struct_bytes` of `sdx_tensor` is 0");
    bad.struct_bytes = (size_t)-1;
    REFUSED(sdx_run(session, &call, NULL), "E0001", "`struct_bytes` of `sdx_tensor`");
    // Data that is not aligned is copied.
    bad = in;
    bad.data = (const char *)x + 1;
    memmove((char *)x + 1, x, 96);
    WORKS(sdx_run(session, &call, &outputs));
    WORKS(sdx_outputs_at(outputs, 0, &out));
    EXPECT(((const float *)out.data)[0] == 20);
    sdx_outputs_free(outputs);
    for (i = 0; i < 25; i++) x[i] = 0.5f;
    call.inputs = &in;
    call.n_inputs = (size_t)-1;
    REFUSED(sdx_run(session, &call, NULL), "E0001", "are no array");
    call.n_inputs = 1;

    // What is asked for, when, and by whom.
    call.outputs = wanted;
    call.n_outputs = 1;
    REFUSED(sdx_run(session, &call, &outputs), "E0301", "no output `z`");
    call.n_outputs = 0;
    WORKS(sdx_run(session, &call, &outputs));
    EXPECT(sdx_outputs_count(outputs) == 0);
    sdx_outputs_free(outputs);
    call.outputs = NULL;
    call.timeout_ns = 1;
    REFUSED(sdx_run(session, &call, &outputs), "E0305", "deadline");
    call.timeout_ns = 0;
    WORKS(sdx_cancel_new(&cancel));
    call.cancel = cancel;
    WORKS(sdx_run(session, &call, NULL));
    sdx_cancel_set(cancel, 1);
    REFUSED(sdx_run(session, &call, NULL), "E0306", "cancelled");
    sdx_cancel_set(cancel, 0);
    WORKS(sdx_run(session, &call, NULL));
    call.cancel = (const sdx_cancel *)(const void *)session;
    REFUSED(sdx_run(session, &call, NULL), "E0001", "to no sdx_cancel");
    sdx_cancel_free(cancel);
    call.cancel = NULL;
    REFUSED(sdx_run(NULL, &call, NULL), "E0001", "`sdx_session` is null");
    REFUSED(sdx_run(session, NULL, NULL), "E0001", "`sdx_call` is null");
    call.entry = "nowhere";
    REFUSED(sdx_run(session, &call, NULL), "E0301", "no entry point `nowhere`");
    call.entry = NULL;

    // A program that is newer than the library: fields that it does not use do no harm.
    longer.call = call;
    longer.call.struct_bytes = sizeof longer;
    longer.more = 0;
    WORKS(sdx_run(session, &longer.call, NULL));
    longer.more = 1;
    REFUSED(sdx_run(session, &longer.call, NULL), "E0402", "`sdx_call` has a field");
    sdx_session_free(session);
}

static void caches(const char *path) {
    sdx_model *model = NULL;
    sdx_session *session = NULL;
    sdx_cache *cache = NULL;
    sdx_outputs *outputs = NULL;
    float x[4] = {1, 2, 3, 4};
    size_t dims[3] = {1, 1, 4}, len = 9;
    sdx_tensor in = input("x", dims, 3, x, 4), out;
    sdx_call call = call_of(&in, 1);
    memset(&out, 0, sizeof out);
    out.struct_bytes = sizeof out;
    WORKS(sdx_model_load(path, &trusting, &model));
    WORKS(sdx_session_new(model, NULL, &session));
    REFUSED(sdx_cache_new(session, "none", 2, &cache), "E0301", "no entry point");
    REFUSED(sdx_cache_new(session, "decode", (size_t)-1, &cache), "E0301", "room");
    WORKS(sdx_cache_new(session, "decode", 2, &cache));
    call.cache = cache;
    call.entry = "prefill";
    WORKS(sdx_run(session, &call, &outputs));
    EXPECT(sdx_outputs_count(outputs) == 1);
    sdx_outputs_free(outputs);
    call.entry = "decode";
    WORKS(sdx_run(session, &call, NULL));
    WORKS(sdx_cache_len(cache, &len));
    EXPECT(len == 2);
    REFUSED(sdx_cache_len(cache, NULL), "E0001", "`len`");
    REFUSED(sdx_run(session, &call, NULL), "E0307", "room");
    WORKS(sdx_cache_copy(cache, "present", &outputs));
    WORKS(sdx_outputs_find(outputs, "present", &out));
    EXPECT(out.dims[1] == 2 && ((const float *)out.data)[4] == 3);
    sdx_outputs_free(outputs);
    REFUSED(sdx_cache_copy(cache, "y", &outputs), "E0301", "`y`");
    WORKS(sdx_cache_truncate(cache, 1));
    WORKS(sdx_run(session, &call, NULL));
    sdx_model_free(model);
    sdx_session_free(session);
    sdx_cache_free(cache);
}

// What two threads share.
struct shared {
    sdx_session *session, *decoder;
    sdx_cache *cache;
    int n_wrong[2], n_busy[2];
};

struct worker {
    struct shared *shared;
    int number;
};

// The calls of a session take turns; a cache that is in use is refused.
static void *work(void *argument) {
    struct worker *worker = (struct worker *)argument;
    struct shared *shared = worker->shared;
    int at = worker->number;
    float x[24] = {0}, y[3], one[4] = {1, 2, 3, 4};
    size_t dims[2] = {3, 8}, one_dims[3] = {1, 1, 4};
    sdx_tensor in = input("x", dims, 2, x, 24), first = input("x", one_dims, 3, one, 4);
    sdx_buffer buffer;
    sdx_call call = call_of(&in, 1), append = call_of(&first, 1);
    int i;
    for (i = 0; i < 24; i++) x[i] = (float)at;
    memset(&buffer, 0, sizeof buffer);
    buffer.struct_bytes = sizeof buffer;
    buffer.name = "y";
    buffer.dtype = SDX_F32;
    buffer.data = y;
    buffer.bytes = sizeof y;
    call.buffers = &buffer;
    call.n_buffers = 1;
    append.entry = "prefill";
    append.cache = shared->cache;
    for (i = 0; i < 500; i++) {
        sdx_error *error = sdx_run(shared->session, &call, NULL);
        shared->n_wrong[at] += error != NULL || y[2] != (float)(4 * (4 * at + 3));
        sdx_error_free(error);
        error = sdx_run(shared->decoder, &append, NULL);
        if (error == NULL) error = sdx_cache_truncate(shared->cache, 0);
        if (error == NULL) continue;
        // It was in use, or the other thread had not emptied it.
        shared->n_busy[at]++;
        shared->n_wrong[at] += sdx_error_kind(error) != SDX_KIND_INPUT;
        sdx_error_free(error);
    }
    return NULL;
}

static void threads(const char *path, const char *decoder) {
    sdx_model *models[2] = {NULL, NULL};
    struct shared shared;
    struct worker workers[2];
    pthread_t started[2];
    int i;
    memset(&shared, 0, sizeof shared);
    WORKS(sdx_model_load(path, &trusting, &models[0]));
    WORKS(sdx_model_load(decoder, &trusting, &models[1]));
    WORKS(sdx_session_new(models[0], NULL, &shared.session));
    WORKS(sdx_session_new(models[1], NULL, &shared.decoder));
    WORKS(sdx_cache_new(shared.decoder, "decode", 2, &shared.cache));
    for (i = 0; i < 2; i++) {
        workers[i].shared = &shared;
        workers[i].number = i;
        if (pthread_create(&started[i], NULL, work, &workers[i]) != 0) exit(2);
    }
    for (i = 0; i < 2; i++) pthread_join(started[i], NULL);
    EXPECT(shared.n_wrong[0] == 0 && shared.n_wrong[1] == 0);
    EXPECT(shared.n_busy[0] + shared.n_busy[1] < 1000);
    for (i = 0; i < 2; i++) sdx_model_free(models[i]);
    sdx_cache_free(shared.cache);
    sdx_session_free(shared.session);
    sdx_session_free(shared.decoder);
}

struct answers {
    pthread_mutex_t lock;
    int n_right, n_expired, n_other;
};

// The answer to a call whose x are all 2, with a time or without.
static void answered(void *user, sdx_error *error, sdx_outputs *outputs) {
    struct answers *answers = (struct answers *)user;
    sdx_tensor y;
    memset(&y, 0, sizeof y);
    y.struct_bytes = sizeof y;
    pthread_mutex_lock(&answers->lock);
    if (error == NULL && sdx_outputs_find(outputs, "y", &y) == NULL && ((const float *)y.data)[2] == 44) {
        answers->n_right++;
    } else if (sdx_error_kind(error) == SDX_KIND_DEADLINE) {
        answers->n_expired++;
    } else {
        answers->n_other++;
    }
    pthread_mutex_unlock(&answers->lock);
    sdx_error_free(error);
    sdx_outputs_free(outputs);
}

static void pools(const char *path) {
    sdx_model *model = NULL;
    sdx_pool *pool = NULL;
    sdx_pool_options options;
    sdx_pool_statistics counts;
    struct answers answers;
    float x[24] = {0}, y[3];
    size_t dims[2] = {3, 8}, bytes = 0;
    sdx_tensor in = input("x", dims, 2, x, 24);
    sdx_buffer buffer;
    sdx_call call = call_of(&in, 1);
    int i, n_full = 0;
    memset(&answers, 0, sizeof answers);
    memset(&options, 0, sizeof options);
    memset(&counts, 0, sizeof counts);
    memset(&buffer, 0, sizeof buffer);
    pthread_mutex_init(&answers.lock, NULL);
    WORKS(sdx_model_load(path, &trusting, &model));
    options.struct_bytes = sizeof options;
    options.sessions = 2000;
    REFUSED(sdx_pool_new(model, &options, &pool), "E0001", "2000 sessions");
    REFUSED(sdx_pool_new(NULL, NULL, &pool), "E0001", "`sdx_model` is null");
    options.sessions = 2;
    options.waiting_max = 1000;
    WORKS(sdx_pool_new(model, &options, &pool));
    sdx_model_free(model);
    for (i = 0; i < 600; i++) {
        int k;
        for (k = 0; k < 24; k++) x[k] = 2;
        // Every third is late before it begins.
        call.timeout_ns = i % 3 == 0 ? 1 : 0;
        WORKS(sdx_pool_submit(pool, &call, answered, &answers));
        // Inputs have been copied.
        for (k = 0; k < 24; k++) x[k] = 7;
    }
    call.timeout_ns = 0;
    REFUSED(sdx_pool_submit(pool, &call, NULL, NULL), "E0001", "`done` is null");
    buffer.struct_bytes = sizeof buffer;
    buffer.name = "y";
    buffer.dtype = SDX_F32;
    buffer.data = y;
    buffer.bytes = sizeof y;
    call.buffers = &buffer;
    call.n_buffers = 1;
    REFUSED(sdx_pool_submit(pool, &call, answered, &answers), "E0001", "neither buffers nor a cache");
    call.n_buffers = 0;
    WORKS(sdx_pool_finish(pool));
    EXPECT(answers.n_right == 400 && answers.n_expired == 200 && answers.n_other == 0);
    REFUSED(sdx_pool_submit(pool, &call, answered, &answers), "E0309", "");
    counts.struct_bytes = sizeof counts;
    WORKS(sdx_pool_statistics_get(pool, &counts));
    EXPECT(counts.served + counts.expired == 600 && counts.waiting + counts.running + counts.cancelled == 0);
    EXPECT(counts.refused == 1);
    WORKS(sdx_pool_trim(pool, &bytes));
    WORKS(sdx_pool_trim(pool, NULL));
    EXPECT(bytes > 0);
    REFUSED(sdx_pool_trim(NULL, NULL), "E0001", "`sdx_pool` is null");
    sdx_pool_free(pool);
    sdx_pool_free(NULL);

    // More than may wait are refused; what was accepted is answered when the pool is freed.
    options.sessions = 1;
    options.waiting_max = 1;
    WORKS(sdx_model_load(path, &trusting, &model));
    WORKS(sdx_pool_new(model, &options, &pool));
    memset(&answers.n_right, 0, 3 * sizeof answers.n_right);
    for (i = 0; i < 200; i++) {
        sdx_error *error = sdx_pool_submit(pool, &call, answered, &answers);
        n_full += error != NULL && sdx_error_kind(error) == SDX_KIND_QUEUE_FULL;
        sdx_error_free(error);
    }
    sdx_pool_free(pool);
    EXPECT(answers.n_right + answers.n_other + answers.n_expired + n_full == 200);
    sdx_model_free(model);
    pthread_mutex_destroy(&answers.lock);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    EXPECT(sdx_version()[0] != 0 && sdx_abi_version() == 0);
    models(argv[1], argv[2]);
    from_bytes(argv[1]);
    errors(argv[1]);
    calls(argv[1]);
    caches(argv[2]);
    threads(argv[1], argv[2]);
    pools(argv[1]);
    printf("%d failed\n", n_failed);
    return n_failed == 0 ? 0 : 1;
}
