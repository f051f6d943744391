//! Keepers that do not answer. One that can't, since it is stopped, is waited for as long as its
//! host waits. One that could, and does not, is ended.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use mcp_sessiond_tests::{
    Backend, Client, Front, World, copy_program, gone, leave_descriptors, lives, signal, until,
    write_program,
};
use nix::sys::signal::Signal;

use super::by_hand::say;
use super::{connect, keeping, servers, tiny, wrapped};
use crate::several;

/// What the user is told of a keeper that is stopped.
fn notice(backend: &Backend) -> String {
    let pid = backend.keeper;
    format!("(pid {pid}) is stopped; waiting for it; `mcp-sessiond restart {pid}` ends it")
}

/// Has a process go on after this time. How long a process is stopped is what these tests are
/// about.
fn goes_on_after(pid: u32, time: Duration) -> JoinHandle<()> {
    spawn(move || {
        sleep(time);
        signal(pid, Signal::SIGCONT);
    })
}

/// A front leaves, its keeper is stopped for a time, and the next front begins meanwhile.
#[track_caller]
fn assert_counts_on(world: &World, words: &[String], tool: &str, stopped_ms: u64) {
    let mut first = Client::connected(world.front(words));
    assert_eq!(first.call(tool, serde_json::json!({})), "1");
    let backend = world.backend();
    let server = backend.pid();
    signal(backend.keeper, Signal::SIGSTOP);
    first.pipe.kill();
    let goes_on = goes_on_after(backend.keeper, Duration::from_millis(stopped_ms));
    let mut second = Client::new(world.front(words));
    let initialize = second.begin_initialize("test");
    goes_on.join().expect("it went on");
    second.initialized(initialize);
    assert_eq!(
        second.call(tool, serde_json::json!({})),
        "2",
        "{stopped_ms} ms"
    );
    assert_eq!(
        (world.backend().keeper, world.backend().pid()),
        (backend.keeper, server)
    );
    let is_told = second.pipe.errors.text().contains(&notice(&backend));
    assert_eq!(is_told, stopped_ms > 2_500, "{}", second.pipe.errors.text());
    second.pipe.kill();
    world.backend().wait_alone();
}

#[test]
fn a_keeper_that_is_stopped_is_waited_for() {
    for stopped_ms in [500, 1_900, 5_000] {
        let world = keeping("");
        let _daemon = world.daemon();
        assert_counts_on(
            &world,
            &wrapped(&world, &tiny(&world)),
            "increment",
            stopped_ms,
        );
    }
}

#[test]
fn a_keeper_that_is_stopped_for_half_a_minute_is_waited_for() {
    let world = keeping("");
    let _daemon = world.daemon();
    assert_counts_on(&world, &wrapped(&world, &tiny(&world)), "increment", 30_000);
}

#[test]
fn the_keeper_of_a_named_server_is_waited_for() {
    let world = keeping("");
    let _daemon = world.daemon();
    let words = world.wrapping(&["--name", "page"], &tiny(&world));
    assert_counts_on(&world, &words, "increment", 5_000);
}

#[test]
fn the_keeper_of_a_server_that_is_started_at_its_first_call_is_waited_for() {
    let world = keeping("");
    let _daemon = world.daemon();
    let words = world.wrapping(&["--lazy"], &tiny(&world));
    assert_counts_on(&world, &words, "increment", 5_000);
}

#[test]
fn the_keepers_of_several_servers_are_waited_for() {
    let world = keeping("");
    let _daemon = world.daemon();
    several::write_down(&world, &[("one", several::small(&world))]);
    assert_counts_on(&world, &several::all(&world, &[]), "increment", 5_000);
}

