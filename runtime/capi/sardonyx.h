#ifndef SARDONYX_H
#define SARDONYX_H

#include <stddef.h>
#include <stdint.h>

// The runtime of Sardonyx for C and C++.
//
// A model is loaded from an artifact (`sardonyx compile MODEL.onnx -o MODEL.sdx`) and run by sessions:
//
//     sdx_model *model = NULL;
//     sdx_error *error = sdx_model_load("model.sdx", NULL, &model);
//     if (error != NULL) { fprintf(stderr, "%s\n", sdx_error_text(error)); sdx_error_free(error); return 1; }
//
// `examples/embed.c` is a whole program.
//
// Errors. What can fail returns NULL, or an error that the caller frees. Where it fails, nothing is written through pointers
// to results but the caller's own buffers, whose content is then undefined. No function unwinds; a defect inside is E0901.
//
// Structs begin with `struct_bytes`, which the caller sets to `sizeof` the struct. Fields beyond it count as 0, so that a
// program goes on working with a library whose structs have grown; a field that the library does not know must be 0.
// Structs that the library returns pointers to may grow at their ends.
//
// Handles are made and freed by this library; freeing NULL does nothing. A model, its sessions and its caches may be freed
// in any order. Models, sessions, pools and cancel flags may be used by several threads at once: the calls of one session take
// turns, so give each thread a session of its own, or all of them a pool. A cache that a call is using is refused to others (E0301).
//
// Wrong arguments are errors: NULL where something is needed, handles of another type, misaligned structs, text that is
// not UTF-8, sizes that do not follow from each other, buffers that overlap. What cannot be detected is undefined:
// handles that were freed, pointers to less memory than is said, memory that is changed during a call.
//
// An artifact holds native code: load only what you would also execute.

// An option or an argument is wrong.
#define SDX_KIND_USAGE 1

// A file cannot be read or written.
#define SDX_KIND_FILE 2

// The model cannot be compiled.
#define SDX_KIND_MODEL 3

// The tensors of a call do not fit the model, or their values do not fit each other.
#define SDX_KIND_INPUT 4

// Memory or threads cannot be had, or would exceed a limit.
#define SDX_KIND_RESOURCES 5

// The time of a call is over. The session can be used as before.
#define SDX_KIND_DEADLINE 6

// A call was cancelled. The session can be used as before.
#define SDX_KIND_CANCELLED 7

// A cache has no room for more positions.
#define SDX_KIND_CACHE_FULL 8

// The artifact is damaged, or computes wrongly.
#define SDX_KIND_ARTIFACT 9

// The artifact, or a struct, is of another version.
#define SDX_KIND_VERSION 10

// The device or the processor is not there, lacks something, or failed.
#define SDX_KIND_DEVICE 11

// Other ranks are missing, too many, or failed.
#define SDX_KIND_RANKS 12

// A comparison failed.
#define SDX_KIND_CHECK 13

// A defect of the library.
#define SDX_KIND_DEFECT 14

// A pool of sessions has as many requests waiting as it admits.
#define SDX_KIND_QUEUE_FULL 15

// A pool of sessions takes no more requests.
#define SDX_KIND_CLOSED 16

// Element types, by ONNX's numbers. An element of 2 or 4 bits takes a byte.
#define SDX_F32 1

#define SDX_U8 2

#define SDX_I8 3

#define SDX_U16 4

#define SDX_I16 5

#define SDX_I32 6

#define SDX_I64 7

#define SDX_STRING 8

#define SDX_BOOL 9

#define SDX_F16 10

#define SDX_F64 11

#define SDX_U32 12

#define SDX_U64 13

#define SDX_BF16 16

// Room for the states of a model.
typedef struct sdx_cache sdx_cache;

// Cancels the calls that it is given to.
typedef struct sdx_cancel sdx_cancel;

// Why a call failed.
typedef struct sdx_error sdx_error;

// A loaded, verified artifact, shared by its sessions.
typedef struct sdx_model sdx_model;

// Tensors that a call returned.
typedef struct sdx_outputs sdx_outputs;

// A fixed number of sessions, which share a queue.
typedef struct sdx_pool sdx_pool;

