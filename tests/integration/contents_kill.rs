//! The daemon is killed with SIGKILL under writers of state and events: what was acknowledged is there, no number is
//! given twice, and nothing is missing in between. With `durability = "power"` the files are cut back to their last
//! fsync, too.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mcp_sessiond::fault::{CONTENTS_COMMIT, VARIABLE};
use mcp_sessiond_tests::{Daemon, Steady, World, random, until};
use serde_json::{Value, json};

use crate::{fixture, world};

const WRITERS: usize = 16;
/// Two writers share one, so that they share its numbers, and one of its streams.
const SESSIONS: usize = WRITERS / 2;
const KILLS: u32 = 200;

#[test]
fn nothing_acknowledged_is_lost_in_200_kills() {
    // Nothing is pruned here, so every number must be found.
    let world = world("[limits]\nevents = 1000000\nstream_events = 1000000\nstate_keys = 100000\n");
    let mut daemon = world.daemon();
    let mut random = random();
    let written = write_under(&world, &mut random, |random, done| {
        for round in 0..KILLS {
            if round % 2 == 0 {
                some_progress(done, random);
                daemon.kill();
            } else {
                until("the daemon dies at its point", || daemon.ended());
            }
            let fault = format!("{CONTENTS_COMMIT}:{}", random.u32(0..60));
            let variables = [(VARIABLE, fault.as_str())];
            // The one that comes next is killed at its point, and the one after that at any moment.
            daemon.start_with(if round % 2 == 0 { &variables } else { &[] });
        }
    });
    daemon.restart();
    check(&world, &written);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_power_goes() {
    let world = power_world("power");
    let mut daemon = start_synced(&world);
    let mut random = random();
    let written = write_under(&world, &mut random, |random, done| {
        for _ in 0..KILLS {
            some_progress(done, random);
            daemon.kill();
            cut_back(&world);
            daemon.start_again();
        }
    });
    daemon.kill();
    cut_back(&world);
    daemon.start_again();
    check(&world, &written);
}

/// What the test above would find if nothing were synced.
#[test]
fn without_that_durability_the_power_takes_what_was_not_synced() {
    let world = power_world("process");
    let mut daemon = start_synced(&world);
    let mut caller = Steady::new(world.socket());
    caller.done("create_session", json!({"service": "web", "session": "s"}));
    daemon.restart();
    caller.done("get_session", json!({"service": "web", "session": "s"}));
    daemon.kill();
    cut_back(&world);
    daemon.start_again();
    let (lost, _) = caller.call("get_session", &json!({"service": "web", "session": "s"}));
    assert_eq!(lost.expect_err("it was not synced")["code"], "unknown_session");
}

/// Waits until some more was acknowledged, and then a while that is different every time.
fn some_progress(done: &AtomicU64, random: &mut fastrand::Rng) {
    let enough = done.load(Ordering::Relaxed) + random.u64(1..40);
    until("writing goes on", || (done.load(Ordering::Relaxed) >= enough).then_some(()));
    (0..random.u32(0..200_000)).for_each(|_| std::hint::spin_loop());
}

/// What one writer was told is kept.
struct Written {
    session: String,
    /// Events by their text.
    events: HashMap<String, Value>,
    /// State by key, and its version.
    state: HashMap<String, (String, Value)>,
}

/// Lets the writers write while `trouble` goes on.
fn write_under(
    world: &World,
    random: &mut fastrand::Rng,
    trouble: impl FnOnce(&mut fastrand::Rng, &AtomicU64),
) -> Vec<Written> {
    let mut caller = Steady::new(world.socket());
    for number in 0..SESSIONS {
        let create =
            json!({"service": "web", "session": session(number), "request": format!("create-{number}")});
        caller.done("create_session", create);
    }
    let (done, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let (socket, random, done, enough) = (world.socket(), random.fork(), &done, &enough);
                scope.spawn(move || {
                    let mut writer = Writer::new(number, Steady::new(socket), random);
                    while !enough.load(Ordering::Relaxed) {
                        writer.write();
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    writer.written
                })
            })
            .collect();
        trouble(random, &done);
        enough.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
    })
}

fn session(number: usize) -> String {
    format!("session-{}", number % SESSIONS)
}

struct Writer {
    number: usize,
    caller: Steady,
    random: fastrand::Rng,
    turn: u64,
    written: Written,
}