/// A client that is held, since the keeper of its server is stopped; and the server.
fn waiting(world: &World) -> (Client<Front>, Backend, u32) {
    let mut first = connect(world, &tiny(world));
    assert_eq!(first.count(), 1);
    let backend = world.backend();
    let server = backend.pid();
    signal(backend.keeper, Signal::SIGSTOP);
    first.pipe.kill();
    let mut next = Client::new(world.front(&wrapped(world, &tiny(world))));
    next.begin_initialize("test");
    next.pipe.errors.wait(&notice(&backend));
    (next, backend, server)
}

#[test]
fn restart_ends_a_keeper_that_is_stopped() {
    let world = keeping("");
    let _daemon = world.daemon();
    let (mut next, backend, server) = waiting(&world);
    let said = say(&world, &["restart", &backend.keeper.to_string()]);
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    gone(backend.keeper);
    gone(server);
    next.answer(1);
    assert_eq!(next.count(), 1);
}

#[test]
fn stop_ends_a_keeper_that_is_stopped_at_once() {
    let world = keeping("stop_wait_ms = 60000");
    let _daemon = world.daemon();
    let (_next, backend, _) = waiting(&world);
    let said = say(&world, &["stop", &backend.keeper.to_string()]);
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    assert!(!lives(backend.keeper));
}

/// The host waits for an answer, and its front finds out why none comes.
fn assert_told(world: &World, client: &mut Client<Front>) {
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    signal(backend.keeper, Signal::SIGSTOP);
    let call = client.begin("increment", serde_json::json!({}));
    client.pipe.errors.wait(&notice(&backend));
    signal(backend.keeper, Signal::SIGCONT);
    assert_eq!(client.text(call).as_deref(), Ok("2"));
}

#[test]
fn whoever_waits_for_a_keeper_that_is_stopped_meanwhile_is_told() {
    let world = keeping("");
    let _daemon = world.daemon();
    assert_told(&world, &mut connect(&world, &tiny(&world)));
}

#[test]
fn whoever_waits_for_one_of_several_keepers_is_told() {
    let world = keeping("");
    let _daemon = world.daemon();
    several::write_down(&world, &[("one", several::small(&world))]);
    let mut client = Client::connected(world.front(&several::all(&world, &[])));
    assert_told(&world, &mut client);
}

/// A control group (cgroups(7)) that freezes what is in it.
struct ControlGroup {
    directory: PathBuf,
    /// The file that freezes it, what is written there to freeze it and to have it go on, and the file
    /// and the line that tell that it is frozen.
    freezes: (&'static str, [&'static str; 2]),
    frozen: (&'static str, &'static str),
}

impl ControlGroup {
    /// One of each version that this system has, and lets this process make. Where there is none, it
    /// is said why.
    fn all() -> Vec<Self> {
        let second = (("cgroup.freeze", ["1", "0"]), ("cgroup.events", "frozen 1"));
        let first = (
            ("freezer.state", ["FROZEN", "THAWED"]),
            ("freezer.state", "FROZEN"),
        );
        let kinds = [
            ("/sys/fs/cgroup", second),
            ("/sys/fs/cgroup/unified", second),
            ("/sys/fs/cgroup/freezer", first),
        ];
        let make = |(mount, (freezes, frozen)): (&str, _)| {
            let directory = Path::new(mount).join(format!("mcps-{}", std::process::id()));
            let made = fs::create_dir(&directory);
            let group = Self {
                directory,
                freezes,
                frozen,
            };
            let is_one = made.is_ok() && group.directory.join(freezes.0).exists();
            if !is_one {
                let _ = writeln!(
                    io::stderr(),
                    "not tested: there can be no control group in {mount} that freezes: {made:?}"
                );
            }
            is_one.then_some(group)
        };
        kinds.into_iter().filter_map(make).collect()
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.directory.join(file), text).expect("it takes that");
    }

    fn freeze(&self, pid: u32) {
        self.write("cgroup.procs", &pid.to_string());
        self.write(self.freezes.0, self.freezes.1[0]);
        let (file, line) = self.frozen;
        // Nothing tells of it in both versions.
        until("it is frozen", || {
            let text = fs::read_to_string(self.directory.join(file)).ok()?;
            text.lines().any(|other| other == line).then_some(())
        });
    }

    fn go_on(&self) {
        self.write(self.freezes.0, self.freezes.1[1]);
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = fs::write(self.directory.join(self.freezes.0), self.freezes.1[1]);
        // Not while there is a process in it.
        let _ = fs::remove_dir(&self.directory);
    }
}

