#!/bin/sh
# A server in shell, without a library: server.sh MCP_SESSIOND [ANYTHING…]
# Takes `load`, `store TOKEN`, `reject`, `get KEY`, `set KEY=VALUE` from standard input, and answers each with the exit code and what was
# printed.
sessiond=$1
while read -r verb token; do
  case $verb in
    load) loaded=$("$sessiond" token load --no-start --for $$); echo "$? $loaded" ;;
    store) printf %s "$token" | "$sessiond" token store --no-start --for $$; echo "$?" ;;
    get) value=$("$sessiond" state get "$token" --no-start --for $$); echo "$? $value" ;;
    set) "$sessiond" state set "${token%%=*}" "${token#*=}" --no-start --for $$; echo "$?" ;;
    reject) "$sessiond" token reject --no-start --for $$; echo "$?" ;;
  esac
done