// Runs one call at a time.
typedef struct sdx_session sdx_session;

// An input, which the library only reads; or an output that belongs to the library.
typedef struct sdx_tensor {
  size_t struct_bytes;
  const char *name;
  // `SDX_F32` …
  int32_t dtype;
  uint32_t rank;
  // So many as `rank` says.
  const size_t *dims;
  // In row-major order. An input that is aligned to its element is read in place, another is copied.
  const void *data;
  // The number of bytes of `data`, which `dtype` and `dims` say too.
  size_t bytes;
} sdx_tensor;

// Memory of the caller for an output.
typedef struct sdx_buffer {
  size_t struct_bytes;
  const char *name;
  int32_t dtype;
  // Before a call: how many dimensions `dims` has room for. Afterwards: how many the output has.
  uint32_t rank;
  // Room for the dimensions of the output; NULL where nobody needs them.
  size_t *dims;
  // Room for the output, in row-major order. It is written in place where it is aligned to its element.
  void *data;
  // The number of bytes of `data`, at least as many as the output has.
  size_t bytes;
} sdx_buffer;

// A call. What is 0 or NULL is left out.
typedef struct sdx_call {
  size_t struct_bytes;
  // NULL for `main`.
  const char *entry;
  const struct sdx_tensor *inputs;
  size_t n_inputs;
  // Outputs that go to memory of the caller.
  struct sdx_buffer *buffers;
  size_t n_buffers;
  // Names of the outputs that the call returns beside those; NULL for all.
  const char *const *outputs;
  size_t n_outputs;
  // Holds the states of the entry point, which are neither inputs nor outputs then; the call appends to it.
  struct sdx_cache *cache;
  // E0305 when so much time has passed; waiting for another call of the session counts. 0 for no limit.
  uint64_t timeout_ns;
  // E0306 when it is set.
  const struct sdx_cancel *cancel;
} sdx_call;

// All zeros are the default.
typedef struct sdx_load_options {
  size_t struct_bytes;
  // `cpu`, `cuda:0` …; NULL for `cpu`.
  const char *device;
  // The weights whose hash is compared at load: 0 all of them, 1 none, 2 nor the rest of the file.
  int32_t verify;
  // Other than 0: the artifact's own test is left out.
  int32_t no_selftest;
  // Other than 0: the file is trusted whatever it is. Its code is executed and can do all that the process can. Without
  // this, `pin` or `key` says what may be loaded.
  int32_t trust;
  // The seal of the artifact, 64 hexadecimal digits as `sardonyx inspect` prints them, or NULL.
  const char *pin;
  // The public key of Ed25519 that has signed it, as PEM or 64 hexadecimal digits, or NULL.
  const char *key;
  // Other than 0: the file is read into memory, and not mapped.
  int32_t copied;
} sdx_load_options;

// An input or an output of an entry point. Strings live as long as the model.
typedef struct sdx_port {
  const char *name;
  // `SDX_F32` …
  int32_t dtype;
  uint32_t rank;
  // Expressions of symbols and numbers: `batch`, `past + seq`, `384`.
  const char *const *dims;
  // 1 where a cache can hold it from call to call.
  int32_t is_state;
} sdx_port;

// A dimension that is open.
typedef struct sdx_symbol {
  const char *name;
  // The smallest and the largest value that a call may have; `hi` is -1 where there is none.
  int64_t lo;
  int64_t hi;
  // 1 where it follows from the values of the inputs, and is known when a call ends.
  int32_t is_data;
} sdx_symbol;

// Bytes that a call takes beside the weights.
typedef struct sdx_call_bytes {
  size_t struct_bytes;
  // 1 where a call takes just this, 0 where it takes at most this, as sizes are read from data.
  int32_t is_exact;
  // 0 where nothing bounds what a call takes; the other fields are 0 then.
  int32_t is_bounded;
  size_t arena;
  size_t outputs;
  // Results of the host between launches.
  size_t made;
  size_t scratch_per_thread;
} sdx_call_bytes;

