//! Writers of state and events that note what was acknowledged to them, and what must then be
//! found.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};

use mcp_sessiond_tests::{PATIENCE, RetryingPeer, World};
use serde_json::{Value, json};

pub(crate) const WRITERS: usize = 16;
/// Two writers share one, so that they share its numbers, and one of its streams.
const SESSIONS: usize = WRITERS / 2;

/// Characters of a large value, and more.
const LARGE: usize = 66_000;

/// How much was acknowledged to all writers together.
#[derive(Default)]
pub(crate) struct Progress {
    count: Mutex<u64>,
    more: Condvar,
}

impl Progress {
    fn one_more(&self) {
        *self.count.lock().expect("a number") += 1;
        self.more.notify_all();
    }

    fn wait_more(&self, more: u64) {
        let count = self.count.lock().expect("a number");
        let enough = *count + more;
        let waited = self
            .more
            .wait_timeout_while(count, PATIENCE, |count| *count < enough);
        assert!(
            !waited.expect("a number").1.timed_out(),
            "waited {PATIENCE:?} in vain: writing goes on"
        );
    }
}

/// Waits until some more was acknowledged, and then a while that is different every time.
pub(crate) fn some_progress(done: &Progress, random: &mut fastrand::Rng) {
    done.wait_more(random.u64(1..40));
    (0..random.u32(0..200_000)).for_each(|_| std::hint::spin_loop());
}

/// What one writer was told is kept.
pub(crate) struct Written {
    session: String,
    /// Events by their text.
    events: HashMap<String, Value>,
    /// State by key, and its version.
    state: HashMap<String, (String, Value)>,
}

/// Lets the writers write while `trouble` goes on, each through one of these worlds' daemons.
pub(crate) fn write_under(
    worlds: &[&World],
    random: &mut fastrand::Rng,
    trouble: impl FnOnce(&mut fastrand::Rng, &Progress),
) -> Vec<Written> {
    let mut caller = RetryingPeer::new(worlds[0].socket());
    for number in 0..SESSIONS {
        let create = json!({"service": "web", "session": session(number), "request": format!("create-{number}")});
        caller.done("create_session", create);
    }
    let (done, enough) = (Progress::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                // Those who share a session go through different daemons, where there are several.
                let world = worlds[number / SESSIONS % worlds.len()];
                let (socket, random, done, enough) =
                    (world.socket(), random.fork(), &done, &enough);
                scope.spawn(move || {
                    let mut writer = Writer::new(number, RetryingPeer::new(socket), random);
                    while !enough.load(Ordering::Relaxed) {
                        writer.write();
                        done.one_more();
                    }
                    writer.written
                })
            })
            .collect();
        trouble(random, &done);
        enough.store(true, Ordering::Relaxed);
        writers
            .into_iter()
            .map(|writer| writer.join().expect("a writer"))
            .collect()
    })
}

fn session(number: usize) -> String {
    format!("session-{}", number % SESSIONS)
}

struct Writer {
    number: usize,
    caller: RetryingPeer,
    random: fastrand::Rng,
    turn: u64,
    written: Written,
}

impl Writer {
    fn new(number: usize, mut caller: RetryingPeer, random: fastrand::Rng) -> Self {
        let session = session(number);
        let of = json!({"service": "web", "session": session});
        caller.done(
            "open_stream",
            json!({"of": of, "stream": format!("stream-{number}")}),
        );
        let written = Written {
            session,
            events: HashMap::new(),
            state: HashMap::new(),
        };
        Self {
            number,
            caller,
            random,
            turn: 0,
            written,
        }
    }

    fn write(&mut self) {
        self.turn += 1;
        let of = json!({"service": "web", "session": self.written.session});
        if self.random.u8(0..3) == 0 {
            self.set_state(&of);
        } else {
            self.append(&of);
        }
    }

