//! What the daemon writes about itself: the journal is told how bad it is, and nobody can fill the
//! disk with it.

use std::fs;
use std::io::Write as _;

use mcp_sessiond_tests::{World, signal, until, until_written};
use nix::sys::signal::Signal;

use crate::{fixture, world};

/// The daemon with its standard error connected to what it takes for the journal.
fn with_journal(world: &World, stream: &str) -> mcp_sessiond_tests::Daemon {
    let mut shell = world.command("sh");
    let script = format!("JOURNAL_STREAM={stream} exec \"$0\" run");
    shell.args(["-c", &script, world.binaries.daemon]);
    world.spawn(shell)
}

#[test]
fn the_journal_is_told_how_bad_a_line_is() {
    let world = world("");
    let mut daemon = with_journal(&world, "$(stat -L -c %d:%i /dev/stderr)");
    daemon.ready();
    world.configure("what = \"is this\"\n");
    daemon.signal(Signal::SIGHUP);
    let error = daemon.log().wait("kept the previous configuration");
    assert!(error.starts_with("<3>ERROR "), "{error}");
    let ready = daemon.log().wait(" ready ");
    assert!(ready.starts_with("<6> INFO "), "{ready}");
    daemon.stop();
    // What ends it is said so, too.
    let fatal = with_journal(&world, "$(stat -L -c %d:%i /dev/stderr)");
    let fatal = fatal.log().wait("mcp-sessiond: ");
    assert!(fatal.starts_with("<3>mcp-sessiond: "), "{fatal}");
}

#[test]
fn who_is_not_connected_to_the_journal_is_told_the_time() {
    let world = world("");
    // As in a program that a service has started, with a standard error of its own.
    let daemon = with_journal(&world, "1:1");
    daemon.ready();
    let ready = daemon.log().wait(" ready ");
    assert!(
        ready.starts_with("20") && ready.contains("Z  INFO ready"),
        "{ready}"
    );
}

fn log(world: &World, name: &str) -> String {
    fs::read_to_string(world.directory().join(name)).unwrap_or_default()
}

fn on_demand(world: &World) {
    let started = world
        .sessiond(&["run", "--on-demand"])
        .status()
        .expect("started");
    assert!(started.success());
}

#[test]
#[ignore = "needs python3"]
fn a_loop_does_not_fill_the_log() {
    let world = world("idle_exit_ms = 600000\n");
    on_demand(&world);
    // Its parent is gone, so it has no host, and each of its claims is refused with a line in the
    // log.
    let script = format!(
        "import os, select, sys\n\
         sys.path.insert(0, {:?})\n\
         parent = os.getpid()\n\
         exit = os.pidfd_open(parent)\n\
         if os.fork(): os._exit(0)\n\
         os.setsid()\n\
         select.select([exit], [], [])\n\
         from sessiond import call\n\
         for _ in range(200):\n\
         \x20   try: call('claim', {{}})\n\
         \x20   except RuntimeError: pass\n\
         open(sys.argv[1], 'w').close()",
        fixture("python"),
    );
    let done = world.root().join("done");
    nix::unistd::mkfifo(&done, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    let mut orphan = world.command("python3");
    assert!(
        orphan
            .args(["-c", &script])
            .arg(&done)
            .status()
            .expect("python3")
            .success()
    );
    // It is open for writing once the orphan has asked often enough.
    assert!(fs::read(&done).expect("the orphan's end").is_empty());
    let said = log(&world, "daemon.log");
    let lines = said
        .lines()
        .filter(|line| line.contains("Could not verify parent process"))
        .count();
    assert!((1..=10).contains(&lines), "{lines} lines");
    assert!(
        said.contains("more like the last line are left out"),
        "{said}"
    );
    world.kill_any_daemon();
}

#[test]
fn the_log_of_a_daemon_that_runs_is_put_aside_when_it_is_full() {
    let world = world("idle_exit_ms = 600000\n");
    on_demand(&world);
    let pid = world.daemon_pid();
    let reload = || signal(pid, Signal::SIGHUP);
    for _ in 0..2 {
        let path = world.directory().join("daemon.log");
        let mut file = fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .expect("the log");
        file.write_all(&vec![b'x'; 1_100_000]).expect("written");
        // It looks at the size now and then, when it writes a line; so it is given something to
        // write.
        until("it is put aside", || {
            reload();
            // For a moment there is none.
            fs::metadata(&path)
                .is_ok_and(|file| file.len() < 1_000_000)
                .then_some(())
        });
        assert!(log(&world, "daemon.log.1").contains("xxx"));
        until_written(&path, "it goes on", || {
            log(&world, "daemon.log").contains("reloaded").then_some(())
        });
    }
    world.kill_any_daemon();
}
