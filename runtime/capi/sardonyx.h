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

// The tensors of a call do not match the model, or contradict each other.
#define SDX_KIND_INPUT 4

// Memory or threads are not available, or would exceed a limit.
#define SDX_KIND_RESOURCES 5

// The call took longer than its time limit. The session can still be used.
#define SDX_KIND_DEADLINE 6

// The call was cancelled. The session can still be used.
#define SDX_KIND_CANCELLED 7

// A cache has no capacity for more positions.
#define SDX_KIND_CACHE_FULL 8

// The artifact is damaged, or computes wrong results.
#define SDX_KIND_ARTIFACT 9

// The artifact or a struct has another version.
#define SDX_KIND_VERSION 10

// The device or the processor is missing, lacks a feature, or failed.
#define SDX_KIND_DEVICE 11

// Some ranks are missing or failed, or there are too many.
#define SDX_KIND_RANKS 12

// A comparison failed.
#define SDX_KIND_CHECK 13

// A defect in the library.
#define SDX_KIND_DEFECT 14

// The queue of a session pool is full.
#define SDX_KIND_QUEUE_FULL 15

// A session pool no longer accepts requests.
#define SDX_KIND_CLOSED 16

// Element types, numbered as in ONNX. An element of 2 or 4 bits occupies one byte.
#define SDX_F32 1

// Unsigned integer of 8 bits.
#define SDX_U8 2

// Signed integer of 8 bits.
#define SDX_I8 3

// Unsigned integer of 16 bits.
#define SDX_U16 4

// Signed integer of 16 bits.
#define SDX_I16 5

// Signed integer of 32 bits.
#define SDX_I32 6

// Signed integer of 64 bits.
#define SDX_I64 7

// Strings, only in returned outputs: n + 1 `uint64_t` offsets into the text that follows them.
#define SDX_STRING 8

// Boolean of one byte: 0 or 1.
#define SDX_BOOL 9

// IEEE 754 binary16.
#define SDX_F16 10

// IEEE 754 binary64 (`double`).
#define SDX_F64 11

// Unsigned integer of 32 bits.
#define SDX_U32 12

// Unsigned integer of 64 bits.
#define SDX_U64 13

// bfloat16: the upper half of an `SDX_F32`.
#define SDX_BF16 16

// The states of a model (such as keys and values), kept between calls.
typedef struct sdx_cache sdx_cache;

// A flag that cancels the calls it is passed to.
typedef struct sdx_cancel sdx_cancel;

// Why a call failed.
typedef struct sdx_error sdx_error;

// A loaded, verified artifact, shared by its sessions.
typedef struct sdx_model sdx_model;

// The tensors returned by a call.
typedef struct sdx_outputs sdx_outputs;

// A fixed number of sessions that share a queue.
typedef struct sdx_pool sdx_pool;

// A session of a model, which runs one call at a time.
typedef struct sdx_session sdx_session;

// An input, which the library only reads, or an output that the library owns.
typedef struct sdx_tensor {
  // `sizeof(sdx_tensor)`, set by the caller.
  size_t struct_bytes;
  // Name of the input or the output.
  const char *name;
  // `SDX_F32` …
  int32_t dtype;
  // Number of dimensions, at most 64; 0 for a scalar.
  uint32_t rank;
  // An array of `rank` sizes.
  const size_t *dims;
  // The elements in row-major order. An input aligned for its element type is read in place; otherwise it is copied.
  const void *data;
  // Size of `data` in bytes; must match `dtype` and `dims`.
  size_t bytes;
  // If nonzero, `data` is an address (`CUdeviceptr`) in the memory of the GPU and the context that the model was loaded
  // in; it is copied within the GPU if it is not aligned to 16 bytes. Work that writes it has been waited for, or is on
  // the session's `cuda_stream`. Booleans are 0 or 1, and elements of 2 or 4 bits are extended to their byte.
  int32_t on_device;
} sdx_tensor;

// Memory of the caller for an output.
typedef struct sdx_buffer {
  // `sizeof(sdx_buffer)`, set by the caller.
  size_t struct_bytes;
  // Name of the output.
  const char *name;
  // Element type, `SDX_F32` …; a call fails with E0301 if it is not that of the output.
  int32_t dtype;
  // Before a call, the capacity of `dims`; afterwards, the rank of the output.
  uint32_t rank;
  // Receives the dimensions of the output; may be NULL.
  size_t *dims;
  // Receives the elements in row-major order. Written in place if it is aligned for the element type.
  void *data;
  // Size of `data` in bytes; at least the size of the output.
  size_t bytes;
  // If nonzero, `data` is an address (`CUdeviceptr`) in the memory of the model's GPU, as in `sdx_tensor`. In a call with
  // inputs or buffers in the GPU's memory, no buffer is in the host's.
  int32_t on_device;
} sdx_buffer;

