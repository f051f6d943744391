//! An author's server with the client library's layer, on axum and rmcp: its sessions outlive it.

use mcp_sessiond_tests::{HttpClient, Reply, Serve, World, assert_refused, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{fixture, world};

/// A client with this bearer token.
fn client(server: &Serve, token: &str) -> HttpClient {
    let mut client = server.client();
    client
        .headers
        .push(("Authorization".into(), format!("Bearer {token}")));
    client
}

/// Calls the tool, which finds the session in rmcp's context, and counts in it.
fn count(client: &mut HttpClient) -> String {
    let mut reply = client.request("tools/call", &json!({"name": "count", "arguments": {}}));
    reply.must_be(200);
    let answer = reply.message();
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
        .to_owned()
}

/// Asks the handler of axum's, which finds the session by its extractor.
fn page(client: &HttpClient, headers: &[(&str, &str)]) -> String {
    let mut reply = client.ask_at("GET", "/count", headers, "");
    reply.must_be(200);
    reply.text()
}

/// Asserts that a request was refused. Returns the error of JSON-RPC.
#[track_caller]
fn refused(mut reply: Reply, status: u16) -> Value {
    reply.must_be(status);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let body = reply.message();
    assert_eq!(body["jsonrpc"], "2.0", "{body}");
    body["error"].clone()
}

#[test]
fn a_tool_finds_its_clients_state_again_after_every_kill() {
    let world = world("");
    let mut daemon = world.daemon();
    let mut server = world.http_server(&[]);
    let mut one = client(&server, "one");
    let mut two = client(&server, "two");
    one.initialize("2025-11-25");
    two.initialize("2025-11-25");
    assert_ne!(one.session(), two.session());
    assert_eq!(
        (count(&mut one), count(&mut one), count(&mut two)),
        ("1".into(), "2".into(), "1".into())
    );
    server.kill();
    server.start_again();
    assert_eq!(count(&mut one), "3");
    server.kill();
    daemon.restart();
    server.start_again();
    assert_eq!((count(&mut one), page(&one, &[])), ("4".into(), "4".into()));
    daemon.restart();
    assert_eq!((count(&mut one), page(&two, &[])), ("5".into(), "1".into()));
    // Whoever says the service's name, but not the token, gets nothing.
    let of = json!({"session": one.session(), "service": "http_server"});
    assert_refused(world.peer().call("get_session", of), "binding_mismatch");
}

#[test]
fn a_browser_finds_its_session_by_the_cookie_alone() {
    let world = world("");
    let _daemon = world.daemon();
    let mut server = world.http_server(&[]);
    let mut browser = client(&server, "one");
    let mut begun = browser.begin("2025-11-25", &[]);
    begun.must_be(200);
    let set = begun.header("set-cookie").expect("a cookie").to_owned();
    let (cookie, rest) = set.split_once("; ").expect("attributes");
    assert_eq!(rest, "Path=/; HttpOnly; SameSite=Strict");
    let session = begun
        .header("mcp-session-id")
        .expect("a session")
        .to_owned();
    assert_eq!(cookie, format!("mcp_session_id={session}"));
    browser
        .headers
        .push(("Cookie".into(), format!("theme=dark; {cookie}")));
    assert_eq!(count(&mut browser), "1");
    server.kill();
    server.start_again();
    assert_eq!(
        (count(&mut browser), page(&browser, &[])),
        ("2".into(), "2".into())
    );
    // A page that is loaded again sends `initialize` again, and goes on.
    let again = browser.begin("2025-11-25", &[]);
    assert_eq!(
        (again.status, again.header("mcp-session-id")),
        (200, None),
        "a script could read it"
    );
    assert_eq!(
        (again.header("set-cookie"), count(&mut browser)),
        (None, "3".into())
    );
    // A forged one leads nowhere, and `initialize` with it begins another session.
    for forged in [
        "mcp_session_id=forged",
        "mcp_session_id=0199a0a0-0000-7000-8000-000000000000",
    ] {
        refused(
            browser.ask_at("GET", "/count", &[("Cookie", forged)], ""),
            404,
        );
        let fresh = browser.begin("2025-11-25", &[("Cookie", forged)]);
        let named = fresh.header("mcp-session-id").expect("a session");
        assert_ne!(named, session);
        assert!(
            fresh
                .header("set-cookie")
                .is_some_and(|set| set.contains(named)),
            "{fresh:?}"
        );
    }
    // So does that of somebody else's session, who has used this browser before.
    let mut other = client(&server, "other");
    refused(
        other.ask_at("GET", "/count", &[("Cookie", cookie)], ""),
        404,
    );
    let fresh = other.begin("2025-11-25", &[("Cookie", cookie)]);
    assert!(
        fresh
            .header("mcp-session-id")
            .is_some_and(|named| named != session),
        "{fresh:?}"
    );
    assert_eq!(count(&mut browser), "4", "nobody has touched it");
}

#[test]
fn a_client_that_hangs_up_while_its_session_is_made_leaves_none() {
    let world = world("");
    let daemon = world.daemon();
    let server = world.http_server(&[]);
    let mut first = client(&server, "one");
    first.initialize("2025-11-25");
    daemon.signal(Signal::SIGSTOP);
    for _ in 0..20 {
        client(&server, "one")
            .unanswered("initialize", &json!({}))
            .hang_up();
    }
    daemon.signal(Signal::SIGCONT);
    // The server answers in the order in which it has asked.
    count(&mut first);
    // What the layer ends, it ends unasked, and tells nobody.
    until("the others have ended", || {
        (sessions(&world) == 1).then_some(())
    });
}

#[test]
fn what_leads_to_no_session_of_the_callers_is_refused() {
    let world = world("");
    let mut daemon = world.daemon();
    let server = world.http_server(&[("MCP_SESSIOND_BIN", "/nowhere")]);
    let mut one = client(&server, "one");
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"count","arguments":{}}}"#;
    let missing = refused(one.ask("POST", &[], call), 400);
    assert_eq!(missing["code"], -32600, "{missing}");
    refused(one.ask_at("GET", "/count", &[], ""), 400);
    let anonymous = server.client().ask("POST", &[], call);
    assert_eq!(anonymous.header("www-authenticate"), Some("Bearer"));
    refused(anonymous, 401);
    one.initialize("2025-11-25");
    for forged in [
        "forged",
        "0199a0a0-0000-7000-8000-000000000000",
        "a b",
        "%00",
    ] {
        let error = refused(one.ask("POST", &[("Mcp-Session-Id", forged)], call), 404);
        assert_eq!(error["code"], -32001, "{error}");
    }
    let of = ("Mcp-Session-Id", one.session());
    refused(client(&server, "two").ask("POST", &[of], call), 404);
    // An `initialize` that rmcp refuses leaves no session.
    let before = sessions(&world);
    let mut bad = client(&server, "one");
    bad.begin("2025-11-25", &[("Accept", "text/plain")])
        .must_be(406);
    assert_eq!(sessions(&world), before);
    daemon.kill();
    let away = one.ask("POST", &[], call);
    assert!(
        away.header("retry-after")
            .is_some_and(|seconds| seconds.parse::<u32>().is_ok()),
        "{away:?}"
    );
    let error = refused(away, 503);
    assert!(
        !error["message"].as_str().expect("a sentence").contains('/'),
        "{error}: no paths"
    );
    daemon.start_again();
    daemon.ready();
    one.ask("DELETE", &[], "").must_be(204);
    refused(one.ask("POST", &[], call), 404);
}

#[test]
#[ignore = "needs node"]
fn the_official_client_that_begins_with_the_newest_mcp_falls_back_to_a_session() {
    let world = world("");
    let _daemon = world.daemon();
    let server = world.http_server(&[]);
    let mut command = world.command("node");
    command
        .arg(fixture("node/negotiate.mjs"))
        .args([&server.url(), "count"])
        .env("TOKEN", "one");
    let said = command.output().expect("node");
    let said: Value =
        serde_json::from_slice(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"));
    assert_eq!(
        (&said["era"], &said["text"]),
        (&json!("legacy"), &json!("1")),
        "{said}"
    );
}

/// How many sessions of the server's live.
fn sessions(world: &World) -> usize {
    let listed = world
        .peer()
        .call("list_own_sessions", json!({"service": "http_server"}))
        .expect("listed");
    let listed = listed.as_array().expect("a list");
    listed
        .iter()
        .filter(|session| session["status"]["is"] != "terminated")
        .count()
}
