//! Whoever knows the id of another owner's session learns nothing from it; nor does a sibling with
//! another key.

use mcp_sessiond_tests::assert_refused;
use serde_json::{Value, json};

use crate::sessions::{create, leased, of, set};
use crate::world;

/// Calls every method that is about one session, with an id that somebody else's session has and
/// with one that nobody's has: the answers must be the same, or who knows an id would learn
/// something.
fn learns_nothing(
    mut call: impl FnMut(&str, Value) -> Result<Value, Value>,
    reference: fn(&str) -> Value,
    known: &Known,
) {
    let cursors = [
        json!({"number": "0"}),
        json!({"stream": "secret-stream"}),
        json!({"event": known.event}),
    ];
    let requests = |of: &Value| {
        let write = |expected: Value| json!({"of": of, "writes": [{"key": "k", "value": "1", "expected": expected}]});
        let mut requests = vec![
            ("open_session", of.clone()),
            ("get_session", of.clone()),
            ("touch_session", of.clone()),
            ("attach_session", of.clone()),
            ("detach_session", of.clone()),
            ("reset_session", of.clone()),
            ("terminate_session", of.clone()),
            (
                "update_session",
                json!({"of": of, "status": {"is": "ready"}}),
            ),
            (
                "rotate_credential",
                json!({"of": of, "hash": "00".repeat(32)}),
            ),
            ("mint_handle", json!({"of": of})),
            ("read_state", json!({"of": of, "keys": ["k"]})),
            ("list_state", json!({"of": of})),
            ("write_state", write(json!("0"))),
            ("write_state", write(json!("1"))),
            ("open_stream", json!({"of": of, "stream": "t"})),
            ("list_streams", json!({"of": of})),
            ("close_stream", json!({"of": of, "stream": "secret-stream"})),
            (
                "orphan_stream",
                json!({"of": of, "stream": "secret-stream"}),
            ),
            (
                "append",
                json!({"of": of, "stream": "secret-stream", "messages": ["1"], "request": "r"}),
            ),
        ];
        requests.extend(
            cursors
                .iter()
                .map(|after| ("replay", json!({"of": of, "after": after}))),
        );
        requests.extend(
            cursors
                .iter()
                .map(|after| ("wait", json!({"of": of, "after": [after], "timeout_ms": 1}))),
        );
        if of["service"].is_null() {
            let epoch = of.get("epoch").cloned().unwrap_or(json!("1"));
            let lease = json!({"session": of["session"], "epoch": epoch});
            requests.push(("reject_token", lease.clone()));
            requests.push(("release", lease.clone()));
            requests.push(("find_backend", lease.clone()));
            requests.push((
                "check_front",
                json!({"session": of["session"], "epoch": epoch, "keeper": "0000000a"}),
            ));
            let keeper = json!({"session": of["session"], "epoch": epoch, "keeper": "0000000a"});
            let with = |more: Value| {
                let mut params = keeper.clone();
                params
                    .as_object_mut()
                    .expect("an object")
                    .extend(more.as_object().expect("one").clone());
                params
            };
            requests.push(("front_left", with(json!({"orderly": true, "used": false}))));
            let ending = json!({"session": of["session"], "keeper": "0000000a", "why": "lingered"});
            requests.push(("backend_ending", ending));
            requests.push((
                "store_token",
                json!({"session": of["session"], "epoch": epoch, "token": "aGk="}),
            ));
        }
        requests
    };
    let (theirs, nobodys) = (
        requests(&reference(&known.session)),
        requests(&reference("01900000-0000-7000-8000-000000000000")),
    );
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
        let append =
            json!({"of": of, "stream": "secret-stream", "messages": ["1"], "request": "r"});
        let event = call("append", append).expect("appended")[0]["id"].clone();
        let handle = call("mint_handle", json!({"of": of})).expect("minted")["handle"].clone();
        (
            Self {
                session: session.into(),
                event,
            },
            handle,
        )
    }
}

