//! The daemon's refusals: each code with the HTTP status that the page has.

use std::io::Read as _;
use std::process::Stdio;

use mcp_sessiond_tests::{Peer, World, until};
use serde_json::{Value, json};

use super::{row, rows};
use crate::sessions::{create, of, set};
use crate::{fixture, world};

/// What is provoked here.
pub(super) const CODES: &[&str] = &[
    "no_verified_host",
    "not_an_ancestor",
    "names_host",
    "stale_epoch",
    "lease_ended",
    "unknown_session",
    "already_exists",
    "session_terminated",
    "service_taken",
    "name_taken",
    "version_conflict",
    "binding_mismatch",
    "unknown_handle",
    "handle_expired",
    "unknown_stream",
    "stream_closed",
    "unknown_task",
    "task_ended",
    "unknown_cursor",
    "unknown_backend",
    "invalid_argument",
    "quota_exceeded",
];

#[track_caller]
fn assert_refused(answer: Result<Value, Value>, code: &str) {
    let refused = answer.expect_err(code);
    assert_eq!(refused["code"], code, "{refused}");
    assert_eq!(refused["http_status"].to_string(), row(code).1, "{code}");
}

/// What another process of ours is refused, which is a child of the test's, or of nobody's.
fn stranger(world: &World, is_orphan: bool, method: &str, params: &Value) -> String {
    let script = "import sys; sys.path.insert(0, sys.argv[1]); import sessiond\n\
                  try: print('answered', sessiond.call(sys.argv[2], sessiond.json.loads(sys.argv[3])))\n\
                  except sessiond.Refused as refused: print(refused.code)";
    // The shell in the middle dies first, so whoever adopts orphans is the parent when it says a
    // word.
    let shell = if is_orphan {
        "(while kill -0 $$ 2>/dev/null; do :; done; exec \"$@\") & exit 0"
    } else {
        "exec \"$@\""
    };
    let mut command = world.command("sh");
    command.args([
        "-c",
        shell,
        "sh",
        "python3",
        "-I",
        "-S",
        "-c",
        script,
        &fixture("python"),
        method,
    ]);
    let mut child = command
        .arg(params.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh");
    let mut stdout = child.stdout.take().expect("piped");
    // First: a shell that nobody has waited for can still be signalled.
    child.wait().expect("ours");
    let mut said = String::new();
    stdout.read_to_string(&mut said).expect("UTF-8");
    said.trim().to_owned()
}

#[test]
fn every_code_of_the_protocol_has_a_row() {
    let protocol = std::fs::read_to_string(fixture("../proto/PROTOCOL.md")).expect("the protocol");
    let table = protocol
        .split("| code | HTTP |")
        .nth(1)
        .expect("the table of errors");
    let lines = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with("| `"));
    let codes: Vec<(&str, &str)> = lines
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .map(|(code, rest)| (code, rest.split(' ').next().unwrap_or_default()))
        .collect();
    assert!(codes.len() > 20, "{codes:?}");
    for (code, status) in codes {
        assert!(
            rows()
                .iter()
                .any(|row| row.texts.iter().any(|text| text == code)),
            "docs/messages.md has no {code}"
        );
        assert_eq!(row(code).1, status, "{code}");
    }
}

#[test]
#[ignore = "needs python3"]
fn of_claims() {
    let world = world("");
    let _daemon = world.daemon();
    let mut peer = world.peer();
    assert_refused(
        peer.call("claim", json!({"instance": 1})),
        "not_an_ancestor",
    );
    assert_refused(
        peer.call(
            "claim",
            json!({"instance": nix::unistd::getppid().as_raw()}),
        ),
        "names_host",
    );
    assert_eq!(
        stranger(&world, true, "claim", &json!({})),
        "no_verified_host"
    );
    let claimed = peer.claim();
    let lease = |epoch: u64| json!({"session": claimed["session"], "epoch": epoch.to_string()});
    let epoch: u64 = claimed["epoch"]
        .as_str()
        .and_then(|epoch| epoch.parse().ok())
        .expect("an epoch");
    assert_refused(peer.call("reject_token", lease(epoch + 1)), "stale_epoch");
    peer.call("release", lease(epoch)).expect("released");
    assert_refused(peer.call("reject_token", lease(epoch)), "lease_ended");
}

