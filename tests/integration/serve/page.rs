//! The page of `serve --inspect` in Chromium: its client calls a tool and is reloaded in the
//! middle; the page shows the session, restarts its server and ends it.

use mcp_sessiond_tests::{Daemon, Page, Serve, World, gone};
use serde_json::{Value, json};

use crate::world;
use crate::wrap::{counter, gate, open};

const NOTIFIED: &str = "#messages li[data-kind=notification] pre";
const ANSWERED: &str = "#messages li[data-kind=answer] pre";

fn shown(options: &[&str]) -> (World, Daemon, Serve, Page) {
    let world = world("http.retry_ms = 100\nhttp.hold_ms = 2000");
    let daemon = world.daemon();
    let serve = world.serve(
        &[&["--name", "test", "--inspect"], options].concat(),
        &counter(&world),
    );
    let mut page = world.page();
    page.visit(&format!("http://{}/inspect", serve.at));
    (world, daemon, serve, page)
}

fn connect(page: &mut Page) -> String {
    page.press("#connect");
    page.wait("#tool option", 5);
    page.wait("#sessions tbody tr", 1);
    page.wait("#client-session:not(:empty)", 1).remove(0)
}

fn call(page: &mut Page, tool: &str, arguments: &Value) {
    page.choose("#tool", tool);
    page.fill("#arguments", &arguments.to_string());
    page.press("#call button.main");
}

/// What the notifications say, the oldest first.
fn notified(page: &mut Page, count: usize) -> Vec<Value> {
    let texts = page.wait(NOTIFIED, count);
    let mut said: Vec<_> = texts.iter().map(|text| data(text)).collect();
    said.reverse();
    said
}

fn data(text: &str) -> Value {
    let mut message: Value = serde_json::from_str(text).expect("JSON");
    let key = if message["method"] == "notifications/progress" {
        "progress"
    } else {
        "data"
    };
    message["params"][key].take()
}

/// The texts of the page's server, by their names.
fn fact(page: &mut Page, name: &str) -> String {
    page.wait(&format!("#server dt:text-is('{name}') + dd"), 1)
        .remove(0)
}

#[test]
#[ignore = "needs node"]
fn its_client_keeps_a_call_through_reloads_and_a_kill() {
    let (world, _daemon, mut serve, mut page) = shown(&[]);
    let session = connect(&mut page);
    let at = |number: u64| gate(&world, &format!("gate-{number}"));
    let gates = json!({"2": at(2), "4": at(4), "6": at(6)});
    call(&mut page, "progress", &json!({"n": 8, "gates": gates}));
    assert_eq!(notified(&mut page, 2), [1, 2]);
    page.reload();
    assert_eq!(
        notified(&mut page, 2),
        [1, 2],
        "they are shown again, and not fetched again"
    );
    open(&at(2));
    assert_eq!(notified(&mut page, 4), [1, 2, 3, 4]);
    serve.kill();
    open(&at(4));
    serve.start_again();
    assert_eq!(notified(&mut page, 6), [1, 2, 3, 4, 5, 6]);
    page.reload();
    open(&at(6));
    let answers = page.wait(ANSWERED, 1);
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(
        serde_json::from_str::<Value>(&answers[0]).expect("JSON")["content"][0]["text"],
        "8"
    );
    assert_eq!(
        notified(&mut page, 8),
        (1..=8).map(Value::from).collect::<Vec<_>>()
    );
    assert_eq!(
        page.wait("#client-session", 1),
        [session],
        "the same session all the time"
    );
    page.wait_for_none("#open li");
    assert_eq!(
        (page.wait(NOTIFIED, 8).len(), page.wait(ANSWERED, 1).len()),
        (8, 1),
        "each once"
    );
    assert_eq!(
        page.said("failed"),
        [] as [Value; 0],
        "{}",
        page.told.text()
    );
    assert_eq!(
        page.told.lines("Content Security Policy"),
        [""; 0],
        "the page keeps to its own policy"
    );
}

