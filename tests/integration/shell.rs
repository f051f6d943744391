//! State and streams by the command line, for what has no library.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Output, Stdio};

use mcp_sessiond_process::fault::PATIENCE_VARIABLE;
use mcp_sessiond_tests::{World, until};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use serde_json::{Value, json};

use crate::{fixture, world};

const OF: [&str; 4] = ["--service", "web", "--session", "7"];

/// Runs a command about the session `web`/`7`, with this standard input.
fn run(world: &World, arguments: &[&str], input: &str) -> Output {
    let mut command = world.sessiond(&[arguments, &OF, &["--no-start"]].concat());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    // A command that reads nothing may have exited.
    let _ = child
        .stdin
        .take()
        .expect("piped")
        .write_all(input.as_bytes());
    child.wait_with_output().expect("it exits")
}

/// What it prints.
#[track_caller]
fn printed(output: &Output) -> &str {
    assert!(output.status.success(), "{output:?}");
    std::str::from_utf8(&output.stdout).expect("UTF-8")
}

/// Asserts that it was refused with this exit code, and that standard error says so.
#[track_caller]
fn refused(output: &Output, code: i32, sentence: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), output.stdout.len()),
        (Some(code), 0),
        "{said}"
    );
    assert!(
        said.contains(sentence) && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn state_is_written_read_listed_and_removed() {
    let world = world("");
    let mut daemon = world.daemon();
    refused(
        &run(&world, &["state", "get", "cart"], ""),
        66,
        "there is no such session",
    );
    printed(&run(
        &world,
        &["state", "set", "cart", r#"[ "apples" ]"#],
        "",
    ));
    daemon.restart();
    assert_eq!(
        printed(&run(&world, &["state", "get", "cart"], "")),
        "[ \"apples\" ]\n"
    );
    printed(&run(
        &world,
        &["state", "set", "seen", "--expires", "3600"],
        "17\n",
    ));
    assert_eq!(
        printed(&run(&world, &["state", "list"], "")),
        "cart\nseen\n"
    );
    let listed: Value =
        serde_json::from_str(printed(&run(&world, &["state", "list", "--json"], "")))
            .expect("JSON");
    assert_eq!(
        listed[0],
        json!({"key": "cart", "version": listed[0]["version"].as_u64(), "bytes": 12}),
        "it stays"
    );
    assert!(listed[1]["expires_ms"].is_u64(), "{listed}");
    printed(&run(&world, &["state", "remove", "cart"], ""));
    refused(
        &run(&world, &["state", "get", "cart"], ""),
        66,
        "the key cart has no value",
    );
    refused(
        &run(&world, &["state", "set", "cart", "apples"], ""),
        65,
        "quotes",
    );
    // Some ids look like options.
    let hyphen = |verb: &[&str]| {
        let of = ["--service", "web", "--session", "-7f", "--no-start"];
        world
            .sessiond(&[&["state"], verb, &of].concat())
            .output()
            .expect("run")
    };
    printed(&hyphen(&["set", "cart", "7"]));
    assert_eq!(printed(&hyphen(&["get", "cart"])), "7\n");
    let alone = world
        .sessiond(&["state", "get", "cart", "--service", "web"])
        .output()
        .expect("run");
    assert_eq!(
        alone.status.code(),
        Some(64),
        "a service's session has an id"
    );
    daemon.kill();
    let away = run(&world, &["state", "get", "seen"], "");
    assert_eq!(away.status.code(), Some(4), "{away:?}");
}

#[test]
fn a_shell_script_finds_the_state_of_its_former_instance() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let script = fixture("shell/server.sh");
    let start = || host.server(&[&script, world.binaries.daemon]);
    let mut server = start();
    assert_eq!(server.ask("get count"), "66");
    assert_eq!(server.ask("set count=1"), "0");
    server.kill();
    let mut server = start();
    assert_eq!(server.ask("get count"), "0 1");
    assert_eq!(server.ask("set count=one"), "65");
}

#[test]
fn messages_are_appended_replayed_and_followed() {
    let world = world("");
    let _daemon = world.daemon();
    let first = run(
        &world,
        &["stream", "append", "call-7"],
        "{\"n\":1}\n\n  {\"n\":2}\n",
    );
    let ids: Vec<&str> = printed(&first).lines().collect();
    assert_eq!(ids.len(), 2);
    let replayed = run(&world, &["stream", "replay", "call-7"], "");
    let expected = format!("{}\t{{\"n\":1}}\n{}\t{{\"n\":2}}\n", ids[0], ids[1]);
    assert_eq!(printed(&replayed), expected);
    let after = run(
        &world,
        &["stream", "replay", "call-7", "--after", ids[0]],
        "",
    );
    assert_eq!(printed(&after), format!("{}\t{{\"n\":2}}\n", ids[1]));
    // It goes on until the stream is closed.
    let mut tail = world.sessiond(&[&["stream", "tail", "call-7"][..], &OF].concat());
    let tail = tail.stdout(Stdio::piped()).spawn().expect("started");
    printed(&run(
        &world,
        &["stream", "append", "call-7", "--close"],
        "{\"n\":3}",
    ));
    let tail = tail.wait_with_output().expect("it ends");
    assert_eq!(printed(&tail).lines().count(), 3);
    printed(&run(&world, &["stream", "append", "_GET_stream"], "{}"));
    // Some ids look like options.
    let hyphen = loop {
        let said = run(
            &world,
            &["stream", "append", "_GET_stream"],
            &"{}\n".repeat(200),
        );
        if let Some(id) = printed(&said).lines().find(|id| id.starts_with('-')) {
            break id.to_owned();
        }
    };
    printed(&run(
        &world,
        &["stream", "replay", "_GET_stream", "--after", &hyphen],
        "",
    ));
    refused(
        &run(&world, &["stream", "append", "call-7"], "{}"),
        65,
        "closed",
    );
    refused(
        &run(&world, &["stream", "append", "other"], "no JSON"),
        65,
        "JSON",
    );
    refused(
        &run(&world, &["stream", "replay", "nobody"], ""),
        66,
        "no such stream",
    );
    refused(
        &run(
            &world,
            &["stream", "replay", "call-7", "--after", "forged"],
            "",
        ),
        66,
        "cursor",
    );
}

/// Starts a task whose work is this script of the shell, and returns its id and the process that
/// does it.
fn begin(world: &World, script: &str, options: &[&str]) -> (String, Child) {
    begun(&mut working(world, script, options))
}

fn working(world: &World, script: &str, options: &[&str]) -> Command {
    let run = ["task", "run", "--no-start"];
    let script = ["--", "sh", "-c", script, world.binaries.daemon];
    world.sessiond(&[&run[..], options, &OF, &script].concat())
}

fn begun(command: &mut Command) -> (String, Child) {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut id = String::new();
    child
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut id)
        .expect("it ends with the id");
    assert!(id.starts_with('t'), "{id} is no option");
    (id.trim_end().to_owned(), child)
}

