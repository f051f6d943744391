//! A page in Chromium, with the official TypeScript client: it is reloaded in the middle of a call,
//! and `serve` and the daemon are killed.

use mcp_sessiond_tests::{Page, World};
use serde_json::{Value, json};

use crate::wrap::{counter, gate, open};

/// The server, which notes each `initialize` that it gets.
fn server(world: &World) -> Vec<String> {
    let noted = format!("COUNTER_HANDSHAKES={}", gate(world, "handshakes"));
    ["env".to_owned(), noted]
        .into_iter()
        .chain(counter(world))
        .collect()
}

fn handshakes(world: &World) -> usize {
    std::fs::read_to_string(world.root().join("handshakes"))
        .expect("a handshake")
        .lines()
        .count()
}

/// A call of 20 notifications. `options` and `query`: how the session is named.
fn keeps_its_call(options: &[&str], query: &Value) -> (World, Page) {
    let world = crate::world("http.retry_ms = 100");
    let mut daemon = world.daemon();
    let mut page = world.page();
    let options = [
        &["--name", "test", "--origin", page.origin.as_str()],
        options,
    ]
    .concat();
    let mut serve = world.serve(&options, &server(&world));
    let at = |number: u64| gate(&world, &format!("gate-{number}"));
    let gates = json!({"4": at(4), "7": at(7), "10": at(10), "13": at(13)});
    let mut query = query.clone();
    query["serve"] = serve.url().into();
    query["call"] = json!({"n": 20, "gates": gates}).to_string().into();
    page.open(&query);
    for number in [4, 7] {
        page.told.wait(&format!("{{\"heard\":{number}}}"));
        let from = page.reload();
        page.told.wait_from(from, &["{\"resumed\":"]);
        open(&at(number));
    }
    page.told.wait("{\"heard\":10}");
    serve.kill();
    open(&at(10));
    serve.start_again();
    page.told.wait("{\"heard\":13}");
    daemon.kill();
    open(&at(13));
    daemon.start_again();
    page.told.wait("{\"answer\":");
    page.told.wait("{\"counted\":[\"5\"]}");
    assert_eq!(
        page.said("heard"),
        (1..=20).map(Value::from).collect::<Vec<_>>(),
        "{}",
        page.told.text()
    );
    assert_eq!(page.said("answer"), ["20"]);
    assert_eq!(
        page.said("counted"),
        [json!(["1", "2"]), json!(["3", "4"]), json!(["5"])]
    );
    assert_eq!(handshakes(&world), 1, "one `initialize` in all");
    (world, page)
}

fn sessions_sent(page: &Page) -> Vec<Value> {
    let sent = page.told.lines("{\"sent\":");
    sent.iter()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["session"].take())
        .collect()
}

#[test]
#[ignore = "needs node"]
fn a_page_keeps_its_call_through_reloads_and_kills() {
    let (_world, page) = keeps_its_call(&[], &json!({}));
    let connected = page.said("connected");
    assert_eq!(connected, vec![connected[0].clone(); 3]);
    let unnamed = sessions_sent(&page)
        .into_iter()
        .filter(Value::is_null)
        .count();
    assert_eq!(unnamed, 1, "the first `initialize` alone names no session");
}

#[test]
#[ignore = "needs node"]
fn with_a_cookie_it_needs_no_header() {
    let (_world, page) = keeps_its_call(&["--cookie"], &json!({"cookie": 1}));
    let sent = sessions_sent(&page);
    assert!(
        !sent.is_empty() && sent.iter().all(Value::is_null),
        "{sent:?}"
    );
    assert_eq!(
        page.said("connected")[1..],
        ["", ""],
        "a script does not get to know what the cookie names"
    );
}

#[test]
#[ignore = "needs node"]
fn a_forged_cookie_gets_a_new_session() {
    let world = crate::world("");
    let _daemon = world.daemon();
    let mut page = world.page();
    let serve = world.serve(
        &["--name", "test", "--cookie", "--origin", &page.origin],
        &server(&world),
    );
    page.open(&json!({"serve": serve.url(), "cookie": 1}));
    page.told.wait("{\"counted\":");
    let cookie = page.forge(&serve.url(), "00000000-0000-7000-8000-000000000000");
    assert_eq!(
        (&cookie["httpOnly"], &cookie["sameSite"]),
        (&json!(true), &json!("Strict")),
        "{cookie}"
    );
    let from = page.reload();
    page.told
        .wait_from(from, &["{\"counted\":", "{\"failed\":"]);
    let connected = page.said("connected");
    assert!(
        connected.len() == 2 && connected[0] != connected[1],
        "{connected:?}"
    );
    assert_eq!(
        connected[0], cookie["value"],
        "the cookie named the session"
    );
    assert_eq!(
        page.said("counted"),
        [json!(["1"]), json!(["1"])],
        "a server of its own"
    );
    assert_eq!(handshakes(&world), 2);
    // And that is the session of the page from now on.
    let from = page.reload();
    page.told
        .wait_from(from, &["{\"counted\":", "{\"failed\":"]);
    assert_eq!(
        (&page.said("connected")[2], &page.said("counted")[2]),
        (&json!(""), &json!(["2"]))
    );
    assert_eq!(handshakes(&world), 2);
}
