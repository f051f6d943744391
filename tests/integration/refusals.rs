//! What must not be had: other users, other hosts, former holders, and processes that merely look
//! like one.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use mcp_sessiond_tests::{Host, Instance, World, assert_refused, copy_program, start_time};
use serde_json::{Value, json};

use crate::{fixture, needs_root, world};

#[test]
#[ignore = "needs root"]
fn another_user_is_refused_and_logged() {
    needs_root("to become another user");
    let world = world("");
    let _daemon = world.daemon();
    // The directory keeps others out already, so there has to be a hole in it.
    let hole = world.root().join("hole");
    std::fs::create_dir(&hole).expect("a directory");
    std::fs::hard_link(world.socket(), hole.join("socket")).expect("a second name");
    let stranger = hole.join("stranger");
    copy_program(world.binaries.stranger, &stranger);
    for (path, mode) in [
        (world.root(), 0o755),
        (&hole, 0o755),
        (&world.socket(), 0o666),
    ] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            .expect("open to others");
    }
    let socket = hole.join("socket");
    for _ in 0..20 {
        let output = world
            .command(&stranger)
            .arg("65534")
            .arg(&socket)
            .output()
            .expect("the stranger");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "0 bytes\n",
            "another user is not told anything"
        );
    }
    let line = world.log.wait("refused a connection");
    assert!(line.contains("65534"), "{line}");
    assert_eq!(world.stat("connections_refused_total"), 20);
    // The same program is served as this user.
    let output = world
        .command(&stranger)
        .arg("0")
        .arg(&socket)
        .output()
        .expect("ourselves");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "32 bytes\n");
}

#[test]
fn a_late_write_of_a_former_holder_is_refused() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    // Of the same host and key: to anybody else there is no such session at all.
    let mut twin = host.instance(&[]);
    let mut write = |method: &str, session: &str, epoch: u64| {
        let mut params = json!({"session": session, "epoch": epoch.to_string()});
        if method == "store_token" {
            params["token"] = "bGF0ZQ==".into();
        }
        twin.call(method, params)
    };
    let mut old = host.instance(&[]);
    let first = old.first_run("one");
    let (session, mut epoch) = (first.session(), first.epoch.expect("a lease"));
    for round in 0..10 {
        // Between two holders nobody may write.
        old.kill();
        world.wait_stat("leases", 0);
        for method in ["store_token", "reject_token", "release"] {
            let refused = assert_refused(write(method, &session, epoch), "lease_ended");
            assert_eq!(refused["http_status"], 409);
        }
        let (mut new, resumed) = host.loaded(&[]);
        assert_eq!(resumed.session(), session);
        let newest = resumed.epoch.expect("a lease");
        assert!(newest > epoch, "epochs only grow");
        for method in ["store_token", "reject_token", "release"] {
            for given in [epoch, newest + 1, 0, u64::MAX] {
                let refused = assert_refused(write(method, &session, given), "stale_epoch");
                let both = json!([given.to_string(), newest.to_string()]);
                assert_eq!(json!([refused["given"], refused["newest"]]), both);
            }
        }
        // None of it did anything.
        let expected = if round == 0 {
            "one".to_owned()
        } else {
            (round - 1).to_string()
        };
        assert_eq!(new.load().token, Some(expected));
        new.store(&round.to_string());
        (old, epoch) = (new, newest);
    }
    let unknown = assert_refused(
        write("store_token", "no-such-session", 1),
        "unknown_session",
    );
    assert_eq!(unknown["http_status"], 404);
    assert!(world.stat("stale_writes_total") >= 10 * 15);
}

#[test]
fn another_host_gets_nothing() {
    let world = world("");
    let _daemon = world.daemon();
    let (host, other) = (world.host(), world.host());
    let mut instance = host.holder(&[], "one");
    assert_eq!(
        other.instance(&[]).load().assert_fresh().outcome.as_deref(),
        Some("fresh_first")
    );
    instance.kill();
    assert_eq!(
        other
            .instance(&["other"])
            .load()
            .assert_fresh()
            .outcome
            .as_deref(),
        Some("fresh_first")
    );
}