/// The task, once it has ended or asks.
#[track_caller]
fn waited(world: &World, id: &str) -> Value {
    serde_json::from_str(printed(&run(world, &["task", "wait", id], ""))).expect("JSON")
}

#[test]
fn a_command_does_the_work_of_a_task() {
    let world = world("");
    let _daemon = world.daemon();
    let (id, worker) = begin(
        &world,
        "echo done",
        &["--ttl", "3600", "--poll", "500", "--message", "busy"],
    );
    let task = waited(&world, &id);
    assert_eq!(
        task["result"],
        json!({"content": [{"type": "text", "text": "done\n"}], "isError": false})
    );
    assert_eq!(
        (
            &task["taskId"],
            &task["status"],
            &task["statusMessage"],
            &task["ttlMs"],
            &task["pollIntervalMs"]
        ),
        (
            &json!(id),
            &json!("completed"),
            &json!("busy"),
            &json!(3_600_000),
            &json!(500)
        )
    );
    assert!(worker.wait_with_output().expect("it ends").status.success());
    let (other, _) = begin(&world, "echo half; exit 3", &[]);
    let result = json!({"content": [{"type": "text", "text": "half\n"}], "isError": true});
    assert_eq!(waited(&world, &other)["result"], result);
    let listed = run(&world, &["task", "list"], "");
    let mut lines: Vec<&str> = printed(&listed).lines().collect();
    lines.sort_unstable();
    let mut expected = [format!("{id}\tcompleted"), format!("{other}\tcompleted")];
    expected.sort_unstable();
    assert_eq!(lines, expected);
    refused(
        &run(&world, &["task", "get", "nothing"], ""),
        66,
        "there is no such task",
    );
    refused(&run(&world, &["task", "cancel", &id], ""), 65, "has ended");
}