// The arguments of a call. Fields that are 0 or NULL are not used.
typedef struct sdx_call {
  // `sizeof(sdx_call)`, set by the caller.
  size_t struct_bytes;
  // Name of the entry point; NULL for `main`.
  const char *entry;
  // Array of the inputs, in any order.
  const struct sdx_tensor *inputs;
  // Length of `inputs`.
  size_t n_inputs;
  // Memory of the caller to which outputs are written.
  struct sdx_buffer *buffers;
  // Length of `buffers`.
  size_t n_buffers;
  // Names of the outputs to return in addition to those with a buffer; NULL for all.
  const char *const *outputs;
  // Length of `outputs`; ignored if `outputs` is NULL.
  size_t n_outputs;
  // Holds the states of the entry point, which are then neither inputs nor outputs. The call appends its positions.
  struct sdx_cache *cache;
  // The call fails with E0305 after this time, which includes waiting for another call of the session. 0 for no
  // limit.
  uint64_t timeout_ns;
  // The call fails with E0306 once this flag is set.
  const struct sdx_cancel *cancel;
} sdx_call;

// Options of loading a model. All zeros are the defaults.
typedef struct sdx_load_options {
  // `sizeof(sdx_load_options)`, set by the caller.
  size_t struct_bytes;
  // `cpu`, `cuda:0` …; NULL for `cpu`.
  const char *device;
  // How much is hashed and compared at load: 0 the whole file, 1 all but the weights, 2 nothing.
  int32_t verify;
  // If nonzero, the artifact's self-test is skipped.
  int32_t no_selftest;
  // If nonzero, any file is trusted: its code is executed and can do all that the process can. If 0, `pin` or `key`
  // determines what may be loaded.
  int32_t trust;
  // The seal of the artifact: 64 hexadecimal digits as printed by `sardonyx inspect`, or NULL.
  const char *pin;
  // The Ed25519 public key that must have signed the artifact, as PEM or 64 hexadecimal digits, or NULL.
  const char *key;
  // If nonzero, the file is read into memory instead of mapped.
  int32_t copied;
  // The context (`CUcontext`) of the GPU that `device` names, which remains until the model and everything made from
  // it is freed; NULL for the GPU's primary context, which the CUDA runtime uses too.
  void *cuda_context;
} sdx_load_options;

// An input or an output of an entry point. Its strings live as long as the model.
typedef struct sdx_port {
  // Name by which a call passes the input or returns the output.
  const char *name;
  // `SDX_F32` …
  int32_t dtype;
  // Length of `dims`; 0 for a scalar.
  uint32_t rank;
  // Expressions of symbols and numbers, such as `batch`, `past + seq` or `384`.
  const char *const *dims;
  // 1 if a cache can hold this value between calls.
  int32_t is_state;
} sdx_port;

// A symbolic dimension: its size may differ between calls.
typedef struct sdx_symbol {
  // Name that occurs in the dimensions of the ports.
  const char *name;
  // The smallest size that a call may have.
  int64_t lo;
  // The largest size that a call may have; -1 if there is no maximum.
  int64_t hi;
  // 1 if the size depends on the values of the inputs, so that it is known only at the end of a call.
  int32_t is_data;
} sdx_symbol;

// Memory that a call needs in addition to the weights, in bytes.
typedef struct sdx_call_bytes {
  // `sizeof(sdx_call_bytes)`, set by the caller.
  size_t struct_bytes;
  // 1 if a call needs exactly this much; 0 if this is an upper bound, because some sizes are read from data.
  int32_t is_exact;
  // 0 if no upper bound is known; the other fields are 0 then.
  int32_t is_bounded;
  // Arena for the intermediate values.
  size_t arena;
  // Sizes of all outputs together.
  size_t outputs;
  // Results that host operations produce between launches.
  size_t made;
  // Scratch memory of each thread of the session.
  size_t scratch_per_thread;
} sdx_call_bytes;

// Options of a session pool. All zeros are the defaults.
typedef struct sdx_pool_options {
  // `sizeof(sdx_pool_options)`, set by the caller.
  size_t struct_bytes;
  // Number of sessions, each of which runs one call at a time; 0 for as many as the available processors allow.
  size_t sessions;
  // Maximum number of calls that wait while every session is busy; 0 for 128.
  size_t waiting_max;
  // Threads of each session; 0 for 1.
  size_t threads;
  // Maximum memory of a call in bytes, as in `sdx_session_options`; 0 for no limit.
  size_t memory_bytes_max;
} sdx_pool_options;