#[test]
fn nobody_claims_for_a_process_that_is_no_ancestor() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let mut instance = host.holder(&[], "one");
    let mut peer = world.peer();
    for pid in [instance.0.pid(), host.pid(), 1, 0, u32::MAX, 4_194_304] {
        let refused = peer
            .call("claim", json!({"instance": pid}))
            .expect_err("not an ancestor of this test");
        assert_eq!(
            refused,
            json!({"code": "not_an_ancestor", "pid": pid, "http_status": 403})
        );
    }
}

/// What can't be read for the moment is there all the same: no client may take that for the last
/// word.
#[test]
#[cfg(target_os = "linux")]
fn a_daemon_without_descriptors_says_so_and_nothing_final() {
    let world = world("");
    let daemon = world.daemon();
    let mut peer = world.peer();
    peer.call("ping", json!({})).expect("it is let in");
    let mut until_answered = |method: &str, params: Value| {
        for free in 0..32 {
            daemon.leave_descriptors(Some(free));
            let answer = peer.call(method, params.clone());
            match answer {
                Err(refused) if refused["code"] == "unavailable" => {
                    assert!(
                        refused["sentence"].to_string().contains(
                            "the daemon can't look at processes: out of file descriptors"
                        ),
                        "{refused}"
                    );
                }
                answer => {
                    daemon.leave_descriptors(None);
                    assert!(free > 0, "{method}: nothing had to be read");
                    return answer;
                }
            }
        }
        panic!("{method} was never answered");
    };
    let parent = nix::unistd::getppid().as_raw();
    for method in ["claim", "who_am_i"] {
        let answer = until_answered(method, json!({ "instance": parent }));
        assert_refused(answer, "names_host");
    }
    let seen = until_answered("who_am_i", json!({})).expect("answered");
    assert_eq!(
        (&seen["host"], &seen["key_doubt"]),
        (&json!(parent), &Value::Null),
        "{seen}"
    );
    let claimed = until_answered("claim", json!({})).expect("claimed");
    assert_eq!(claimed["outcome"], "fresh_first");
    assert_eq!(
        world.stat("claims_doubtful_total") + world.stat("claims_unverified_total"),
        0
    );
}

/// Two servers that named their host would share one session.
#[test]
fn nobody_claims_for_the_host_or_what_is_above_it() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let mut instance = host.instance(&[]);
    let above = [host.pid(), std::process::id()];
    let refused = |pid: u32| json!({"code": "names_host", "pid": pid, "http_status": 403});
    // At first nothing is known of the host, then that it has sessions.
    for _ in 0..2 {
        for pid in above {
            for method in ["claim", "who_am_i"] {
                assert_eq!(
                    instance.call(method, json!({ "instance": pid })),
                    Err(refused(pid)),
                    "{method}"
                );
            }
        }
        instance.load();
    }
    assert_eq!(world.stat("sessions"), 1);
}

/// What the shell is told to do, then the exit code of each step.
fn shell(host: &Host, script: &[&str]) -> String {
    host.server(script).read()
}