#[test]
#[ignore = "needs python3"]
fn of_names() {
    let world = world("");
    let _daemon = world.daemon();
    let mut peer = world.peer();
    let named = json!({"named": {"name": "browser", "command": "ab"}});
    peer.call("claim", named.clone()).expect("claimed");
    assert_eq!(stranger(&world, false, "claim", &named), "name_taken");
    let web = json!({"service": "web"});
    peer.call("lease_service", web.clone()).expect("leased");
    assert_eq!(
        stranger(&world, false, "lease_service", &web),
        "service_taken"
    );
}

fn with_session(world: &World) -> (Peer, Value) {
    let mut peer = world.peer();
    create(&mut peer, "web", "s");
    (peer, of("web", "s"))
}

#[test]
fn of_sessions() {
    let world = world("[limits]\nstate_keys = 1\n");
    let _daemon = world.daemon();
    let (mut peer, session) = with_session(&world);
    assert_refused(
        peer.call("get_session", of("web", "other")),
        "unknown_session",
    );
    assert_refused(
        peer.call("create_session", of("web", "s")),
        "already_exists",
    );
    assert_refused(
        peer.call(
            "get_session",
            json!({"service": "web", "session": "s", "epoch": "1"}),
        ),
        "invalid_argument",
    );
    assert_refused(
        peer.call("stop_backend", session.clone()),
        "unknown_backend",
    );
    let write = |key: &str, expected: &str| json!({"of": of("web", "s"), "writes": [{"key": key, "value": "1", "expected": expected}]});
    assert_refused(
        peer.call("write_state", write("k", "5")),
        "version_conflict",
    );
    peer.call("write_state", write("k", "0")).expect("written");
    assert_refused(
        peer.call(
            "write_state",
            json!({"of": session, "writes": set("l", "1")}),
        ),
        "quota_exceeded",
    );
    let caller = json!({"kind": "identity", "iss": "https://issuer.example", "sub": "me"});
    let bound = json!({"service": "web", "session": "bound", "binding": {"caller": caller}});
    peer.call("create_session", bound).expect("created");
    assert_refused(
        peer.call("get_session", of("web", "bound")),
        "binding_mismatch",
    );
    peer.call("terminate_session", session.clone())
        .expect("terminated");
    assert_refused(peer.call("touch_session", session), "session_terminated");
}

#[test]
fn of_what_is_in_a_session() {
    let world = world("");
    let _daemon = world.daemon();
    let (mut peer, session) = with_session(&world);
    let handle = json!({"service": "web", "handle": "A".repeat(43)});
    assert_refused(peer.call("open_handle", handle), "unknown_handle");
    // Forgotten is what expired as long ago as it was good for.
    let mint = json!({"of": session, "life_ms": "3000"});
    let minted = peer.call("mint_handle", mint).expect("minted");
    let open = json!({"service": "web", "handle": minted["handle"]});
    let expired = until("it expires, and no event says so", || {
        peer.call("open_handle", open.clone()).err()
    });
    assert_refused(Err(expired), "handle_expired");

    let append = |stream: &str| json!({"of": session, "stream": stream, "messages": ["1"]});
    assert_refused(peer.call("append", append("call")), "unknown_stream");
    let stream = json!({"of": session, "stream": "call"});
    peer.call("open_stream", stream.clone()).expect("opened");
    peer.call("close_stream", stream).expect("closed");
    assert_refused(peer.call("append", append("call")), "stream_closed");
    assert_refused(
        peer.call(
            "replay",
            json!({"of": session, "after": {"event": "bm9uZQ"}}),
        ),
        "unknown_cursor",
    );

    assert_refused(
        peer.call("get_task", json!({"of": session, "task": "none"})),
        "unknown_task",
    );
    let task = peer
        .call("create_task", json!({"of": session}))
        .expect("created");
    let end = |end: Value| json!({"of": session, "task": task["task"], "end": end});
    peer.call("update_task", end(json!({"completed": "{}"})))
        .expect("completed");
    assert_refused(
        peer.call("update_task", end(json!({"completed": "[]"}))),
        "task_ended",
    );
}
