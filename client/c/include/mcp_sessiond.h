// mcp-sessiond: keeps an MCP server's session with a broker across restarts of the server.
//
// A server that holds a session with a broker gets a resume token from it. The daemon keeps that token, and gives it to the
// next instance of the same server under the same host, and to nobody else. Link with `pkg-config --libs mcp-sessiond`.
//
//     mcp_sessiond *sessiond;
//     mcp_sessiond_token *token;
//     mcp_sessiond_init(NULL, &sessiond);
//     if (mcp_sessiond_load(sessiond, &token) == MCP_SESSIOND_OK
//         && !broker_takes(mcp_sessiond_token_bytes(token), mcp_sessiond_token_size(token)))
//         mcp_sessiond_reject(sessiond);
//     mcp_sessiond_token_free(token);
//     mcp_sessiond_store(sessiond, issued, issued_size);
//
// No call can fail the server: without daemon, directory or identity resume is disabled, the calls say so by their result, and
// one log line says why. A call waits until it is done, at most for `timeout_ms` and a tenth of a second more.
//
// Pointers are valid for the length of the call, unless it says otherwise. Texts are UTF-8 with a NUL at the end. All functions
// may be called from any thread; not from a signal handler. The environment must not be changed (setenv) during a call.
//
// Made from the code by cbindgen: edit src/values.rs and src/ffi.rs, then `make header`.

#ifndef MCP_SESSIOND_H
#define MCP_SESSIOND_H

#include <stddef.h>
#include <stdint.h>

// The version of this header: the first number. `mcp_sessiond_version` has that of the library.
#define MCP_SESSIOND_VERSION_MAJOR 0

// The second number.
#define MCP_SESSIOND_VERSION_MINOR 1

// The third number.
#define MCP_SESSIOND_VERSION_PATCH 0

// Bytes that a token may have at most.
#define MCP_SESSIOND_TOKEN_MAX 65536

// Bytes of `mcp_sessiond_status.session`: a session id has 128 at most, and a NUL follows.
#define MCP_SESSIOND_SESSION_SIZE 129

// Bytes of `mcp_sessiond_status.text`, with the NUL at its end. A longer text is cut.
#define MCP_SESSIOND_TEXT_SIZE 512

// What became of a call. None of these has to be handled: a server that ignores them goes on
// without resuming.
typedef enum {
    // It was done.
    MCP_SESSIOND_OK = 0,
    // `mcp_sessiond_load`: there is no token. Start afresh.
    MCP_SESSIOND_NOTHING = 1,
    // Resume is disabled: there is no daemon to be had, or it can't tell which host this process
    // belongs to. Unless `mcp_sessiond_status.is_final` is 1, a later call tries again.
    MCP_SESSIOND_DISABLED = 2,
    // The daemon is there and did not do it: its disk is full, for example. The former token is
    // still kept.
    MCP_SESSIOND_REFUSED = 3,
    // The time was over first. Whether it was done is not known; the call may be repeated.
    MCP_SESSIOND_TIMEOUT = 4,
    // The handle was made by another process, from which this one was forked. Call
    // `mcp_sessiond_init`.
    MCP_SESSIOND_FORKED = 5,
    // An argument can't be meant as it is. Nothing was done.
    MCP_SESSIOND_INVALID_ARGUMENT = 6,
    // There is no thread or descriptor left for this. Nothing was done.
    MCP_SESSIOND_RESOURCES = 7,
    // A fault of this library. Whether it was done is not known; please report it.
    MCP_SESSIOND_FAULT = 8,
} mcp_sessiond_result;

// How much a log line matters.
typedef enum {
    // As it should be.
    MCP_SESSIOND_INFO = 1,
    // Something is not kept.
    MCP_SESSIOND_WARN = 2,
} mcp_sessiond_level;

// Whether resume works for this instance: `mcp_sessiond_status.state`.
typedef enum {
    // Nothing was asked yet, or the lease was released.
    MCP_SESSIOND_STATE_UNCLAIMED = 0,
    // The instance holds a session.
    MCP_SESSIOND_STATE_ACTIVE = 1,
    // Resume does not work.
    MCP_SESSIOND_STATE_DISABLED = 2,
} mcp_sessiond_state;