/// As a container's are that is paused. The second version leaves a process in the state of one that
/// waits, and could answer.
#[test]
fn a_keeper_in_a_frozen_control_group_is_waited_for() {
    for group in ControlGroup::all() {
        let world = keeping("");
        let _daemon = world.daemon();
        let mut first = connect(&world, &tiny(&world));
        assert_eq!(first.count(), 1);
        let backend = world.backend();
        backend.cut_off(&mut first.pipe);
        group.freeze(backend.keeper);
        let mut next = Client::new(world.front(&wrapped(&world, &tiny(&world))));
        let asked = next.begin_initialize("test");
        next.pipe.errors.wait(&notice(&backend));
        // Longer than a keeper may be silent.
        sleep(Duration::from_secs(7));
        assert!(lives(backend.keeper));
        group.go_on();
        next.initialized(asked);
        assert_eq!(next.count(), 2);
        assert_eq!(world.backend().keeper, backend.keeper);
        backend.kill_keeper();
        // When nothing is in it any more, nothing tells.
        until("it is removed", || fs::remove_dir(&group.directory).ok());
    }
}

/// Nothing outlives its owner, also where it can't end by itself.
#[test]
fn a_keeper_that_is_stopped_is_killed_with_its_host() {
    let world = keeping("stop_wait_ms = 60000");
    let _daemon = world.daemon();
    let host = world.host();
    let words = wrapped(&world, &tiny(&world));
    let mut client = Client::connected(host.front(&words));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    let server = backend.pid();
    signal(backend.keeper, Signal::SIGSTOP);
    drop(host);
    gone(backend.keeper);
    gone(server);
}

/// A keeper that serves as many connections as it does at a time, each of which says nothing, does
/// not answer the next one, although it could.
#[test]
fn a_keeper_that_hangs_is_ended_and_a_fresh_one_is_started() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut first = connect(&world, &tiny(&world));
    assert_eq!(first.count(), 1);
    let backend = world.backend();
    let _mute: Vec<UnixStream> = (0..64)
        .map(|_| UnixStream::connect(backend.socket()).expect("it listens"))
        .collect();
    first.pipe.kill();
    let mut second = connect(&world, &tiny(&world));
    assert_eq!(second.count(), 1);
    second
        .pipe
        .errors
        .wait("begins afresh: the process that kept the previous server did not answer");
    gone(backend.keeper);
    world.log.wait("its keeper did not answer");
}

/// It says that it is busy, and is alive by that.
#[test]
#[ignore = "needs root"]
fn a_keeper_without_descriptors_is_waited_for() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut first = connect(&world, &tiny(&world));
    assert_eq!(first.count(), 1);
    let backend = world.backend();
    backend.cut_off(&mut first.pipe);
    leave_descriptors(backend.keeper, Some(0));
    let mut next = Client::new(world.front(&wrapped(&world, &tiny(&world))));
    let asked = next.begin_initialize("test");
    // Longer than a keeper may be silent.
    sleep(Duration::from_secs(7));
    assert!(lives(backend.keeper));
    leave_descriptors(backend.keeper, None);
    next.initialized(asked);
    assert_eq!(next.count(), 2);
    assert_eq!(world.backend().keeper, backend.keeper);
}

/// A front that starts while the daemon hangs finds by the keepers that its server is kept.
#[test]
fn no_server_is_started_beside_the_kept_one_while_the_daemon_hangs() {
    let world = keeping("");
    let plain = wrapped(&world, &tiny(&world));
    none_is_started_beside(&world, &plain);
}

