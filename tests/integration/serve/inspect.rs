//! `serve --inspect`: what its page is told, and who may ask. `page.rs` drives the page itself.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use mcp_sessiond_tests::{Daemon, HttpClient, Reply, Serve, World, gone, until};
use serde_json::{Value, json};

use crate::wrap::{counter, gate, open, tiny};
use crate::{fixture, world};

/// The header of requests that change anything.
const OWN: (&str, &str) = ("X-Mcp-Sessiond", "1");

fn inspected(
    options: &[&str],
    server: impl FnOnce(&World) -> Vec<String>,
) -> (World, Daemon, Serve) {
    let world = world("");
    let daemon = world.daemon();
    let server = server(&world);
    let serve = world.serve(
        &[&["--name", "test", "--inspect"], options].concat(),
        &server,
    );
    (world, daemon, serve)
}

fn get(client: &HttpClient, path: &str) -> Reply {
    client.ask_at(
        "GET",
        path,
        &[
            ("Accept", "*/*"),
            ("Content-Type", ""),
            ("Mcp-Session-Id", ""),
        ],
        "",
    )
}

fn list(serve: &Serve) -> Value {
    let mut reply = get(&serve.client(), "/inspect/sessions");
    reply.must_be(200);
    reply.message()
}

fn path(session: &str) -> String {
    format!("/inspect/sessions/{session}")
}

fn one(serve: &Serve, session: &str) -> Value {
    let mut reply = get(&serve.client(), &path(session));
    reply.must_be(200);
    reply.message()
}

fn change(serve: &Serve, method: &str, path: &str) -> u16 {
    serve.client().ask_at(method, path, &[OWN], "").status
}

fn pid(one: &Value) -> u32 {
    one["pid"]
        .as_u64()
        .and_then(|pid| pid.try_into().ok())
        .unwrap_or_else(|| panic!("no pid in {one}"))
}

#[test]
fn there_is_a_page_where_one_is_wanted() {
    let (world, _daemon, serve) = inspected(&[], tiny);
    let mut reply = get(&serve.client(), "/inspect");
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, Some("text/html; charset=utf-8"))
    );
    assert_eq!(
        (
            reply.header("x-frame-options"),
            reply.header("cache-control")
        ),
        (Some("DENY"), Some("no-store"))
    );
    let policy = reply
        .header("content-security-policy")
        .expect("a policy")
        .to_owned();
    assert!(
        policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    let nonce = policy
        .split("'nonce-")
        .nth(1)
        .and_then(|rest| rest.split('\'').next())
        .expect("a nonce");
    let page = reply.text();
    assert!(
        page.contains(&format!("<script nonce=\"{nonce}\">")),
        "the policy lets its script run"
    );
    assert!(
        page.contains(&format!("<style nonce=\"{nonce}\">")),
        "and its style"
    );
    let other = get(&serve.client(), "/inspect")
        .header("content-security-policy")
        .map(str::to_owned);
    assert_ne!(
        other.as_deref(),
        Some(&*policy),
        "each response has its own nonce"
    );
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        let found = page.lines().find(|line| line.contains(outside));
        assert_eq!(found, None, "the page needs nothing from elsewhere");
    }
    let plain = world.serve(&["--name", "plain"], &tiny(&world));
    for path in ["/inspect", "/inspect/sessions"] {
        assert_eq!(get(&plain.client(), path).status, 404, "{path}");
    }
}

#[test]
fn its_address_is_printed() {
    let world = world("");
    let _daemon = world.daemon();
    let socket = world.root().join("mcp");
    let at = format!("unix:{}", socket.display());
    let mut command = world.sessiond(&["serve", "--inspect", "--no-start", "--listen", &at, "--"]);
    let mut serve = command
        .args(tiny(&world))
        .stdout(Stdio::piped())
        .spawn()
        .expect("serve");
    let lines = BufReader::new(serve.stdout.take().expect("piped")).lines();
    let lines: Vec<_> = lines.take(2).map(|line| line.expect("a line")).collect();
    let line = |what: &str, path: &str| format!("{what} at {at} (http://localhost{path})");
    assert_eq!(
        lines,
        [
            line("listening", "/mcp"),
            line("sessions are shown", "/inspect")
        ]
    );
    serve.kill().expect("it runs");
    serve.wait().expect("it is our child");
}

