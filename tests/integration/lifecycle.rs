//! The daemon's own life: one of it, started and stopped in order, or by whoever needs it.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Stdio;

use mcp_sessiond_tests::{Instance, World, gone, signal, stat, until, until_removed};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::{BINARIES, world};

#[test]
fn of_daemons_that_race_one_wins_and_the_others_exit_75() {
    for _ in 0..10 {
        let world = world("");
        let mut daemons: Vec<_> = (0..4).map(|_| world.start(&[])).collect();
        let ready: Vec<bool> = daemons
            .iter()
            .map(|daemon| daemon.ready_or_ended())
            .collect();
        assert_eq!(
            ready.iter().filter(|ready| **ready).count(),
            1,
            "{}",
            world.log.text()
        );
        for (daemon, ready) in daemons.iter_mut().zip(&ready) {
            if *ready {
                assert_eq!(
                    world.daemon_pid(),
                    daemon.pid(),
                    "the socket is the winner's"
                );
            } else {
                assert_eq!(daemon.wait().code(), Some(75));
            }
        }
    }
}

#[test]
fn it_stops_in_order_and_exits_0() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let world = world("claim_wait_ms = 5000");
        let mut daemon = world.daemon();
        let host = world.host();
        let mut instance = host.holder(&[], "kept");
        daemon.signal(signal);
        assert_eq!(daemon.wait().code(), Some(0), "{signal}");
        assert!(
            !world.socket().exists(),
            "nobody shall connect to what is gone"
        );
        // Nobody noticed.
        daemon.start_again();
        assert_eq!(instance.load().token.as_deref(), Some("kept"));
    }
}

#[test]
fn it_does_not_wait_for_ever_for_a_call_under_way() {
    let world = world("claim_wait_ms = 5000\ndrain_ms = 50");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut old = host.holder(&[], "kept");
    let mut new = world.waiting(&host);
    assert_eq!(daemon.stop().code(), Some(0));
    world.log.wait("calls were still under way");
    daemon.start_again();
    old.kill();
    assert_eq!(
        new.answer().token.as_deref(),
        Some("kept"),
        "it asked again"
    );
}

#[test]
fn below_nohup_it_does_not_reload() {
    let world = world("claim_wait_ms = 5000");
    let mut nohup = world.command("nohup");
    nohup.args([world.binaries.daemon, "run"]);
    let mut daemon = world.spawn(nohup);
    daemon.ready();
    world.configure("claim_wait_ms = 5");
    daemon.signal(Signal::SIGHUP);
    // What comes later is answered later.
    assert_eq!(daemon.stop().code(), Some(0));
    let text = world.log.text();
    assert!(!text.contains("claim_wait_ms: 5000 -> 5"), "{text}");
}

#[test]
fn sighup_reloads_and_says_what_changed() {
    let world = world("claim_wait_ms = 5000");
    let daemon = world.daemon();
    let host = world.host();
    let mut holder = host.instance(&[]);
    holder.load().assert_fresh();
    world.configure("claim_wait_ms = 5\nsiblings = \"oldest\"");
    daemon.signal(Signal::SIGHUP);
    world.log.wait("claim_wait_ms: 5000 -> 5");
    world.log.wait("siblings: \"fresh\" -> \"oldest\"");
    // It is in force: nobody waits for seconds.
    assert_eq!(
        host.instance(&[]).load().outcome.as_deref(),
        Some("fresh_held")
    );
    let begin = world.log.len();
    world.configure("claim_wait_ms = 7\nclaim_weight = 8");
    daemon.signal(Signal::SIGHUP);
    world
        .log
        .wait_from(begin, &["kept the previous configuration"]);
    world.log.wait_from(begin, &["claim_weight"]);
    let settings = world
        .peer()
        .call("settings", json!({}))
        .expect("settings")
        .to_string();
    assert!(
        settings.contains(r#"{"name":"claim_wait_ms","source":"file","value":"5"}"#),
        "{settings}"
    );
    let begin = world.log.len();
    world.configure("claim_wait_ms = 5\nsiblings = \"oldest\"");
    daemon.signal(Signal::SIGHUP);
    world.log.wait_from(begin, &["nothing has changed"]);
}

#[test]
fn a_wrong_configuration_or_usage_is_64() {
    let world = world("claim_wait_ms = 5\nclaim_weight = 8");
    let output = world.sessiond(&["run"]).output().expect("run");
    assert_eq!(output.status.code(), Some(64));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("line 2") && said.contains("claim_weight"),
        "{said}"
    );
    world.configure("");
    for arguments in [
        &["run", "--colour"][..],
        &["run", "--set", "claim_wait_ms=soon"],
        &["run", "--set", "claim_weight=8"],
        &["jump"],
        &[],
    ] {
        let output = world.sessiond(arguments).output().expect("run");
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {output:?}");
    }
    let output = world
        .sessiond(&["run"])
        .env("MCP_SESSIOND_CLAIM_WAIT_MS", "soon")
        .output()
        .expect("run");
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    let output = world
        .sessiond(&["run"])
        .env("MCP_SESSIOND_DIR", "relative")
        .output()
        .expect("run");
    assert_eq!(output.status.code(), Some(64), "{output:?}");
}

