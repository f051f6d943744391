//! Sessions with what they hold, by whoever owns them: hosts and services, through the daemon's socket.

use mcp_sessiond_tests::{Loaded, Peer, World, until};
use serde_json::{Value, json};

use crate::world;

/// A service's session in a request.
fn of(service: &str, session: &str) -> Value {
    json!({"service": service, "session": session})
}

/// A host's session in a request.
fn leased(loaded: &Loaded) -> Value {
    json!({"session": loaded.session(), "epoch": loaded.epoch.expect("a lease").to_string()})
}

fn create(peer: &mut Peer, service: &str, session: &str) -> Value {
    peer.call("create_session", of(service, session)).expect("created")
}

fn set(key: &str, value: &str) -> Value {
    json!([{"key": key, "value": value}])
}

#[test]
fn what_a_claimed_session_holds_is_there_for_the_next_instance() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut first = host.instance(&[]);
    let lease = leased(first.load().assert_fresh());
    first.call("write_state", json!({"of": lease, "writes": set("a", "{\"hunter2\":1}")})).expect("written");
    let metadata = "{\"clientInfo\":{\"name\":\"x\"}}";
    let update = json!({"of": lease, "status": {"is": "ready"}, "metadata": metadata});
    first.call("update_session", update).expect("updated");
    let appended = first
        .call("append", json!({"of": lease, "stream": "_GET_stream", "messages": ["\"hunter2\"", null, "2"]}))
        .expect("appended");
    first.kill();
    daemon.restart();
    let mut next = host.instance(&[]);
    let loaded = next.load();
    assert_eq!(loaded.outcome.as_deref(), Some("resumed"));
    let lease_of_next = leased(&loaded);
    assert_eq!(lease_of_next["session"], lease["session"]);
    let read = next.call("read_state", json!({"of": lease_of_next, "keys": ["a"]})).expect("read");
    assert_eq!(read[0]["value"], "{\"hunter2\":1}");
    let view = next.call("get_session", lease_of_next.clone()).expect("there");
    assert_eq!((&view["metadata"], &view["status"]), (&json!(metadata), &json!({"is": "ready"})));
    let after = json!({"event": appended[0]["id"]});
    let replayed = next.call("replay", json!({"of": lease_of_next, "after": after})).expect("replayed");
    assert_eq!(replayed["events"][0]["message"], "2");
    // Whoever had it before can change nothing more.
    let mut sibling = host.instance(&["another"]);
    let late = sibling.call("write_state", json!({"of": lease, "writes": set("a", "0")})).expect_err("late");
    assert_eq!(late["code"], "stale_epoch");
    let without = json!({"of": {"session": lease["session"]}, "writes": set("a", "0")});
    assert_eq!(sibling.call("write_state", without).expect_err("no epoch")["code"], "invalid_argument");
    // What is in it is nowhere to be seen.
    for arguments in [
        &["debug", "sessions"][..],
        &["debug", "streams"],
        &["debug", "stats"],
        &["debug", "session", &loaded.session()],
    ] {
        let output = world.sessiond(arguments).output().expect("debug");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && !text.contains("hunter2"), "{arguments:?}: {output:?}");
    }
    assert!(!world.log.text().contains("hunter2"));
}

#[test]
fn a_claim_may_ask_for_a_fresh_session() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let mut first = host.instance(&[]);
    let lease = leased(first.load().assert_fresh());
    first.store("token");
    first.call("write_state", json!({"of": lease, "writes": set("a", "1")})).expect("written");
    // The same process, which begins anew.
    let fresh = first.call("claim", json!({"fresh": true})).expect("claimed");
    assert_eq!((&fresh["outcome"], &fresh["token_status"]), (&json!("fresh_first"), &json!("absent")));
    assert_ne!(fresh["session"], lease["session"]);
    let gone = first.call("read_state", json!({"of": lease, "keys": ["a"]})).expect_err("it has ended");
    assert_eq!(gone["code"], "unknown_session");
    // And one that comes after it.
    first.kill();
    let mut next = host.instance(&[]);
    until("its exit is known", || (world.stat("leases") == 0).then_some(()));
    let again = next.call("claim", json!({"fresh": true})).expect("claimed");
    assert_ne!(again["session"], fresh["session"]);
    assert_eq!(world.stat("sessions"), 1);
}

