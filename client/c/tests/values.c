// What the library makes of values: tests/test_values.py runs one of these scenarios at a time, and reads what it says.

#define _GNU_SOURCE
#include <mcp_sessiond.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

// The bytes that the structs had in the first header.
#define FIRST_OPTIONS (offsetof(mcp_sessiond_options, instance) + sizeof(uint32_t))
#define FIRST_STATUS (offsetof(mcp_sessiond_status, text) + MCP_SESSIOND_TEXT_SIZE)

static mcp_sessiond_options fresh_options(void)
{
    mcp_sessiond_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    return options;
}

static void tell(const char *what, mcp_sessiond_result result)
{
    int failed = result != MCP_SESSIOND_OK && result != MCP_SESSIOND_NOTHING;
    printf("%s: %d%s%s\n", what, result, failed ? " " : "", failed ? mcp_sessiond_last_error() : "");
}

static void refused_options(const char *what, const mcp_sessiond_options *options)
{
    mcp_sessiond *sessiond = (mcp_sessiond *)&sessiond;
    tell(what, mcp_sessiond_init(options, &sessiond));
    if (sessiond != NULL)
        puts("a handle was made");
}

// Arguments that can't be meant as they are. None of this reaches a daemon.
static void misuse(void)
{
    mcp_sessiond_options options = fresh_options();
    mcp_sessiond *sessiond;
    mcp_sessiond_token *token;
    mcp_sessiond_status status;

    tell("init without a place", mcp_sessiond_init(NULL, NULL));
    options.size = 0;
    refused_options("no size", &options);
    options.size = sizeof options;
    options.label = " staging";
    refused_options("blank", &options);
    options.label = "\xff";
    refused_options("not UTF-8", &options);
    options.label = NULL;
    options.directory = "here";
    refused_options("relative", &options);
    options.directory = NULL;
    options.start = 7;
    refused_options("start", &options);
    options.start = 0;
    options.siblings = 9;
    refused_options("siblings", &options);
    options.siblings = 0;
    options.timeout_ms = 86400001;
    refused_options("timeout", &options);

    // A program that was built with a later header.
    struct { mcp_sessiond_options options; size_t later; } larger;
    memset(&larger, 0, sizeof larger);
    larger.options.size = sizeof larger;
    larger.later = 1;
    refused_options("later field", &larger.options);
    larger.later = 0;
    tell("later field that is 0", mcp_sessiond_init(&larger.options, &sessiond));

    // One that was built with the first header, and one that can't be.
    mcp_sessiond_free(sessiond);
    options = fresh_options();
    options.size = FIRST_OPTIONS - 1;
    refused_options("less than ever", &options);
    options.size = FIRST_OPTIONS;
    tell("first options", mcp_sessiond_init(&options, &sessiond));
    memset(&status, 0xff, sizeof status);
    status.size = FIRST_STATUS - 1;
    tell("less status than ever", mcp_sessiond_get_status(sessiond, &status));
    status.size = FIRST_STATUS;
    tell("first status", mcp_sessiond_get_status(sessiond, &status));
    printf("text %d, what follows %d\n", status.text[0] != 0, sizeof status == FIRST_STATUS || ((unsigned char *)&status)[FIRST_STATUS] == 0xff);

    tell("load nowhere", mcp_sessiond_load(sessiond, NULL));
    tell("load by nobody", mcp_sessiond_load(NULL, &token));
    printf("token %d\n", token != NULL);
    tell("store nothing", mcp_sessiond_store(sessiond, NULL, 1));
    tell("store empty", mcp_sessiond_store(sessiond, "", 0));
    char *large = calloc(1, MCP_SESSIOND_TOKEN_MAX + 1);
    tell("store too much", mcp_sessiond_store(sessiond, large, MCP_SESSIOND_TOKEN_MAX + 1));
    free(large);
    tell("store no size", mcp_sessiond_store(sessiond, "", (size_t)-1));
    status.size = 0;
    tell("status without size", mcp_sessiond_get_status(sessiond, &status));
    tell("status nowhere", mcp_sessiond_get_status(sessiond, NULL));
    tell("reject by nobody", mcp_sessiond_reject(NULL));
    tell("release by nobody", mcp_sessiond_release(NULL));
    printf("nothing %zu %d\n", mcp_sessiond_token_size(NULL), mcp_sessiond_token_bytes(NULL) != NULL);
    mcp_sessiond_token_free(NULL);
    mcp_sessiond_free(NULL);
    mcp_sessiond_free(sessiond);
    for (int result = -1; result < 10; result++)
        printf("%d %s\n", result, mcp_sessiond_strerror(result));
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", MCP_SESSIOND_VERSION_MAJOR, MCP_SESSIOND_VERSION_MINOR, MCP_SESSIOND_VERSION_PATCH);
    printf("version %d\n", strcmp(version, mcp_sessiond_version()));
}