// A snapshot of counters. Each submitted call is counted once, except that failed calls are in `served` and `failed`.
typedef struct sdx_pool_statistics {
  // `sizeof(sdx_pool_statistics)`, set by the caller.
  size_t struct_bytes;
  // Accepted calls that wait for a session.
  uint64_t waiting;
  // Calls that a session is running.
  uint64_t running;
  // Calls that a session has run, whether they succeeded or failed.
  uint64_t served;
  // Calls in `served` that failed.
  uint64_t failed;
  // Calls that were not accepted, because the queue was full or after `sdx_pool_finish`.
  uint64_t refused;
  // Calls that were not run, because their time limit passed while they waited.
  uint64_t expired;
  // Calls that were not run, because they were cancelled while they waited.
  uint64_t cancelled;
} sdx_pool_statistics;

// Options of a session. All zeros are the defaults.
typedef struct sdx_session_options {
  // `sizeof(sdx_session_options)`, set by the caller.
  size_t struct_bytes;
  // Number of threads, including the caller's. 0 means 1: no further thread is started.
  size_t threads;
  // Maximum memory of a call in bytes: intermediate values, scratch, outputs and its cache together; 0 for no limit.
  size_t memory_bytes_max;
  // If nonzero, each thread except the caller's is bound to its own processor.
  int32_t pinned;
  // The stream (`CUstream`) of the model's GPU that calls work on, after what the caller has enqueued there; NULL for
  // one of the session's own. It belongs to the model's context, remains until the session is freed, and is not
  // captured during calls. A call waits for it before it returns.
  void *cuda_stream;
} sdx_session_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the version of the library, for example `0.1.0`.
const char *sdx_version(void);

// Returns the version of this interface. It changes together with the soname; mere additions do not change it.
uint32_t sdx_abi_version(void);

// Creates an empty cache for `capacity` positions. It works with any session of the model, and with any entry point
// that has the same states. `entry` may be NULL for `main`.
struct sdx_error *sdx_cache_new(const struct sdx_session *session,
                                const char *entry,
                                size_t capacity,
                                struct sdx_cache **cache);

// Returns the number of filled positions.
struct sdx_error *sdx_cache_len(const struct sdx_cache *cache, size_t *len);

// Discards the positions from `len` on. After truncation to 0, the next call may have another batch size.
struct sdx_error *sdx_cache_truncate(const struct sdx_cache *cache, size_t len);

// Returns a copy of the filled positions of one state, named by its input or its output.
struct sdx_error *sdx_cache_copy(const struct sdx_cache *cache, const char *name, struct sdx_outputs **outputs);

// Frees the cache, which no call may be using. NULL does nothing.
void sdx_cache_free(struct sdx_cache *cache);

// Runs an entry point. Outputs without a buffer are returned in `outputs`, which the caller frees; if `outputs` is
// NULL, only the outputs with a buffer are written.
struct sdx_error *sdx_run(const struct sdx_session *session, const struct sdx_call *call, struct sdx_outputs **outputs);

// Returns the error code, for example `E0301`. Codes are stable. The strings of an error live as long as the error.
const char *sdx_error_code(const struct sdx_error *error);

// Returns one of `SDX_KIND_…`. Later versions may add kinds; 0 stands for a kind that this header does not have.
int32_t sdx_error_kind(const struct sdx_error *error);

// Returns the description of what is wrong, without code, file, node and help.
const char *sdx_error_message(const struct sdx_error *error);

// Returns the file that the error is about; NULL if there is none.
const char *sdx_error_file(const struct sdx_error *error);

// Returns the ONNX node that the error is about; NULL if there is none.
const char *sdx_error_node(const struct sdx_error *error);

// Returns a suggested remedy; NULL if none is known.
const char *sdx_error_help(const struct sdx_error *error);

// Returns all parts in several lines, as the commands print them.
const char *sdx_error_text(const struct sdx_error *error);

// Returns an exit code for a program: 1 if a comparison failed, 2 if an input is at fault, 3 for a defect.
int32_t sdx_error_exit_status(const struct sdx_error *error);

// Frees the error and its strings. NULL does nothing.
void sdx_error_free(struct sdx_error *error);

// Loads a file. Unless `copied` is set, the file must not be modified in place while the model exists.
struct sdx_error *sdx_model_load(const char *path, const struct sdx_load_options *options, struct sdx_model **model);

// Loads an artifact from memory. With `release`, the bytes are used in place, and `release(user)` is called on any
// thread once they are no longer needed, which may be before this function returns; without it, they are copied. Error
// messages use `name` as the file name. `name` and `options` may be NULL.
struct sdx_error *sdx_model_from_bytes(const void *data,
                                       size_t bytes,
                                       void (*release)(void *user),
                                       void *user,
                                       const char *name,
                                       const struct sdx_load_options *options,
                                       struct sdx_model **model);