#[test]
fn a_session_is_shown_with_its_client_streams_and_server_and_no_message() {
    let (world, _daemon, serve) = inspected(&[], counter);
    let mut client = serve.connected("2025-11-25");
    client.text("echo", &json!({"data": "secret-data"}));
    let standalone = client.listen();
    let gate = gate(&world, "secret-gate");
    let mut slow = client.call("slow", &json!({"gate": gate}));
    assert_eq!(slow.said().message()["method"], "notifications/message");
    let session = client.session().to_owned();
    let listed = list(&serve);
    let [row] = &listed["sessions"].as_array().expect("a list")[..] else {
        panic!("{listed}")
    };
    assert_eq!(
        (&listed["service"], &listed["pid"]),
        (&json!("serve.test"), &json!(serve.pid()))
    );
    assert_eq!(
        (&row["session"], &row["status"], &row["served"]),
        (&json!(session), &json!("ready"), &json!(true))
    );
    let name = json!({"name": "test", "version": "1", "protocol": "2025-11-25"});
    assert_eq!(
        (&row["client"], &row["calls"], &row["readers"]),
        (&name, &json!(1), &json!(2)),
        "{row}"
    );
    assert_eq!(row["streams"], 3, "{row}");
    let one = one(&serve, &session);
    let streams = one["streams"].as_array().expect("streams");
    let of = |key: &str, value: Value| streams.iter().filter(|stream| stream[key] == value).count();
    assert_eq!(
        (
            of("state", json!("open")),
            of("calls", json!(1)),
            of("reader", json!(true))
        ),
        (2, 1, 2),
        "{one}"
    );
    let server = &one["server"];
    assert_eq!(
        (&server["state"], &server["restarts"]),
        (&json!("in use"), &json!(0)),
        "{one}"
    );
    assert_eq!(
        (server["calls"][0]["method"].as_str(), &server["pid"]),
        (Some("tools/call"), &row["pid"])
    );
    assert!(world.processes().contains(&pid(row)), "{one}");
    let mut watched = get(&serve.client(), &format!("{}/events", path(&session)));
    open(&gate);
    let mut told = Vec::new();
    while !told
        .iter()
        .any(|told: &Value| told["kind"] == "answer" && told["stream"] == streams[2]["stream"])
    {
        let event = watched.event().expect("an event");
        if event.event.is_none() {
            told.push(event.message());
        }
        if told.len() == 3 {
            break;
        }
    }
    let kinds: Vec<_> = told
        .iter()
        .map(|told| (told["kind"].as_str(), told["method"].as_str()))
        .collect();
    let notified = (Some("notification"), Some("notifications/message"));
    assert_eq!(
        kinds,
        [(Some("answer"), None), notified, (Some("answer"), None)],
        "{told:?}"
    );
    assert_eq!(
        (told[0]["at_ms"].is_null(), told[2]["at_ms"].is_u64()),
        (true, true),
        "{told:?}"
    );
    let all = format!("{listed}{one}{told:?}");
    assert!(
        !all.contains("secret") && told.iter().all(|told| told["bytes"].as_u64() > Some(20)),
        "{all}"
    );
    // Where a reader left off.
    let last = told[1]["number"].to_string();
    let mut again = serve.client().ask_at(
        "GET",
        &format!("{}/events", path(&session)),
        &[("Last-Event-ID", &last), ("Accept", "*/*")],
        "",
    );
    assert_eq!(again.said().message()["number"], told[2]["number"]);
    drop(standalone);
}

#[test]
fn a_server_is_restarted_and_its_open_calls_are_answered() {
    let (world, _daemon, serve) = inspected(&[], |world| {
        let noted = format!("COUNTER_HANDSHAKES={}", gate(world, "handshakes"));
        ["env".to_owned(), noted]
            .into_iter()
            .chain(counter(world))
            .collect()
    });
    let mut client = serve.connected("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    let mut slow = client.call("slow", &json!({"gate": gate(&world, "never")}));
    assert!(slow.said().message()["method"].is_string());
    let session = client.session().to_owned();
    let former = pid(&one(&serve, &session));
    assert_eq!(
        change(&serve, "POST", &format!("{}/restart", path(&session))),
        204
    );
    let error = slow.answer();
    assert_eq!(
        (&error["error"]["code"], &error["error"]["data"]["outcome"]),
        (&json!(-32000), &json!("unknown")),
        "{error}"
    );
    gone(former);
    assert_eq!(client.text("increment", &json!({})), "1", "a fresh server");
    let fresh = one(&serve, &session);
    assert!(
        pid(&fresh) != former && fresh["server"]["restarts"] == 1,
        "{fresh}"
    );
    let handshakes = std::fs::read_to_string(world.root().join("handshakes")).expect("handshakes");
    assert_eq!(
        handshakes.lines().count(),
        2,
        "the recorded one was repeated"
    );
}

#[test]
fn a_session_is_ended_with_its_server_and_its_readers() {
    let (_world, _daemon, serve) = inspected(&[], tiny);
    let client = serve.connected("2025-11-25");
    let (session, other) = (client.session().to_owned(), serve.connected("2025-11-25"));
    let mut reading = client.listen();
    assert!(reading.event().expect("primed").id.is_some());
    let mut watched = get(&serve.client(), &format!("{}/events", path(&session)));
    assert_eq!(
        watched.event().and_then(|event| event.event).as_deref(),
        Some("current")
    );
    let server = pid(&one(&serve, &session));
    assert_eq!(change(&serve, "DELETE", &path(&session)), 204);
    gone(server);
    assert_eq!(reading.event(), None);
    assert_eq!(
        watched.event().and_then(|event| event.event).as_deref(),
        Some("end")
    );
    assert_eq!(
        client
            .post(&json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}))
            .status,
        404
    );
    assert_eq!(get(&serve.client(), &path(&session)).status, 404);
    let listed = list(&serve);
    let left: Vec<_> = listed["sessions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| &row["session"])
        .collect();
    assert_eq!(left, [other.session()]);
}

