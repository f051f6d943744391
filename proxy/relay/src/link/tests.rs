//! The link among hosts, servers and time, in any order.

mod fuzz;
mod model;

use serde_json::{Value, json};

use super::*;

const POLICY: Policy = Policy {
    hold_ms: 2_000,
    pause_ms: 5,
    pause_max_ms: 2_000,
    shares_host: false,
};

fn line(message: &Value) -> Bytes {
    message.to_string().into()
}

fn read(line: &Bytes) -> Value {
    serde_json::from_slice(line).expect("JSON")
}

fn call(id: u32) -> Bytes {
    line(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call"}))
}

fn outs(link: &mut Link) -> Vec<Out> {
    core::iter::from_fn(|| link.next_out()).collect()
}

/// A link whose host has been answered its `initialize`.
fn initialized() -> Link {
    let mut link = Link::new(POLICY);
    link.on(In::Connected("a"), 0);
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize"});
    link.on(In::Host(line(&initialize)), 0);
    link.on(
        In::FromServer(line(&json!({"jsonrpc": "2.0", "id": 0, "result": {}}))),
        0,
    );
    outs(&mut link);
    link
}

/// The sentence of an error of ours.
fn why(out: &Out) -> String {
    let Out::Answer(answer) = out else {
        panic!("{out:?}")
    };
    let message = &read(answer)["error"]["message"];
    message.as_str().expect("a sentence").to_owned()
}

#[test]
fn a_server_that_was_stopped_stays_stopped_until_it_is_used() {
    let mut link = initialized();
    link.on(In::Gone { on_purpose: true }, 1);
    assert_eq!((outs(&mut link), link.due()), (vec![], None));
    link.on(In::Host(call(1)), 2);
    assert_eq!(outs(&mut link), [Out::Connect]);
    assert!(
        !link.reads_host(),
        "one line waits, and the host waits, too"
    );
    link.on(In::Connected("b"), 3);
    assert_eq!(outs(&mut link), [Out::ToServer(call(1))]);
}

/// A direct server that never answers a probe ends at the end of its input; a kept one does not.
#[test]
fn a_probe_alone_does_not_keep_a_link_whose_host_has_closed_its_end() {
    let probe = || line(&json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover"}));
    for is_answered in [true, false] {
        let mut link = Link::new(POLICY);
        link.on(In::Connected("a"), 0);
        link.on(In::Host(probe()), 0);
        link.on(In::HostClosed, 100);
        assert_eq!(outs(&mut link), [Out::ToServer(probe()), Out::Leave]);
        assert_eq!(link.due(), Some(2_100));
        if is_answered {
            let answer = line(&json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
            link.on(In::FromServer(answer.clone()), 1_000);
            assert_eq!(outs(&mut link), [Out::Pass(answer), Out::End]);
        } else {
            link.on(In::Time, 2_099);
            assert_eq!(outs(&mut link), []);
            link.on(In::Time, 2_100);
            assert_eq!(outs(&mut link), [Out::End]);
        }
        assert_eq!(link.due(), None);
    }
    // A call is waited for.
    let mut link = initialized();
    link.on(In::Host(call(1)), 0);
    link.on(In::HostClosed, 0);
    assert_eq!(link.due(), None);
}

#[test]
fn what_is_asked_is_held_for_a_while_and_then_refused() {
    let mut link = initialized();
    link.on(In::Gone { on_purpose: false }, 0);
    link.on(In::Host(call(1)), 0);
    assert_eq!(outs(&mut link), [Out::Connect]);
    let failed = In::Unreachable(Unreachable::Passing("no such program"));
    link.on(failed, 1_999);
    assert_eq!((outs(&mut link), link.due()), (vec![], Some(2_004)));
    link.on(In::Time, 2_003);
    assert_eq!(outs(&mut link), []);
    link.on(In::Time, 2_004);
    assert_eq!(outs(&mut link), [Out::Connect]);
    link.on(
        In::Unreachable(Unreachable::Passing("no such program")),
        2_004,
    );
    let [refused, Out::Say(said)] = &outs(&mut link)[..] else {
        panic!("a refusal, and a sentence")
    };
    assert!(why(refused).contains("no such program"));
    assert!(said.contains("keeps trying"), "{said}");
    // From now on at once, and nothing is said twice.
    assert!(link.reads_host());
    link.on(In::Host(call(2)), 2_005);
    assert_eq!(outs(&mut link).len(), 1);
    link.on(In::Time, 2_014);
    link.on(
        In::Unreachable(Unreachable::Passing("no such program")),
        2_014,
    );
    assert_eq!(outs(&mut link), [Out::Connect]);
}

#[test]
fn a_keeper_that_is_stopped_is_waited_for_as_long_as_the_host_waits() {
    let mut link = initialized();
    link.on(In::Gone { on_purpose: false }, 0);
    link.on(In::Host(call(1)), 0);
    outs(&mut link);
    for now in 1..100 {
        link.on(In::Unreachable(Unreachable::Stalled), now * 10_000);
        link.on(In::Time, now * 10_000 + 2_000);
        assert_eq!(outs(&mut link), [Out::Connect]);
    }
}

#[test]
fn what_somebody_else_has_taken_is_not_taken_back() {
    let taken = || In::Unreachable(Unreachable::Taken("by zed"));
    let mut link = Link::new(POLICY);
    link.connect(0);
    link.on(taken(), 0);
    assert_eq!(outs(&mut link), [Out::Connect, Out::Say("by zed".into())]);
    assert!(link.due().is_some(), "who never had it waits for it");
    let mut link = initialized();
    link.on(In::Gone { on_purpose: false }, 0);
    link.on(taken(), 0);
    let said = Out::Say("taken: by zed".into());
    assert_eq!(
        (outs(&mut link), link.due()),
        (vec![Out::Connect, said], None)
    );
    link.on(In::Host(call(1)), 1);
    assert!(why(&outs(&mut link)[0]).contains("taken: by zed"));
}

#[test]
fn the_end_comes_once_the_host_has_got_what_it_waits_for() {
    let mut link = initialized();
    link.on(In::Host(call(1)), 0);
    link.on(In::HostClosed, 0);
    assert_eq!(outs(&mut link), [Out::ToServer(call(1)), Out::Leave]);
    let answer = line(&json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    link.on(In::FromServer(answer.clone()), 1);
    assert_eq!(outs(&mut link), [Out::Pass(answer), Out::End]);
}

#[test]
fn a_host_that_has_only_probed_has_used_nothing() {
    let mut link = Link::new(POLICY);
    link.on(In::Connected("a"), 0);
    let probe = json!({"jsonrpc": "2.0", "id": 0, "method": "server/discover"});
    link.on(In::Host(line(&probe)), 0);
    assert_eq!(outs(&mut link), [Out::ToServer(line(&probe))]);
    link.on(In::Host(call(1)), 0);
    assert_eq!(outs(&mut link), [Out::Used, Out::ToServer(call(1))]);
    assert!(link.has_begun());
}
