//! Many clients of one `serve`, with many open streams.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;

use super::{HttpClient, Reply, Serve};
use crate::{Binaries, Daemon, World};

/// How many sessions there are.
pub const SESSIONS: usize = 100;
/// Open calls of each session, beside its standalone stream.
const CALLS: usize = 9;
/// What `serve` may take for a session with ten streams and their clients' connections, in KiB.
const SESSION_KIB: u64 = 1_024;

/// `serve` in front of a server, and clients that have opened a thousand streams.
#[derive(Debug)]
pub struct ManySessions {
    /// The sessions: [`SESSIONS`].
    pub sessions: Vec<Session>,
    /// What `serve` held in memory before that, in KiB.
    idle: u64,
    serve: Serve,
    _daemon: Daemon,
    _world: World,
}

/// One client's session, with its standalone stream and its open calls.
#[derive(Debug)]
pub struct Session {
    client: HttpClient,
    standalone: Reply,
    held: Vec<Reply>,
}

impl ManySessions {
    /// Starts all of it, and returns when all streams are open.
    ///
    /// # Panics
    /// When a stream could not be opened.
    #[must_use]
    pub fn begin(binaries: &'static Binaries) -> Self {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("the hard limit may be used");
        let world = World::new(binaries);
        world.configure(&format!("http.sessions = {SESSIONS}\n"));
        let daemon = world.daemon();
        let serve = world.serve(&["--name", "test"], &[binaries.holding.to_owned()]);
        let idle = serve.resident_kib();
        let sessions = (0..SESSIONS)
            .map(|_| Session::begin(serve.client()))
            .collect();
        Self {
            sessions,
            idle,
            serve,
            _daemon: daemon,
            _world: world,
        }
    }

    /// How much more memory `serve` holds than without sessions, in KiB.
    #[must_use]
    pub fn more_kib(&self) -> u64 {
        self.serve.resident_kib().saturating_sub(self.idle)
    }

    /// Has the server say all that remains, and asserts that each stream gets its part of it.
    ///
    /// # Panics
    /// When a message is missing, or `serve` holds too much memory.
    pub fn ends_whole(mut self) {
        let more = self.more_kib();
        assert!(
            more < SESSIONS as u64 * SESSION_KIB,
            "{} KiB, and {more} more",
            self.idle
        );
        for session in &self.sessions {
            session.client.notify("notifications/release", &json!({}));
        }
        self.sessions.iter_mut().for_each(Session::ends_whole);
    }
}

impl Session {
    fn begin(mut client: HttpClient) -> Self {
        client.initialize("2025-11-25");
        let mut standalone = client.listen();
        standalone.event().expect("primed");
        let hold = |_| {
            let mut held = client.request("hold", &json!({"_meta": {"progressToken": "t"}}));
            assert_eq!(held.said().message()["params"]["progress"], 0);
            held
        };
        let held = (0..CALLS).map(hold).collect();
        Self {
            client,
            standalone,
            held,
        }
    }

    /// A call that is answered at once.
    ///
    /// # Panics
    /// When it is not answered.
    pub fn ping(&mut self) {
        assert!(self.client.request("ping", &json!({})).answer()["result"].is_object());
    }

    fn ends_whole(&mut self) {
        for call in &mut self.held {
            assert_eq!(call.said().message()["params"]["progress"], 1);
            assert_eq!(call.said().message()["params"]["progress"], 2);
            assert_eq!(call.said().message()["result"]["held"], true);
            assert_eq!(call.event(), None, "the stream is complete");
        }
        assert_eq!(
            self.standalone.said().message()["params"]["data"],
            "released"
        );
    }
}