#[test]
fn a_session_of_a_former_process_is_shown_restarted_and_ended_without_being_served() {
    let (world, _daemon, mut serve) = inspected(&[], tiny);
    let mut clients = [serve.connected("2025-11-25"), serve.connected("2025-11-25")];
    assert_eq!(clients[0].text("increment", &json!({})), "1");
    serve.kill();
    serve.start_again();
    let sessions = clients.each_ref().map(|client| client.session().to_owned());
    let [first, second] = sessions.each_ref().map(|session| one(&serve, session));
    assert_eq!(
        (&first["served"], &first["calls"], &first["client"]["name"]),
        (&json!(false), &json!(null), &json!("test"))
    );
    assert_eq!(
        (&first["server"]["state"], &first["server"]["restarts"]),
        (&json!("waiting"), &json!(null)),
        "{first}"
    );
    assert_eq!(
        change(&serve, "POST", &format!("{}/restart", path(&sessions[0]))),
        204
    );
    gone(pid(&first));
    assert_eq!(change(&serve, "DELETE", &path(&sessions[1])), 204);
    gone(pid(&second));
    world.wait_backends(0);
    let rows = list(&serve)["sessions"]
        .as_array()
        .cloned()
        .expect("a list");
    assert_eq!(
        rows.iter().map(|row| &row["served"]).collect::<Vec<_>>(),
        [false],
        "one is left, and is not served"
    );
    assert_eq!(
        clients[0].text("increment", &json!({})),
        "1",
        "a fresh server"
    );
    assert_eq!(clients[1].call("increment", &json!({})).status, 404);
}

#[test]
fn a_session_that_the_page_looks_at_ends_when_nobody_uses_it() {
    let world = world("http.idle_ms = 2000");
    let _daemon = world.daemon();
    let serve = world.serve(&["--name", "test", "--inspect"], &tiny(&world));
    let client = serve.connected("2025-11-25");
    let server = pid(&one(&serve, client.session()));
    let mut watched = get(
        &serve.client(),
        &format!("{}/events", path(client.session())),
    );
    // It has to be looked at again and again: that is what must not keep it.
    until("it ends", || {
        // Each look asks for the list, and for the session.
        let rows = list(&serve)["sessions"].as_array().map_or(0, Vec::len);
        (get(&serve.client(), &path(client.session())).status == 404 && rows == 0).then_some(())
    });
    gone(server);
    assert_eq!(
        watched.event().and_then(|event| event.event).as_deref(),
        Some("current")
    );
    assert_eq!(
        watched.event().and_then(|event| event.event).as_deref(),
        Some("end")
    );
}