#[test]
fn no_server_of_a_list_is_started_beside_the_kept_one_while_the_daemon_hangs() {
    let world = keeping("");
    several::write_down(&world, &[("only", several::small(&world))]);
    let all = several::all(&world, &[]);
    none_is_started_beside(&world, &all);
}

/// A front that has all time to start its server. Those after it wait for 300 ms: by the file, since a
/// variable is a part of what tells servers apart.
fn first_of_the_hurried(world: &World, words: &[String]) -> Client<Front> {
    let settings = fs::read_to_string(world.config()).expect("the configuration");
    let waiting = |ms: u32| world.configure(&format!("wrap.keeper_wait_ms = {ms}\n{settings}"));
    waiting(60_000);
    let mut client = Client::connected(world.front(words));
    assert_eq!(client.count(), 1);
    waiting(300);
    client
}

fn none_is_started_beside(world: &World, words: &[String]) {
    let daemon = world.daemon();
    let mut first = first_of_the_hurried(world, words);
    let backend = world.backend();
    let server = backend.pid();
    backend.cut_off(&mut first.pipe);
    daemon.signal(Signal::SIGSTOP);
    let mut next = Client::new(world.front(words));
    let asked = next.begin_initialize("test");
    next.pipe.errors.wait("is kept for this host");
    assert_eq!(servers(world), [server]);
    daemon.signal(Signal::SIGCONT);
    next.initialized(asked);
    assert_eq!(next.count(), 2);
    assert_eq!(servers(world), [server]);
}

/// The daemon hangs for as long as a front waits for the answer to its claim, and goes on while the
/// front finds out why there was none: that is no answer. Each round is another moment in between.
#[track_caller]
fn one_server_however_long_the_daemon_hangs(world: &World, words: &[String]) {
    let daemon = world.daemon();
    let mut client = first_of_the_hurried(world, words);
    let server = world.backend().pid();
    for (round, hangs_ms) in (1..).zip([310, 330, 450, 600, 800, 1_000, 1_200, 1_280]) {
        world.backend().cut_off(&mut client.pipe);
        daemon.signal(Signal::SIGSTOP);
        client = Client::new(world.front(words));
        let asked = client.begin_initialize("test");
        let goes_on = goes_on_after(daemon.pid(), Duration::from_millis(hangs_ms));
        let answer = client.initialized(asked);
        goes_on.join().expect("it went on");
        if answer.get("error").is_some() {
            until("it is there", || {
                client.initialize().get("result").is_some().then_some(())
            });
        }
        assert_eq!(client.count(), round + 1, "after {hangs_ms} ms");
        assert_eq!(servers(world), [server], "after {hangs_ms} ms");
    }
}

#[test]
fn a_wrapped_server_is_one_however_long_the_daemon_hangs() {
    let world = keeping("");
    one_server_however_long_the_daemon_hangs(&world, &wrapped(&world, &tiny(&world)));
}

#[test]
fn a_lazy_server_is_one_however_long_the_daemon_hangs() {
    let world = keeping("");
    let words = world.wrapping(&["--lazy"], &tiny(&world));
    one_server_however_long_the_daemon_hangs(&world, &words);
}

#[test]
fn a_named_server_is_one_however_long_the_daemon_hangs() {
    let world = keeping("");
    let words = world.wrapping(&["--name", "page"], &tiny(&world));
    one_server_however_long_the_daemon_hangs(&world, &words);
}

#[test]
fn a_server_of_the_file_is_one_however_long_the_daemon_hangs() {
    let world = keeping("");
    several::write_down(&world, &[("only", several::small(&world))]);
    let words = wrapped(&world, &["@only".to_owned()]);
    one_server_however_long_the_daemon_hangs(&world, &words);
}

