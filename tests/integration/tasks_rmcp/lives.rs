//! Tasks whose worker is killed, whose client is away, and whose daemon is.

use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use serde_json::json;

use super::client::Client;
use super::{Setup, assert_error, assert_unknown, each, kept, storages, text};

/// Within what time a task has failed whose worker was killed, by the daemon's clock.
const AT_ONCE_MS: u128 = 1_000;

#[test]
fn a_worker_that_is_killed_leaves_a_task_whose_outcome_is_unknown() {
    each(|place| {
        let gate = place.gate();
        let other = place.worker();
        let (mut client, mut elsewhere) = (place.client(), Client::of(&other));
        let task = client.begin("work", gate.named());
        assert_eq!(elsewhere.get(&task)["status"], "working");
        let killed = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970")
            .as_millis();
        place.server.kill();
        assert_unknown(&elsewhere.status(&task, "failed"));
        let (session, own) = task.split_once('.').expect("two parts");
        let of = json!({"service": place.service, "session": session});
        let told = place
            .world
            .peer()
            .call("get_task", json!({"of": of, "task": own}))
            .expect("it is there");
        let failed: u128 = told["updated_ms"]
            .as_str()
            .expect("a time")
            .parse()
            .expect("in ms");
        let took = failed.saturating_sub(killed);
        let _ = writeln!(
            std::io::stderr(),
            "on {} failed {took} ms after the kill",
            place.storage
        );
        assert!(took < AT_ONCE_MS, "{took} ms");
        // Neither answers nor a cancellation change that.
        elsewhere.update(&task, &json!({"input-1": {}}));
        elsewhere.cancel(&task);
        assert_unknown(&elsewhere.get(&task));
    });
}

#[test]
fn a_worker_that_is_told_to_end_does_not_wait_for_its_tasks() {
    each(|place| {
        let gate = place.gate();
        let other = place.worker();
        let task = place.client().begin("work", gate.named());
        place.server.stop(Signal::SIGTERM);
        assert_unknown(&Client::of(&other).status(&task, "failed"));
    });
}

#[test]
fn a_client_that_was_away_gets_the_result_from_another_server_and_another_daemon() {
    kept(&[], |place| {
        let (gate, mut other) = (place.gate(), place.worker());
        let task = place.client().begin("work", gate.named());
        gate.open();
        let ended = Client::of(&other).status(&task, "completed");
        place.server.kill();
        other.kill();
        place.daemon.restart();
        let again = place.worker();
        let now = Client::of(&again).get(&task);
        assert_eq!((&now, text(&now["result"])), (&ended, "worked"));
    });
}

#[test]
fn a_task_is_there_when_its_id_is_told_and_server_and_daemon_are_killed_at_once() {
    kept(&[], |place| {
        let gate = place.gate();
        let task = place.client().begin("work", gate.named());
        place.daemon.kill();
        place.server.kill();
        place.daemon.start_again();
        let other = place.worker();
        assert_unknown(&Client::of(&other).status(&task, "failed"));
    });
}

#[test]
fn a_task_goes_on_while_the_daemon_is_killed_and_started_again() {
    kept(&[], |place| {
        let gate = place.gate();
        let mut client = place.client();
        let task = client.begin("work", gate.named());
        for _ in 0..3 {
            place.daemon.restart();
            assert_eq!(client.get(&task)["status"], "working");
        }
        gate.open();
        assert_eq!(text(&client.status(&task, "completed")["result"]), "worked");
    });
}

#[test]
fn while_the_daemon_is_away_a_call_is_answered_without_a_task() {
    kept(&[("PATIENCE", "1000")], |place| {
        let gate = place.gate();
        let mut client = place.client();
        let task = client.begin("work", gate.named());
        client.until(&task, |task| task["statusMessage"] == "half of it is done");
        place.daemon.kill();
        for _ in 0..2 {
            let direct = client.call("work", json!({}));
            assert_eq!(
                (&direct["resultType"], text(&direct)),
                (&json!("complete"), "worked")
            );
        }
        for tool in ["must", "greet"] {
            let answer = client.ask("tools/call", json!({"name": tool, "arguments": {}}));
            assert_eq!(
                answer["error"],
                json!({"code": -32603, "message": "the task could not be created: try again later"})
            );
        }
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let answer = client.ask(method, json!({"taskId": task, "inputResponses": {}}));
            assert_error(&answer, -32603);
            let message = answer["error"]["message"].as_str().expect("a message");
            assert!(!message.contains('/'), "it names no path: {message}");
        }
        gate.open();
        place.server.errors.wait("A task waits to be stored");
        place.daemon.start_again();
        assert_eq!(text(&client.status(&task, "completed")["result"]), "worked");
        assert_eq!(client.call("work", json!({}))["resultType"], "task");
        assert_eq!(
            place.server.errors.lines("No task can be created").len(),
            1,
            "it is said once"
        );
        place.assert_silent(&task);
    });
}

/// Closing the response of a call cancels it, in 2026-07-28.
#[test]
fn a_client_that_has_gone_before_it_could_hear_of_its_task_leaves_none_that_works() {
    // In a storage of its own: what it holds is listed.
    for storage in ["sqlite:", "memory:"] {
        let mut place = Setup::new(storage);
        let gate = place.gate();
        place.daemon.signal(Signal::SIGSTOP);
        let errors = place.server.errors.clone();
        place
            .client()
            .hang_up("watched", &gate.named(), || drop(errors.wait("called")));
        errors.wait("gone");
        place.daemon.signal(Signal::SIGCONT);
        let statuses = || {
            let owner = format!("service {}", place.service);
            let sessions = place.world.listed("list_contents");
            let mut own = sessions.iter().filter(|session| session["owner"] == *owner);
            let session = own.next()?["session"].clone();
            let of = json!({"of": {"service": place.service, "session": session}});
            let tasks = place.world.peer().call("list_tasks", of).ok()?;
            Some(tasks[0]["status"].clone()).filter(|status| status == "cancelled")
        };
        mcp_sessiond_tests::until("its task is cancelled", statuses);
        assert!(errors.lines("dropped").is_empty(), "no work has begun");
    }
}

#[test]
fn a_client_that_goes_away_from_a_call_without_a_task_ends_the_work() {
    each(|place| {
        let gate = place.gate();
        let errors = place.server.errors.clone();
        place
            .client()
            .plain()
            .hang_up("watched", &gate.named(), || drop(errors.wait("working")));
        errors.wait("gone");
        errors.wait("dropped");
    });
}

#[test]
fn without_room_for_a_task_a_call_is_answered_directly() {
    for storage in storages() {
        let place = Setup::with(&storage, "[limits]\nsessions_per_service = 1\n", &[]);
        let mut client = place.client();
        let first = client.begin("work", json!({}));
        for _ in 0..3 {
            let direct = client.call("work", json!({}));
            assert_eq!(
                (&direct["resultType"], text(&direct)),
                (&json!("complete"), "worked")
            );
        }
        for tool in ["must", "greet"] {
            assert_error(
                &client.ask("tools/call", json!({"name": tool, "arguments": {}})),
                -32603,
            );
        }
        assert_eq!(
            place.server.errors.lines("No task can be created").len(),
            1,
            "it is said once"
        );
        assert_eq!(client.status(&first, "completed")["status"], "completed");
        place.assert_silent(&first);
    }
}