#[test]
fn a_command_prints_the_result_of_a_task_itself() {
    let world = world("");
    let _daemon = world.daemon();
    let end = |script: &str| waited(&world, &begin(&world, script, &["--json"]).0);
    let task = end(r#"echo '{"content":[],"structuredContent":{"n":1}}'"#);
    assert_eq!(
        task["result"],
        json!({"content": [], "structuredContent": {"n": 1}})
    );
    for (script, sentence) in [
        ("echo '[1]'", "JSON object"),
        ("echo '{}'; exit 3", "exit status: 3"),
        ("head -c 1000000 /dev/zero", "900000 bytes"),
    ] {
        let task = end(script);
        let message = task["error"]["message"].as_str().expect("an error");
        assert!(
            task["status"] == "failed" && message.contains(sentence),
            "{task}"
        );
        assert_eq!(task["error"]["code"], -32603);
    }
    let nothing = run(&world, &["task", "run"], "");
    assert_eq!(nothing.status.code(), Some(64), "a task has a command");
    let command = world
        .sessiond(&[&["task", "run"][..], &OF, &["--", "/no/such/command"]].concat())
        .output();
    let command = command.expect("run");
    assert_eq!(command.status.code(), Some(70));
    let id = String::from_utf8(command.stdout).expect("UTF-8");
    assert_eq!(waited(&world, id.trim_end())["status"], "failed");
}

#[test]
fn a_task_asks_its_client() {
    let world = world("");
    let mut daemon = world.daemon();
    let script = r#"
        "$0" task message "$MCP_SESSIOND_TASK" asking --no-start --service web --session 7
        answer=$("$0" task ask "$MCP_SESSIOND_TASK" name '{"method":"elicitation/create"}' --no-start --service web --session 7)
        printf "{\"content\":[],\"structuredContent\":$answer}""#;
    let (id, worker) = begin(&world, script, &["--json"]);
    let task = waited(&world, &id);
    assert_eq!(
        (&task["status"], &task["statusMessage"]),
        (&json!("input_required"), &json!("asking"))
    );
    assert_eq!(
        task["inputRequests"],
        json!({"name": {"method": "elicitation/create"}})
    );
    daemon.restart();
    printed(&run(&world, &["task", "answer", &id, "another", "{}"], ""));
    printed(&run(
        &world,
        &["task", "answer", &id, "name"],
        r#"{"action":"decline"}"#,
    ));
    assert!(worker.wait_with_output().expect("it ends").status.success());
    assert_eq!(
        waited(&world, &id)["result"]["structuredContent"],
        json!({"action": "decline"})
    );
}

#[test]
fn a_task_that_is_cancelled_ends_its_command() {
    let world = world("");
    let _daemon = world.daemon();
    // The second one is deaf to SIGTERM.
    for script in ["sleep 1000 & wait", "trap '' TERM; sleep 1000 & wait; wait"] {
        let (id, worker) = begin(&world, script, &[]);
        printed(&run(&world, &["task", "cancel", &id], ""));
        // Standard error ends when all processes have that have it.
        assert!(worker.wait_with_output().expect("it ends").status.success());
        assert_eq!(waited(&world, &id)["status"], "cancelled");
    }
}

#[test]
fn a_task_that_somebody_else_has_ended_ends_its_command() {
    let world = world("");
    let _daemon = world.daemon();
    let (id, worker) = begin(&world, "sleep 1000 & wait", &[]);
    let of = json!({"service": "web", "session": "7"});
    let end = json!({"completed": r#"{"content":[]}"#});
    world
        .peer()
        .call("update_task", json!({"of": of, "task": id, "end": end}))
        .expect("ended");
    assert!(worker.wait_with_output().expect("it ends").status.success());
    assert_eq!(waited(&world, &id)["status"], "completed");
}

#[test]
fn a_command_whose_task_can_t_be_written_any_more_ends_with_an_error() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let out = world.root().join("out");
    let script = r#"{ "$0" task run --no-start --for $$ -- sleep 1000 2>&1; echo "exit code $?"; } > "$1" &
        wait"#;
    let mut server = host.server(&[
        "sh",
        "-c",
        script,
        world.binaries.daemon,
        out.to_str().expect("a path"),
    ]);
    let said = || std::fs::read_to_string(&out).ok();
    until("the task", || said().filter(|said| said.starts_with('t')));
    server.kill();
    // So that it asks again now.
    daemon.restart();
    let said = until("its end", || {
        said().filter(|said| said.contains("exit code"))
    });
    assert!(said.ends_with("exit code 65\n"), "{said}");
}

/// The result is offered for a minute, and for less to a build for tests. Nothing else is put in
/// its place.
#[test]
fn a_result_that_the_storage_is_away_for_is_given_up_after_a_while() {
    let world = world("");
    let mut daemon = world.daemon();
    let gate = world.root().join("gate");
    mkfifo(&gate, Mode::S_IRWXU).expect("made");
    let script = format!("read -r _ < '{}'; echo done", gate.display());
    let (id, worker) = begun(working(&world, &script, &[]).env(PATIENCE_VARIABLE, "300"));
    world.configure("storage.url = \"sqlite:/no/such/directory/contents.db\"");
    daemon.restart();
    std::fs::write(&gate, "\n").expect("the command reads it");
    let output = worker.wait_with_output().expect("it ends");
    refused(&output, 65, "/no/such/directory");
    world.configure("");
    daemon.restart();
    let task = waited(&world, &id);
    assert_eq!(task["status"], "failed", "{task}");
    assert_eq!(
        task["error"]["data"],
        json!({"outcome": "unknown"}),
        "{task}"
    );
}

/// A process that this test has to kill.
struct Outside(Pid);

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
    }
}

