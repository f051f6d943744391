//! Sessions with what they hold, by whoever owns them: hosts and services, through the daemon's socket.

use mcp_sessiond_tests::{Loaded, Peer, World, until};
use serde_json::{Value, json};

use crate::world;

/// A service's session in a request.
pub(crate) fn of(service: &str, session: &str) -> Value {
    json!({"service": service, "session": session})
}

/// A host's session in a request.
pub(crate) fn leased(loaded: &Loaded) -> Value {
    json!({"session": loaded.session(), "epoch": loaded.epoch.expect("a lease").to_string()})
}

pub(crate) fn create(peer: &mut Peer, service: &str, session: &str) -> Value {
    peer.call("create_session", of(service, session)).expect("created")
}

pub(crate) fn set(key: &str, value: &str) -> Value {
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

/// Neither its former holder nor what was left of it gets into the way of the new one.
#[test]
fn an_id_that_is_used_again_is_another_session() {
    let world = world("[sessions]\nhost_grace_ms = 0\n");
    let _daemon = world.daemon();
    let host = world.host();
    let mut server = host.instance(&[]);
    let brief = json!({"session": "x", "lifetimes": {"absolute_ms": "1"}});
    let first = server.call("create_session", brief).expect("made");
    let ended = || world.peer().call("sweep", json!({})).expect("swept") != json!([]);
    until("it has outlived its time", || ended().then_some(()));
    let second = server.call("create_session", json!({"session": "x"})).expect("made again");
    let write = |epoch: &Value| json!({"of": {"session": "x", "epoch": epoch}, "writes": set("a", "1")});
    let late = server.call("write_state", write(&first["epoch"])).expect_err("of the former one");
    assert_eq!(late["code"], "stale_epoch");
    server.call("write_state", write(&second["epoch"])).expect("written");
    // What is to be ended is ended in its turn: when something later has gone, so has whatever there was of the former.
    let later = server.call("claim", json!({})).expect("claimed");
    let lease = json!({"session": later["session"], "epoch": later["epoch"]});
    server.call("write_state", json!({"of": lease, "writes": set("a", "1")})).expect("written");
    server.call("claim", json!({"fresh": true})).expect("claimed");
    until("the later one has gone", || {
        let left = world.peer().call("list_contents", json!({})).expect("a list");
        let is_left =
            left.as_array().is_some_and(|left| left.iter().any(|one| one["session"] == later["session"]));
        (!is_left).then_some(())
    });
    let kept = server.call("get_session", json!({"session": "x"})).expect("still there");
    assert_eq!(kept["state_keys"], 1);
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
