//! Sessions with what they hold, by whoever owns them: hosts and services, through the daemon's
//! socket.

use mcp_sessiond_tests::{Instance, Loaded, Peer, World, assert_refused, until};
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
    peer.call("create_session", of(service, session))
        .expect("created")
}

pub(crate) fn set(key: &str, value: &str) -> Value {
    json!([{"key": key, "value": value}])
}

/// The lease of what was made, claimed or opened, in a request.
fn lease_of(made: &Value) -> Value {
    json!({"session": made["session"], "epoch": made["epoch"]})
}

/// An instance writes one key of a session that it holds.
#[track_caller]
fn write(instance: &mut Instance, lease: &Value, key: &str, value: &str) {
    instance
        .call(
            "write_state",
            json!({"of": lease, "writes": set(key, value)}),
        )
        .expect("written");
}

/// An instance reads one key of a session that it holds.
#[track_caller]
fn read(instance: &mut Instance, lease: &Value, key: &str) -> Value {
    instance
        .call("read_state", json!({"of": lease, "keys": [key]}))
        .expect("read")[0]["value"]
        .take()
}

/// What is in a session is nowhere to be seen.
#[track_caller]
fn assert_not_shown(world: &World, session: &str, secret: &str) {
    for arguments in [
        &["debug", "sessions"][..],
        &["debug", "streams"],
        &["stats"],
        &["debug", "session", session],
    ] {
        let output = world.sessiond(arguments).output().expect("debug");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && !text.contains(secret),
            "{arguments:?}: {output:?}"
        );
    }
    assert!(!world.log.text().contains(secret));
}

#[test]
fn what_a_claimed_session_holds_is_there_for_the_next_instance() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut first = host.instance(&[]);
    let lease = leased(first.load().assert_fresh());
    write(&mut first, &lease, "a", "{\"hunter2\":1}");
    let metadata = "{\"clientInfo\":{\"name\":\"x\"}}";
    let update = json!({"of": lease, "status": {"is": "ready"}, "metadata": metadata});
    first.call("update_session", update).expect("updated");
    let appended = first
        .call(
            "append",
            json!({"of": lease, "stream": "_GET_stream", "messages": ["\"hunter2\"", null, "2"]}),
        )
        .expect("appended");
    first.kill();
    daemon.restart();
    let (mut next, loaded) = host.loaded(&[]);
    assert_eq!(loaded.outcome.as_deref(), Some("resumed"));
    let lease_of_next = leased(&loaded);
    assert_eq!(lease_of_next["session"], lease["session"]);
    assert_eq!(read(&mut next, &lease_of_next, "a"), "{\"hunter2\":1}");
    let view = next
        .call("get_session", lease_of_next.clone())
        .expect("there");
    assert_eq!(
        (&view["metadata"], &view["status"]),
        (&json!(metadata), &json!({"is": "ready"}))
    );
    let after = json!({"event": appended[0]["id"]});
    let replayed = next
        .call("replay", json!({"of": lease_of_next, "after": after}))
        .expect("replayed");
    assert_eq!(replayed["events"][0]["message"], "2");
    // Whoever had it before can change nothing more; whoever has another key could not at any time.
    let mut twin = host.instance(&[]);
    let late = json!({"of": lease, "writes": set("a", "0")});
    assert_refused(twin.call("write_state", late.clone()), "stale_epoch");
    let without_epoch = json!({"of": {"session": lease["session"]}, "writes": set("a", "0")});
    assert_refused(twin.call("write_state", without_epoch), "invalid_argument");
    assert_refused(
        host.instance(&["another"]).call("write_state", late),
        "unknown_session",
    );
    assert_not_shown(&world, &loaded.session(), "hunter2");
}

