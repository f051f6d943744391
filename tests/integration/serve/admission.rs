//! Access: our own user, under a known host name, from pages of known origins; others with the
//! bearer token.

use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use mcp_sessiond_tests::{Serve, World, until};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;

use super::serving;
use crate::metrics::assert_well_formed;
use crate::wrap::tiny;
use crate::{needs_root, world};

const PING: &str = r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#;

#[test]
fn other_hosts_and_origins_are_refused() {
    let world = world("");
    let _daemon = world.daemon();
    let options = [
        "--name",
        "test",
        "--host",
        "Desk.example",
        "--origin",
        "https://app.example",
    ];
    let serve = world.serve(&options, &tiny(&world));
    let client = serve.connected("2025-11-25");
    let port = serve.at.rsplit(':').next().expect("a port");
    let asked = |headers: &[(&str, &str)]| client.ask("POST", headers, PING).status;
    for host in [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "",
        "a b",
    ] {
        assert_eq!(asked(&[("Host", host)]), 403, "{host}");
    }
    for host in [
        "localhost",
        &format!("LOCALHOST:{port}"),
        "[::1]:1",
        "desk.example",
    ] {
        assert_eq!(asked(&[("Host", host)]), 200, "{host}");
    }
    for origin in [
        "https://evil.example",
        "null",
        "http://localhost:1",
        "https://app.example.evil",
    ] {
        assert_eq!(asked(&[("Origin", origin)]), 403, "{origin}");
    }
    for origin in ["https://app.example", &format!("http://{}", serve.at)] {
        assert_eq!(asked(&[("Origin", origin)]), 200, "{origin}");
    }
    let preflight = [
        ("Origin", "https://app.example"),
        ("Access-Control-Request-Private-Network", "true"),
        ("Access-Control-Request-Method", "POST"),
        (
            "Access-Control-Request-Headers",
            "mcp-session-id, content-type",
        ),
    ];
    counted(&serve, r#"responses_total{status="403"} "#, 9);
    let reply = client.ask("OPTIONS", &preflight, "");
    assert_eq!(
        reply.header("access-control-allow-origin"),
        Some("https://app.example")
    );
    assert_eq!(
        reply.header("access-control-allow-private-network"),
        Some("true")
    );
    let foreign = client.ask(
        "OPTIONS",
        &[
            ("Origin", "https://evil.example"),
            preflight[1],
            preflight[2],
            preflight[3],
        ],
        "",
    );
    for header in [
        "access-control-allow-origin",
        "access-control-allow-private-network",
    ] {
        assert_eq!(foreign.header(header), None);
    }
}

#[test]
#[ignore = "needs root"]
fn another_user_is_refused_on_loopback_also_where_it_hangs_up_at_once() {
    needs_root("for another user");
    let (world, _daemon, serve) = serving("", tiny);
    let port = serve.at.rsplit(':').next().expect("a port");
    let script = format!(
        "import encodings.idna, os, socket\nos.setuid(65534)\n\
         for n in range(20):\n s = socket.create_connection(('127.0.0.1', {port})); s.close()\n\
         s = socket.create_connection(('127.0.0.1', {port}))\n\
         print(s.recv(100).split(b' ')[1].decode())"
    );
    let said = world
        .command("python3")
        .args(["-I", "-S", "-c", &script])
        .output()
        .expect("python");
    assert_eq!(
        String::from_utf8_lossy(&said.stdout).trim(),
        "403",
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    counted(&serve, r#"connections_total{result="another_user"} "#, 21);
    assert_eq!(
        serve.connected("2025-11-25").ask("POST", &[], PING).status,
        200,
        "this test runs as root, and so does `serve`"
    );
}

#[test]
fn a_unix_socket_is_for_our_own_user() {
    let world = world("");
    let _daemon = world.daemon();
    let path = world.root().join("s");
    let mut serve = world.serve_at(
        &format!("unix:{}", path.display()),
        &["--name", "test"],
        &tiny(&world),
    );
    let mode = std::fs::symlink_metadata(&path)
        .expect("a socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut client = serve.connected("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    // The socket that a killed `serve` has left is replaced.
    serve.kill();
    serve.start_again();
    assert_eq!(client.text("increment", &json!({})), "2");
}

fn token(world: &World) -> String {
    let path = world.root().join("serve.token");
    let mode = std::fs::symlink_metadata(&path)
        .expect("a token")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    std::fs::read_to_string(&path)
        .expect("a token")
        .trim_end()
        .to_owned()
}

#[test]
fn beyond_loopback_every_caller_needs_the_token_which_is_in_no_log() {
    let world = world("");
    let _daemon = world.daemon();
    let mut serve = world.serve_at("0.0.0.0:0", &["--name", "test"], &tiny(&world));
    let token = token(&world);
    let (at, port) = (
        serve.at.clone(),
        serve.at.rsplit(':').next().expect("a port").to_owned(),
    );
    serve.at = format!("127.0.0.1:{port}");
    assert_eq!(
        serve.client().begin("2025-11-25", &[]).status,
        401,
        "also our own user"
    );
    serve
        .errors
        .wait("allow what clients call this machine, by `--host NAME`");
    let bearer = format!("Bearer {token}");
    let mut client = serve.client();
    client
        .headers
        .push(("Authorization".into(), bearer.clone()));
    client.initialize("2025-11-25");
    assert_eq!(client.ask("POST", &[], PING).status, 200);
    assert_eq!(
        client.ask("POST", &[("Authorization", "")], PING).status,
        401
    );
    assert_eq!(
        client
            .ask("POST", &[("Authorization", "Bearer wrong")], PING)
            .status,
        401
    );
    serve.at = at;
    serve.kill();
    serve.start_again();
    serve.at = format!("127.0.0.1:{port}");
    assert_eq!(client.ask("POST", &[], PING).status, 200, "the same token");
    serve.kill();
    let serve = world.serve(&["--name", "test"], &tiny(&world));
    client.at.clone_from(&serve.at);
    assert_eq!(
        client.ask("POST", &[], PING).status,
        404,
        "the session is bound to the token"
    );
    assert!(!serve.errors.text().contains(&token) && !world.log.text().contains(&token));
}

#[test]
#[ignore = "needs root"]
fn another_user_with_the_token_may_come() {
    needs_root("for another user");
    let world = world("");
    let _daemon = world.daemon();
    let serve = world.serve(&["--name", "test", "--token"], &tiny(&world));
    let token = token(&world);
    let port = serve.at.rsplit(':').next().expect("a port");
    let script = format!(
        "import encodings.idna, os, sys, socket\nos.setuid(65534)\n\
         for h in ['', 'Authorization: Bearer wrong\\r\\n', f'Authorization: Bearer {{sys.argv[1]}}\\r\\n']:\n \
         s = socket.create_connection(('127.0.0.1', {port}))\n \
         s.sendall(f'DELETE /mcp HTTP/1.1\\r\\nHost: localhost\\r\\n{{h}}\\r\\n'.encode())\n \
         print(s.recv(100).split(b' ')[1].decode())"
    );
    let said = world
        .command("python3")
        .args(["-I", "-S", "-c", &script, &token])
        .output()
        .expect("python");
    let said = (
        String::from_utf8_lossy(&said.stdout),
        String::from_utf8_lossy(&said.stderr),
    );
    assert_eq!(
        said.0.split_whitespace().collect::<Vec<_>>(),
        ["401", "401", "400"],
        "{}",
        said.1
    );
}

#[test]
fn serve_exits_if_no_daemon_runs_and_none_may_be_started() {
    let world = world("http.hold_ms = 200");
    let ended = world
        .sessiond(&[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--no-start",
            "--",
            "true",
        ])
        .output();
    let ended = ended.expect("serve");
    assert_eq!(ended.status.code(), Some(75));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(
        said.contains("no daemon") && ended.stdout.is_empty(),
        "{said}"
    );
}

#[test]
fn a_second_serve_of_a_name_says_who_has_it() {
    let (world, _daemon, serve) = serving("", tiny);
    let second = world
        .sessiond(&[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--name",
            "test",
            "--",
            "true",
        ])
        .output();
    let second = second.expect("serve");
    assert_eq!(second.status.code(), Some(75));
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains(&format!("process {}", serve.pid())), "{said}");
    let other = world.serve(&["--name", "other"], &tiny(&world));
    let client = serve.connected("2025-11-25");
    let mut there = other.client();
    there.headers = client.headers.clone();
    assert_eq!(
        there.ask("POST", &[], PING).status,
        404,
        "another service's session"
    );
}

#[test]
fn a_client_that_is_slow_to_ask_is_not_waited_for() {
    let (_world, _daemon, serve) = serving("http.peer_wait_ms = 200", tiny);
    let client = serve.client();
    let ended = |bytes: &str| {
        let mut stream = std::net::TcpStream::connect(&serve.at).expect("it listens");
        stream.write_all(bytes.as_bytes()).expect("sent");
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("the end");
        said
    };
    for beginning in ["", "P", "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow"] {
        ended(beginning);
    }
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nContent-Type: application/json\r\n";
    let said = ended(&format!("{head}Content-Length: 100\r\n\r\n{{"));
    assert!(said.starts_with("HTTP/1.1 408"), "{said}");
    let many = "X-Much: 1\r\n".repeat(200);
    assert_eq!(client.send(&format!("{head}{many}\r\n")).status, 431);
    assert_eq!(
        client
            .send(&format!("{head}X-Long: {}\r\n\r\n", "x".repeat(64 * 1024)))
            .status,
        431
    );
    counted(&serve, r#"connections_total{result="no_request"} "#, 5);
    counted(&serve, r#"responses_total{status="408"} "#, 1);
}

#[test]
#[ignore = "needs promtool"]
fn prometheus_takes_what_is_counted() {
    let (_world, _daemon, serve) = serving("", tiny);
    assert_eq!(
        serve
            .client()
            .send("GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .status,
        404
    );
    assert_well_formed(&counted(&serve, r#"responses_total{status="404"} "#, 1));
}

/// A request on a connection that stays, and the status of its response.
fn asked_on(stream: &mut std::net::TcpStream, host: &str) -> String {
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut reader = std::io::BufReader::new(stream);
    let (mut status, mut length) = (String::new(), 0);
    reader.read_line(&mut status).expect("a status");
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a header");
        let line = line.trim().to_lowercase();
        if let Some(bytes) = line.strip_prefix("content-length:") {
            length = bytes.trim().parse().expect("a length");
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    status.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// Pools of clients keep connections for up to 90 s, and race with a server that closes earlier.
#[test]
fn an_idle_connection_stays_only_after_a_request_that_was_let_in() {
    let (_world, _daemon, serve) = serving("http.peer_wait_ms = 500", tiny);
    let connect = || std::net::TcpStream::connect(&serve.at).expect("it listens");
    let (mut let_in, mut stranger) = (connect(), connect());
    assert_eq!(asked_on(&mut let_in, "localhost"), "200");
    assert_eq!(asked_on(&mut stranger, "elsewhere"), "403");
    let mut rest = Vec::new();
    stranger.read_to_end(&mut rest).expect("it is closed");
    assert_eq!(asked_on(&mut let_in, "localhost"), "200");
}

/// More than there are places (1,024).
#[test]
fn heads_that_are_never_whole_keep_no_client_out() {
    const STRANGERS: usize = 1_100;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("the hard limit may be used");
    let (_world, _daemon, serve) = serving("http.peer_wait_ms = 600000", tiny);
    let mut idle = std::net::TcpStream::connect(&serve.at).expect("it listens");
    assert_eq!(asked_on(&mut idle, "localhost"), "200");
    let strangers: Vec<_> = (0..STRANGERS)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(&serve.at).expect("it listens");
            stream.write_all(b"POST /mcp HTTP/1.1\r\n").expect("sent");
            stream
        })
        .collect();
    let mut client = serve.connected("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    assert_eq!(
        asked_on(&mut idle, "localhost"),
        "200",
        "strangers go before a connection that was let in"
    );
    drop(strangers);
}

/// Waits until `serve` has counted so much, of which it tells nobody unasked, and returns its
/// metrics.
fn counted(serve: &Serve, name: &str, count: u64) -> String {
    let line = format!("mcp_sessiond_serve_{name}{count}");
    until(&line, || {
        let text = serve.client().ask_at("GET", "/metrics", &[], "").text();
        text.lines().any(|found| found == line).then_some(text)
    })
}

#[test]
#[ignore = "needs node"]
fn a_client_may_speak_http_2() {
    let (world, _daemon, serve) = serving("", tiny);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "curl", "version": "1"},
    }});
    let script = "const c = require('http2').connect(`http://${process.argv[1]}`); \
         const r = c.request({':method': 'POST', ':path': '/mcp', accept: '*/*', 'content-type': 'application/json'}); \
         r.on('response', (h) => console.log(h[':status'])); r.on('data', (d) => console.log(`${d}`)); \
         r.on('end', () => c.close()); r.end(process.argv[2]);";
    let said = world
        .command("node")
        .args(["-e", script, &serve.at, &body.to_string()])
        .output()
        .expect("node");
    let said = (
        String::from_utf8_lossy(&said.stdout),
        String::from_utf8_lossy(&said.stderr),
    );
    assert!(
        said.0.starts_with("200\n") && said.0.contains("\"tiny\""),
        "{said:?}"
    );
}
