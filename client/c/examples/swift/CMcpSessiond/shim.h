#include <mcp_sessiond.h>