// How an instance came to its session: `mcp_sessiond_status.outcome`.
typedef enum {
    // It holds none, or in a way that this version does not know.
    MCP_SESSIOND_OUTCOME_NONE = 0,
    // The process held it already.
    MCP_SESSIOND_OUTCOME_HELD = 1,
    // A former instance's session, which nobody held.
    MCP_SESSIOND_OUTCOME_RESUMED = 2,
    // A new session: the host has none with this key.
    MCP_SESSIOND_OUTCOME_FRESH_FIRST = 3,
    // A new session: another live process with this key stayed.
    MCP_SESSIOND_OUTCOME_FRESH_HELD = 4,
    // A new session: several with this key were free, and can't be told apart.
    MCP_SESSIOND_OUTCOME_FRESH_PLURAL = 5,
    // A new session, which ends with its holder: nothing is resumed for this host.
    MCP_SESSIOND_OUTCOME_FRESH_NEVER = 6,
    // A new session, which nobody will resume: what the key is made of could not be read.
    MCP_SESSIOND_OUTCOME_FRESH_DOUBTFUL = 7,
} mcp_sessiond_outcome;

// Whether a daemon is started where none runs: `mcp_sessiond_options.start`.
typedef enum {
    // It is: by systemd or launchd where it is installed there, else by running its executable.
    MCP_SESSIOND_START_AUTO = 0,
    // It is not. Without a daemon resume is disabled.
    MCP_SESSIOND_START_NEVER = 1,
} mcp_sessiond_start;

// What an instance gets where its host has, or had, several servers that are alike:
// `mcp_sessiond_options.siblings`.
typedef enum {
    // As the daemon is configured for the host.
    MCP_SESSIOND_SIBLINGS_DEFAULT = 0,
    // The only session that nobody holds, if no other server of the key lives; else a session of
    // its own.
    MCP_SESSIOND_SIBLINGS_FRESH = 1,
    // The only session that nobody holds, also while others live.
    MCP_SESSIOND_SIBLINGS_SUCCESSOR = 2,
    // The session opened first that nobody holds.
    MCP_SESSIOND_SIBLINGS_OLDEST = 3,
    // A session of its own, always.
    MCP_SESSIOND_SIBLINGS_NEVER = 4,
} mcp_sessiond_siblings;

// A server's session with the daemon, and the thread that speaks for it. Threads may share it:
// their calls are carried out one after the other. One for a process is enough.
//
// It has a thread of its own, in which all signals are blocked; no signal handler is installed. A
// process that was forked has a copy that every function but `mcp_sessiond_free` refuses
// (`MCP_SESSIOND_FORKED`), and may make its own.
typedef struct mcp_sessiond mcp_sessiond;

// A token that was loaded. It is yours: give it to `mcp_sessiond_token_free`.
typedef struct mcp_sessiond_token mcp_sessiond_token;

// Gets a log line: UTF-8 without a line break, valid until it returns. It has no token in it.
//
// It is called in the thread that has called this library, before that call returns; so it needs
// no lock, and may call this library. It must return: by no exception and no longjmp.
typedef void (*mcp_sessiond_log)(void *context, mcp_sessiond_level level, const char *line);

// What `mcp_sessiond_init` is told. Set everything to 0 first, then `size`: 0 and NULL are the
// defaults, which are right for a server that its host starts once:
// `mcp_sessiond_options options = {.size = sizeof options, .label = "staging"};` The texts are
// copied.
typedef struct {
    // `sizeof(mcp_sessiond_options)`: by this a later version of the library knows which fields
    // there are.
    size_t size;
    // Takes the place of directory and environment in what tells this instance from others of its
    // host: 1 to 128 bytes of printable UTF-8, without blanks at its ends.
    const char *label;
    // The name of this server's entry in the host's file, of the same form.
    const char *entry;
    // What the host calls itself (`clientInfo.name` of its first message): UTF-8, at most 256
    // bytes.
    const char *client;
    // The daemon's runtime directory, an absolute path. Default: `MCP_SESSIOND_DIR`, else the one
    // derived from the uid.
    const char *directory;
    // The daemon's executable, for where it has to be started. Default: `MCP_SESSIOND_BIN`, else
    // `mcp-sessiond` beside this process's executable, else in `PATH`.
    const char *executable;
    // Gets the log lines. Default: nobody does; nothing is ever written to standard output or
    // error.
    mcp_sessiond_log log;
    // What `log` is given as its first argument.
    void *log_context;
    // Milliseconds that one call may take in all, with connecting and starting a daemon. Default:
    // 10,000. At most 86,400,000, a day.
    uint32_t timeout_ms;
    // A `mcp_sessiond_start`.
    uint32_t start;
    // A `mcp_sessiond_siblings`.
    uint32_t siblings;
    // The pid of an ancestor that the session is claimed for. Default: this process.
    uint32_t instance;
} mcp_sessiond_options;