static void *watched;
static int wiped = -1;

#ifdef WATCH_FREE
static int all_zero(const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != 0)
            return 0;
    return 1;
}

extern void __libc_free(void *);

// Sees what the library gives back.
void free(void *block)
{
    if (block != NULL && block == watched) {
        wiped = all_zero(block, MCP_SESSIOND_TOKEN_MAX);
        watched = NULL;
    }
    __libc_free(block);
}
#endif

// The longest token, of all values, comes back as it was, and goes without a trace.
static void longest(void)
{
    mcp_sessiond *sessiond;
    mcp_sessiond_token *token;
    unsigned char *bytes = malloc(MCP_SESSIOND_TOKEN_MAX);
    for (int i = 0; i < MCP_SESSIOND_TOKEN_MAX; i++)
        bytes[i] = (unsigned char)(i * 31 + i / 256);
    mcp_sessiond_init(NULL, &sessiond);
    tell("store", mcp_sessiond_store(sessiond, bytes, MCP_SESSIOND_TOKEN_MAX));
    tell("load", mcp_sessiond_load(sessiond, &token));
    printf("same %d\n", mcp_sessiond_token_size(token) == MCP_SESSIOND_TOKEN_MAX
        && memcmp(mcp_sessiond_token_bytes(token), bytes, MCP_SESSIOND_TOKEN_MAX) == 0);
    watched = (void *)mcp_sessiond_token_bytes(token);
    mcp_sessiond_token_free(token);
    printf("wiped %d\n", wiped);
    free(bytes);
    mcp_sessiond_free(sessiond);
}

struct log { pthread_t thread; mcp_sessiond *sessiond; int strange; };

static void log_line(void *context, mcp_sessiond_level level, const char *line)
{
    struct log *log = context;
    mcp_sessiond_status status;
    status.size = sizeof status;
    log->strange |= !pthread_equal(log->thread, pthread_self());
    // A call of the library's from here is allowed.
    log->strange |= mcp_sessiond_get_status(log->sessiond, &status) != MCP_SESSIOND_OK;
    printf("log %d %s\n", level, line);
}

// The lines come in the thread that calls, before the call returns.
static void lines(uint32_t start)
{
    struct log log = { pthread_self(), NULL, 0 };
    mcp_sessiond_options options = fresh_options();
    mcp_sessiond_token *token;
    mcp_sessiond_status status;
    options.log = log_line;
    options.log_context = &log;
    options.start = start;
    options.label = "lines";
    mcp_sessiond_init(&options, &log.sessiond);
    memset(&status, 0xff, sizeof status);
    status.size = sizeof status;
    mcp_sessiond_get_status(log.sessiond, &status);
    printf("state %u outcome %u epoch %d session %zu: %s\n", status.state, status.outcome, (int)status.epoch,
        strlen(status.session), status.text);
    tell("load", mcp_sessiond_load(log.sessiond, &token));
    mcp_sessiond_token_free(token);
    tell("store", mcp_sessiond_store(log.sessiond, "one", 3));
    tell("reject", mcp_sessiond_reject(log.sessiond));
    mcp_sessiond_get_status(log.sessiond, &status);
    printf("state %u outcome %u epoch %d session %zu final %u: %s\n", status.state, status.outcome,
        (int)status.epoch, strlen(status.session), status.is_final, status.text);
    tell("release", mcp_sessiond_release(log.sessiond));
    mcp_sessiond_free(log.sessiond);
    printf("strange %d\n", log.strange);
}

// No descriptor is left.
static void resources(void)
{
    struct rlimit none = { 3, 3 };
    mcp_sessiond *sessiond;
    setrlimit(RLIMIT_NOFILE, &none);
    tell("init", mcp_sessiond_init(NULL, &sessiond));
    printf("handle %d\n", sessiond != NULL);
}

int main(int count, char **arguments)
{
    const char *scenario = count > 1 ? arguments[1] : "";
    if (strcmp(scenario, "misuse") == 0)
        misuse();
    else if (strcmp(scenario, "longest") == 0)
        longest();
    else if (strcmp(scenario, "lines") == 0)
        lines(MCP_SESSIOND_START_AUTO);
    else if (strcmp(scenario, "alone") == 0)
        lines(MCP_SESSIOND_START_NEVER);
    else if (strcmp(scenario, "resources") == 0)
        resources();
    else
        return 64;
    return 0;
}