#[test]
fn a_server_of_a_list_is_one_however_long_the_daemon_hangs() {
    let world = keeping("");
    several::write_down(&world, &[("only", several::small(&world))]);
    one_server_however_long_the_daemon_hangs(&world, &several::all(&world, &[]));
}

#[test]
fn a_shared_server_is_one_however_long_the_daemon_hangs() {
    let world = keeping("");
    let mut entry = several::small(&world);
    entry["shared"] = true.into();
    several::write_down(&world, &[("only", entry)]);
    let words = wrapped(&world, &["@only".to_owned()]);
    one_server_however_long_the_daemon_hangs(&world, &words);
}

/// The server of another directory is another one.
#[test]
fn while_the_daemon_hangs_a_server_that_is_not_kept_is_run_as_it_is() {
    let world = keeping("");
    let daemon = world.daemon();
    let mut first = connect(&world, &tiny(&world));
    assert_eq!(first.count(), 1);
    daemon.signal(Signal::SIGSTOP);
    let wait = [("MCP_SESSIOND_WRAP_KEEPER_WAIT_MS", "300")];
    let other = [&tiny(&world)[..], &["other".to_owned()]].concat();
    let mut next = Client::connected(world.front_with(&wrapped(&world, &other), &wait));
    assert_eq!(next.count(), 1);
    next.pipe.errors.wait("is run without being kept");
    daemon.signal(Signal::SIGCONT);
}

/// What a name stands for runs once, whatever becomes of the daemon.
#[test]
fn a_name_has_one_server_while_the_daemon_hangs() {
    let world = keeping("");
    let daemon = world.daemon();
    let words = world.wrapping(&["--name", "page"], &tiny(&world));
    let mut first = Client::connected(world.front(&words));
    assert_eq!(first.count(), 1);
    let backend = world.backend();
    let server = backend.pid();
    backend.cut_off(&mut first.pipe);
    daemon.signal(Signal::SIGSTOP);
    let wait = [("MCP_SESSIOND_WRAP_KEEPER_WAIT_MS", "300")];
    let mut next = Client::new(world.front_with(&words, &wait));
    let answer = next.initialize();
    assert_eq!(answer["error"]["data"]["outcome"], "not_sent", "{answer}");
    let why = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(why.contains("the daemon does not answer"), "{answer}");
    assert_eq!(servers(&world), [server]);
    daemon.signal(Signal::SIGCONT);
    // When it is tried again, nothing tells.
    until("it is there", || {
        next.initialize().get("result").is_some().then_some(())
    });
    assert_eq!(next.count(), 2);
}

#[test]
fn a_name_has_one_server_also_without_a_daemon() {
    let world = keeping("");
    let words = world.wrapping(&["--no-start", "--name", "page"], &tiny(&world));
    let mut first = Client::connected(world.front(&words));
    assert_eq!(first.count(), 1);
    first.pipe.errors.wait("is run without being kept");
    let mut second = Client::new(world.front(&words));
    let answer = second.initialize();
    let why = answer["error"]["message"].as_str().unwrap_or_default();
    let holder = format!("(pid {}), which runs it without a daemon", first.pipe.pid());
    assert!(why.contains(&holder), "{answer}");
    // Another name is another server.
    let other = world.wrapping(&["--no-start", "--name", "other"], &tiny(&world));
    assert_eq!(Client::connected(world.front(&other)).count(), 1);
    second.pipe.kill();
    // A daemon does not know of it, and its lease alone does not make it free.
    let _daemon = world.daemon();
    let words = world.wrapping(&["--name", "page"], &tiny(&world));
    let mut third = Client::new(world.front(&words));
    third.begin_initialize("test");
    third.pipe.errors.wait(&holder);
    first.pipe.kill();
    until("it is free", || {
        third.initialize().get("result").is_some().then_some(())
    });
    assert_eq!(third.count(), 1);
}

