//! A server on rmcp with the client library's `durable`: its sessions and calls outlive it.

mod official;
mod refused;
mod streams;

use std::path::{Path, PathBuf};

use mcp_sessiond_tests::{HttpClient, Reply, Serve, World};
use serde_json::{Value, json};

use crate::world;

/// A version of MCP whose clients take an event without data.
const VERSION: &str = "2025-11-25";

/// A client that has begun a session.
fn begun(server: &Serve) -> HttpClient {
    let mut client = server.client();
    client.initialize(VERSION);
    client
}

/// What a server waits for that counts.
fn gate(world: &World) -> PathBuf {
    world.root().join("gate")
}

/// Lets the servers go on that wait.
fn open(world: &World) {
    open_at(world, &gate(world));
}

/// Lets the servers go on that wait for this gate.
fn open_at(world: &World, gate: &Path) {
    let made = world.root().join("made");
    std::fs::write(&made, "").expect("it is written");
    std::fs::rename(made, gate).expect("it is moved");
}

/// Calls the tool that tells so many steps, and waits after the step `hold` for the gate.
fn count(client: &mut HttpClient, world: &World, steps: u32, hold: u32) -> Reply {
    let mut reply = client.call(
        "count",
        &json!({"key": "k", "steps": steps, "hold": hold, "gate": gate(world)}),
    );
    reply.must_be(200);
    reply
}

/// The next message is progress, so far. Returns the id of the event.
#[track_caller]
fn progress(reply: &mut Reply, step: f64) -> String {
    let said = reply.said();
    let message = said.message();
    assert_eq!(
        (&message["method"], &message["params"]["progress"]),
        (&json!("notifications/progress"), &json!(step))
    );
    said.id.expect("an id")
}

/// The answer is that nobody knows what became of the call.
#[track_caller]
fn assert_unknown(answer: &Value, id: u64) {
    assert_eq!(
        (
            &answer["id"],
            &answer["error"]["code"],
            &answer["error"]["data"]["outcome"]
        ),
        (&json!(id), &json!(-32000), &json!("unknown")),
        "{answer}"
    );
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
}

/// What the server knows of its client.
fn who(client: &mut HttpClient) -> Value {
    serde_json::from_str(&client.text("who", &json!({}))).expect("JSON")
}

#[test]
fn a_server_that_is_killed_in_the_middle_of_a_call_is_replaced_by_one_that_knows_its_client() {
    let world = world("");
    let _daemon = world.daemon();
    let mut server = world.durable_server(&[]);
    let mut client = begun(&server);
    let known = who(&mut client);
    assert_eq!(
        (&known["name"], &known["version"]),
        (&json!("test"), &json!(VERSION))
    );
    assert_eq!(
        (&known["capabilities"]["sampling"], &known["session"]),
        (&json!({}), &json!(client.session()))
    );
    let mut call = count(&mut client, &world, 3, 2);
    let id = client.last;
    progress(&mut call, 1.0);
    let last = progress(&mut call, 2.0);
    server.kill();
    server.start_again();
    // What was sent is not sent again.
    let mut resumed = client.resume(&last);
    resumed.must_be(200);
    assert_unknown(&resumed.answer(), id);
    // Nor is there more to come.
    client.resume(&last).must_be(200);
    let mut again = client.resume(&last);
    let answered = again.said();
    assert_unknown(&answered.message(), id);
    client.resume(&answered.id.expect("an id")).must_be(204);
    assert_eq!(who(&mut client), known);
    assert_eq!(client.text("visit", &json!({})), "1");
}