    fn append(&mut self, of: &Value) {
        let text = |at: u64| json!(format!("{} {} {at}", self.number, self.turn)).to_string();
        let messages: Vec<String> = (0..self.random.u64(1..5)).map(text).collect();
        let own = format!("stream-{}", self.number);
        let stream = if self.random.bool() {
            own.as_str()
        } else {
            "_GET_stream"
        };
        let request = format!("{}-{}", self.number, self.turn);
        let append = json!({"of": of, "stream": stream, "request": request, "messages": messages});
        let appended = self.caller.done("append", append);
        let appended = appended.as_array().expect("events");
        assert_eq!(appended.len(), messages.len());
        for (event, text) in appended.iter().zip(messages) {
            self.written.events.insert(text, event.clone());
        }
    }

    fn set_state(&mut self, of: &Value) {
        let key = format!("{} {}", self.number, self.random.u8(0..8));
        let expected = self
            .written
            .state
            .get(&key)
            .map_or(json!("0"), |(_, version)| version.clone());
        let value = match self.random.u8(0..10) {
            // SQLite's redo log takes none of that size.
            0 => json!(self.turn.to_string().repeat(LARGE)).to_string(),
            _ => self.turn.to_string(),
        };
        let write = json!({"key": key, "value": value, "expected": expected});
        let request = format!("{}-{}", self.number, self.turn);
        // It is repeated when its answer is lost, and never meets itself.
        let write = json!({"of": of, "writes": [write], "request": request});
        let version = self.caller.done("write_state", write)[0]["version"].clone();
        assert_ne!(version, expected, "a version was given twice");
        self.written.state.insert(key, (value, version));
    }
}

/// Compares what is there with what was acknowledged.
pub(crate) fn check(world: &World, written: &[Written]) {
    let mut caller = RetryingPeer::new(world.socket());
    let (mut events, mut values) = (0, 0);
    for number in 0..SESSIONS {
        let session = session(number);
        let of = json!({"service": "web", "session": session});
        let found = replay_all(&mut caller, &of);
        let mut positions: HashMap<&str, u64> = HashMap::new();
        for (event, expected) in found.iter().zip(1_u64..) {
            assert_eq!(
                event["number"],
                expected.to_string(),
                "numbers have no gaps, and none comes twice"
            );
            let position = positions
                .entry(event["stream"].as_str().expect("a stream"))
                .or_default();
            *position += 1;
            assert_eq!(
                event["position"],
                position.to_string(),
                "nor have positions"
            );
        }
        let view = caller.done("get_session", json!({"service": "web", "session": session}));
        assert_eq!(
            view["last_number"],
            found.len().to_string(),
            "there is none that is not told"
        );
        let by_text: HashMap<&str, &Value> = found
            .iter()
            .map(|event| (event["message"].as_str().expect("a text"), event))
            .collect();
        assert_eq!(
            by_text.len(),
            found.len(),
            "what was repeated is there once"
        );
        for one in written.iter().filter(|one| one.session == session) {
            for (text, told) in &one.events {
                let kept = by_text
                    .get(text.as_str())
                    .unwrap_or_else(|| panic!("{text} is lost"));
                for field in ["id", "stream", "position", "number"] {
                    assert_eq!(kept[field], told[field], "{text}");
                }
            }
            for (key, (value, version)) in &one.state {
                let read = caller.done("read_state", json!({"of": of, "keys": [key]}));
                assert_eq!(
                    (&read[0]["value"], &read[0]["version"]),
                    (&json!(value), version),
                    "{key}"
                );
            }
            events += one.events.len();
            values += one.state.len();
        }
    }
    assert!(
        events > 5 * WRITERS && values > WRITERS,
        "{events} events and {values} values are no test"
    );
}

fn replay_all(caller: &mut RetryingPeer, of: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    let mut after = json!({"number": "0"});
    loop {
        let page = caller.done("replay", json!({"of": of, "after": after}));
        assert_eq!(page["gaps"], json!([]));
        found.extend(page["events"].as_array().expect("events").iter().cloned());
        after = page["next"][0].clone();
        if page["more"] == false {
            return found;
        }
    }
}