impl Writer {
    fn new(number: usize, mut caller: Steady, random: fastrand::Rng) -> Self {
        let session = session(number);
        let of = json!({"service": "web", "session": session});
        caller.done("open_stream", json!({"of": of, "stream": format!("stream-{number}")}));
        let written = Written { session, events: HashMap::new(), state: HashMap::new() };
        Self { number, caller, random, turn: 0, written }
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
        let stream = if self.random.bool() { own.as_str() } else { "_GET_stream" };
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
        let expected = self.written.state.get(&key).map_or(json!("0"), |(_, version)| version.clone());
        let value = self.turn.to_string();
        let write = json!({"key": key, "value": value, "expected": expected});
        let (answer, repeated) = self.caller.call("write_state", &json!({"of": of, "writes": [write]}));
        let version = match answer {
            Ok(entries) => entries[0]["version"].clone(),
            // The answer was lost, and what was asked for had been done.
            Err(error) if repeated && error["code"] == "version_conflict" => {
                let read = self.caller.done("read_state", json!({"of": of, "keys": [key]}));
                assert_eq!(read[0]["value"], value, "somebody else wrote this key: {read}");
                read[0]["version"].clone()
            }
            Err(error) => panic!("{error}"),
        };
        assert_ne!(version, expected, "a version was given twice");
        self.written.state.insert(key, (value, version));
    }
}

/// Compares what is there with what was acknowledged.
fn check(world: &World, written: &[Written]) {
    let mut caller = Steady::new(world.socket());
    let (mut events, mut values) = (0, 0);
    for number in 0..SESSIONS {
        let session = session(number);
        let of = json!({"service": "web", "session": session});
        let found = replay_all(&mut caller, &of);
        let mut positions: HashMap<&str, u64> = HashMap::new();
        for (event, expected) in found.iter().zip(1_u64..) {
            assert_eq!(event["number"], expected.to_string(), "numbers have no gaps, and none comes twice");
            let position = positions.entry(event["stream"].as_str().expect("a stream")).or_default();
            *position += 1;
            assert_eq!(event["position"], position.to_string(), "nor have positions");
        }
        let view = caller.done("get_session", json!({"service": "web", "session": session}));
        assert_eq!(view["last_number"], found.len().to_string(), "there is none that is not told");
        let by_text: HashMap<&str, &Value> =
            found.iter().map(|event| (event["message"].as_str().expect("a text"), event)).collect();
        assert_eq!(by_text.len(), found.len(), "what was repeated is there once");
        for one in written.iter().filter(|one| one.session == session) {
            for (text, told) in &one.events {
                let kept = by_text.get(text.as_str()).unwrap_or_else(|| panic!("{text} is lost"));
                for field in ["id", "stream", "position", "number"] {
                    assert_eq!(kept[field], told[field], "{text}");
                }
            }
            for (key, (value, version)) in &one.state {
                let read = caller.done("read_state", json!({"of": of, "keys": [key]}));
                assert_eq!((&read[0]["value"], &read[0]["version"]), (&json!(value), version), "{key}");
            }
            events += one.events.len();
            values += one.state.len();
        }
    }
    assert!(events > 1_000 && values > WRITERS, "{events} events and {values} values are no test");
}

fn replay_all(caller: &mut Steady, of: &Value) -> Vec<Value> {
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

/// A world whose sessions are kept outside of the runtime directory.
fn power_world(durability: &str) -> World {
    let world = world("");
    let database = database(&world);
    for directory in [database.parent().expect("a directory"), &shadow(&world)] {
        std::fs::create_dir(directory).expect("a directory");
    }
    world.configure(&format!(
        "[storage]\nurl = \"sqlite:{}\"\ndurability = \"{durability}\"\n[limits]\nevents = 1000000\nstream_events = 1000000\n",
        database.display()
    ));
    world
}

fn database(world: &World) -> PathBuf {
    world.root().join("disk").join("contents.db")
}

/// Where files are as they were when they were synced last.
fn shadow(world: &World) -> PathBuf {
    world.root().join("synced")
}

/// A daemon whose every fsync is witnessed.
fn start_synced(world: &World) -> Daemon {
    let library = world.root().join("witness.so");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(fixture("src/witness.c"))
        .arg("-ldl")
        .status()
        .expect("cc is installed");
    assert!(compiled.success());
    let mut command = world.sessiond(&["run"]);
    command
        .env("LD_PRELOAD", library)
        .env("WITNESS_OF", world.root().join("disk"))
        .env("WITNESS_IN", shadow(world));
    let daemon = world.spawn(command);
    daemon.ready();
    daemon
}

/// Leaves of each file what was synced last, as if the power had gone.
fn cut_back(world: &World) {
    let database = database(world);
    let directory = database.parent().expect("a directory");
    for name in ["contents.db", "contents.db-wal", "contents.db-shm"] {
        let (file, synced) = (directory.join(name), shadow(world).join(name));
        let _ = std::fs::remove_file(&file);
        if synced.exists() {
            copy(&synced, &file);
        }
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).expect("copied");
}