#[test]
fn two_workers_of_one_service_serve_the_same_sessions() {
    let world = world("");
    let _daemon = world.daemon();
    let mut workers = [world.durable_server(&[]), world.durable_server(&[])];
    let mut client = begun(&workers[0]);
    // A balancer that alternates.
    for visit in 1..=6 {
        client.at = workers[visit % 2].at.clone();
        assert_eq!(client.text("visit", &json!({})), visit.to_string());
    }
    // The call is carried out by one of them, and the rest of it fetched from the other.
    client.at = workers[0].at.clone();
    let mut call = count(&mut client, &world, 3, 2);
    let (first, id) = (progress(&mut call, 1.0), client.last);
    call.hang_up();
    client.at = workers[1].at.clone();
    let mut rest = client.resume(&first);
    progress(&mut rest, 2.0);
    open(&world);
    progress(&mut rest, 3.0);
    assert_eq!(text(&rest.answer()), "k 3");
    // The one that carries it out is killed.
    std::fs::remove_file(gate(&world)).expect("it was there");
    client.at = workers[0].at.clone();
    let mut call = count(&mut client, &world, 3, 1);
    let first = progress(&mut call, 1.0);
    workers[0].kill();
    client.at = workers[1].at.clone();
    let mut rest = client.resume(&first);
    assert_unknown(&rest.answer(), client.last);
    assert_ne!(client.last, id);
    assert_eq!(client.text("visit", &json!({})), "7");
}

#[test]
fn every_handler_gets_the_session_of_its_own_client() {
    let world = world("");
    let _daemon = world.daemon();
    let mut server = world.durable_server(&[]);
    let by_header = begun(&server);
    // A browser names its session by the cookie alone.
    let mut by_cookie = server.client();
    let mut answer = by_cookie.begin(VERSION, &[]);
    let cookie = answer
        .header("set-cookie")
        .expect("a cookie")
        .split(';')
        .next()
        .expect("a name")
        .to_owned();
    by_cookie.begun(VERSION, answer_again(&mut answer, &by_cookie));
    let id = by_cookie.session().to_owned();
    assert_eq!(cookie, format!("mcp_session_id={id}"));
    by_cookie
        .headers
        .retain(|(name, _)| name != "Mcp-Session-Id");
    by_cookie.headers.push(("Cookie".into(), cookie));
    let clients = [(by_header.session().to_owned(), by_header), (id, by_cookie)];
    let ask_all = || {
        std::thread::scope(|scope| {
            for (id, client) in &clients {
                for nth in 0..50 {
                    let mut client = client.clone();
                    client.last = 100 + nth;
                    scope.spawn(move || assert_eq!(asked(&mut client, nth), *id));
                }
            }
        });
    };
    ask_all();
    server.kill();
    server.start_again();
    ask_all();
    for (_, client) in clients {
        let visits = client.clone().text("visit", &json!({}));
        assert_eq!(visits, "27", "13 of 50 calls each time, and this one");
    }
}

/// A second answer to `initialize`, which names the session that the first one has begun.
fn answer_again(first: &mut Reply, client: &HttpClient) -> Reply {
    let session = first
        .header("mcp-session-id")
        .expect("a session")
        .to_owned();
    let params = json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    let message =
        json!({"jsonrpc": "2.0", "id": client.last, "method": "initialize", "params": params});
    let mut again = client.ask(
        "POST",
        &[("Mcp-Session-Id", &session)],
        &message.to_string(),
    );
    again.must_be(200);
    again
}

/// Asks for the session, in one of four ways. Returns its id.
fn asked(client: &mut HttpClient, nth: u64) -> String {
    let reference = json!({"ref": {"type": "ref/prompt", "name": "id"}, "argument": {"name": "a", "value": ""}});
    let (method, params, place) = match nth % 4 {
        0 => {
            client.text("visit", &json!({}));
            return who(client)["session"].as_str().expect("an id").to_owned();
        }
        1 => (
            "resources/read",
            json!({"uri": "session://id"}),
            "/result/contents/0/text",
        ),
        2 => (
            "prompts/get",
            json!({"name": "id"}),
            "/result/messages/0/content/text",
        ),
        _ => (
            "completion/complete",
            reference,
            "/result/completion/values/0",
        ),
    };
    let mut reply = client.request(method, &params);
    reply.must_be(200);
    let answer = reply.answer();
    answer
        .pointer(place)
        .and_then(Value::as_str)
        .unwrap_or_else(|| panic!("{answer}"))
        .to_owned()
}
