//! Several clients change one task at once: one of them wins, and everybody is told the same.

use std::sync::Barrier;
use std::thread;

use serde_json::json;

use super::client::Client;
use super::{each, keys, named, text};

/// How often each race is run.
const ROUNDS: u32 = 25;

#[test]
fn a_task_that_is_cancelled_as_it_ends_has_one_end() {
    each(|place| {
        let other = place.worker();
        let (mut client, mut elsewhere) = (place.client(), Client::of(&other));
        for _ in 0..ROUNDS {
            let gate = place.gate();
            let task = client.begin("work", gate.named());
            let start = Barrier::new(3);
            thread::scope(|scope| {
                for client in [&mut client, &mut elsewhere] {
                    scope.spawn(|| {
                        start.wait();
                        client.cancel(&task);
                    });
                }
                start.wait();
                gate.open();
            });
            // A cancellation that was acknowledged was after the end, or is the end.
            let ended = client.get(&task);
            match ended["status"].as_str() {
                Some("completed") => assert_eq!(text(&ended["result"]), "worked"),
                status => assert_eq!((status, ended.get("result")), (Some("cancelled"), None)),
            }
            assert_eq!(elsewhere.get(&task), ended);
        }
    });
}

#[test]
fn of_two_answers_at_once_one_counts() {
    each(|place| {
        let other = place.worker();
        let (mut client, mut elsewhere) = (place.client(), Client::of(&other));
        for _ in 0..ROUNDS {
            let task = client.begin("greet", json!({}));
            let key = keys(&client.asked(&task, 1)).remove(0);
            let start = Barrier::new(2);
            thread::scope(|scope| {
                for (client, name) in [(&mut client, "Ann"), (&mut elsewhere, "Bob")] {
                    let (start, task, key) = (&start, &task, &key);
                    scope.spawn(move || {
                        start.wait();
                        client.update(task, &json!({key: named(name)}));
                    });
                }
            });
            let next = client.until(&task, |task| {
                keys(task).first().is_some_and(|next| *next != key)
            });
            client.update(&task, &json!({&keys(&next)[0]: named("red")}));
            let ended = client.status(&task, "completed");
            let said = text(&ended["result"]);
            assert!(
                ["Hello, Ann in red!", "Hello, Bob in red!"].contains(&said),
                "{said}"
            );
            assert_eq!(elsewhere.get(&task), ended);
        }
    });
}