#[test]
fn a_claim_may_ask_for_a_fresh_session() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let mut first = host.instance(&[]);
    let lease = leased(first.load().assert_fresh());
    first.store("token");
    write(&mut first, &lease, "a", "1");
    // The same process, which begins anew.
    let fresh = first
        .call("claim", json!({"fresh": true}))
        .expect("claimed");
    assert_eq!(
        (&fresh["outcome"], &fresh["token_status"]),
        (&json!("fresh_first"), &json!("absent"))
    );
    assert_ne!(fresh["session"], lease["session"]);
    assert_refused(
        first.call("read_state", json!({"of": lease, "keys": ["a"]})),
        "unknown_session",
    );
    // And one that comes after it.
    first.kill();
    let mut next = host.instance(&[]);
    world.wait_stat("leases", 0);
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
    let made = server
        .call(
            "create_session",
            json!({"request": "r1", "status": {"is": "ready"}}),
        )
        .expect("made");
    assert_eq!(
        (&made["program"], made.get("label")),
        (&json!("instance"), None)
    );
    let again = server
        .call("create_session", json!({"request": "r1"}))
        .expect("the first answer");
    assert_eq!(lease_of(&again), lease_of(&made));
    // An id of its own choice, which another host may choose as well.
    let chosen = json!({"session": "chosen"});
    let mine = server.call("create_session", chosen.clone()).expect("made");
    assert_eq!(mine["session"], "chosen");
    assert_refused(
        server.call("create_session", chosen.clone()),
        "already_exists",
    );
    let other_host = world.host();
    let mut stranger = other_host.instance(&[]);
    assert_refused(
        stranger.call("get_session", chosen.clone()),
        "unknown_session",
    );
    let theirs = stranger
        .call("create_session", chosen.clone())
        .expect("made");
    assert_eq!(theirs["session"], "chosen");
    let token = json!({"session": "chosen", "epoch": mine["epoch"], "token": "aGk="});
    server.call("store_token", token).expect("stored");
    write(&mut server, &lease_of(&mine), "a", "1");
    write(&mut stranger, &lease_of(&theirs), "a", "2");
    assert_eq!(
        read(&mut server, &lease_of(&mine), "a"),
        "1",
        "each has its own"
    );
    let shown = world
        .sessiond(&["debug", "session", "chosen", "--json"])
        .output()
        .expect("debug");
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(shown.as_array().map(Vec::len), Some(2), "{shown}");
    server
        .call("terminate_session", lease_of(&mine))
        .expect("terminated");
    assert_eq!(
        server
            .call("get_session", chosen.clone())
            .expect("a tombstone")["status"]["is"],
        "terminated"
    );
    assert_eq!(
        stranger.call("get_session", chosen).expect("there")["status"]["is"],
        "initializing"
    );
    let other = server.call("create_session", json!({})).expect("made");
    assert_ne!(other["session"], made["session"]);
    write(&mut server, &lease_of(&made), "a", "1");
    // A live process holds it.
    let named = json!({"session": made["session"]});
    let mut sibling = host.instance(&[]);
    assert_refused(sibling.call("open_session", named.clone()), "session_held");
    let mut other_server = host.instance(&["other"]);
    assert_refused(
        other_server.call("open_session", named.clone()),
        "unknown_session",
    );
    server.kill();
    daemon.restart();
    let opened = sibling.call("open_session", named.clone()).expect("free");
    assert_eq!(
        (
            &opened["epoch"],
            &opened["state_keys"],
            &opened["status"]["is"]
        ),
        (&json!("2"), &json!(1), &json!("ready"))
    );
    let listed = sibling
        .call("list_own_sessions", json!({}))
        .expect("a list");
    let ids: Vec<&Value> = listed
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["session"])
        .collect();
    assert_eq!(ids, [&made["session"], &other["session"], &json!("chosen")]);
    // It ends once and for all; then nobody is led to it.
    let lease = json!({"session": made["session"], "epoch": "2"});
    sibling
        .call("terminate_session", lease.clone())
        .expect("terminated");
    for (method, params) in [("open_session", named), ("reset_session", lease)] {
        assert_refused(sibling.call(method, params), "session_terminated");
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
    // Its time is the subject.
    until("it has outlived its time", || ended().then_some(()));
    let second = server
        .call("create_session", json!({"session": "x"}))
        .expect("made again");
    let late = json!({"of": lease_of(&first), "writes": set("a", "1")});
    assert_refused(server.call("write_state", late), "stale_epoch");
    write(&mut server, &lease_of(&second), "a", "1");
    // What is to be ended is ended in its turn: when something later has gone, so has whatever
    // there was of the former.
    let later = server.call("claim", json!({})).expect("claimed");
    write(&mut server, &lease_of(&later), "a", "1");
    server
        .call("claim", json!({"fresh": true}))
        .expect("claimed");
    // What the reaper deletes, it deletes unasked, and tells nobody.
    until("the later one has gone", || {
        let left = world.listed("list_contents");
        (!left.iter().any(|one| one["session"] == later["session"])).then_some(())
    });
    let kept = server
        .call("get_session", json!({"session": "x"}))
        .expect("still there");
    assert_eq!(kept["state_keys"], 1);
}