#[test]
fn a_directory_that_others_could_have_touched_is_not_used() {
    let world = world("");
    let directory = world.directory();
    let mishaps: [&dyn Fn(); 3] = [
        &|| {
            fs::create_dir(&directory).expect("made");
            fs::set_permissions(&directory, Permissions::from_mode(0o750)).expect("changed");
        },
        &|| {
            let elsewhere = world.root().join("elsewhere");
            fs::create_dir(&elsewhere).expect("made");
            fs::set_permissions(&elsewhere, Permissions::from_mode(0o700)).expect("changed");
            symlink(&elsewhere, &directory).expect("a link");
        },
        &|| fs::write(&directory, "").expect("written"),
    ];
    let host = world.host();
    for mishap in mishaps {
        mishap();
        let output = world.sessiond(&["run"]).output().expect("run");
        assert_eq!(output.status.code(), Some(70), "{output:?}");
        // The client does not even ask, and the server goes on.
        let refused = host.instance(&["--start"]).load();
        assert!(
            refused.disabled.is_some() && refused.token.is_none(),
            "{refused:?}"
        );
        let _ = fs::remove_file(&directory).or_else(|_| fs::remove_dir(&directory));
    }
    host.instance(&["--start"]).load().assert_fresh();
}

#[test]
fn a_directory_that_is_removed_ends_the_daemon_and_nobody_is_left_alone() {
    let world = world("idle_exit_ms = 600000");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut instance = host.instance(&["--start"]);
    let lost = instance.first_run("lost").session();
    // The daemon may write a file at that moment.
    until("it is removed", || {
        fs::remove_dir_all(world.directory()).ok()
    });
    // Whoever comes now finds nothing, and starts another one, which makes its own directory.
    let mut newcomer = host.holder(&["--start", "newcomer"], "two");
    assert_eq!(daemon.wait().code(), Some(0), "the first has noticed");
    assert!(
        world.socket().exists(),
        "and left the socket of the second alone"
    );
    let loaded = instance.load();
    assert_eq!(loaded.token, None, "{loaded:?}");
    assert_ne!(loaded.session(), lost);
    assert_eq!(newcomer.load().token.as_deref(), Some("two"));
}

#[test]
fn a_socket_that_is_replaced_ends_the_daemon() {
    let world = world("");
    let mut daemon = world.daemon();
    fs::remove_file(world.socket()).expect("removed");
    fs::write(world.socket(), "somebody else's").expect("written");
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(world.socket().exists(), "it is not ours to remove");
    daemon.start_again();
    assert_eq!(world.stat("sessions"), 0);
}

#[test]
fn a_directory_that_is_moved_ends_the_daemon() {
    let world = world("");
    for moved in ["d", "a/d"] {
        let directory = world.root().join(moved);
        fs::create_dir_all(directory.parent().expect("above it")).expect("made");
        let mut command = world.sessiond(&["run"]);
        command.env("MCP_SESSIOND_DIR", &directory);
        let mut daemon = world.spawn(command);
        daemon.ready();
        let top = world.root().join(moved.split('/').next().expect("a name"));
        fs::rename(&top, world.root().join("elsewhere")).expect("moved");
        assert_eq!(daemon.wait().code(), Some(0), "{moved}");
        fs::remove_dir_all(world.root().join("elsewhere")).expect("removed");
    }
}

/// The timeout, in milliseconds, with which a process waits in epoll_wait(2). None: it does not
/// wait now.
fn waits_at_most(pid: u32) -> Option<i64> {
    let call = fs::read_to_string(format!("/proc/{pid}/syscall")).expect("it may be looked at");
    let words: Vec<&str> = call.split_whitespace().collect();
    let number =
        |text: &str| i64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a number");
    // epoll_wait(2) and epoll_pwait(2), whose fourth argument is the timeout.
    #[cfg(target_arch = "x86_64")]
    let waits = ["232", "281"];
    #[cfg(not(target_arch = "x86_64"))]
    let waits = ["22"];
    waits
        .contains(words.first()?)
        .then(|| match number(words[4]) & 0xffff_ffff {
            0xffff_ffff => i64::MAX,
            time => time,
        })
}