// Whether resume works, as of the last call. See `mcp_sessiond_get_status`.
typedef struct {
    // `sizeof(mcp_sessiond_status)`: set it before the call.
    size_t size;
    // The number of the lease, which only grows; 0 unless the state is
    // `MCP_SESSIOND_STATE_ACTIVE`.
    uint64_t epoch;
    // A `mcp_sessiond_state`.
    uint32_t state;
    // A `mcp_sessiond_outcome`.
    uint32_t outcome;
    // 1 where resume is disabled and no later call tries again; else 0.
    uint32_t is_final;
    // The id of the session, with a NUL; empty unless the state is
    // `MCP_SESSIOND_STATE_ACTIVE`.
    char session[MCP_SESSIOND_SESSION_SIZE];
    // The same in words, for people: UTF-8 with a NUL. Where resume is disabled it says why, and
    // what to do.
    char text[MCP_SESSIOND_TEXT_SIZE];
} mcp_sessiond_status;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, as `0.1.0`. It may be another one than that of the header. Static;
// never free it.
const char *mcp_sessiond_version(void);

// What a `mcp_sessiond_result` means in general, in English. Static; never free it. Any number is
// allowed.
const char *mcp_sessiond_strerror(int result);

// What was wrong with the last call of this thread that returned neither `MCP_SESSIOND_OK` nor
// `MCP_SESSIOND_NOTHING`, and what would be right: UTF-8, empty where there was none. It has no
// token in it. Valid until this thread's next call; never free it.
const char *mcp_sessiond_last_error(void);

// Makes a handle, and starts its thread. Nothing is read, opened or asked of the daemon before the
// first call.
//
// `options` may be NULL: the defaults. `*sessiond` gets the handle, for `mcp_sessiond_free`, or
// NULL where this fails: `MCP_SESSIOND_INVALID_ARGUMENT`, `MCP_SESSIOND_RESOURCES`. A server may
// go on with NULL: the calls then return `MCP_SESSIOND_INVALID_ARGUMENT`, and do nothing.
mcp_sessiond_result mcp_sessiond_init(const mcp_sessiond_options *options, mcp_sessiond **sessiond);

// Gets the token that a former instance of this server has stored, to be offered to the broker.
//
// `MCP_SESSIOND_OK`: `*token` is the token, for `mcp_sessiond_token_free`. Everything else:
// `*token` is NULL; start afresh.
mcp_sessiond_result mcp_sessiond_load(mcp_sessiond *sessiond, mcp_sessiond_token **token);

// Keeps a token that the broker has issued, in place of the former one: `size` bytes, 1 to
// `MCP_SESSIOND_TOKEN_MAX`, of any value. They are copied, and the copy is wiped.
//
// `MCP_SESSIOND_OK`: the daemon has it for good. After `mcp_sessiond_load`, without
// `mcp_sessiond_reject`, it tells the daemon that the broker accepted what was loaded. The same
// token twice is the same as once.
mcp_sessiond_result mcp_sessiond_store(mcp_sessiond *sessiond, const void *token, size_t size);

// Deletes the token that was loaded: the broker has refused it. The session stays.
//
// `MCP_SESSIOND_OK`: no later `mcp_sessiond_load` gives that token.
mcp_sessiond_result mcp_sessiond_reject(mcp_sessiond *sessiond);

// Gives the session up, for the next instance with the same key. A process that exits need not:
// its exit is noticed.
mcp_sessiond_result mcp_sessiond_release(mcp_sessiond *sessiond);

// Tells whether resume works, as of the last call. It asks nobody, and returns at once.
//
// `status->size` must be set. The fields that this version of the library does not know become 0.
mcp_sessiond_result mcp_sessiond_get_status(const mcp_sessiond *sessiond, mcp_sessiond_status *status);

// Ends the thread and frees the handle. NULL is allowed. No other call may be under way with it,
// nor come later. What was stored stays with the daemon, and the session with this process.
//
// In a process that was forked it only marks the handle as gone: the copy's memory stays until
// that process exits or execs.
void mcp_sessiond_free(mcp_sessiond *sessiond);

// The bytes of a token, `mcp_sessiond_token_size` of them. Any value may be among them, and no NUL
// follows. Valid until `mcp_sessiond_token_free`. NULL for NULL.
const uint8_t *mcp_sessiond_token_bytes(const mcp_sessiond_token *token);

// How many bytes a token has: 1 to `MCP_SESSIOND_TOKEN_MAX`. 0 for NULL.
size_t mcp_sessiond_token_size(const mcp_sessiond_token *token);

// Overwrites a token with zeros and frees it. NULL is allowed.
void mcp_sessiond_token_free(mcp_sessiond_token *token);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MCP_SESSIOND_H */
