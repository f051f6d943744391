//! Tasks: their writers are killed, and so is the daemon.

use std::time::Duration;

use mcp_sessiond_client::{
    Error, Json, Options, Sessions, Start, TaskEnd, TaskOptions, TaskStatus, TaskUpdate,
};
use mcp_sessiond_tests::{Instance, PATIENCE, Peer, World, assert_refused};
use serde_json::{Value, json};

use crate::sessions::{create, of};
use crate::world;

const RESULT: &str = r#"{"content":[{"type":"text","text":"secret"}]}"#;

fn with_session(world: &World) -> Peer {
    let mut peer = world.peer();
    create(&mut peer, "web", "s");
    peer
}

/// Creates a task of the session `web`/`s`, and returns its id.
fn begin(instance: &mut Instance) -> Value {
    instance
        .call("create_task", json!({"of": of("web", "s")}))
        .expect("created")["task"]
        .take()
}

fn ask_for(peer: &mut Peer, task: &Value) -> Value {
    peer.call("get_task", json!({"of": of("web", "s"), "task": task}))
        .expect("it is there")
}

/// Waits until the task has ended, as the daemon tells, and asserts that its outcome is unknown.
fn assert_lost(peer: &mut Peer, task: &Value) {
    let mut now = ask_for(peer, task);
    while now["status"] == "working" {
        let wait = json!({"of": of("web", "s"), "task": task, "version": now["version"]});
        now = peer.call("wait_task", wait).expect("waited");
    }
    assert_eq!(now["status"], "failed", "{now}");
    let error: Value =
        serde_json::from_str(now["error"].as_str().expect("an error")).expect("JSON");
    assert_eq!(
        (&error["code"], &error["data"]["outcome"]),
        (&json!(-32603), &json!("unknown"))
    );
}

fn end(instance: &mut Instance, task: &Value) -> Result<Value, Value> {
    let end = json!({"completed": RESULT});
    instance.call(
        "update_task",
        json!({"of": of("web", "s"), "task": task, "end": end}),
    )
}

#[test]
fn a_task_whose_writer_is_killed_has_failed() {
    let world = world("");
    let _daemon = world.daemon();
    let mut peer = with_session(&world);
    let host = world.host();
    let (mut writer, mut other) = (host.instance(&[]), host.instance(&["other"]));
    let (lost, taken, ended) = (begin(&mut writer), begin(&mut writer), begin(&mut writer));
    end(&mut writer, &ended).expect("ended");
    other
        .call(
            "update_task",
            json!({"of": of("web", "s"), "task": taken, "take": true}),
        )
        .expect("the other goes on with it");
    writer.kill();
    assert_lost(&mut peer, &lost);
    assert_eq!(
        ask_for(&mut peer, &taken)["status"],
        "working",
        "the writer of this one lives"
    );
    assert_eq!(ask_for(&mut peer, &ended)["result"], RESULT);
    assert_refused(end(&mut other, &lost), "task_ended");
    other.kill();
    assert_lost(&mut peer, &taken);
}