#[test]
fn another_owner_learns_nothing_from_an_id() {
    let world = world("");
    let _daemon = world.daemon();
    let mut peer = world.peer();
    // Of a service.
    create(&mut peer, "theirs", "s");
    let (known, handle) = Known::fill("s", &of("theirs", "s"), |method, params| {
        peer.call(method, params)
    });
    create(&mut peer, "other", "own");
    learns_nothing(
        |method, params| peer.call(method, params),
        |session| of("other", session),
        &known,
    );
    let other_host = world.host();
    let mut other = other_host.instance(&[]);
    learns_nothing(
        |method, params| other.call(method, params),
        |session| json!({"session": session, "epoch": "1"}),
        &known,
    );
    for open in [
        json!({"handle": handle, "service": "other"}),
        json!({"handle": handle}),
    ] {
        assert_refused(other.call("open_handle", open), "unknown_handle");
    }
    // Its id can be had by everybody else.
    create(&mut peer, "other", "s");
    // Of a host.
    let host = world.host();
    let mut instance = host.instance(&[]);
    let lease = leased(instance.load().assert_fresh());
    let id = lease["session"].as_str().expect("an id").to_owned();
    let (known, handle) = Known::fill(&id, &lease, |method, params| instance.call(method, params));
    learns_nothing(
        |method, params| peer.call(method, params),
        |session| of("other", session),
        &known,
    );
    for reference in [
        |session: &str| json!({"session": session, "epoch": "1"}),
        |session: &str| json!({"session": session}),
        |session: &str| json!({"session": session, "epoch": "9"}),
    ] {
        learns_nothing(
            |method, params| other.call(method, params),
            reference,
            &known,
        );
    }
    assert_refused(
        other.call("open_handle", json!({"handle": handle})),
        "unknown_handle",
    );
    let own = other.call("list_own_sessions", json!({})).expect("a list");
    assert_eq!(own, json!([]));
    // All of it is as it was.
    let read = instance
        .call("read_state", json!({"of": lease, "keys": ["k"]}))
        .expect("still there");
    assert_eq!(
        (&read[0]["value"], &read[0]["version"]),
        (&json!("1"), &json!("1"))
    );
}

/// Servers of one host are strangers to each other, whoever holds the session, and when nobody
/// does.
#[test]
fn a_sibling_with_another_key_learns_nothing_from_an_id() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let mut holder = host.instance(&[]);
    let lease = leased(&holder.first_run("the broker's"));
    let id = lease["session"].as_str().expect("an id").to_owned();
    let (known, handle) = Known::fill(&id, &lease, |method, params| holder.call(method, params));
    let (mut sibling, own) = host.loaded(&["--label", "sibling"]);
    for holder_lives in [true, false] {
        for reference in [
            |session: &str| json!({"session": session, "epoch": "1"}),
            |session: &str| json!({"session": session}),
            |session: &str| json!({"session": session, "epoch": "9"}),
        ] {
            learns_nothing(
                |method, params| sibling.call(method, params),
                reference,
                &known,
            );
        }
        assert_refused(
            sibling.call("open_handle", json!({"handle": handle})),
            "unknown_handle",
        );
        let listed = sibling
            .call("list_own_sessions", json!({}))
            .expect("a list");
        let listed: Vec<&Value> = listed
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| &one["session"])
            .collect();
        assert_eq!(listed, [&json!(own.session())], "its own alone");
        if holder_lives {
            holder.kill();
            world.wait_stat("leases", 1);
        }
    }
    // Whoever has the key finds all of it as it was, also by its id.
    let (mut next, resumed) = host.loaded(&[]);
    resumed.assert_resumed(&id, Some("the broker's"));
    assert_eq!(resumed.epoch, Some(2), "nobody else has held it");
    let lease = leased(&resumed);
    let read = next
        .call("read_state", json!({"of": lease, "keys": ["k"]}))
        .expect("still there");
    assert_eq!(
        (&read[0]["value"], &read[0]["version"]),
        (&json!("1"), &json!("1"))
    );
    let mut same_key = host.instance(&[]);
    let seen = same_key
        .call("get_session", json!({"session": id}))
        .expect("it may look");
    assert_eq!(seen["session"], id);
    assert_refused(
        same_key.call("open_session", json!({"session": id})),
        "session_held",
    );
}