// All zeros are the default.
typedef struct sdx_pool_options {
  size_t struct_bytes;
  // Each runs one call at a time; 0 for as many as the processors that this process may use allow.
  size_t sessions;
  // Calls that may wait while every session is busy; 0 for 128.
  size_t waiting_max;
  // Threads of each session; 0 is 1.
  size_t threads;
  // Bytes that each call may take, as in `sdx_session_options`; 0 for no limit.
  size_t memory_bytes_max;
} sdx_pool_options;

// Counts at one moment. Every call that was ever submitted is in one of them; those of `served` that failed are in `failed` too.
typedef struct sdx_pool_statistics {
  size_t struct_bytes;
  uint64_t waiting;
  uint64_t running;
  uint64_t served;
  uint64_t failed;
  // Not accepted, because as many waited as may, or after `sdx_pool_finish`.
  uint64_t refused;
  // Not computed, because their time was over while they waited.
  uint64_t expired;
  // Not computed, because they were cancelled while they waited.
  uint64_t cancelled;
} sdx_pool_statistics;

// All zeros are the default.
typedef struct sdx_session_options {
  size_t struct_bytes;
  // The caller's thread is one of them. 0 is 1, which never starts another.
  size_t threads;
  // Bytes that a call may take for intermediate values, scratch, outputs and its cache together; 0 for no limit.
  size_t memory_bytes_max;
  // Other than 0: each thread but the caller's stays on a processor of its own.
  int32_t pinned;
} sdx_session_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library: `0.1.0`.
const char *sdx_version(void);

// The version of this interface. Another one has another soname; what is only added does not change it.
uint32_t sdx_abi_version(void);

// An empty cache for `capacity` positions, for any session of the model and any entry point with these states. `entry`
// may be NULL for `main`.
struct sdx_error *sdx_cache_new(const struct sdx_session *session,
                                const char *entry,
                                size_t capacity,
                                struct sdx_cache **cache);

// Positions that are filled.
struct sdx_error *sdx_cache_len(const struct sdx_cache *cache, size_t *len);

// Forgets the positions from `len` on; 0 forgets all, and the next call may have another batch.
struct sdx_error *sdx_cache_truncate(const struct sdx_cache *cache, size_t len);

// A copy of the filled positions of a state, by the name of its input or its output.
struct sdx_error *sdx_cache_copy(const struct sdx_cache *cache, const char *name, struct sdx_outputs **outputs);

void sdx_cache_free(struct sdx_cache *cache);

// Runs an entry point. The outputs without a buffer go to `outputs`, which the caller frees; where that is NULL, only
// buffers are written.
struct sdx_error *sdx_run(const struct sdx_session *session, const struct sdx_call *call, struct sdx_outputs **outputs);

// `E0301`: stable. Strings of an error live as long as it does.
const char *sdx_error_code(const struct sdx_error *error);

// One of `SDX_KIND_…`; further ones may come, and 0 stands for those that this header lacks.
int32_t sdx_error_kind(const struct sdx_error *error);

const char *sdx_error_message(const struct sdx_error *error);

// The file that it is about; NULL where there is none.
const char *sdx_error_file(const struct sdx_error *error);

// The ONNX node that it is about; NULL where there is none.
const char *sdx_error_node(const struct sdx_error *error);

// A remedy; NULL where nobody knows one.
const char *sdx_error_help(const struct sdx_error *error);

// All parts, as the commands print them, in several lines.
const char *sdx_error_text(const struct sdx_error *error);

// The exit code for a program: 1 where a comparison failed, 2 where an input is at fault, 3 for a defect.
int32_t sdx_error_exit_status(const struct sdx_error *error);

void sdx_error_free(struct sdx_error *error);

// Loads a file, which must not be changed in place while it is loaded unless it is copied. `options` say what is trusted.
struct sdx_error *sdx_model_load(const char *path,
                                 const struct sdx_load_options *options,
                                 struct sdx_model **model);

// Loads the bytes of a file. With `release` they are used in place, and `release(user)` is called, by any thread, when
// nobody needs them any more, which may be before this function returns; without it they are copied. `name` stands for
// the file in messages; it and `options` may be NULL.
struct sdx_error *sdx_model_from_bytes(const void *data,
                                       size_t bytes,
                                       void (*release)(void *user),
                                       void *user,
                                       const char *name,
                                       const struct sdx_load_options *options,
                                       struct sdx_model **model);

