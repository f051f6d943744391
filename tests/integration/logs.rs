//! `mcp-sessiond logs`: the daemon's log, wherever it is, and what servers write to their standard
//! error.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Output, Stdio};

use mcp_sessiond_tests::{World, gone, until, until_written};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::world;
use crate::wrap::{counter, wrapped};

/// What a command printed, and its exit code.
struct Printed {
    code: Option<i32>,
    out: String,
    err: String,
}

fn say(world: &World, arguments: &[&str]) -> Printed {
    let Output {
        status,
        stdout,
        stderr,
    } = world.sessiond(arguments).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Printed {
        code: status.code(),
        out: text(stdout),
        err: text(stderr),
    }
}

/// `mcp-sessiond logs -f` with its reader.
struct Following {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Following {
    fn new(world: &World, arguments: &[&str]) -> Self {
        let mut command = world.sessiond(&[&["logs", "-f"], arguments].concat());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, output }
    }

    /// The next line; empty: there is no more.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line
    }

    /// The next line with this text in it.
    #[track_caller]
    fn wait(&mut self, text: &str) -> String {
        loop {
            let line = self.line();
            assert!(!line.is_empty(), "it has ended without {text}");
            if line.contains(text) {
                return line;
            }
        }
    }

    /// The next lines with these texts in them. They come from two places, in any order.
    #[track_caller]
    fn wait_for_both(&mut self, texts: [&str; 2]) -> [String; 2] {
        let mut lines = [String::new(), String::new()];
        while lines.iter().any(String::is_empty) {
            let line = self.line();
            assert!(!line.is_empty(), "it has ended without {texts:?}");
            if let Some(at) = texts.iter().position(|text| line.contains(text)) {
                lines[at] = line;
            }
        }
        lines
    }

    /// Its exit code and its complaints, once it has ended.
    fn ended(mut self) -> (Option<i32>, String) {
        drop(self.output);
        let mut said = String::new();
        self.child
            .stderr
            .take()
            .expect("piped")
            .read_to_string(&mut said)
            .expect("text");
        (self.child.wait().expect("ended").code(), said)
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("it is our child");
    }
}

/// A world whose daemon was started as a client does it, and runs until it is killed.
fn on_demand() -> World {
    let world = world("idle_exit_ms = 600000\n");
    start(&world);
    world
}

fn start(world: &World) {
    assert!(
        world
            .sessiond(&["run", "--on-demand"])
            .status()
            .expect("started")
            .success()
    );
}

#[test]
fn the_log_of_a_daemon_that_a_client_has_started() {
    let world = world("idle_exit_ms = 600000\n");
    for arguments in [&["logs"][..], &["logs", "-f"]] {
        let nothing = say(&world, arguments);
        assert_eq!(
            (nothing.code, &*nothing.out),
            (Some(66), ""),
            "{arguments:?}"
        );
        assert!(
            nothing
                .err
                .contains("no daemon runs, and none has left a log"),
            "{}",
            nothing.err
        );
        assert!(
            nothing.err.contains("daemon.log"),
            "it says where: {}",
            nothing.err
        );
    }
    start(&world);
    let shown = say(&world, &["logs"]);
    assert_eq!((shown.code, &*shown.err), (Some(0), ""));
    assert!(shown.out.contains("Z  INFO ready "), "{}", shown.out);
    assert!(
        !shown.out.contains('\u{1b}'),
        "no colours where there is no terminal"
    );
    let json = say(&world, &["logs", "--json", "-n", "1"]);
    assert_eq!(json.out.lines().count(), 1);
    let line: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(
        (&line["from"], &line["level"]),
        (&json!("daemon"), &json!("info")),
        "{line}"
    );
    assert!(
        line["time"]
            .as_str()
            .is_some_and(|time| time.ends_with('Z')),
        "{line}"
    );
    assert_eq!(say(&world, &["logs", "-n", "0"]).out, "");

    let mut following = Following::new(&world, &[]);
    following.wait(" ready ");
    world.configure("idle_exit_ms = 600000\nclaim_wait_ms = 1234");
    kill(
        Pid::from_raw(world.daemon_pid().cast_signed()),
        Signal::SIGHUP,
    )
    .expect("told");
    following.wait("reloaded the configuration; claim_wait_ms");
    // The next daemon logs to the same file.
    let former = world.daemon_pid();
    world.kill_any_daemon();
    gone(former);
    assert!(
        say(&world, &["logs"]).out.contains("reloaded"),
        "it stays when its daemon was killed"
    );
    start(&world);
    let ready = following.wait(" ready ");
    assert!(ready.contains("INFO"), "{ready}");
    following.signal(Signal::SIGINT);
    assert_eq!(following.line(), "", "it is quiet");
    assert_eq!(following.ended(), (Some(0), String::new()));
    world.kill_any_daemon();
}