/// What the keepers say is shown, and why it is all.
#[test]
fn a_daemon_that_hangs_keeps_no_command_waiting() {
    let world = keeping("");
    let daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    daemon.signal(Signal::SIGSTOP);
    let hangs = "the daemon has not answered for 2 s";
    let said = say(&world, &["status"]);
    assert_eq!(said.code, Some(69), "{}", said.err);
    assert!(
        said.err.contains(hangs) && said.out.contains("tiny"),
        "{}{}",
        said.out,
        said.err
    );
    let said = say(&world, &["logs"]);
    assert!(said.err.contains(hangs), "{}", said.err);
    // Only the daemon could say these.
    for verb in ["debug", "stats"] {
        let said = say(&world, &[verb]);
        assert_eq!((said.code, &*said.out), (Some(69), ""), "{}", said.err);
        assert!(
            said.err.contains(hangs) && !said.err.contains("keepers"),
            "{}",
            said.err
        );
    }
    let found = world
        .sessiond(&["doctor", "--json"])
        .output()
        .expect("it runs");
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(found.contains(hangs), "{found}");
    let said = say(&world, &["stop", &backend.keeper.to_string()]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.err.contains(hangs), "{}", said.err);
    gone(backend.keeper);
    daemon.signal(Signal::SIGCONT);
}

/// A front whose keeper is started by this script, in the place of the executable.
fn front_with_starter(world: &World, script: &str) -> Front {
    let mut words = wrapped(world, &tiny(world));
    let (copy, starter) = (
        world.root().join("mcp-sessiond"),
        world.root().join("starter"),
    );
    copy_program(&words[0], &copy);
    let script = script.replace("KEEP", &words[0]);
    write_program(&starter, &format!("#!/bin/sh\n{script}\n"));
    words[0] = copy.to_str().expect("UTF-8").to_owned();
    let wait = [("MCP_SESSIOND_WRAP_KEEPER_WAIT_MS", "300")];
    let front = world.front_with(&words, &wait);
    // The front starts its keeper with what is there by then.
    fs::rename(&starter, &copy).expect("replaced");
    front
}

/// A keeper that takes longer to start than `wrap.keeper_wait_ms`, and works: on a slow machine.
#[test]
fn a_keeper_that_is_slow_to_start_is_waited_for() {
    let world = keeping("");
    let _daemon = world.daemon();
    let script = "timeout 0.5 sh -c 'while :; do :; done'\nexec KEEP \"$@\"";
    let mut client = Client::connected(front_with_starter(&world, script));
    assert_eq!(client.count(), 1);
    assert_eq!(world.backends().len(), 1, "it is kept");
}

/// The server has to start in the time that a host waits, too.
#[test]
fn a_keeper_that_is_too_slow_to_start_leaves_the_server_unkept_and_status_says_why() {
    let world = keeping("");
    let _daemon = world.daemon();
    let script = "exec sh -c 'while :; do :; done' \"$@\"";
    let mut client = Client::connected(front_with_starter(&world, script));
    assert_eq!(client.count(), 1);
    let why = "it was still starting when the time was over that a host waits";
    client.pipe.errors.wait(why);
    let said = say(&world, &["status", "--json"]);
    assert!(said.out.contains(why), "{}", said.out);
    assert_eq!(servers(&world).len(), 1, "the keeper that was late is gone");
}

/// Its front has given up, and runs the server itself.
#[test]
fn a_keeper_that_nobody_waits_for_starts_nothing() {
    let world = keeping("");
    let _daemon = world.daemon();
    let script = "shift\nKEEP keep --detached \"$@\" | true";
    let mut client = Client::connected(front_with_starter(&world, script));
    assert_eq!(client.count(), 1);
    client.pipe.errors.wait("is run without being kept");
    let own = client.call("parent", serde_json::json!({}));
    assert_eq!(own, client.pipe.pid().to_string());
    assert_eq!(
        servers(&world).len(),
        1,
        "no keeper has started another one"
    );
}