/// What `debug` says of this topic, as JSON.
fn shown(world: &World, topic: &[&str]) -> Value {
    let output = world
        .sessiond(&[&["debug", "--json"], topic].concat())
        .output()
        .expect("debug");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn debug_shows_which_tasks_there_are_and_not_what_is_in_them() {
    let world = world("");
    let _daemon = world.daemon();
    let mut peer = with_session(&world);
    let host = world.host();
    let mut writer = host.instance(&[]);
    assert_eq!(shown(&world, &["tasks"]), json!([]));
    let (under_way, ended) = (begin(&mut writer), begin(&mut writer));
    end(&mut writer, &ended).expect("ended");
    let asked = json!([{"key": "secret", "request": "{\"secret\":1}"}]);
    let update =
        json!({"of": of("web", "s"), "task": under_way, "ask": asked, "message": "a secret"});
    writer.call("update_task", update).expect("asked");
    let tasks = shown(&world, &["tasks"]);
    let status = |task: &Value| {
        let found = tasks
            .as_array()
            .expect("a list")
            .iter()
            .find(|one| one["task"] == *task);
        found.unwrap_or_else(|| panic!("{task} is missing: {tasks}"))["status"].clone()
    };
    assert_eq!(
        (status(&under_way), status(&ended)),
        (json!("input_required"), json!("completed"))
    );
    assert_eq!(
        (&tasks[0]["owner"], &tasks[0]["session"]),
        (&json!("service web"), &json!("s"))
    );
    assert_eq!(
        shown(&world, &["session", "s"])[0]["tasks"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
    assert_eq!(shown(&world, &["sessions"])[0]["tasks"], 2);
    for topic in [
        &["debug", "tasks"][..],
        &["debug", "session", "s"],
        &["debug", "tasks", "--json"],
    ] {
        let output = world.sessiond(topic).output().expect("debug");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            text.contains(ended.as_str().expect("an id")) && !text.contains("secret"),
            "{topic:?}: {text}"
        );
    }
    assert_eq!(ask_for(&mut peer, &ended)["result"], RESULT);
}

#[test]
fn the_next_daemon_ends_the_task_of_a_process_that_was_killed_while_none_ran() {
    let world = world("");
    let mut daemon = world.daemon();
    with_session(&world);
    let host = world.host();
    let (mut writer, mut other) = (host.instance(&[]), host.instance(&["other"]));
    let (lost, kept, ended) = (begin(&mut writer), begin(&mut other), begin(&mut other));
    end(&mut other, &ended).expect("ended");
    daemon.kill();
    writer.kill();
    daemon.start_again();
    let mut peer = world.peer();
    assert_lost(&mut peer, &lost);
    assert_eq!(ask_for(&mut peer, &ended)["result"], RESULT);
    end(&mut other, &kept).expect("its writer lives");
    for arguments in [
        &["debug", "sessions"][..],
        &["debug", "session", "s"],
        &["stats"],
    ] {
        let output = world.sessiond(arguments).output().expect("debug");
        assert!(
            !String::from_utf8_lossy(&output.stdout).contains("secret"),
            "{arguments:?}"
        );
    }
    assert!(!world.log.text().contains("secret"));
}

#[tokio::test]
async fn the_client_goes_on_with_a_task_after_a_kill_of_the_daemon() {
    let world = world("");
    let mut daemon = world.daemon();
    let options = Options::default()
        .directory(world.directory())
        .start(Start::Never);
    let sessions = Sessions::of_service("web".parse().expect("a name"), options);
    let session = sessions.create(Default::default()).await.expect("created");
    let begin = TaskOptions::default()
        .ttl(Duration::from_secs(3_600))
        .message("begun");
    let (task, created) = session.create_task(begin).await.expect("created");
    daemon.restart();
    assert_eq!(task.view().await.expect("it is there"), created);
    // Who waits goes on waiting, at the next daemon.
    let waiting = tokio::spawn({
        let (task, version) = (task.clone(), created.version);
        async move { task.changed(version, PATIENCE).await }
    });
    daemon.restart();
    let half = task
        .update(TaskUpdate::default().message("half"))
        .await
        .expect("changed");
    assert_eq!(
        waiting.await.expect("no panic").expect("waited").version,
        half.version
    );
    daemon.restart();
    let result = Json::new(RESULT).expect("JSON");
    let ended = task.complete(result.clone()).await.expect("ended");
    assert_eq!(
        (ended.status, ended.result),
        (TaskStatus::Completed, Some(result.clone()))
    );
    // The answer may be lost, and the call repeated.
    let again = task
        .update(TaskUpdate::default().end(TaskEnd::Completed(result)))
        .await
        .expect("the same end");
    assert_eq!(again.version, half.version + 1);
    let late = task.cancel().await.expect_err("it has ended");
    assert_eq!(late.refusal(), Some(&Error::TaskEnded));
    let listed = session.tasks().await.expect("listed");
    assert_eq!(
        (listed.len(), &listed[0].task, &listed[0].result),
        (1, task.id(), &None)
    );
}