#[test]
fn it_ends_when_nobody_reads_it_any_more() {
    let world = on_demand();
    let mut following = Following::new(&world, &[]);
    following.wait(" ready ");
    // No line comes that it could fail to write.
    assert_eq!(following.ended(), (Some(0), String::new()));
    world.kill_any_daemon();
}

#[test]
fn a_daemon_that_was_started_by_hand_logs_where_it_was_told_to() {
    let world = world("");
    let daemon = world.daemon();
    let elsewhere = say(&world, &["logs"]);
    assert_eq!((elsewhere.code, &*elsewhere.out), (Some(66), ""));
    let pid = format!("(pid {}) was started by hand", daemon.pid());
    assert!(
        elsewhere.err.contains(&pid) && elsewhere.err.contains("pipe:"),
        "{}",
        elsewhere.err
    );
    drop(daemon);

    let log = world.root().join("log");
    let script = format!("exec \"$0\" run 2>'{}'", log.display());
    let mut shell = world.command("sh");
    shell.args(["-c", &script, world.binaries.daemon]);
    std::fs::write(&log, "").expect("written");
    let _daemon = world.spawn(shell);
    let is_ready = || {
        std::fs::read_to_string(&log)
            .is_ok_and(|log| log.contains(" ready "))
            .then_some(())
    };
    until_written(&log, "the daemon is ready", is_ready);
    let shown = say(&world, &["logs"]);
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    assert!(shown.out.contains(" ready "), "{}", shown.out);
}

#[test]
#[ignore = "needs node"]
fn a_server_s_standard_error_and_what_became_of_it() {
    let world = on_demand();
    let mut host = world.node_host();
    host.connect("main", &wrapped(&world, &counter(&world)));
    let backend = world.backend();
    let nobody = say(&world, &["logs", "playwright"]);
    assert_eq!((nobody.code, &*nobody.out), (Some(66), ""));
    assert!(
        nobody.err.contains("no server is called `playwright`"),
        "{}",
        nobody.err
    );
    let nothing = say(&world, &["logs", "counter"]);
    assert_eq!(nothing.code, Some(0));
    assert!(
        nothing
            .err
            .contains("has written nothing to its standard error"),
        "{}",
        nothing.err
    );
    assert!(nothing.out.starts_with("mcp-sessiond: "), "{}", nothing.out);

    host.call(
        "main",
        "complain",
        json!({"text": "one\n\u{1b}[31mtwo\u{1b}[0m é\nthr"}),
    );
    let shown = until("the keeper has read it", || {
        let shown = say(&world, &["logs", "counter"]);
        shown.out.ends_with("thr\n").then_some(shown)
    });
    let (told, written): (Vec<&str>, Vec<&str>) = shown
        .out
        .lines()
        .partition(|line| line.starts_with("mcp-sessiond: "));
    assert_eq!(
        written,
        ["one", "two é", "thr"],
        "nothing of it does anything to a terminal"
    );
    assert!(
        told.len() == 1 && told[0].contains("a server was started"),
        "{told:?}"
    );
    let last = say(
        &world,
        &["logs", "-n", "1", &backend.keeper.to_string(), "--json"],
    );
    let last: Vec<Value> = last
        .out
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(
        (&last[0]["from"], &last[1]),
        (
            &json!("daemon"),
            &json!({"from": "server", "time": null, "level": null, "line": "thr"})
        )
    );

    let mut following = Following::new(&world, &["counter"]);
    following.wait("two é");
    host.call("main", "complain", json!({"text": "ee\nfour\n"}));
    assert_eq!(
        (following.line(), following.line()),
        ("three\n".to_owned(), "four\n".to_owned())
    );
    // Killed, it is started again by its keeper for the next request; what the next one writes follows.
    kill(Pid::from_raw(backend.pid().cast_signed()), Signal::SIGKILL).expect("ours");
    backend.wait("it has ended", |status| status.pid.is_none());
    host.call("main", "complain", json!({"text": "five\n"}));
    let [again, _] = following.wait_for_both(["a server was started again", "five"]);
    assert!(again.starts_with("mcp-sessiond: "), "{again}");
    // So it is without a daemon.
    world.kill_any_daemon();
    host.call("main", "complain", json!({"text": "six\n"}));
    following.wait("six");
    start(&world);
    assert_eq!(say(&world, &["stop", "counter"]).code, Some(0));
    following.wait("a server has ended");
    let (code, said) = following.ended();
    assert_eq!(code, Some(0));
    assert!(
        said.contains("counter of ") && said.trim_end().ends_with(" has ended"),
        "{said}"
    );
    world.kill_any_daemon();
}