#[test]
fn a_process_outside_a_commands_group_keeps_no_task_from_ending() {
    let world = world("");
    let _daemon = world.daemon();
    let pid = world.root().join("pid");
    // It keeps standard output open, and gets no signal of the group's.
    let script = format!(
        "setsid sleep 300 2>&- & echo $! | tee '{}'; wait",
        pid.display()
    );
    for is_cancelled in [true, false] {
        let (id, worker) = begin(&world, &script, &[]);
        let outside = until("the command runs", || {
            std::fs::read_to_string(&pid).ok()?.trim().parse().ok()
        });
        let _outside = Outside(Pid::from_raw(outside));
        if is_cancelled {
            printed(&run(&world, &["task", "cancel", &id], ""));
        } else {
            kill(Pid::from_raw(worker.id().cast_signed()), Signal::SIGTERM).expect("it is there");
        }
        assert!(worker.wait_with_output().expect("it ends").status.success());
        let task = waited(&world, &id);
        let result =
            json!({"content": [{"type": "text", "text": format!("{outside}\n")}], "isError": true});
        let (status, result) = if is_cancelled {
            ("cancelled", json!(null))
        } else {
            ("completed", result)
        };
        assert_eq!(
            (&task["status"], &task["result"]),
            (&json!(status), &result)
        );
        std::fs::remove_file(&pid).expect("it was there");
    }
}

#[test]
fn the_outcome_of_a_task_is_unknown_when_its_process_is_killed() {
    let world = world("");
    let _daemon = world.daemon();
    let (id, mut worker) = begin(&world, "exec yes", &[]);
    worker.kill().expect("killed");
    let task = waited(&world, &id);
    assert_eq!(
        (&task["status"], &task["error"]["data"]["outcome"]),
        (&json!("failed"), &json!("unknown"))
    );
    worker.wait().expect("it is gone");
}

#[test]
fn a_script_has_the_id_of_a_task_before_the_work_is_done() {
    let world = world("");
    let _daemon = world.daemon();
    let script = r#"id=$("$0" task run --service web --session 7 -- sleep 1000 &) && "$0" task cancel "$id" --service web --session 7 && echo "$id""#;
    let mut shell = world.command("sh");
    let output = shell
        .args(["-c", script, world.binaries.daemon])
        .output()
        .expect("run");
    assert_eq!(
        waited(&world, printed(&output).trim_end())["status"],
        "cancelled"
    );
}

#[test]
fn sessions_that_nobody_uses_expire() {
    let world = world("");
    let mut daemon = world.daemon();
    printed(&run(&world, &["state", "set", "cart", "1"], ""));
    let expire = |time: &str| {
        world
            .sessiond(&[
                "session",
                "expire",
                "--older-than",
                time,
                "--service",
                "web",
            ])
            .output()
            .expect("run")
    };
    assert_eq!(printed(&expire("1h")), "");
    assert_eq!(printed(&expire("0s")), "7\n");
    refused(
        &run(&world, &["state", "get", "cart"], ""),
        66,
        "no such session",
    );
    daemon.kill();
    assert_eq!(expire("1h").status.code(), Some(4));
    assert_eq!(
        world
            .sessiond(&["session", "expire"])
            .output()
            .expect("run")
            .status
            .code(),
        Some(64)
    );
}
