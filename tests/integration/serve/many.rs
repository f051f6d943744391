//! A thousand open streams over a hundred sessions.

use std::io::Write as _;
use std::time::{Duration, Instant};

use mcp_sessiond_tests::{Daemon, HttpClient, Reply, Serve, World};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;

use crate::{BINARIES, world};

const SESSIONS: usize = 100;
/// Beside the standalone stream of each session.
const CALLS: usize = 9;
/// For each session, while all streams are open.
const PINGS: usize = 3;
/// Calls a second in all, and of how many threads.
const RATE: u32 = 50;
const WORKERS: usize = 10;
/// A minute's.
const CALLS_OF_A_SESSION: usize = 30;
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

/// `serve` in front of a server, and clients that have opened all these streams.
struct Crowd {
    sessions: Vec<Session>,
    /// What `serve` held in memory before that, in KiB.
    idle: u64,
    serve: Serve,
    _daemon: Daemon,
    _world: World,
}

impl Crowd {
    fn begin() -> Self {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("the hard limit may be used");
        let world = world(&format!("http.sessions = {SESSIONS}\n"));
        let daemon = world.daemon();
        let serve = world.serve(&["--name", "test"], &[BINARIES.holding.to_owned()]);
        let idle = serve.resident_kib();
        let sessions = (0..SESSIONS).map(|_| begin(serve.client())).collect();
        Self { sessions, idle, serve, _daemon: daemon, _world: world }
    }

    /// Has the server say all that remains, and asserts that each stream gets its part of it.
    fn ends_whole(mut self) {
        let resident = self.serve.resident_kib();
        assert!(resident < self.idle + SESSIONS as u64 * SESSION_KIB, "{}, {resident}", self.idle);
        for session in &self.sessions {
            session.client.notify("notifications/release", &json!({}));
        }
        for Session { standalone, held, .. } in &mut self.sessions {
            for call in held {
                assert_eq!(call.said().message()["params"]["progress"], 1);
                assert_eq!(call.said().message()["params"]["progress"], 2);
                assert_eq!(call.said().message()["result"]["held"], true);
                assert_eq!(call.event(), None, "the stream is complete");
            }
            assert_eq!(standalone.said().message()["params"]["data"], "released");
        }
    }
}

fn ping(session: &mut Session) {
    assert!(session.client.request("ping", &json!({})).answer()["result"].is_object());
}

#[test]
fn a_thousand_streams_stay_open_and_lose_nothing() {
    let mut crowd = Crowd::begin();
    // No session keeps another one waiting.
    for _ in 0..PINGS {
        crowd.sessions.iter_mut().for_each(ping);
    }
    crowd.ends_whole();
}

/// Prints how long the calls took, from the moment at which each was due.
#[test]
#[ignore = "`tests/campaign streams` runs it: it takes a minute"]
fn fifty_calls_a_second_pass_while_a_thousand_streams_are_open() {
    let mut crowd = Crowd::begin();
    let start = Instant::now();
    let took = |(worker, sessions): (usize, &mut [Session])| -> Vec<Vec<Duration>> {
        let mut took = vec![Vec::new(); sessions.len()];
        for call in 0..CALLS_OF_A_SESSION * sessions.len() {
            let due =
                start + Duration::from_secs(1) * u32::try_from(call * WORKERS + worker).expect("few") / RATE;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let session = call % sessions.len();
            ping(&mut sessions[session]);
            took[session].push(due.elapsed());
        }
        took
    };
    let workers = crowd.sessions.chunks_mut(SESSIONS / WORKERS).enumerate();
    let took: Vec<Vec<Duration>> = std::thread::scope(|scope| {
        let workers: Vec<_> = workers.map(|worker| scope.spawn(move || took(worker))).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("each call is answered")).collect()
    });
    let part = |times: &mut Vec<Duration>, part: usize| {
        times.sort_unstable();
        times[(times.len() - 1) * part / 100]
    };
    let mut medians: Vec<Duration> = took.iter().map(|times| part(&mut times.clone(), 50)).collect();
    let mut all = took.concat();
    let told = writeln!(
        std::io::stderr(),
        "{} calls in {:.1?}: p50 {:.2?}, p99 {:.2?}, at most {:.2?}; the median of a session {:.2?} to {:.2?}; {} KiB",
        all.len(),
        start.elapsed(),
        part(&mut all, 50),
        part(&mut all, 99),
        part(&mut all, 100),
        part(&mut medians, 0),
        part(&mut medians, 100),
        crowd.serve.resident_kib() - crowd.idle,
    );
    told.expect("standard error");
    crowd.ends_whole();
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
