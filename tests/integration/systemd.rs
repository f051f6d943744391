//! The user service, under a user manager of systemd's that is real and private.

mod install;
mod journal;
mod logout;
mod machine;
mod packaged;
mod serve;
mod service;

use std::fs::rename;
use std::io::Read as _;
use std::os::unix::net::UnixStream;

use mcp_sessiond_tests::{Host, Instance, PATIENCE, gone, signal, until, until_written};
use nix::sys::signal::Signal;

use self::machine::{Machine, SERVICE, SOCKET};
use crate::wrap;

/// An instance, and what it must have kept whatever becomes of the daemon.
struct StoredInstance {
    instance: Instance,
    session: String,
    epoch: Option<u64>,
}

impl StoredInstance {
    fn store(mut instance: Instance, token: &str) -> Self {
        let stored = instance.first_run(token);
        Self {
            session: stored.session(),
            epoch: stored.epoch,
            instance,
        }
    }

    #[track_caller]
    fn assert_kept(&mut self, token: &str) {
        let loaded = self.instance.load();
        loaded.assert_resumed(&self.session, Some(token));
        assert_eq!(loaded.epoch, self.epoch, "the lease is the same");
    }
}

/// A machine with the service installed, these lines on top in its `[Service]`, and a host whose
/// instance keeps `one`.
fn keeping(lines: &str) -> (Machine, Host, StoredInstance) {
    let machine = Machine::installed(lines);
    let host = machine.world.host();
    let kept = StoredInstance::store(host.instance(&[]), "one");
    (machine, host, kept)
}

#[test]
#[ignore = "needs systemd"]
fn the_first_connection_starts_the_daemon() {
    let machine = Machine::installed("");
    assert_eq!(machine.property(SOCKET, "ActiveState"), "active");
    assert_eq!(machine.property(SERVICE, "ActiveState"), "inactive");
    let host = machine.world.host();
    let mut kept = StoredInstance::store(host.instance(&[]), "one");
    machine.assert_served_by_systemd();
    assert_eq!(machine.property(SERVICE, "ActiveState"), "active");
    kept.instance.kill();
    assert_eq!(host.instance(&[]).load().token.as_deref(), Some("one"));
}

#[test]
#[ignore = "needs systemd"]
fn a_restart_keeps_leases_and_tokens() {
    let (machine, _host, mut kept) = keeping("");
    let former = machine.world.daemon_pid();
    machine.systemctl(&["restart", SERVICE]);
    kept.assert_kept("one");
    machine.assert_served_by_systemd();
    assert_ne!(machine.world.daemon_pid(), former);
    // Stopped, it comes back with whoever needs it.
    machine.systemctl(&["stop", SERVICE]);
    kept.assert_kept("one");
    machine.assert_served_by_systemd();
    assert_eq!(
        machine.property(SERVICE, "NRestarts"),
        "0",
        "{}",
        machine.log()
    );
}

/// A server that is kept does not notice any of it, nor does the call that it is busy with.
#[test]
#[ignore = "needs systemd"]
fn a_restart_is_not_noticed_by_a_server_that_is_kept() {
    let machine = Machine::installed("");
    let world = &machine.world;
    let mut client = wrap::connect(world, &wrap::counter(world));
    machine.assert_served_by_systemd();
    let backend = world.backend();
    for (round, verb) in ["restart", "stop"].into_iter().enumerate() {
        let gate = wrap::gate(world, verb);
        let before = client.count();
        let slow = client.begin_slow(&gate);
        let former = machine.world.daemon_pid();
        machine.systemctl(&[verb, SERVICE]);
        wrap::open(&gate);
        assert_eq!(client.text(slow), Ok((before + 1).to_string()));
        assert_ne!(machine.world.daemon_pid(), former);
        drop(client);
        client = wrap::connect(world, &wrap::counter(world));
        assert_eq!(client.count(), before + 2, "round {round}");
        assert_eq!(world.backend().keeper, backend.keeper);
    }
    machine.assert_served_by_systemd();
}

#[test]
#[ignore = "needs systemd"]
fn killed_again_and_again_it_comes_back() {
    let (machine, _host, mut kept) = keeping("");
    // More often than any start limit of systemd's allows by default.
    for _ in 0..12 {
        signal(machine.world.daemon_pid(), Signal::SIGKILL);
        kept.assert_kept("one");
    }
    machine.assert_served_by_systemd();
}

#[test]
#[ignore = "needs systemd"]
fn a_daemon_that_hangs_is_replaced() {
    let (machine, _host, mut kept) = keeping("WatchdogSec=2");
    let fed = || machine.property(SERVICE, "WatchdogTimestampMonotonic");
    for _ in 0..3 {
        let last = fed();
        // systemd tells nobody of this property.
        until("the watchdog is fed", || (fed() != last).then_some(()));
    }
    assert_eq!(machine.property(SERVICE, "NRestarts"), "0");
    signal(machine.world.daemon_pid(), Signal::SIGSTOP);
    // systemctl has no verb that waits for a restart.
    until("it is started again", || {
        (machine.property(SERVICE, "NRestarts") == "1").then_some(())
    });
    kept.assert_kept("one");
}

