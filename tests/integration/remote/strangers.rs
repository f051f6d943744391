//! Who uses the session of a former connection: only a host that has introduced itself as the
//! former one has, and only where the server has shown that it knows that session.

use std::fs;

use mcp_sessiond_tests::{Client, Front};
use serde_json::{Value, json};

use super::{express, front, pinged};
use crate::world;

/// What a host of the same name is told that begins with `server/discover`: by that it gets the
/// daemon's session of the former one.
fn discover(client: &mut Client<Front>) -> Value {
    let meta = json!({"io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}});
    let id = client.request("server/discover", json!({"_meta": meta}));
    client.answer(id)
}

/// The session in which such a server gets a call.
fn within(client: &mut Client<Front>) -> Value {
    let id = client.request("tools/list", json!({}));
    client.answer(id)["result"]["within"].take()
}

#[test]
#[ignore = "needs node"]
fn a_host_that_has_not_introduced_itself_uses_nothing_of_the_former_one() {
    let world = world("");
    let _daemon = world.daemon();
    let server = express(&world, &["events"]);
    let mut client = front(&world, &server);
    client.initialize();
    assert_eq!(client.call("increment", json!({})), "1");
    client.pipe.kill();
    // It never does.
    let mut client = front(&world, &server);
    assert!(discover(&mut client)["error"].is_object());
    client
        .try_call("increment", json!({}))
        .expect_err("it has no session");
    client.notify("notifications/initialized", json!({}));
    client
        .try_call("increment", json!({}))
        .expect_err("it still has none");
    client.pipe.kill();
    // It does later.
    let mut client = front(&world, &server);
    assert!(discover(&mut client)["error"].is_object());
    client
        .try_call("increment", json!({}))
        .expect_err("it has no session yet");
    client.initialize();
    assert_eq!(
        (client.call("increment", json!({})), server.handshakes()),
        ("2".to_owned(), 1)
    );
}

#[test]
#[ignore = "needs python3"]
fn what_was_said_before_the_introduction_is_no_part_of_the_session_that_goes_on() {
    let world = world("");
    let _daemon = world.daemon();
    let server = pinged(&world);
    fs::write(world.root().join("ping"), "result").expect("a file");
    let mut client = front(&world, &server);
    client.initialize();
    assert_eq!(within(&mut client), "session-1");
    client.pipe.kill();
    let mut client = front(&world, &server);
    assert_eq!(discover(&mut client)["result"]["within"], Value::Null);
    client.notify("notifications/initialized", json!({}));
    assert_eq!(within(&mut client), Value::Null);
    client.pipe.kill();
    let mut client = front(&world, &server);
    assert_eq!(discover(&mut client)["result"]["within"], Value::Null);
    assert_eq!(within(&mut client), Value::Null);
    client.initialize();
    assert_eq!(within(&mut client), "session-1");
}

#[test]
#[ignore = "needs python3"]
fn a_host_that_was_not_let_into_the_former_session_is_in_none_until_another_one_is_begun() {
    let world = world("");
    let _daemon = world.daemon();
    let server = pinged(&world);
    for (how, name, said) in [
        ("result", "test", "introduces itself differently"),
        ("taken", "test", "does not answer in the previous session"),
    ] {
        fs::write(world.root().join("ping"), "result").expect("a file");
        let mut client = front(&world, &server);
        client.initialize_as(name);
        let former = within(&mut client);
        client.pipe.kill();
        fs::write(world.root().join("ping"), how).expect("a file");
        fs::write(world.root().join("refuse"), "").expect("a file");
        let mut client = front(&world, &server);
        let version = if how == "result" {
            "2025-03-26"
        } else {
            "2025-06-18"
        };
        let words = json!({
            "protocolVersion": version,
            "capabilities": {"sampling": {}, "roots": {}},
            "clientInfo": {"name": name, "version": "1"},
        });
        let id = client.request("initialize", words);
        assert!(client.answer(id)["error"].is_object(), "{how}");
        client.pipe.errors.wait(said);
        assert_eq!(within(&mut client), Value::Null, "{how}");
        fs::remove_file(world.root().join("refuse")).expect("removed");
        client.initialize_as(name);
        assert_ne!(within(&mut client), former, "{how}");
        client.pipe.kill();
    }
}

#[test]
#[ignore = "needs python3"]
fn only_the_result_of_a_ping_shows_that_a_session_is_known() {
    let world = world("");
    let _daemon = world.daemon();
    let server = pinged(&world);
    let how = |how: &str| fs::write(world.root().join("ping"), how).expect("a file");
    how("result");
    let mut former = Value::Null;
    let (silent, forgotten) = (
        "does not answer in the previous session",
        "has forgotten the previous session",
    );
    let goes_on = "the session that an earlier connection had with the server goes on";
    for (answers, said) in [
        ("result", ""),
        ("result", goes_on),
        ("events", goes_on),
        ("lost", forgotten),
        ("events-lost", forgotten),
        ("error", silent),
        ("other", silent),
        ("twice", silent),
        ("mute", silent),
        ("taken", silent),
        ("page", silent),
        ("broken", silent),
    ] {
        how(answers);
        let mut client = front(&world, &server);
        assert!(client.initialize()["result"].is_object(), "{answers}");
        if !said.is_empty() {
            client.pipe.errors.wait(said);
        }
        let now = within(&mut client);
        assert_eq!(
            now == former,
            said == goes_on,
            "{answers}: {now} after {former}"
        );
        former = now;
        client.pipe.kill();
    }
}
