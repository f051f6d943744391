// What the library does to the process that it is in, and to its children: tests/test_processes.py runs one of these scenarios at
// a time, and reads what it says. Where it says "ready" it waits for a line.

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <mcp_sessiond.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void wait_for_line(void)
{
    char line[16];
    puts("ready");
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL)
        exit(1);
}

static void tell(const char *what, mcp_sessiond_result result)
{
    int failed = result != MCP_SESSIOND_OK && result != MCP_SESSIOND_NOTHING;
    printf("%s: %d%s%s\n", what, result, failed ? " " : "", failed ? mcp_sessiond_last_error() : "");
    fflush(stdout);
}

static mcp_sessiond_result load(mcp_sessiond *sessiond)
{
    mcp_sessiond_token *token;
    mcp_sessiond_result result = mcp_sessiond_load(sessiond, &token);
    if (token != NULL)
        printf("token %.*s\n", (int)mcp_sessiond_token_size(token), (const char *)mcp_sessiond_token_bytes(token));
    mcp_sessiond_token_free(token);
    return result;
}

// A child has no use of its parent's handle, and makes its own.
static void forked(void)
{
    mcp_sessiond *sessiond;
    mcp_sessiond_status status;
    mcp_sessiond_init(NULL, &sessiond);
    tell("parent stores", mcp_sessiond_store(sessiond, "parent", 6));
    pid_t child = fork();
    if (child == 0) {
        status.size = sizeof status;
        tell("child loads", load(sessiond));
        tell("child stores", mcp_sessiond_store(sessiond, "child", 5));
        tell("child rejects", mcp_sessiond_reject(sessiond));
        tell("child releases", mcp_sessiond_release(sessiond));
        tell("child's status", mcp_sessiond_get_status(sessiond, &status));
        mcp_sessiond_free(sessiond);
        tell("child begins", mcp_sessiond_init(NULL, &sessiond));
        tell("child loads", load(sessiond));
        tell("child stores", mcp_sessiond_store(sessiond, "child", 5));
        tell("child loads", load(sessiond));
        mcp_sessiond_free(sessiond);
        exit(0);
    }
    int status_of_child;
    waitpid(child, &status_of_child, 0);
    printf("child %d\n", status_of_child);
    tell("parent loads", load(sessiond));
    mcp_sessiond_free(sessiond);
}

static void *store_often(void *shared)
{
    char token[32];
    for (int i = 0; i < 50; i++) {
        int size = snprintf(token, sizeof token, "%p-%d", (void *)&token, i);
        if (mcp_sessiond_store(shared, token, (size_t)size) != MCP_SESSIOND_OK)
            return (void *)mcp_sessiond_last_error();
    }
    return NULL;
}

// Threads share a handle, while the process forks, and each child makes its own.
static void storm(void)
{
    enum { THREADS = 4, CHILDREN = 40 };
    mcp_sessiond *sessiond;
    pthread_t threads[THREADS];
    int failed = 0;
    mcp_sessiond_init(NULL, &sessiond);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, store_often, sessiond);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (child == 0) {
            mcp_sessiond *own;
            mcp_sessiond_token *token;
            // It must not hang in what another thread had locked.
            alarm(60);
            if (mcp_sessiond_init(NULL, &own) != MCP_SESSIOND_OK || mcp_sessiond_load(own, &token) != MCP_SESSIOND_NOTHING)
                _exit(1);
            mcp_sessiond_free(own);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        failed += status != 0;
    }
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        if (wrong != NULL)
            puts((const char *)wrong);
    }
    printf("children that failed %d\n", failed);
    mcp_sessiond_free(sessiond);
}

// How this process treats signals, and what its threads block.
static void masks(const char *when)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", getpid());
    FILE *status = fopen(path, "r");
    while (fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, "SigIgn", 6) == 0 || strncmp(line, "SigCgt", 6) == 0)
            printf("%s %s", when, line);
    fclose(status);
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        int tid = atoi(task->d_name);
        if (tid == 0)
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
        status = fopen(path, "r");
        while (status != NULL && fgets(line, sizeof line, status) != NULL)
            if (strncmp(line, "SigBlk", 6) == 0)
                printf("%s %s %s", when, tid == getpid() ? "main" : "other", line);
        if (status != NULL)
            fclose(status);
    }
    closedir(tasks);
}