#[test]
fn a_host_makes_sessions_and_takes_them_up_by_their_ids() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut server = host.instance(&[]);
    let made =
        server.call("create_session", json!({"request": "r1", "status": {"is": "ready"}})).expect("made");
    let again = server.call("create_session", json!({"request": "r1"})).expect("the first answer");
    assert_eq!((&again["session"], &again["epoch"]), (&made["session"], &made["epoch"]));
    // An id of its own choice, which another host may choose as well.
    let chosen = json!({"session": "chosen"});
    let mine = server.call("create_session", chosen.clone()).expect("made");
    assert_eq!(mine["session"], "chosen");
    assert_eq!(server.call("create_session", chosen.clone()).expect_err("taken")["code"], "already_exists");
    let other_host = world.host();
    let mut stranger = other_host.instance(&[]);
    assert_eq!(stranger.call("get_session", chosen.clone()).expect_err("not yet")["code"], "unknown_session");
    let theirs = stranger.call("create_session", chosen.clone()).expect("made");
    let lease_of_chosen = json!({"session": "chosen", "epoch": mine["epoch"]});
    let lease_of_theirs = json!({"session": "chosen", "epoch": theirs["epoch"]});
    let token = json!({"session": "chosen", "epoch": mine["epoch"], "token": "aGk="});
    server.call("store_token", token).expect("stored");
    for (instance, lease, value) in
        [(&mut server, &lease_of_chosen, "1"), (&mut stranger, &lease_of_theirs, "2")]
    {
        instance.call("write_state", json!({"of": lease, "writes": set("a", value)})).expect("written");
    }
    let read = server.call("read_state", json!({"of": lease_of_chosen, "keys": ["a"]})).expect("read");
    assert_eq!(read[0]["value"], "1", "each has its own");
    let shown = world.sessiond(&["debug", "session", "chosen", "--json"]).output().expect("debug");
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(shown.as_array().map(Vec::len), Some(2), "{shown}");
    server.call("terminate_session", lease_of_chosen.clone()).expect("terminated");
    assert_eq!(
        server.call("get_session", chosen.clone()).expect("a tombstone")["status"]["is"],
        "terminated"
    );
    assert_eq!(stranger.call("get_session", chosen).expect("there")["status"]["is"], "initializing");
    let other = server.call("create_session", json!({})).expect("made");
    assert_ne!(other["session"], made["session"]);
    let lease = json!({"session": made["session"], "epoch": made["epoch"]});
    server.call("write_state", json!({"of": lease, "writes": set("a", "1")})).expect("written");
    // A live process holds it.
    let named = json!({"session": made["session"]});
    let mut sibling = host.instance(&["sibling"]);
    assert_eq!(sibling.call("open_session", named.clone()).expect_err("held")["code"], "session_held");
    server.kill();
    daemon.restart();
    let opened = sibling.call("open_session", named.clone()).expect("free");
    assert_eq!(
        (&opened["epoch"], &opened["state_keys"], &opened["status"]["is"]),
        (&json!("2"), &json!(1), &json!("ready"))
    );
    let listed = sibling.call("list_own_sessions", json!({})).expect("a list");
    let ids: Vec<&Value> = listed.as_array().expect("a list").iter().map(|one| &one["session"]).collect();
    assert_eq!(ids, [&made["session"], &other["session"], &json!("chosen")]);
    // It ends once and for all; then nobody is led to it.
    let lease = json!({"session": made["session"], "epoch": "2"});
    sibling.call("terminate_session", lease.clone()).expect("terminated");
    for (method, params) in [("open_session", named), ("reset_session", lease)] {
        assert_eq!(sibling.call(method, params).expect_err("terminated")["code"], "session_terminated");
    }
}

#[test]
fn nothing_is_left_of_a_host_that_is_gone() {
    let world = world("[sessions]\nhost_grace_ms = 0\n");
    let mut daemon = world.daemon();
    let contents =
        || world.peer().call("list_contents", json!({})).expect("a list").as_array().map_or(0, Vec::len);
    for daemon_is_dead in [false, true] {
        let mut host = world.host();
        let mut server = host.instance(&[]);
        let lease = leased(server.load().assert_fresh());
        server.call("write_state", json!({"of": lease, "writes": set("a", "1")})).expect("written");
        server.call("create_session", json!({})).expect("made");
        let made = server.call("create_session", json!({})).expect("made");
        let lease = json!({"session": made["session"], "epoch": made["epoch"]});
        server.call("terminate_session", lease).expect("a tombstone");
        assert_eq!(contents(), 3);
        if daemon_is_dead {
            daemon.kill();
        }
        server.kill();
        host.kill();
        if daemon_is_dead {
            daemon.start_again();
        }
        until("nothing is left", || (contents() == 0).then_some(()));
    }
}