#[test]
fn only_the_page_itself_may_ask() {
    let (_world, _daemon, serve) = inspected(&["--origin", "https://app.example"], tiny);
    let client = serve.connected("2025-11-25");
    let one = path(client.session());
    let ours = format!("http://{}", serve.at);
    for (name, value) in [
        ("Host", "evil.example"),
        ("Origin", "https://evil.example"),
        // It may speak to the servers, and yet not end them.
        ("Origin", "https://app.example"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ] {
        for (method, path) in [("GET", "/inspect/sessions"), ("DELETE", &*one)] {
            let reply = serve
                .client()
                .ask_at(method, path, &[OWN, (name, value)], "");
            assert_eq!(reply.status, 403, "{method} {name}: {value}");
        }
    }
    assert_eq!(
        serve
            .client()
            .ask_at("GET", "/inspect", &[("Host", "evil.example")], "")
            .status,
        403
    );
    for (method, path) in [("DELETE", &*one), ("POST", &*format!("{one}/restart"))] {
        let mut reply = serve
            .client()
            .ask_at(method, path, &[("Origin", &ours)], "");
        reply.must_be(403);
        assert!(
            reply.text().contains("x-mcp-sessiond"),
            "it says what is missing"
        );
        let preflight = [
            ("Origin", "https://app.example"),
            ("Access-Control-Request-Method", method),
            ("Access-Control-Request-Headers", "x-mcp-sessiond"),
        ];
        let reply = serve.client().ask_at("OPTIONS", path, &preflight, "");
        assert_eq!(reply.header("access-control-allow-origin"), None);
    }
    let own = [("Origin", &*ours), ("Sec-Fetch-Site", "same-origin"), OWN];
    assert_eq!(serve.client().ask_at("DELETE", &one, &own, "").status, 204);
    assert_eq!(
        serve
            .client()
            .ask_at("DELETE", "/inspect/sessions/nonsense", &own, "")
            .status,
        404
    );
}

#[test]
fn with_a_token_the_page_is_there_without_it_and_the_sessions_are_not() {
    let (world, _daemon, serve) = inspected(&[], tiny);
    let former = serve.connected("2025-11-25");
    let session = former.session().to_owned();
    drop(serve);
    let serve = world.serve(&["--name", "test", "--inspect", "--token"], &tiny(&world));
    let mut client = serve.client();
    assert_eq!(get(&client, "/inspect").status, 200);
    let token = std::fs::read_to_string(world.root().join("serve.token")).expect("a token");
    assert!(!get(&client, "/inspect").text().contains(token.trim_end()));
    assert_eq!(get(&client, "/inspect/sessions").status, 401);
    assert_eq!(change(&serve, "DELETE", &path(&session)), 401);
    client.headers.push((
        "Authorization".into(),
        format!("Bearer {}", token.trim_end()),
    ));
    client.initialize("2025-11-25");
    let listed = get(&client, "/inspect/sessions").message();
    // The other one is bound to our user, and not to the token.
    let rows = listed["sessions"].as_array().expect("a list");
    assert_eq!((rows.len(), &listed["others"]), (1, &json!(1)), "{listed}");
    assert_eq!(rows[0]["session"], client.session());
    for (method, path) in [
        ("GET", path(&session)),
        ("GET", format!("{}/events", path(&session))),
        ("DELETE", path(&session)),
        ("POST", format!("{}/restart", path(&session))),
    ] {
        assert_eq!(
            client.ask_at(method, &path, &[OWN], "").status,
            404,
            "{method} {path}"
        );
    }
    world.wait_backends(2);
}

#[test]
#[ignore = "needs node"]
fn a_server_behind_a_url_is_begun_anew() {
    let world = world("");
    let _daemon = world.daemon();
    let server = world.upstream(&["node".into(), fixture("node/express.mjs")], &[]);
    let serve = world.serve(
        &["--name", "test", "--inspect", "--upstream", &server.url],
        &[],
    );
    let mut client = serve.connected("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    let shown = one(&serve, client.session());
    assert_eq!(
        (&shown["server"]["server"], &shown["pid"]),
        (&json!(server.url), &json!(null)),
        "{shown}"
    );
    let mut slow = client.call("slow", &json!({"gate": gate(&world, "never")}));
    assert!(slow.said().message()["method"].is_string());
    assert_eq!(
        change(
            &serve,
            "POST",
            &format!("{}/restart", path(client.session()))
        ),
        204
    );
    assert_eq!(slow.answer()["error"]["data"]["outcome"], "unknown");
    assert_eq!(
        client.text("increment", &json!({})),
        "1",
        "another session of the server"
    );
}

#[test]
#[ignore = "needs node"]
fn the_server_of_requests_without_a_session_is_shown_restarted_and_ended() {
    let (_world, _daemon, serve) =
        inspected(&[], |_| vec!["node".into(), fixture("node/eras.mjs")]);
    let mut client = serve.client();
    assert_eq!(client.modern("server/discover", &json!({})).status, 200);
    let rows = || {
        list(&serve)["sessions"]
            .as_array()
            .cloned()
            .expect("a list")
    };
    let row = rows().remove(0);
    assert_eq!(
        (&row["client"]["protocol"], &row["served"]),
        (&json!("2026-07-28"), &json!(true)),
        "{row}"
    );
    assert_eq!(
        (&row["calls"], &row["readers"]),
        (&json!(0), &json!(null)),
        "{row}"
    );
    let session = row["session"].as_str().expect("an id").to_owned();
    assert_eq!(
        change(&serve, "POST", &format!("{}/restart", path(&session))),
        204
    );
    gone(pid(&row));
    assert_eq!(client.modern("tools/list", &json!({})).status, 200);
    let fresh = one(&serve, &session);
    assert_ne!(pid(&fresh), pid(&row));
    assert_eq!(change(&serve, "DELETE", &path(&session)), 204);
    gone(pid(&fresh));
    assert!(rows().is_empty());
    assert_eq!(
        client.modern("tools/list", &json!({})).status,
        200,
        "in another session"
    );
    assert_ne!(rows()[0]["session"], session);
}