#[test]
#[ignore = "needs systemd"]
fn reload_says_what_has_changed() {
    let machine = Machine::installed("");
    machine.about();
    machine.world.configure("claim_wait_ms = 1234");
    machine.systemctl(&["reload", SERVICE]);
    let log = machine.world.root().join("log");
    until_written(&log, "a line about it", || {
        machine
            .log()
            .contains("reloaded the configuration; claim_wait_ms")
            .then_some(())
    });
    machine.systemctl(&["reload", SERVICE]);
    until_written(&log, "a line about it", || {
        machine.log().contains("nothing has changed").then_some(())
    });
    assert_eq!(machine.property(SERVICE, "ActiveState"), "active");
}

#[test]
#[ignore = "needs systemd"]
fn the_socket_takes_over_from_a_daemon_that_has_bound_its_own() {
    let machine = Machine::new();
    let mut daemon = machine.world.daemon();
    let host = machine.world.host();
    let number = |n: usize| n.to_string();
    let mut kept: Vec<StoredInstance> = (0..8)
        .map(|n| StoredInstance::store(host.instance(&[&number(n)]), &number(n)))
        .collect();
    // From here on the path is another's, and the daemon has yet to notice. Nobody waits for that.
    machine.install();
    let mut late = host.loading((8..12).map(|n| vec![n.to_string()]));
    for (n, kept) in kept.iter_mut().enumerate() {
        kept.instance.store(&format!("{n} again"));
    }
    for instance in &mut late {
        instance.answer().assert_fresh();
    }
    assert!(daemon.wait().success(), "it exits in good order");
    for (n, kept) in kept.iter_mut().enumerate() {
        kept.assert_kept(&format!("{n} again"));
    }
    machine.assert_served_by_systemd();
    assert_eq!(
        machine.property(SERVICE, "NRestarts"),
        "0",
        "{}",
        machine.log()
    );
}

#[test]
#[ignore = "needs systemd"]
fn a_replaced_directory_gets_a_new_daemon() {
    let (machine, _host, mut kept) = keeping("");
    let former = machine.world.daemon_pid();
    // As after a logout and a login: another directory of the same name. systemd listens on in the
    // former one.
    rename(
        machine.world.directory(),
        machine.world.root().join("former"),
    )
    .expect("renamed");
    gone(former);
    let stored = kept.instance.store("two");
    assert_ne!(
        stored.session(),
        kept.session,
        "there is nothing of the former directory in the new one"
    );
    machine.assert_served_by_systemd();
    // It has bound a socket of its own, and is found there after its next end too.
    signal(machine.world.daemon_pid(), Signal::SIGKILL);
    assert_eq!(kept.instance.load().token.as_deref(), Some("two"));
    // Once systemd listens where it should, all is as it was.
    machine.systemctl(&["restart", SOCKET]);
    assert_eq!(kept.instance.load().token.as_deref(), Some("two"));
    machine.assert_served_by_systemd();
}

#[test]
#[ignore = "needs systemd"]
fn a_daemon_by_hand_leaves_the_socket_to_systemd() {
    let machine = Machine::installed("");
    let refused = machine.sessiond(&["run"]);
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("systemctl --user stop mcp-sessiond.socket"),
        "{said}"
    );
    machine.assert_served_by_systemd();
}

#[test]
#[ignore = "needs systemd"]
fn a_wrong_configuration_fails_fast_and_heals() {
    let machine = Machine::installed("");
    machine.world.configure("nonsense = 1");
    // Whoever comes is turned away, and not left to wait.
    let mut stream = UnixStream::connect(machine.world.socket()).expect("systemd listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let answer = stream.read(&mut [0; 1]);
    assert!(
        answer.as_ref().map_or_else(
            |error| error.kind() != std::io::ErrorKind::WouldBlock,
            |n| *n == 0
        ),
        "{answer:?}"
    );
    // systemctl has no verb that waits for a failure.
    until("the service has failed", || {
        (machine.property(SERVICE, "ActiveState") == "failed").then_some(())
    });
    assert!(machine.log().contains("nonsense"), "{}", machine.log());
    // Nor for a limit that systemd counts to.
    until("doctor says so", || {
        let doctor = machine.sessiond(&["doctor", "--json"]);
        String::from_utf8_lossy(&doctor.stdout)
            .contains("mcp-sessiond.socket has failed")
            .then_some(())
    });
    machine.world.configure("");
    // As a client does. For two seconds systemd still counts, and fails the socket unit again; the
    // daemon has it.
    machine.systemctl(&["start", SERVICE]);
    assert_eq!(machine.about()["started_by"], "systemd");
}