#[test]
fn a_daemon_with_nothing_to_do_sleeps_until_it_is_told() {
    let world = world("[sessions]\nsweep_ms = 60000");
    let host = world.host();
    let mut instance = host.instance(&["--start"]);
    instance.first_run("kept");
    let on_demand = world.daemon_pid();
    // The kernel tells nobody for how long a process waits.
    until("it sleeps while a host needs it", || {
        waits_at_most(on_demand).filter(|most| *most > 1_000)
    });
    let other = crate::world("[sessions]\nsweep_ms = 60000");
    let daemon = other.daemon();
    until("so does one that serves for good", || {
        waits_at_most(daemon.pid()).filter(|most| *most > 1_000)
    });
}

/// The daemon that was started on demand, whose log is a file.
fn detached_log(world: &World) -> String {
    fs::read_to_string(world.directory().join("daemon.log")).unwrap_or_default()
}

/// The daemon is detached from everything: directory, session, descriptors, and the instance that
/// has started it.
fn assert_detached(pid: u32, instances: &mut [Instance]) {
    let link = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).expect("it runs");
    assert_eq!(
        (link("cwd"), link("fd/0")),
        ("/".into(), "/dev/null".into())
    );
    let fields = stat(pid);
    assert!(
        instances
            .iter_mut()
            .all(|instance| instance.0.pid().to_string() != fields[1]),
        "its parent"
    );
    assert_ne!(
        fields[3],
        nix::unistd::getsid(None).expect("ours").to_string(),
        "its session"
    );
}

#[test]
fn twenty_who_find_no_daemon_start_one() {
    let world = world("claim_wait_ms = 0\nidle_exit_ms = 100");
    for round in 1..=3 {
        let mut host = world.host();
        let mut instances = host.loading((0..20).map(|n| vec!["--start".into(), n.to_string()]));
        let sessions: HashSet<String> = instances
            .iter_mut()
            .map(|instance| instance.answer().assert_fresh().session())
            .collect();
        assert_eq!(sessions.len(), instances.len());
        assert_eq!(world.about()["started_by"], "on_demand");
        assert_eq!(
            world.stat("leases"),
            20,
            "all of them are with the same one"
        );
        let pid = world.daemon_pid();
        assert_detached(pid, &mut instances);
        // When nobody needs it any more it goes.
        host.kill();
        until_removed(&world.directory(), "it has gone", || {
            (!world.socket().exists()).then_some(())
        });
        gone(pid);
        assert_eq!(
            detached_log(&world)
                .matches("no host, lease, keeper or connection is left")
                .count(),
            round
        );
    }
}

/// A daemon on demand serves all of a user's programs, so it must not inherit from the first one.
#[test]
fn a_daemon_on_demand_does_not_inherit_from_the_program_that_started_it() {
    let world = world("");
    let start = "echo 300 > /proc/self/oom_score_adj && trap '' CHLD USR2 && \
                 exec nice -n 5 env --block-signal=USR1,TERM \"$0\" run --on-demand";
    let mut starter = world.command("sh");
    starter
        .args(["-c", start])
        .arg(BINARIES.daemon)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    for (name, value) in [
        ("AWS_PROFILE", "work"),
        ("SSL_CERT_FILE", "/ca.pem"),
        ("SSL_CERT_DIR", "/ca"),
    ] {
        starter.env(name, value);
    }
    for (name, value) in [
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
        ("AWS_SESSION_TOKEN", "c"),
    ] {
        starter.env(name, value);
    }
    starter.env("NODE_OPTIONS", "--inspect");
    assert!(starter.status().expect("started").success());

    let pid = world.daemon_pid();
    let about = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).expect("it runs");
    let variables = about("environ");
    for kept in [
        "AWS_PROFILE=work",
        "SSL_CERT_FILE=/ca.pem",
        "SSL_CERT_DIR=/ca",
    ] {
        assert!(
            variables.split('\0').any(|variable| variable == kept),
            "{kept}"
        );
    }
    for dropped in [
        "NODE_OPTIONS",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
    ] {
        assert!(!variables.contains(dropped), "{dropped}");
    }
    assert_eq!(about("oom_score_adj").trim_end(), "0");
    let status = about("status");
    let signals = |which: &str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(which))
            .expect("a mask");
        u64::from_str_radix(line.trim(), 16).expect("a mask")
    };
    assert_eq!(signals("SigBlk:"), 0);
    // Higher signals have no name, and belong to the C library.
    assert_eq!(
        signals("SigIgn:") & 0x7fff_ffff,
        1 << (Signal::SIGPIPE as u32 - 1)
    );
    // Only root may lower the nice value again.
    let nice = if nix::unistd::geteuid().is_root() {
        "0"
    } else {
        "5"
    };
    for task in fs::read_dir(format!("/proc/{pid}/task")).expect("it runs") {
        let stat =
            fs::read_to_string(task.expect("a thread").path().join("stat")).expect("it runs");
        let behind_name = stat.rsplit_once(')').expect("a name").1;
        assert_eq!(behind_name.split_whitespace().nth(16), Some(nice), "{stat}");
    }
}

