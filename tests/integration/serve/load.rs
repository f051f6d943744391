//! A thousand open streams over a hundred sessions.

use mcp_sessiond_tests::many_sessions::{ManySessions, SESSIONS, Session};
use serde_json::json;

use crate::{BINARIES, world};

/// For each session, while all streams are open.
const PINGS: usize = 3;
/// Threads that call at once.
const WORKERS: usize = 10;

#[test]
#[ignore = "needs a quiet machine"]
fn a_thousand_streams_stay_open_and_lose_nothing() {
    let mut many = ManySessions::begin(&BINARIES);
    // No session keeps another one waiting.
    for _ in 0..PINGS {
        many.sessions.iter_mut().for_each(Session::ping);
    }
    many.ends_whole();
}

/// At fifty calls a second: `tests/campaign streams`.
#[test]
#[ignore = "needs a quiet machine"]
fn ten_calls_at_once_pass_while_a_thousand_streams_are_open() {
    let mut many = ManySessions::begin(&BINARIES);
    std::thread::scope(|scope| {
        for sessions in many.sessions.chunks_mut(SESSIONS / WORKERS) {
            scope.spawn(|| {
                for _ in 0..PINGS {
                    sessions.iter_mut().for_each(Session::ping);
                }
            });
        }
    });
    many.ends_whole();
}

/// `serve` raises its own limit of descriptors: it needs one for each connection.
#[test]
#[ignore = "needs a quiet machine"]
fn a_server_has_the_limit_of_descriptors_that_serve_was_started_with() {
    let world = world("");
    let _daemon = world.daemon();
    let server = [BINARIES.holding.to_owned()];
    let limited = world.serve_limited(500, &server);
    let mut client = limited.connected("2025-11-25");
    assert_eq!(
        client.request("limit", &json!({})).answer()["result"]["limit"],
        500
    );
}