#[test]
#[ignore = "needs node"]
fn it_shows_a_session_restarts_its_server_and_ends_it() {
    let (world, _daemon, _serve, mut page) = shown(&[]);
    let session = connect(&mut page);
    let row = page.wait("#sessions tbody td", 11);
    assert_eq!(
        (&row[0], &*row[1], &*row[2], &*row[3]),
        (&session, "mcp-sessiond page 1", "2025-11-25", "ready")
    );
    // The client's own session is shown at once.
    page.wait("#watching:text('as they come')", 1);
    call(
        &mut page,
        "slow",
        &json!({"gate": gate(&world, "secret-gate")}),
    );
    notified(&mut page, 1);
    let event = "#events tbody tr:has-text('notifications/message')";
    let event = page.wait(event, 1).remove(0);
    assert!(
        event.contains("notification") && !event.contains("secret"),
        "{event}"
    );
    // A call and its reader, and the reader of the standalone stream.
    page.wait("#sessions tbody td:nth-child(7):text-is('1')", 1);
    page.wait(
        "#streams tbody tr:has-text('call-') td:nth-child(6):text-is('1')",
        1,
    );
    page.wait(
        "#streams tbody tr:has-text('_GET_stream') td:nth-child(7):text-is('yes')",
        1,
    );
    page.wait("#server dd:text('tools/call for')", 1);
    let former: u32 = fact(&mut page, "pid").parse().expect("a pid");
    assert!(world.processes().contains(&former));
    assert_eq!(fact(&mut page, "state"), "in use");
    page.press("#restart");
    page.wait("#messages li[data-kind=error]:has-text('unknown')", 1);
    gone(former);
    call(&mut page, "increment", &json!({}));
    page.wait(ANSWERED, 1);
    page.wait("#server dt:text-is('restarts') + dd:text-is('1')", 1);
    let fresh: u32 = fact(&mut page, "pid").parse().expect("a pid");
    assert!(fresh != former && world.processes().contains(&fresh));
    page.press("#end");
    gone(fresh);
    page.wait_for_none("#sessions tbody tr");
    page.wait_for_none("#session");
    page.wait_for_none("#connected");
    page.wait("#notice:has-text('has ended')", 1);
    world.wait_backends(0);
    assert_eq!(
        page.said("failed"),
        [] as [Value; 0],
        "{}",
        page.told.text()
    );
}

#[test]
#[ignore = "needs node"]
fn a_call_that_serve_refuses_while_the_daemon_is_away_is_shown_as_refused() {
    let (_world, mut daemon, _serve, mut page) = shown(&[]);
    connect(&mut page);
    daemon.kill();
    call(&mut page, "increment", &json!({}));
    let refused = page.wait("#messages li[data-kind=error] pre", 1).remove(0);
    assert!(
        refused.contains("daemon") && !refused.contains("unknown"),
        "{refused}"
    );
}

#[test]
#[ignore = "needs node"]
fn it_asks_for_the_token() {
    let (world, _daemon, _serve, mut page) = shown(&["--token"]);
    page.wait("#notice:has-text('demands')", 1);
    page.fill("#token", "wrong");
    page.press("#login button");
    page.wait("#notice:has-text('wrong')", 1);
    page.wait_for_none("#main");
    let token = std::fs::read_to_string(world.root().join("serve.token")).expect("a token");
    page.fill("#token", &token);
    page.press("#login button");
    connect(&mut page);
    call(&mut page, "increment", &json!({}));
    page.wait(ANSWERED, 1);
    page.reload();
    // This tab keeps it.
    page.wait("#sessions tbody tr", 1);
    page.wait(ANSWERED, 1);
}

#[test]
#[ignore = "needs node"]
fn its_client_goes_on_with_the_session_of_another_and_takes_nothing_from_it() {
    let (world, _daemon, serve, mut page) = shown(&[]);
    let mut client = serve.connected("2025-06-18");
    assert_eq!(client.text("increment", &json!({})), "1");
    let mut stream = client.listen();
    page.press(&format!("#sessions button:text-is('{}')", client.session()));
    page.press("#use");
    page.wait("#client-about:has-text('2025-06-18')", 1);
    page.wait("#tool option", 5);
    call(&mut page, "increment", &json!({}));
    let answer = page.wait(ANSWERED, 1).remove(0);
    assert_eq!(
        serde_json::from_str::<Value>(&answer).expect("JSON")["content"][0]["text"],
        "2",
        "the same server"
    );
    let gate = gate(&world, "gate");
    assert_eq!(client.text("notify", &json!({"n": 1, "gate": gate})), "1");
    open(&gate);
    assert_eq!(
        stream.said().message()["params"]["data"],
        1,
        "it has kept its reader"
    );
    assert_eq!(client.text("increment", &json!({})), "3");
}