#[test]
fn a_daemon_on_demand_stays_while_a_host_lives() {
    let world = world("idle_exit_ms = 1");
    let host = world.host();
    let mut instance = host.holder(&["--start"], "one");
    let pid = world.daemon_pid();
    instance.kill();
    // Three looks of the daemon at whether it is needed: it has ticked that often when its uptime
    // says so.
    until("it had the time to go", || {
        let uptime: u64 = world.peer().call("about", json!({})).ok()?["uptime_ms"]
            .as_str()?
            .parse()
            .ok()?;
        (uptime > 3_000).then_some(())
    });
    assert_eq!(world.daemon_pid(), pid);
    assert_eq!(
        host.instance(&["--start"]).load().token.as_deref(),
        Some("one")
    );
}

/// With SQLite the next daemon has them; but what is kept in memory alone would be lost.
#[test]
fn a_daemon_on_demand_stays_while_sessions_are_in_its_memory() {
    let world = world(
        "idle_exit_ms = 1\nlog = \"debug\"\n[storage]\nurl = \"memory:\"\n[sessions]\nsweep_ms = 100\n",
    );
    let started = world
        .sessiond(&["run", "--on-demand"])
        .status()
        .expect("started");
    assert!(started.success());
    let lifetimes = json!({"absolute_ms": "2500"});
    let create = json!({"service": "web", "session": "s", "lifetimes": lifetimes});
    world
        .peer()
        .call("create_session", create)
        .expect("created");
    until_removed(&world.directory(), "it has gone", || {
        (!world.socket().exists()).then_some(())
    });
    let log = detached_log(&world);
    let at = |what: &str| {
        log.find(what)
            .unwrap_or_else(|| panic!("no {what:?} in {log}"))
    };
    assert!(
        at("a session has ended") < at("no host, lease, keeper or connection is left"),
        "{log}"
    );
}

#[test]
fn a_store_finds_or_starts_the_daemon_that_was_killed() {
    let world = world("idle_exit_ms = 600000");
    let host = world.host();
    let mut instance = host.instance(&["--start"]);
    let session = instance.load().assert_fresh().session();
    for round in 0..5 {
        signal(world.daemon_pid(), Signal::SIGKILL);
        let stored = instance.store(&round.to_string());
        assert_eq!(stored.session(), session);
        assert_eq!(instance.load().token, Some(round.to_string()));
    }
}

#[test]
fn without_any_daemon_a_server_goes_on() {
    let world = world("");
    let host = world.host();
    for arguments in [&[][..], &["--start"]] {
        let program = [&[BINARIES.instance], arguments].concat();
        let mut instance = Instance(host.server_with(
            &program,
            &json!({"MCP_SESSIOND_BIN": "/nowhere/mcp-sessiond"}),
        ));
        let loaded = instance.load();
        assert!(
            loaded.disabled.is_some() && loaded.token.is_none(),
            "{loaded:?}"
        );
        assert!(!instance.try_store("one").done);
        instance.reject();
        instance.release();
    }
    host.log.wait_count("Session resume disabled", 2);
    assert_eq!(
        host.log.lines("Session resume disabled").len(),
        2,
        "one line each: {}",
        host.log.text()
    );
}

#[test]
fn a_closed_standard_error_does_not_matter() {
    let world = world("");
    let mut daemon = world.sessiond(&["run"]);
    let mut daemon = daemon.stderr(Stdio::piped()).spawn().expect("started");
    drop(daemon.stderr.take());
    // It says so on standard error alone, which is closed.
    until("it listens", || {
        std::os::unix::net::UnixStream::connect(world.socket()).ok()
    });
    assert_eq!(world.stat("sessions"), 0);
    daemon.kill().expect("it still runs");
    daemon.wait().expect("our child");
}
