//! What one owner, and all together, may have of everything, and no more.

use serde_json::{Value, json};

use crate::sessions::{create, of, set};
use crate::world;

const TIGHT: &str = "
[limits]
sessions_per_service = 20
state_keys = 10
state_value_bytes = 10000
state_bytes = 50000
streams = 8
message_bytes = 100000
events = 500
event_bytes = 1000000
stream_events = 200
stream_event_bytes = 500000
handles = 4
owner_bytes = 4000000
total_bytes = 12000000
";

/// Somebody who takes whatever there is meets a typed refusal, others go on, and memory stays within the budget.
#[test]
fn quotas_hold() {
    let world = world(TIGHT);
    let daemon = world.daemon();
    let mut peer = world.peer();
    create(&mut peer, "modest", "s");
    let before = daemon.resident_kib();
    let refused = |answer: Result<Value, Value>| match answer {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(
                (&error["code"], &error["http_status"]),
                (&json!("quota_exceeded"), &json!(429)),
                "{error}"
            );
            true
        }
    };
    let until_refused = |what: &str, mut call: Box<dyn FnMut(u32) -> Result<Value, Value> + '_>| {
        (0..100_000).find(|number| refused(call(*number))).unwrap_or_else(|| panic!("{what} has no limit"))
    };
    // One service, in each way.
    create(&mut peer, "greedy", "0");
    let mint = json!({"of": of("greedy", "0")});
    assert_eq!(until_refused("handles", Box::new(|_| peer.call("mint_handle", mint.clone()))), 4);
    let more = |number: u32| of("greedy", &(number + 1).to_string());
    let made = until_refused("sessions", Box::new(|number| peer.call("create_session", more(number))));
    assert_eq!(made, 20 - 1 - 4, "handles count as well");
    let of_0 = of("greedy", "0");
    let write = |key: u32, bytes: usize| json!({"of": of("greedy", "0"), "writes": set(&key.to_string(), &json!("x".repeat(bytes)).to_string())});
    assert_eq!(until_refused("keys", Box::new(|number| peer.call("write_state", write(number, 1)))), 10);
    assert!(refused(peer.call("write_state", write(0, 10_000))), "a large value");
    assert_eq!(until_refused("bytes", Box::new(|number| peer.call("write_state", write(number, 9_000)))), 5);
    assert_eq!(
        until_refused(
            "streams",
            Box::new(|number| peer.call("open_stream", json!({"of": of_0, "stream": number.to_string()})))
        ),
        8
    );
    let append = |session: u32, bytes: usize| json!({"of": of("greedy", &session.to_string()), "stream": "_GET_stream", "messages": [json!("x".repeat(bytes)).to_string()]});
    assert!(refused(peer.call("append", append(0, 100_000))), "a large message");
    // A full session forgets the oldest, and goes on.
    for _ in 0..1_000 {
        peer.call("append", append(0, 3_000)).expect("pruned, and appended");
    }
    let view = peer.call("get_session", of_0.clone()).expect("there");
    assert!(view["events"].as_u64().is_some_and(|events| (100..=200).contains(&events)), "{view}");
    let replayed = peer.call("replay", json!({"of": of_0, "after": {"number": "0"}})).expect("replayed");
    assert_eq!(replayed["gaps"].as_array().map(Vec::len), Some(1), "{}", replayed["gaps"]);
    // All of its sessions together.
    let filled =
        (1..20).find(|session| (0..20).any(|_| refused(peer.call("append", append(*session, 90_000)))));
    assert!(filled.is_some(), "one owner has no limit");
    // Many owners together.
    let owners = (0..10).find(|owner| {
        let service = format!("crowd-{owner}");
        if refused(peer.call("create_session", of(&service, "s"))) {
            return true;
        }
        (0..20).any(|number| {
            let message = json!("x".repeat(90_000)).to_string();
            let session = number.to_string();
            let made = peer.call("create_session", of(&service, &session));
            let append =
                json!({"of": of(&service, &session), "stream": "_GET_stream", "messages": vec![message; 5]});
            refused(made) || refused(peer.call("append", append))
        }) && world.stat("storage_bytes") > 11_000_000
    });
    assert!(owners.is_some(), "all owners together have no limit");
    // Within the budget, and what allocator and connections take beside it.
    let grown = daemon.resident_kib().saturating_sub(before);
    assert!(world.stat("storage_bytes") <= 12_000_000);
    assert!(grown < 3 * 12_000, "{grown} KiB more for 12,000 KB of sessions");
    // What makes less of it is let through, though everything is used up.
    let shrink = json!([{"key": "0"}, {"key": "1", "value": "1"}]);
    peer.call("write_state", json!({"of": of_0, "writes": shrink})).expect("less than before");
    peer.call("close_stream", json!({"of": of_0, "stream": "0"})).expect("closed");
    // Who gives something back can go on, and so can others all the time.
    peer.call("read_state", json!({"of": of("modest", "s"), "keys": ["k"]})).expect("read");
    peer.call("terminate_session", of("greedy", "1")).expect("terminated");
    peer.call("terminate_session", of_0).expect("terminated");
    peer.call("write_state", json!({"of": of("modest", "s"), "writes": set("k", "1")})).expect("written");
}