/// Calls every method that is about one session, with an id that somebody else's session has and with one that nobody's
/// has: the answers must be the same, or who knows an id would learn something.
fn learns_nothing(
    mut call: impl FnMut(&str, Value) -> Result<Value, Value>,
    reference: fn(&str) -> Value,
    known: &Known,
) {
    let cursors = [json!({"number": "0"}), json!({"stream": "secret-stream"}), json!({"event": known.event})];
    let requests = |of: &Value| {
        let write =
            |expected: Value| json!({"of": of, "writes": [{"key": "k", "value": "1", "expected": expected}]});
        let mut requests = vec![
            ("open_session", of.clone()),
            ("get_session", of.clone()),
            ("touch_session", of.clone()),
            ("attach_session", of.clone()),
            ("detach_session", of.clone()),
            ("reset_session", of.clone()),
            ("terminate_session", of.clone()),
            ("update_session", json!({"of": of, "status": {"is": "ready"}})),
            ("rotate_credential", json!({"of": of, "hash": "00".repeat(32)})),
            ("mint_handle", json!({"of": of})),
            ("read_state", json!({"of": of, "keys": ["k"]})),
            ("list_state", json!({"of": of})),
            ("write_state", write(json!("0"))),
            ("write_state", write(json!("1"))),
            ("open_stream", json!({"of": of, "stream": "t"})),
            ("list_streams", json!({"of": of})),
            ("close_stream", json!({"of": of, "stream": "secret-stream"})),
            ("orphan_stream", json!({"of": of, "stream": "secret-stream"})),
            ("append", json!({"of": of, "stream": "secret-stream", "messages": ["1"], "request": "r"})),
        ];
        requests.extend(cursors.iter().map(|after| ("replay", json!({"of": of, "after": after}))));
        requests.extend(
            cursors.iter().map(|after| ("wait", json!({"of": of, "after": [after], "timeout_ms": 1}))),
        );
        if of["service"].is_null() {
            let epoch = of.get("epoch").cloned().unwrap_or(json!("1"));
            let lease = json!({"session": of["session"], "epoch": epoch});
            requests.push(("reject_token", lease.clone()));
            requests.push(("release", lease.clone()));
            requests
                .push(("store_token", json!({"session": of["session"], "epoch": epoch, "token": "aGk="})));
        }
        requests
    };
    let (theirs, nobodys) =
        (requests(&reference(&known.session)), requests(&reference("01900000-0000-7000-8000-000000000000")));
    for ((method, params), (_, nobodys)) in theirs.into_iter().zip(nobodys) {
        let (theirs, nobodys) = (call(method, params.clone()), call(method, nobodys));
        assert!(theirs.is_err(), "{method} {params}: {theirs:?}");
        assert_eq!(theirs, nobodys, "{method} {params}");
    }
}

/// A session, and what somebody else might have seen of it.
struct Known {
    session: String,
    event: Value,
}

impl Known {
    fn fill(
        session: &str,
        of: &Value,
        mut call: impl FnMut(&str, Value) -> Result<Value, Value>,
    ) -> (Self, Value) {
        call("write_state", json!({"of": of, "writes": set("k", "1")})).expect("written");
        call("open_stream", json!({"of": of, "stream": "secret-stream"})).expect("opened");
        let append = json!({"of": of, "stream": "secret-stream", "messages": ["1"], "request": "r"});
        let event = call("append", append).expect("appended")[0]["id"].clone();
        let handle = call("mint_handle", json!({"of": of})).expect("minted")["handle"].clone();
        (Self { session: session.into(), event }, handle)
    }
}

#[test]
fn another_owner_learns_nothing_from_an_id() {
    let world = world("");
    let _daemon = world.daemon();
    let mut peer = world.peer();
    // Of a service.
    create(&mut peer, "theirs", "s");
    let (known, handle) = Known::fill("s", &of("theirs", "s"), |method, params| peer.call(method, params));
    create(&mut peer, "other", "own");
    learns_nothing(|method, params| peer.call(method, params), |session| of("other", session), &known);
    let other_host = world.host();
    let mut other = other_host.instance(&[]);
    learns_nothing(
        |method, params| other.call(method, params),
        |session| json!({"session": session, "epoch": "1"}),
        &known,
    );
    for open in [json!({"handle": handle, "service": "other"}), json!({"handle": handle})] {
        let refused = other.call("open_handle", open).expect_err("another owner's");
        assert_eq!(refused["code"], "unknown_handle");
    }
    // Its id can be had by everybody else.
    create(&mut peer, "other", "s");
    // Of a host.
    let host = world.host();
    let mut instance = host.instance(&[]);
    let lease = leased(instance.load().assert_fresh());
    let id = lease["session"].as_str().expect("an id").to_owned();
    let (known, handle) = Known::fill(&id, &lease, |method, params| instance.call(method, params));
    learns_nothing(|method, params| peer.call(method, params), |session| of("other", session), &known);
    for reference in [
        |session: &str| json!({"session": session, "epoch": "1"}),
        |session: &str| json!({"session": session}),
        |session: &str| json!({"session": session, "epoch": "9"}),
    ] {
        learns_nothing(|method, params| other.call(method, params), reference, &known);
    }
    let refused = other.call("open_handle", json!({"handle": handle})).expect_err("another host's");
    assert_eq!(refused["code"], "unknown_handle");
    let own = other.call("list_own_sessions", json!({})).expect("a list");
    assert_eq!(own, json!([]));
    // All of it is as it was.
    let read = instance.call("read_state", json!({"of": lease, "keys": ["k"]})).expect("still there");
    assert_eq!((&read[0]["value"], &read[0]["version"]), (&json!("1"), &json!("1")));
}

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

