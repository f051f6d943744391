#!/bin/sh
# Calls the example `durable_server`, kills it with SIGKILL, starts it again, and calls it again. In a checkout, with curl, and with
# `mcp-sessiond` in PATH or its path in MCP_SESSIOND_BIN:
#
#   sh client/rust/examples/durable_server.sh
#
# SERVER: the example, where it is built already.
set -eu
command -v curl >/dev/null || { echo "$0: needs curl" >&2; exit 69; }
cd "$(dirname "$0")/../../.."
if [ -z "${SERVER:-}" ]; then
  cargo build --quiet -p mcp-sessiond-client --features rmcp --example durable_server
  SERVER=target/debug/examples/durable_server
fi
said=$(mktemp -d)
at=127.0.0.1:0
trap 'kill -9 "$pid" 2>/dev/null || true; rm -rf "$said"' EXIT

start() {
  : >"$said/server" # what the former one has said
  "$SERVER" "$at" >"$said/server" &
  pid=$!
  until url=$(sed -n 's/^listening at //p' "$said/server") && [ -n "$url" ]; do
    kill -0 "$pid" # else it has ended, and said why
    sleep 0.05
  done
  at=${url#http://} at=${at%/mcp}
}

# What follows the URL goes to curl.
ask() {
  curl -sSN "$url" -H 'Accept: application/json, text/event-stream' -H 'Content-Type: application/json' \
    -H 'MCP-Protocol-Version: 2025-11-25' "$@"
}

call() {
  ask -H "Mcp-Session-Id: $session" -d "{\"jsonrpc\":\"2.0\",\"id\":$1,\"method\":\"tools/call\",\"params\":$2}"
}

visit() {
  call "$1" '{"name":"visit","arguments":{}}' | grep -o 'visit [0-9]*'
}

start
ask -D "$said/head" -o "$said/answer" -d '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",
  "capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}'
session=$(sed -n 's/^mcp-session-id: //p' "$said/head" | tr -d '\r')
visit 2
visit 3
call 4 '{"name":"steps","arguments":{"n":600},"_meta":{"progressToken":4}}' >"$said/call" 2>/dev/null &
until grep -q progress "$said/call"; do sleep 0.05; done
kill -9 "$pid"
# The next one takes its port.
wait "$pid" 2>/dev/null || true
echo 'killed in the middle of a call'
start
visit 5
last=$(sed -n 's/^id: //p' "$said/call" | tail -n 1)
ask -H "Mcp-Session-Id: $session" -H "Last-Event-ID: $last" | grep -o 'the outcome of this call is unknown'