// The daemon is killed between the calls, and nothing raises a signal here.
static void signals(void)
{
    mcp_sessiond *sessiond;
    masks("before");
    mcp_sessiond_init(NULL, &sessiond);
    tell("store", mcp_sessiond_store(sessiond, "one", 3));
    masks("after");
    for (int i = 0; i < 5; i++) {
        wait_for_line();
        tell("store", mcp_sessiond_store(sessiond, "two", 3));
    }
    masks("end");
    mcp_sessiond_free(sessiond);
}

static void *load_in_thread(void *shared)
{
    mcp_sessiond_token *token;
    return (void *)(size_t)mcp_sessiond_load(shared, &token);
}

// The daemon does not answer, to two threads at once.
static void deadline(void)
{
    mcp_sessiond_options options;
    mcp_sessiond *sessiond;
    struct timespec begun, ended;
    pthread_t thread;
    void *other;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.timeout_ms = 2000;
    mcp_sessiond_init(&options, &sessiond);
    tell("load", load(sessiond));
    wait_for_line();
    clock_gettime(CLOCK_MONOTONIC, &begun);
    pthread_create(&thread, NULL, load_in_thread, sessiond);
    mcp_sessiond_result mine = load(sessiond);
    pthread_join(thread, &other);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double ms = (double)(ended.tv_sec - begun.tv_sec) * 1e3 + (double)(ended.tv_nsec - begun.tv_nsec) / 1e6;
    printf("results %d, %d ms\n", mine + (int)(size_t)other, (int)ms);
    fflush(stdout);
    mcp_sessiond_free(sessiond);
    puts("freed");
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *descriptors = opendir("/proc/self/fd");
    while (readdir(descriptors) != NULL)
        count++;
    closedir(descriptors);
    return count;
}

// A handle that is freed leaves nothing open.
static void descriptors(void)
{
    int before = open_descriptors();
    for (int i = 0; i < 3; i++) {
        mcp_sessiond *sessiond;
        mcp_sessiond_init(NULL, &sessiond);
        tell("store", mcp_sessiond_store(sessiond, "one", 3));
        printf("descriptors %d\n", open_descriptors() - before);
        mcp_sessiond_free(sessiond);
        printf("descriptors %d\n", open_descriptors() - before);
    }
}

// Loaded and unloaded by name.
static void unload(const char *path)
{
    for (int i = 0; i < 3; i++) {
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        mcp_sessiond_result (*init)(const mcp_sessiond_options *, mcp_sessiond **);
        mcp_sessiond_result (*store)(mcp_sessiond *, const void *, size_t);
        void (*end)(mcp_sessiond *);
        mcp_sessiond *sessiond;
        if (library == NULL) {
            puts(dlerror());
            return;
        }
        *(void **)&init = dlsym(library, "mcp_sessiond_init");
        *(void **)&store = dlsym(library, "mcp_sessiond_store");
        *(void **)&end = dlsym(library, "mcp_sessiond_free");
        init(NULL, &sessiond);
        printf("store %d\n", store(sessiond, "one", 3));
        end(sessiond);
        dlclose(library);
    }
}

int main(int count, char **arguments)
{
    const char *scenario = count > 1 ? arguments[1] : "";
    if (strcmp(scenario, "fork") == 0)
        forked();
    else if (strcmp(scenario, "storm") == 0)
        storm();
    else if (strcmp(scenario, "signals") == 0)
        signals();
    else if (strcmp(scenario, "deadline") == 0)
        deadline();
    else if (strcmp(scenario, "descriptors") == 0)
        descriptors();
    else if (strcmp(scenario, "unload") == 0 && count > 2)
        unload(arguments[2]);
    else
        return 64;
    return 0;
}
