// A server whose session with a broker survives its restarts.
//
// Standard input and output stand for the server's client. It says how it began, "fresh" or "resumed TOKEN", and then answers
// each line: "issue TOKEN" (the broker has issued it), "refuse" (the broker has refused the one that was loaded), "status".
//
//     cc -o server server.c $(pkg-config --cflags --libs mcp-sessiond)

#include <mcp_sessiond.h>
#include <stdio.h>
#include <string.h>

static void log_line(void *context, mcp_sessiond_level level, const char *line)
{
    (void)context;
    fprintf(stderr, "%s: %s\n", level == MCP_SESSIOND_WARN ? "warning" : "info", line);
}

static void say(mcp_sessiond_result result)
{
    puts(result == MCP_SESSIOND_OK ? "ok" : mcp_sessiond_last_error());
    fflush(stdout);
}

int main(void)
{
    mcp_sessiond_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.log = log_line;

    // Nothing here has to be checked: where resume doesn't work the server starts afresh, and the log says why.
    mcp_sessiond *sessiond = NULL;
    mcp_sessiond_token *token = NULL;
    mcp_sessiond_init(&options, &sessiond);
    if (mcp_sessiond_load(sessiond, &token) == MCP_SESSIOND_OK) {
        // Here a server offers the token to its broker.
        printf("resumed %.*s\n", (int)mcp_sessiond_token_size(token), (const char *)mcp_sessiond_token_bytes(token));
    } else {
        puts("fresh");
    }
    mcp_sessiond_token_free(token);
    fflush(stdout);

    char line[4096];
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "issue ", 6) == 0) {
            say(mcp_sessiond_store(sessiond, line + 6, strlen(line + 6)));
        } else if (strcmp(line, "refuse") == 0) {
            say(mcp_sessiond_reject(sessiond));
        } else if (strcmp(line, "status") == 0) {
            mcp_sessiond_status status;
            status.size = sizeof status;
            mcp_sessiond_get_status(sessiond, &status);
            puts(status.text);
            fflush(stdout);
        }
    }
    mcp_sessiond_free(sessiond);
    return 0;
}