#[test]
fn nothing_is_left_of_a_host_that_is_gone() {
    let world = world("[sessions]\nhost_grace_ms = 0\n");
    let mut daemon = world.daemon();
    let contents = || world.listed("list_contents").len();
    for daemon_is_dead in [false, true] {
        let mut host = world.host();
        let mut server = host.instance(&[]);
        let lease = leased(server.load().assert_fresh());
        write(&mut server, &lease, "a", "1");
        server.call("create_session", json!({})).expect("made");
        let made = server.call("create_session", json!({})).expect("made");
        server
            .call("terminate_session", lease_of(&made))
            .expect("a tombstone");
        assert_eq!(contents(), 3);
        if daemon_is_dead {
            daemon.kill();
        }
        server.kill();
        host.kill();
        if daemon_is_dead {
            daemon.start_again();
        }
        // The same here.
        until("nothing is left", || (contents() == 0).then_some(()));
    }
}

#[test]
fn a_wait_ends_with_an_event_with_its_time_and_with_the_daemon() {
    let world = world("");
    let mut daemon = world.daemon();
    let mut peer = world.peer();
    create(&mut peer, "web", "s");
    let wait =
        json!({"of": of("web", "s"), "after": [{"stream": "_GET_stream"}], "timeout_ms": 20_000});
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| world.peer().call("wait", wait.clone()).expect("an answer"));
        peer.call(
            "append",
            json!({"of": of("web", "s"), "stream": "_GET_stream", "messages": ["1"]}),
        )
        .expect("appended");
        assert_eq!(
            waiting.join().expect("it waited")["events"][0]["message"],
            "1"
        );
    });
    let after = peer
        .call(
            "replay",
            json!({"of": of("web", "s"), "after": {"stream": "_GET_stream"}}),
        )
        .expect("replayed");
    let short = json!({"of": of("web", "s"), "after": after["next"], "timeout_ms": 1});
    let nothing = peer.call("wait", short).expect("an answer");
    assert_eq!(
        (&nothing["events"], &nothing["next"]),
        (&json!([]), &after["next"])
    );
    // A daemon that is told to stop keeps nobody waiting.
    let long = json!({"jsonrpc": "2.0", "id": 1, "method": "wait",
        "params": {"of": of("web", "s"), "after": after["next"], "timeout_ms": 20_000}});
    let mut waiting = world.peer();
    waiting.send(long.to_string().as_bytes()).expect("sent");
    // It is on its way when another call on the same connection is answered.
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    assert_eq!(waiting.ask(&ping).expect("an answer")["id"], 2);
    assert_eq!(daemon.stop().code(), Some(0));
    let answer = waiting.answer();
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
    client
        .call("attach_session", of("web", "s"))
        .expect("attached");
    assert_eq!(
        peer.call("get_session", of("web", "s")).expect("there")["attached"],
        1
    );
    let swept = peer.call("sweep", json!({})).expect("swept");
    assert_eq!(swept, json!([]));
    // It hangs up: that is how most clients go.
    drop(client);
    // And here: nobody waits for an event of this session.
    until("it has ended", || {
        peer.call("get_session", of("web", "s"))
            .is_err()
            .then_some(())
    });
    world.wait_stat("sessions_expired_total", 1);
}

#[test]
fn a_binding_is_to_whom_it_says() {
    let world = world("");
    let _daemon = world.daemon();
    let mut peer = world.peer();
    let caller = json!({"kind": "identity", "iss": "https://issuer.example", "sub": "hunter2"});
    let binding = json!({"caller": caller, "on_mismatch": "terminate"});
    peer.call(
        "create_session",
        json!({"service": "web", "session": "s", "binding": binding}),
    )
    .expect("created");
    let by = |caller: Value| json!({"service": "web", "session": "s", "caller": caller});
    peer.call("get_session", by(caller.clone()))
        .expect("the right one");
    let other = json!({"kind": "identity", "iss": "https://issuer.example", "sub": "somebody"});
    let refused = assert_refused(peer.call("get_session", by(other)), "binding_mismatch");
    assert_eq!(refused["http_status"], 403);
    // It was terminated for that.
    assert_refused(peer.call("touch_session", by(caller)), "session_terminated");
    assert!(
        !world.log.text().contains("hunter2"),
        "who it is bound to is nobody's business"
    );
}

#[test]
fn a_storage_url_that_is_wrong_says_what_would_be_right() {
    let world: World = world("[storage]\nurl = \"mysql://me:hunter2@db/x\"\n");
    let output = world.sessiond(&["run"]).output().expect("ended");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{text}");
    assert!(
        text.contains("postgres://") && !text.contains("hunter2"),
        "{text}"
    );
}
