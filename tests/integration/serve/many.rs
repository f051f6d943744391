//! A thousand open streams over a hundred sessions.

use mcp_sessiond_tests::{HttpClient, Reply};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;

use crate::{BINARIES, world};

const SESSIONS: usize = 100;
/// Beside the standalone stream of each session.
const CALLS: usize = 9;
/// For each session, while all streams are open.
const PINGS: usize = 3;
/// What `serve` may take for a session with ten streams and their clients' connections, in KiB.
const SESSION_KIB: u64 = 1_024;

struct Session {
    client: HttpClient,
    standalone: Reply,
    held: Vec<Reply>,
}

fn begin(client: HttpClient) -> Session {
    let mut client = client;
    client.initialize("2025-11-25");
    let mut standalone = client.listen();
    standalone.event().expect("primed");
    let hold = |_| {
        let mut held = client.request("hold", &json!({"_meta": {"progressToken": "t"}}));
        assert_eq!(held.said().message()["params"]["progress"], 0);
        held
    };
    let held = (0..CALLS).map(hold).collect();
    Session { client, standalone, held }
}

#[test]
fn a_thousand_streams_stay_open_and_lose_nothing() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("the hard limit may be used");
    let world = world(&format!("http.sessions = {SESSIONS}\n"));
    let _daemon = world.daemon();
    let serve = world.serve(&["--name", "test"], &[BINARIES.holding.to_owned()]);
    let idle = serve.resident_kib();
    let mut sessions: Vec<Session> = (0..SESSIONS).map(|_| begin(serve.client())).collect();
    // No session keeps another one waiting.
    for _ in 0..PINGS {
        for session in &mut sessions {
            assert!(session.client.request("ping", &json!({})).answer()["result"].is_object());
        }
    }
    assert!(serve.resident_kib() < idle + SESSIONS as u64 * SESSION_KIB, "{idle}, {}", serve.resident_kib());
    for session in &sessions {
        session.client.notify("notifications/release", &json!({}));
    }
    for Session { standalone, held, .. } in &mut sessions {
        for call in held {
            assert_eq!(call.said().message()["params"]["progress"], 1);
            assert_eq!(call.said().message()["params"]["progress"], 2);
            assert_eq!(call.said().message()["result"]["held"], true);
            assert_eq!(call.event(), None, "the stream is complete");
        }
        assert_eq!(standalone.said().message()["params"]["data"], "released");
    }
}

/// `serve` raises its own limit of descriptors: it needs one for each connection.
#[test]
fn a_server_has_the_limit_of_descriptors_that_serve_was_started_with() {
    let world = world("");
    let _daemon = world.daemon();
    let server = [BINARIES.holding.to_owned()];
    let limited = world.serve_limited(500, &server);
    let mut client = limited.connected("2025-11-25");
    assert_eq!(client.request("limit", &json!({})).answer()["result"]["limit"], 500);
}