// The sessions and caches of the model live on.
void sdx_model_free(struct sdx_model *model);

// The number of entry points.
size_t sdx_model_entry_count(const struct sdx_model *model);

// The name of one of them, `main` first; NULL where there are not so many.
const char *sdx_model_entry_name(const struct sdx_model *model, size_t index);

// An input of an entry point; NULL where there are not so many.
const struct sdx_port *sdx_model_input(const struct sdx_model *model, size_t entry_index, size_t index);

// An output of an entry point; NULL where there are not so many.
const struct sdx_port *sdx_model_output(const struct sdx_model *model, size_t entry_index, size_t index);

// A symbol in the dimensions of an entry point; NULL where there are not so many.
const struct sdx_symbol *sdx_model_symbol(const struct sdx_model *model, size_t entry_index, size_t index);

// The bytes that a call takes where `n` symbols of its inputs have these sizes; fills in `call`, whose `struct_bytes` the
// caller has set. `entry` may be NULL for `main`.
struct sdx_error *sdx_model_call_bytes(const struct sdx_model *model,
                                       const char *entry,
                                       const char *const *names,
                                       const int64_t *sizes,
                                       size_t n,
                                       struct sdx_call_bytes *call);

// `options` may be NULL.
struct sdx_error *sdx_pool_new(const struct sdx_model *model,
                               const struct sdx_pool_options *options,
                               struct sdx_pool **pool);

// Accepts a call and returns at once. `done` is called once, by a thread of the pool, with an error or with outputs, the other
// being NULL; it frees what it gets, should be short, and must not unwind. Inputs are copied before this function returns, and time in the queue
// is part of `timeout_ns`. The call has neither buffers nor a cache. Where the call is not accepted, the error says why (E0308:
// too many wait), and `done` is not called.
struct sdx_error *sdx_pool_submit(const struct sdx_pool *pool,
                                  const struct sdx_call *call,
                                  void (*done)(void *user, struct sdx_error *error, struct sdx_outputs *outputs),
                                  void *user);

// Fills in `statistics`, whose `struct_bytes` the caller has set.
struct sdx_error *sdx_pool_statistics_get(const struct sdx_pool *pool, struct sdx_pool_statistics *statistics);

// Gives the memory of idle sessions back to the system; the next call of each takes it anew. `bytes` may be NULL.
struct sdx_error *sdx_pool_trim(const struct sdx_pool *pool, size_t *bytes);

// Refuses calls from now on, and returns when all that were accepted are computed and answered. Not from `done`.
struct sdx_error *sdx_pool_finish(const struct sdx_pool *pool);

// Calls that run end as usual, those that wait are answered with E0309; all are answered when this returns.
void sdx_pool_free(struct sdx_pool *pool);

// `options` may be NULL.
struct sdx_error *sdx_session_new(const struct sdx_model *model,
                                  const struct sdx_session_options *options,
                                  struct sdx_session **session);

// Gives the memory of an idle session back to the system; the next call takes it anew. `bytes` may be NULL.
struct sdx_error *sdx_session_trim(const struct sdx_session *session, size_t *bytes);

void sdx_session_free(struct sdx_session *session);

struct sdx_error *sdx_cancel_new(struct sdx_cancel **cancel);

// From any thread. Other than 0: calls that it was given to end with E0306, those to come too; 0: no longer.
void sdx_cancel_set(const struct sdx_cancel *cancel, int32_t cancelled);

// Calls that it was given to go on.
void sdx_cancel_free(struct sdx_cancel *cancel);

// The number of them.
size_t sdx_outputs_count(const struct sdx_outputs *outputs);

// Fills in `tensor`, whose `struct_bytes` the caller has set. What it points to lives until the outputs are freed.
struct sdx_error *sdx_outputs_at(const struct sdx_outputs *outputs, size_t index, struct sdx_tensor *tensor);

// The same by the name of the output.
struct sdx_error *sdx_outputs_find(const struct sdx_outputs *outputs, const char *name, struct sdx_tensor *tensor);

void sdx_outputs_free(struct sdx_outputs *outputs);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SARDONYX_H */
