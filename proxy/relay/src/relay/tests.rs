//! The relay under test: a bench with a host on one side and a backend on the other.

mod asks;
mod continuing;
mod eras;
mod fidelity;
mod fresh;
mod fronts;
mod fuzz;
mod handshake;
mod liveness;
mod lives;
mod losses;
mod model;
mod oversized;
mod probing;
mod requests;
mod roots;
mod unreadable;
mod used;
mod world;

use bytes::Bytes;
use mcp_sessiond_proto::backends::Attached;

use super::{Effect, Limits, Relay};

const LIMITS: Limits = Limits {
    ask_wait_ms: 60_000,
    queue_messages: 8,
    queue_bytes: 4096,
    ping_wait_ms: 1_500,
    stop_wait_ms: 2_000,
    closes: 3,
    closes_ms: 60_000,
    is_users: false,
};
const ANSWER: &str = r#"{"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true}}},"jsonrpc":"2.0","id":ID}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

struct Bench {
    relay: Relay,
    now: u64,
}

impl Bench {
    /// A backend that runs.
    fn unattached() -> Self {
        let mut bench = Self {
            relay: Relay::new(LIMITS),
            now: 1000,
        };
        bench.relay.backend_started(1000);
        bench
    }

    /// A backend that runs, and a first front.
    fn new() -> Self {
        let mut bench = Self::unattached();
        bench.attach();
        bench
    }

    /// The first front has initialised the backend.
    fn initialized() -> Self {
        let mut bench = Self::new();
        bench.front(&initialize("0", "2025-06-18", "{}"));
        assert_eq!(bench.backend_gets(), [initialize("0", "2025-06-18", "{}")]);
        bench.backend(&ANSWER.replace("ID", "0"));
        assert_eq!(bench.front_gets(), [ANSWER.replace("ID", "0")]);
        bench.front(INITIALIZED);
        assert_eq!(bench.backend_gets(), [INITIALIZED]);
        bench
    }

    fn attach(&mut self) -> Attached {
        self.relay.attach(None, None, self.now)
    }

    /// The front goes, and another one comes and has initialised.
    fn reconnect(&mut self, capabilities: &str) {
        self.relay.detach(0, false, self.now);
        assert!(self.attach().resumed);
        self.front(&initialize("0", "2025-06-18", capabilities));
        // After a cut, what is under way is not disturbed.
        if self.relay.is_idle() {
            self.is_pinged();
        }
        assert_eq!(self.front_gets(), [ANSWER.replace("ID", "0")]);
        self.front(INITIALIZED);
        assert_eq!(self.backend_gets(), [""; 0]);
    }

    /// The backend gets a ping of ours, and answers it.
    fn is_pinged(&mut self) {
        let pings = self.backend_gets();
        assert_eq!(pings.len(), 1, "{pings:?}");
        let ping: serde_json::Value = serde_json::from_str(&pings[0]).expect("JSON");
        assert_eq!(ping["method"], "ping");
        self.backend(&answer(&ping["id"].to_string()));
    }

    fn front(&mut self, line: &str) {
        self.relay
            .from_front(Bytes::copy_from_slice(line.as_bytes()), self.now);
    }

    fn backend(&mut self, line: &str) {
        self.relay
            .from_backend(Bytes::copy_from_slice(line.as_bytes()), self.now);
    }

    fn front_sends(&mut self, line: &[u8]) {
        self.relay
            .from_front(Bytes::copy_from_slice(line), self.now);
    }

    fn backend_sends(&mut self, line: &[u8]) {
        self.relay
            .from_backend(Bytes::copy_from_slice(line), self.now);
    }

    fn front_gets(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.relay.pull_front())
            .map(text)
            .collect()
    }

    fn backend_gets(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.relay.pull_backend())
            .map(text)
            .collect()
    }

    /// Time passes up to the next deadline. A backend that has ended is wanted meanwhile.
    fn wait(&mut self) {
        if self.relay.rests() {
            self.relay.wake(self.now);
        }
        self.now = self.relay.next_deadline().expect("deadline").max(self.now);
        self.relay.tick(self.now);
    }

    fn dies(&mut self) {
        self.relay.backend_exited("exit status: 1", None, self.now);
        let told = |effect: &Effect| matches!(effect, Effect::Ended(_));
        self.relay.effects.retain(|effect| !told(effect));
    }

    /// Somebody wants the backend that has ended, which is started if it is due.
    fn starts(&mut self) {
        self.relay.wake(self.now);
        assert_eq!(self.relay.effects(), [Effect::Start]);
        self.relay.backend_started(self.now);
    }

    fn dropped(&self) -> u64 {
        self.relay.view(self.now).dropped
    }
}

fn text(line: Bytes) -> String {
    String::from_utf8(line.into()).expect("text")
}

fn initialize(id: &str, version: &str, capabilities: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{capabilities},"clientInfo":{{}}}}}}"#
    )
}

fn call(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"x"}}}}"#)
}

fn ask(id: &str, method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#)
}

fn answer(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"ok":true}}}}"#)
}

fn notice(number: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"n":{number}}}}}"#)
}

fn unknown(id: &str, message: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"{message}","data":{{"outcome":"unknown"}}}}}}"#
    )
}

/// What the backend is told of a `subscriptions/listen` whose front has left.
fn left(id: &str) -> String {
    let params = format!(r#"{{"requestId":{id},"reason":"the host disconnected"}}"#);
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#)
}

/// The error for a call that was carried out.
fn not_kept(id: &str, message: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"{message}","data":{{"outcome":"not_kept"}}}}}}"#
    )
}

fn failed(id: &str, message: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"{message}"}}}}"#)
}