// Frees the handle. Sessions and caches of the model remain valid.
void sdx_model_free(struct sdx_model *model);

// Returns the number of entry points.
size_t sdx_model_entry_count(const struct sdx_model *model);

// Returns the name of an entry point, `main` being the first; NULL if `index` is out of range.
const char *sdx_model_entry_name(const struct sdx_model *model, size_t index);

// Returns an input of an entry point; NULL if an index is out of range.
const struct sdx_port *sdx_model_input(const struct sdx_model *model, size_t entry_index, size_t index);

// Returns an output of an entry point; NULL if an index is out of range.
const struct sdx_port *sdx_model_output(const struct sdx_model *model, size_t entry_index, size_t index);

// Returns a symbol of the dimensions of an entry point; NULL if an index is out of range.
const struct sdx_symbol *sdx_model_symbol(const struct sdx_model *model, size_t entry_index, size_t index);

// Computes the memory that a call needs when the `n` symbols in `names` have the sizes in `sizes`. The result is
// written to `call`, whose `struct_bytes` the caller has set. `entry` may be NULL for `main`.
struct sdx_error *sdx_model_call_bytes(const struct sdx_model *model,
                                       const char *entry,
                                       const char *const *names,
                                       const int64_t *sizes,
                                       size_t n,
                                       struct sdx_call_bytes *call);

// Creates a session pool. `options` may be NULL.
struct sdx_error *sdx_pool_new(const struct sdx_model *model,
                               const struct sdx_pool_options *options,
                               struct sdx_pool **pool);

// Submits a call and returns at once. `done` is called exactly once, on a thread of the pool, with either an error or
// outputs; the other is NULL. `done` must free the one it gets, should be short, and must not unwind. The inputs are
// copied before this function returns. The time in the queue counts towards `timeout_ns`. The call can have neither
// buffers nor a cache nor tensors in the memory of a GPU. If the call is not accepted, the error says why (E0308: the
// queue is full), and `done` is not called.
struct sdx_error *sdx_pool_submit(const struct sdx_pool *pool,
                                  const struct sdx_call *call,
                                  void (*done)(void *user, struct sdx_error *error, struct sdx_outputs *outputs),
                                  void *user);

// Reads the counters into `statistics`, whose `struct_bytes` the caller has set.
struct sdx_error *sdx_pool_statistics_get(const struct sdx_pool *pool, struct sdx_pool_statistics *statistics);

// Releases the memory of idle sessions; their next calls allocate it again. The number of bytes is written to `bytes`,
// which may be NULL.
struct sdx_error *sdx_pool_trim(const struct sdx_pool *pool, size_t *bytes);

// Stops accepting calls, and returns once all accepted calls are finished and answered. Must not be called from
// `done`.
struct sdx_error *sdx_pool_finish(const struct sdx_pool *pool);

// Frees the pool. Running calls finish, waiting calls are answered with E0309; all are answered when this returns.
void sdx_pool_free(struct sdx_pool *pool);

// Creates a session of a model. `options` may be NULL.
struct sdx_error *sdx_session_new(const struct sdx_model *model,
                                  const struct sdx_session_options *options,
                                  struct sdx_session **session);

// Releases the memory of an idle session; the next call allocates it again. The number of bytes is written to `bytes`,
// which may be NULL.
struct sdx_error *sdx_session_trim(const struct sdx_session *session, size_t *bytes);

// Frees the session, in which no call may be running. Its model and caches remain valid. NULL does nothing.
void sdx_session_free(struct sdx_session *session);

// Creates a flag that is not set. The caller frees it with `sdx_cancel_free`.
struct sdx_error *sdx_cancel_new(struct sdx_cancel **cancel);

// Sets or clears the flag, on any thread. While it is set (nonzero), running and future calls with it fail with E0306.
void sdx_cancel_set(const struct sdx_cancel *cancel, int32_t cancelled);

// Frees the flag. Calls that it was passed to continue.
void sdx_cancel_free(struct sdx_cancel *cancel);

// Returns the number of tensors.
size_t sdx_outputs_count(const struct sdx_outputs *outputs);

// Writes the tensor at `index` to `tensor`, whose `struct_bytes` the caller has set. Its pointers are valid until the
// outputs are freed.
struct sdx_error *sdx_outputs_at(const struct sdx_outputs *outputs, size_t index, struct sdx_tensor *tensor);

// Like `sdx_outputs_at`, but finds the tensor by the name of the output.
struct sdx_error *sdx_outputs_find(const struct sdx_outputs *outputs, const char *name, struct sdx_tensor *tensor);

// Frees the tensors, and with them the memory that the structs of `sdx_outputs_at` point to. NULL does nothing.
void sdx_outputs_free(struct sdx_outputs *outputs);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SARDONYX_H */