#[test]
fn a_script_that_names_its_parent_is_refused_and_told_what_to_say() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let sessiond = world.binaries.daemon;
    let script = world.root().join("start.sh");
    let steps = "token=$(\"$1\" token load --no-start --for $PPID 2>/dev/null); a=$?
                 printf thief | \"$1\" token store --no-start --for $PPID; b=$?
                 sh -c \"printf thief | '$1' token store --no-start --for $PPID; exit \\$?\"; c=$?
                 echo $a $b $c \"$token\"";
    std::fs::write(&script, steps).expect("written");
    let script = script.to_str().expect("UTF-8");
    for command in [
        &["sh", script, sessiond][..],
        &["sh", "-c", steps, "start", sessiond],
    ] {
        assert_eq!(shell(&host, command), "4 4 4 ", "{command:?}");
    }
    let line = host.log.wait("that is the host");
    assert!(line.contains("--for $$"), "{line}");
    assert_eq!(world.stat("sessions"), 0);
    // Where the shell has become the command, nothing but the host's sessions shows that its parent
    // is a host.
    let mut instance = host.holder(&[], "prize");
    let become_it = "exec \"$0\" token load --no-start --for $PPID";
    let mut thief = host.server(&["sh", "-c", become_it, sessiond]);
    assert_eq!(thief.wait(), Some(4));
    assert_eq!(instance.load().token.as_deref(), Some("prize"));
    assert_eq!(world.stat("sessions"), 1);
}

#[test]
#[ignore = "needs python3"]
fn a_server_that_has_a_shell_name_it_is_the_instance() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let server = "import os, subprocess, sys\n\
                  run = lambda line: subprocess.run(line, shell=True, capture_output=True, text=True)\n\
                  for line in sys.stdin:\n\
                  \x20   done = run(line.replace('TOKEN', f'{sys.argv[1]} token').replace('PID', str(os.getpid())))\n\
                  \x20   print(done.returncode, done.stdout, flush=True)\n";
    let start = || host.server(&["python3", "-c", server, world.binaries.daemon]);
    // The shell becomes the command, or stays; or a former part of a pipe speaks first.
    let loads = [
        "TOKEN load --no-start --for PID",
        "TOKEN load --no-start --for=PID; exit $?",
    ];
    let mut first = start();
    assert_eq!(first.ask(loads[0]), "3");
    assert_eq!(
        first.ask("printf one | TOKEN store --no-start --for PID"),
        "0"
    );
    for load in loads {
        assert_eq!(first.ask(load), "0 one");
    }
    first.kill();
    daemon.restart();
    for load in loads {
        let mut next = start();
        assert_eq!(next.ask(load), "0 one", "{load}");
        next.kill();
    }
}

#[test]
fn an_instance_without_a_host_goes_on_without_resuming() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    // The shell in the middle dies first, so the instance belongs to whoever adopts orphans when it
    // says a word.
    let script = "(while kill -0 $$ 2>/dev/null; do :; done; exec \"$0\" <<X\nload\nX\n) & exit 0";
    let mut server = host.server(&["sh", "-c", script, world.binaries.instance]);
    assert_eq!(server.wait(), Some(0));
    host.log.wait(
        "Could not verify parent process start time, session resume disabled for this instance",
    );
    assert_eq!(world.stat("claims_unverified_total"), 1);
    assert_eq!(world.stat("sessions"), 0);
}

/// Who had a lease is dead, and its pid and its start time are another process's: of another host,
/// and with that no business with the session.
#[test]
#[ignore = "needs root"]
fn a_pid_and_start_time_that_are_had_again_get_nothing() {
    those_had_again_get_nothing(false, 10);
}

/// The same, while there is no daemon to see the one go and the other come.
#[test]
#[ignore = "needs root"]
fn a_pid_and_start_time_that_are_had_again_while_the_daemon_is_dead_get_nothing() {
    those_had_again_get_nothing(true, 5);
}

/// A hit needs three processes to be quick within one clock tick. Busy machines need some hundred
/// attempts for the first one, and more where others take pids, too.
const ATTEMPTS_TAKE: Duration = Duration::from_secs(60);
const FIRST_HIT_TAKES: Duration = Duration::from_secs(150);