#[test]
fn a_wait_ends_with_an_event_with_its_time_and_with_the_daemon() {
    let world = world("");
    let mut daemon = world.daemon();
    let mut peer = world.peer();
    create(&mut peer, "web", "s");
    let wait = json!({"of": of("web", "s"), "after": [{"stream": "_GET_stream"}], "timeout_ms": 20_000});
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| world.peer().call("wait", wait.clone()).expect("an answer"));
        peer.call("append", json!({"of": of("web", "s"), "stream": "_GET_stream", "messages": ["1"]}))
            .expect("appended");
        assert_eq!(waiting.join().expect("it waited")["events"][0]["message"], "1");
    });
    let after = peer
        .call("replay", json!({"of": of("web", "s"), "after": {"stream": "_GET_stream"}}))
        .expect("replayed");
    let short = json!({"of": of("web", "s"), "after": after["next"], "timeout_ms": 1});
    let nothing = peer.call("wait", short).expect("an answer");
    assert_eq!((&nothing["events"], &nothing["next"]), (&json!([]), &after["next"]));
    // A daemon that is told to stop keeps nobody waiting.
    let long = json!({"jsonrpc": "2.0", "id": 1, "method": "wait",
        "params": {"of": of("web", "s"), "after": after["next"], "timeout_ms": 20_000}});
    let mut waiting = world.peer();
    waiting.send(long.to_string().as_bytes()).expect("sent");
    // It is on its way when another call on the same connection is answered.
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    assert_eq!(waiting.ask(&ping).expect("an answer")["id"], 2);
    assert_eq!(daemon.stop().code(), Some(0));
    let answer: Value = serde_json::from_slice(&waiting.receive().expect("an answer")).expect("JSON");
    assert_eq!(answer["result"]["events"], json!([]), "{answer}");
}

#[test]
fn a_session_ends_when_its_last_client_has_been_gone_for_a_while() {
    let world = world("[sessions]\nsweep_ms = 100\n");
    let _daemon = world.daemon();
    let mut peer = world.peer();
    let lifetimes = json!({"grace_ms": "1", "idle_ms": "0"});
    let create = json!({"service": "web", "session": "s", "lifetimes": lifetimes});
    peer.call("create_session", create).expect("created");
    let mut client = world.peer();
    client.call("attach_session", of("web", "s")).expect("attached");
    assert_eq!(peer.call("get_session", of("web", "s")).expect("there")["attached"], 1);
    let swept = peer.call("sweep", json!({})).expect("swept");
    assert_eq!(swept, json!([]));
    // It hangs up: that is how most clients go.
    drop(client);
    until("it has ended", || peer.call("get_session", of("web", "s")).is_err().then_some(()));
    until("and is counted", || (world.stat("sessions_expired_total") == 1).then_some(()));
}

#[test]
fn a_binding_is_to_whom_it_says() {
    let world = world("");
    let _daemon = world.daemon();
    let mut peer = world.peer();
    let caller = json!({"kind": "identity", "iss": "https://issuer.example", "sub": "hunter2"});
    let binding = json!({"caller": caller, "on_mismatch": "terminate"});
    peer.call("create_session", json!({"service": "web", "session": "s", "binding": binding}))
        .expect("created");
    let by = |caller: Value| json!({"service": "web", "session": "s", "caller": caller});
    peer.call("get_session", by(caller.clone())).expect("the right one");
    let other = json!({"kind": "identity", "iss": "https://issuer.example", "sub": "somebody"});
    let refused = peer.call("get_session", by(other)).expect_err("another one");
    assert_eq!((&refused["code"], &refused["http_status"]), (&json!("binding_mismatch"), &json!(403)));
    let ended = peer.call("touch_session", by(caller)).expect_err("it was terminated for that");
    assert_eq!(ended["code"], "session_terminated");
    assert!(!world.log.text().contains("hunter2"), "who it is bound to is nobody's business");
}

#[test]
fn a_storage_url_that_is_wrong_says_what_would_be_right() {
    let world: World = world("[storage]\nurl = \"mysql://me:hunter2@db/x\"\n");
    let output = world.sessiond(&["run"]).output().expect("ended");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{text}");
    assert!(text.contains("postgres://") && !text.contains("hunter2"), "{text}");
}
