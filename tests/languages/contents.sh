#!/bin/sh
# The contents of a session, by the command line, which is Rust's library: contents.sh write|answer|read SESSION …; see `run`.
set -e
verb=$1 session=$2
sessiond() {
  verbs="$1 $2"
  shift 2
  # Both are words.
  # shellcheck disable=SC2086
  "$MCP_SESSIOND_BIN" $verbs --no-start --service languages --session "$session" "$@"
}
value='"text":"é☃\u0000\"","list":[1,2.5,null,true,{}]'

case $verb in
  write)
    sessiond state set whole "{$value,\"from\":\"shell\"}"
    sessiond state set removed 1
    sessiond state set short '"soon gone"' --expires 3600
    sessiond state remove removed
    printf '%s\n' "{\"method\":\"notifications/progress\",\"params\":{$value}}" '{"id":1,"result":"shell"}' |
      sessiond stream append call-1 --close >/dev/null
    echo '{"method":"notifications/message","params":"shell"}' | sessiond stream append _GET_stream >/dev/null
    sessiond task run --json --message 'will fail' -- false >/dev/null
    export session value
    # Its command asks, and waits for the answer.
    sessiond task run --json --ttl 3600 --poll 100 --message shell -- "$0" work "$session"
    ;;
  work)
    answer=$(sessiond task ask "$MCP_SESSIOND_TASK" name "{\"method\":\"elicitation/create\",\"params\":{$value}}")
    echo "{\"answer\":$answer}"
    ;;
  answer) sessiond task answer "$3" name '"shell"' ;;
  read)
    comma=
    printf '{"state":{'
    for key in $(sessiond state list); do
      printf '%s"%s":%s' "$comma" "$key" "$(sessiond state get "$key")"
      comma=,
    done
    printf '},"streams":{'
    comma=
    for stream in _GET_stream call-1; do
      printf '%s"%s":[%s]' "$comma" "$stream" "$(sessiond stream replay "$stream" | cut -f 2- | paste -sd , -)"
      comma=,
    done
    comma=
    printf '},"tasks":['
    for task in $(sessiond task list | cut -f 1); do
      printf '%s%s' "$comma" "$(sessiond task get "$task")"
      comma=,
    done
    echo ']}'
    ;;
esac
