//! Lines between a host and its server, while keepers come and go.

use std::time::{Duration, Instant};

use mcp_sessiond_proto::backends::{BackendStatus, KeeperReply, KeeperRequest};
use mcp_sessiond_proxy::keeper::dial::dial;
use mcp_sessiond_tests::{Client, suspend, until};
use serde_json::json;

use super::by_every_door;
use crate::told_to_models::wrapping;
use crate::world;
use crate::wrap::{gate, keeping, open, tiny, wrapped};

/// The first server does not read, and is lost with its keeper; the second one is told what its host
/// has said first.
#[test]
fn a_fresh_keeper_gets_an_initialize_without_an_answer_before_what_was_held() {
    let world = keeping("");
    let _daemon = world.daemon();
    let raw = world.raw("server");
    let gate = gate(&world, "gate");
    let script = "while [ ! -e \"$0\" ]; do sleep 0.01; done; exec \"$@\"".to_owned();
    let server = [
        &["sh".into(), "-c".into(), script, gate.clone()],
        &raw.command[..],
    ]
    .concat();
    let mut client = Client::new(world.front(&wrapped(&world, &server)));
    let asked = client.begin_initialize("test");
    let backend = until("it is kept", || world.backends().pop());
    // It does not listen yet when it is known.
    until("it has the line", || {
        let status = dial(backend.socket(), &KeeperRequest::Status {}).ok()?;
        let has_it = |status: &BackendStatus| status.to_backend.messages == 1;
        matches!(status.reply, KeeperReply::Status(status) if has_it(&status)).then_some(())
    });
    backend.kill_keeper();
    // A front that has not seen that yet answers that the outcome is unknown.
    let mut unknown = 0;
    let held = loop {
        let held = client.request("tools/list", json!({}));
        let next = until("there is another keeper, or the call has failed", || {
            let is_next = world
                .backends()
                .iter()
                .any(|next| next.keeper != backend.keeper);
            (is_next || client.pipe.says_within(Duration::ZERO)).then_some(is_next)
        });
        if next {
            break held;
        }
        assert_eq!(client.answer(held)["error"]["data"]["outcome"], "unknown");
        unknown += 1;
        assert!(unknown < 100);
    };
    open(&gate);
    client.initialized(asked);
    assert!(client.answer(held)["result"].is_object());
    let heard: Vec<String> = raw
        .heard()
        .into_iter()
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .filter(|line| !line.contains("\"ping\""))
        .collect();
    assert!(heard[0].contains("\"initialize\""), "{heard:?}");
    let of = |method: &str| heard.iter().filter(|line| line.contains(method)).count();
    assert_eq!(
        (of("\"initialize\""), of("\"tools/list\"")),
        (1, 1),
        "{heard:?}"
    );
}

/// The front is in the middle of the line, for which the stopped keeper has no room. It looks for the
/// keeper as long as a call is open.
#[test]
fn a_call_is_noted_before_it_is_written_so_it_is_answered_if_the_keeper_is_lost() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut client = Client::connected(world.front(&wrapped(&world, &tiny(&world))));
    client.count();
    let backend = world.backend();
    suspend(backend.keeper);
    let large = "x".repeat(4 << 20);
    let call = client.begin("echo", json!({"message": large}));
    client.pipe.errors.wait("is stopped; waiting for it");
    backend.kill_keeper();
    let error = client.text(call).expect_err("it is lost");
    assert_eq!(error["data"]["outcome"], "unknown", "{error}");
}

/// The host does not read, and its front is killed. What a plain front does then is in `wrap/cuts.rs`: it
/// takes no more lines than it writes at once. These have read all, and count as stuck once they have
/// confirmed nothing for so long.
#[test]
fn an_answer_is_confirmed_to_the_keeper_only_after_the_host_was_given_it() {
    const CALLS: u64 = 8;
    const STUCK: Duration = Duration::from_millis(60);
    by_every_door(|door| {
        if !matches!(door.0, ["--lazy"] | ["--all"]) {
            return;
        }
        let world = world("");
        let _daemon = world.daemon();
        let words = wrapping(&world, door);
        let mut client = Client::connected(world.front(&words));
        client.count();
        let backend = world.backend();
        let before = backend.status();
        // More than a pipe takes, each of them.
        let message = "x".repeat(100_000);
        for _ in 0..CALLS {
            client.begin("echo", json!({"message": message}));
        }
        backend.wait("the front was handed all answers", |status| {
            // By bytes: the answer to a ping counts as a message, too.
            let answered = status.from_backend.bytes - before.from_backend.bytes;
            answered >= CALLS * 100_000 && status.calls.is_empty() && status.waiting == 0
        });
        let given = Instant::now();
        until("it counts as stuck", || {
            (given.elapsed() > STUCK).then_some(())
        });
        let lost = backend.cut_off(&mut client.pipe).lost;
        assert_eq!(lost, CALLS, "{door:?}");
        let mut next = Client::connected(world.front(&words));
        next.count();
        let said = format!("{CALLS} messages were on their way");
        next.pipe.errors.wait(&said);
    });
}