/// Tries until a pid and its start time were had again so often, or long enough.
fn those_had_again_get_nothing(kill_daemon: bool, enough: u32) {
    needs_root("to write ns_last_pid");
    before_others();
    let world = world("");
    let mut daemon = world.daemon();
    let mut reuse = Reuse::new(&world);
    let (mut attempts, mut hits) = (0, 0);
    let begun = Instant::now();
    let patience = |hits| {
        if hits == 0 {
            FIRST_HIT_TAKES
        } else {
            ATTEMPTS_TAKE
        }
    };
    while hits < enough && begun.elapsed() < patience(hits) {
        attempts += 1;
        let hit = reuse.attempt(attempts, kill_daemon.then(|| daemon.pid()));
        if kill_daemon {
            daemon.restart();
        }
        let Some(hit) = hit else { continue };
        hits += 1;
        hit.gets_nothing(&mut reuse);
    }
    assert!(
        hits > 0,
        "in {attempts} attempts no pid was had again with its start time"
    );
}

/// Has this thread, and every process that it starts, run before others of the machine. Where it
/// must not, the test takes more attempts.
fn before_others() {
    let thread = nix::unistd::gettid().to_string();
    let _ = Command::new("chrt")
        .args(["--rr", "--pid", "1", &thread])
        .output();
}

/// The token `prize`, as the protocol has it in JSON.
const PRIZE_BASE64: &str = "cHJpemU=";

struct Reuse {
    /// The host of those who go: `tests/python/short_lived_host.py`.
    former: Child,
    answers: BufReader<ChildStdout>,
    /// The host of those who come after.
    other: Host,
}

/// A process with the pid and the start time of a former holder.
struct Hit {
    instance: Instance,
    session: String,
    epoch: u64,
}

impl Reuse {
    fn new(world: &World) -> Self {
        let script = fixture("python/short_lived_host.py");
        let mut former = world.command("python3");
        former
            .args(["-I", "-S", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut former = former.spawn().expect("started");
        let answers = BufReader::new(former.stdout.take().expect("piped"));
        let mut reuse = Self {
            former,
            answers,
            other: world.host(),
        };
        // So that there is something to be had.
        let stored = reuse.ask("store prize");
        assert_eq!(stored.get("error"), None, "{stored}");
        reuse
    }

    /// Has the former host do something, and returns its answer.
    fn ask(&mut self, command: &str) -> Value {
        writeln!(self.former.stdin.as_mut().expect("piped"), "{command}").expect("written");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("answered");
        serde_json::from_str(&answer).expect("JSON")
    }

    /// All of this has to happen within one clock tick, a hundredth of a second.
    fn attempt(&mut self, attempt: u32, daemon: Option<u32>) -> Option<Hit> {
        let former = self.ask(&format!("pass {}", daemon.unwrap_or(0)));
        let mut instance = self.other.instance(&[&attempt.to_string()]);
        let pid = instance.0.pid();
        let held = &former["claimed"];
        assert_eq!(held["token"], PRIZE_BASE64, "{held}");
        if former["pid"] != pid || former["start"] != start_time(pid) {
            instance.kill();
            return None;
        }
        let session = held["session"].as_str().expect("text").to_owned();
        Some(Hit {
            instance,
            session,
            epoch: held["epoch"]
                .as_str()
                .expect("text")
                .parse()
                .expect("a number"),
        })
    }
}

impl Drop for Reuse {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.former.stdin.take());
        let _ = self.former.wait();
    }
}

impl Hit {
    fn gets_nothing(mut self, reuse: &mut Reuse) {
        let loaded = self.instance.load();
        assert_eq!(
            loaded.assert_fresh().outcome.as_deref(),
            Some("fresh_first"),
            "{loaded:?}"
        );
        assert_ne!(loaded.session(), self.session);
        let lease = json!({"session": self.session, "epoch": self.epoch.to_string()});
        assert_refused(
            self.instance.call("reject_token", lease.clone()),
            "unknown_session",
        );
        // Of the former host the holder was an instance. To others of it the lease has ended.
        let answer = reuse.ask(&format!("call reject_token {lease}"));
        assert_eq!(answer["error"]["code"], "lease_ended", "{answer}");
        self.instance.kill();
    }
}
