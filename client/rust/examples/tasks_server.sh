#!/bin/sh
# Starts the example `tasks_server` twice, begins tasks at one, asks the other for them, and kills the one with SIGKILL. In a checkout, with
# curl, and with `mcp-sessiond` in PATH or its path in MCP_SESSIOND_BIN:
#
#   sh client/rust/examples/tasks_server.sh
#
# SERVER: the example, where it is built already.
set -eu
command -v curl >/dev/null || { echo "$0: needs curl" >&2; exit 69; }
cd "$(dirname "$0")/../../.."
if [ -z "${SERVER:-}" ]; then
  cargo build --quiet -p mcp-sessiond-client --features rmcp --example tasks_server
  SERVER=target/debug/examples/tasks_server
fi
said=$(mktemp -d)
trap 'kill -9 $pids 2>/dev/null || true; rm -rf "$said"' EXIT
pids=

# Starts one, and sets `url`.
start() {
  "$SERVER" 127.0.0.1:0 >"$said/$1" &
  pids="$pids $!"
  until url=$(sed -n 's/^listening at //p' "$said/$1") && [ -n "$url" ]; do sleep 0.05; done
}

client='"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"curl","version":"1"},
  "io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}'

# What a server answers: its URL, the method, what the request is about, its parameters.
ask() {
  curl -sS "$1" -H 'Accept: application/json, text/event-stream' -H 'Content-Type: application/json' \
    -H 'MCP-Protocol-Version: 2026-07-28' -H "Mcp-Method: $2" -H "Mcp-Name: $3" \
    -d "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"$2\",\"params\":{$4,\"_meta\":{$client}}}"
}

# Begins a report of so many pages at the one, and prints the task's id.
report() {
  ask "$one" tools/call report "\"name\":\"report\",\"arguments\":{\"pages\":$1}" | sed -n 's/.*"taskId":"\([^"]*\)".*/\1/p'
}

# Asks the other for a task until it tells this.
until_told() {
  until ask "$other" tasks/get "$1" "\"taskId\":\"$1\"" | grep -o "$2"; do sleep 0.05; done
}

start one
one=$url
start other
other=$url
short=$(report 1)
long=$(report 600)
until_told "$short" 'a report of 1 pages'
until_told "$long" 'page 2 of 600'
kill -9 "${pids% *}"
echo 'killed while it works'
until_told "$long" '"status":"failed"'
until_told "$long" 'outcome is unknown' | head -n 1
until_told "$short" '"status":"completed"'
