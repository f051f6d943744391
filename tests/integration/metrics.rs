//! What is counted, and how a scraper gets it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use mcp_sessiond_tests::{Daemon, World, assert_refused, until};
use serde_json::{Value, json};

use crate::wrap::{connect, tiny};
use crate::{fixture, world};

/// The text that the daemon has for Prometheus.
fn text(world: &World) -> String {
    let output = world
        .sessiond(&["stats", "--prometheus"])
        .output()
        .expect("debug");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The value of a sample, by all that stands before it.
fn sample(text: &str, name: &str) -> Option<f64> {
    let value = |line: &str| {
        line.strip_prefix("mcp_sessiond_")?
            .strip_prefix(name)?
            .strip_prefix(' ')?
            .parse()
            .ok()
    };
    text.lines().find_map(value)
}

#[track_caller]
fn assert_sample(text: &str, name: &str, value: f64) {
    assert_eq!(sample(text, name), Some(value), "{name} in:\n{text}");
}

/// Asserts that Prometheus' own tool has nothing to say.
pub(crate) fn assert_well_formed(text: &str) {
    let ours = fixture("../target/prometheus/usr/bin/promtool");
    let promtool = if Path::new(&ours).exists() {
        &ours
    } else {
        "promtool"
    };
    let mut command = Command::new(promtool);
    command
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut check = command.spawn().expect("promtool: tests/run installs it");
    check
        .stdin
        .take()
        .expect("piped")
        .write_all(text.as_bytes())
        .expect("written");
    let checked = check.wait_with_output().expect("promtool");
    let said = String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
    assert!(
        checked.status.success() && said.is_empty(),
        "{said}\n{text}"
    );
}

#[test]
fn the_page_has_every_metric() {
    let world = world("");
    let _daemon = world.daemon();
    let page = std::fs::read_to_string(fixture("../docs/metrics.md")).expect("the page");
    let text = text(&world);
    let names = text.lines().filter_map(|line| {
        let name = line.strip_prefix("# TYPE mcp_sessiond_")?;
        name.split(' ').next()
    });
    let is_on_page =
        |name: &str| page.contains(&format!("`{name}`")) || page.contains(&format!("`{name}{{"));
    let missing: Vec<&str> = names.filter(|name| !is_on_page(name)).collect();
    assert!(missing.is_empty(), "docs/metrics.md has no {missing:?}");
}

#[test]
#[ignore = "needs promtool"]
fn prometheus_takes_what_is_counted() {
    let world = world("");
    let _daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    assert_eq!(client.count(), 1);
    assert_well_formed(&text(&world));
}

#[test]
fn what_is_counted_is_told() {
    // Without a redo log, wherever the world is, so that changes wait until they are kept.
    let world = world("storage.durability = \"power\"");
    let _daemon = world.daemon();
    let mut peer = world.peer();
    peer.call("claim", json!({})).expect("claimed");
    peer.call("create_session", json!({"service": "web", "session": "s"}))
        .expect("created");
    let of = json!({"service": "web", "session": "s"});
    peer.call(
        "append",
        json!({"of": of, "stream": "_GET_stream", "messages": ["{}", "{}"]}),
    )
    .expect("appended");
    peer.call(
        "write_state",
        json!({"of": of, "writes": [{"key": "k", "value": "1"}]}),
    )
    .expect("written");
    assert_refused(
        peer.call("get_session", json!({"service": "web", "session": "none"})),
        "unknown_session",
    );
    let text = text(&world);
    for (name, value) in [
        ("sessions{owner=\"host\"}", 1.0),
        ("sessions{owner=\"service\"}", 1.0),
        ("claims_total{outcome=\"fresh_first\"}", 1.0),
        ("claims_total{outcome=\"resumed\"}", 0.0),
        ("refusals_total{code=\"unknown_session\"}", 1.0),
        ("refusals_total{code=\"unavailable\"}", 0.0),
        ("request_seconds_count{method=\"append\"}", 1.0),
        ("stored_sessions", 1.0),
        ("stored_events", 2.0),
        ("events_appended_total", 2.0),
        ("events_pruned_total", 0.0),
        ("wrap_restarts_total", 0.0),
        ("wrap_unkept", 0.0),
    ] {
        assert_sample(&text, name, value);
    }
    let version = world.about()["version"].as_str().expect("text").to_owned();
    assert_sample(
        &text,
        &format!("build_info{{version=\"{version}\",protocol=\"2\"}}"),
        1.0,
    );
    for op in ["read", "commit", "keep"] {
        let name = format!("storage_operation_seconds_count{{backend=\"sqlite\",op=\"{op}\"}}");
        assert!(
            sample(&text, &name).is_some_and(|count| count > 0.0),
            "{name} in:\n{text}"
        );
    }
}

#[test]
fn sessions_of_services_are_sessions_and_whoever_ends_them_is_counted() {
    let world = world("");
    let _daemon = world.daemon();
    let mut peer = world.peer();
    let caller =
        |sub: &str| json!({"kind": "identity", "iss": "https://issuer.example", "sub": sub});
    let binding = json!({"caller": caller("me"), "on_mismatch": "terminate"});
    for session in ["bound", "free"] {
        let binding = if session == "bound" {
            binding.clone()
        } else {
            Value::Null
        };
        let mut params = json!({"service": "web", "session": session});
        if !binding.is_null() {
            params["binding"] = binding;
        }
        peer.call("create_session", params).expect("created");
    }
    assert_eq!(world.stat("sessions"), 2);
    let by = json!({"service": "web", "session": "bound", "caller": caller("somebody")});
    assert_refused(peer.call("get_session", by), "binding_mismatch");
    assert_eq!(
        (
            world.stat("sessions"),
            world.stat("sessions_terminated_total")
        ),
        (1, 1)
    );
    assert_eq!(world.stat("sessions_expired_total"), 0);
}

#[test]
fn what_becomes_of_wrapped_servers_is_counted() {
    let world = world("");
    let _daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    backend.cut_off(&mut client.pipe);
    let mut client = connect(&world, &tiny(&world));
    assert_eq!(client.count(), 2, "it was kept");
    world.wait_stat("wrap_reconnects_total", 1);
    let restarted = world
        .sessiond(&["restart", "--all"])
        .output()
        .expect("restart");
    assert!(restarted.status.success(), "{restarted:?}");
    world.wait_stat("wrap_restarts_total", 1);
    let text = text(&world);
    assert_sample(&text, "backends", 1.0);
    client.pipe.close();
}

/// The address at which the daemon says that it serves metrics.
fn address(daemon: &Daemon) -> String {
    let line = daemon.log().wait("metrics are served");
    let (_, address) = line.split_once("address=").expect("an address");
    address.trim().trim_matches('"').to_owned()
}

fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    stream.write_all(request.as_bytes()).expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn a_scraper_gets_them_over_http() {
    let world = world("");
    let daemon = world.spawn(world.sessiond(&["run", "--metrics", "127.0.0.1:0"]));
    let address = address(&daemon);
    let get = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let answer = ask(&address, &get);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.contains("text/plain; version=0.0.4"),
        "{head}"
    );
    assert!(
        head.contains(&format!("Content-Length: {}\r\n", body.len())),
        "{head}"
    );
    assert!(body.contains("mcp_sessiond_build_info{"), "{body}");
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n".to_owned(), "405"),
        (
            "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(),
            "403",
        ),
        (
            format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(20_000)),
            "431",
        ),
    ] {
        let answer = ask(&address, &request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
    let head = ask(&address, &get.replace("GET", "HEAD"));
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    // Those that say nothing take a place each, and no more than there are.
    let silent: Vec<TcpStream> = (0..64)
        .map(|_| TcpStream::connect(&address).expect("let in"))
        .collect();
    assert!(daemon.descriptors() < 64 + 16, "{}", daemon.descriptors());
    drop(silent);
    // The daemon closes connections after the other end; nothing tells when.
    until("there is room again", || {
        let mut stream = TcpStream::connect(&address).ok()?;
        stream.write_all(get.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.starts_with("HTTP/1.1 200 ").then_some(())
    });
}

#[test]
fn metrics_are_this_machines_unless_somebody_says_otherwise() {
    let world = world("");
    for address in ["0.0.0.0:0", "[::]:0", "localhost:0", "127.0.0.1"] {
        let refused = world
            .sessiond(&["run", "--metrics", address])
            .output()
            .expect("ended");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(64), "{address}: {said}");
        assert!(said.contains("metrics.address"), "{address}: {said}");
    }
    world.configure("[metrics]\naddress = \"0.0.0.0:0\"\nbeyond_loopback = true\n");
    let daemon = world.daemon();
    let port = address(&daemon)
        .rsplit_once(':')
        .map(|(_, port)| port.to_owned())
        .expect("a port");
    let answer = ask(
        &format!("127.0.0.1:{port}"),
        "GET /metrics HTTP/1.1\r\nHost: db.example\r\n\r\n",
    );
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

/// Sessions do not depend on who else has a port.
#[test]
fn a_port_that_is_taken_stops_nothing() {
    let world = world("");
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("bound").to_string();
    let daemon = world.spawn(world.sessiond(&["run", "--metrics", &address]));
    daemon.log().wait("the metrics can't be served");
    world.peer().call("claim", json!({})).expect("claimed");
}

#[test]
fn what_runs_unkept_is_seen() {
    let world = world("");
    let host = world.host();
    let _daemon = world.daemon();
    let notes = world.directory().join("unkept");
    std::fs::create_dir_all(&notes).expect("ours");
    let start = mcp_sessiond_tests::start_time(host.pid());
    std::fs::write(notes.join(format!("{}-{start}", host.pid())), "{}").expect("written");
    std::fs::write(notes.join(format!("{}-{}", host.pid(), 1)), "{}").expect("written");
    assert_eq!(world.stat("wrap_unkept"), 1);
}
