//! `serve` of one name on several machines with one database: a session is served where its server
//! runs.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use mcp_sessiond_tests::{Daemon, HttpClient, Serve, World, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::signs::machines;
use crate::wrap::{counter, gate};

fn serve(world: &World) -> Serve {
    world.serve(&["--name", "test"], &counter(world))
}

/// The same client at another machine.
fn at(serve: &Serve, client: &HttpClient) -> HttpClient {
    HttpClient {
        at: serve.at.clone(),
        ..client.clone()
    }
}

fn increment(client: &mut HttpClient) -> (u16, Value) {
    let mut reply = client.call("increment", &json!({}));
    let status = reply.status;
    let count = if status == 200 {
        reply.answer()["result"]["content"][0]["text"].take()
    } else {
        Value::Null
    };
    (status, count)
}

/// Waits until a machine serves the client's session. Returns what the server has counted.
fn taken_over(client: &mut HttpClient) -> Value {
    // What a machine that is away holds is free after a time, of which nothing tells.
    until("the session is taken over", || {
        let (status, count) = increment(client);
        assert!([200, 503].contains(&status), "{status}");
        (status == 200).then_some(count)
    })
}

pub(crate) fn of_a_machine_that_lives_and_then_is_gone(url: &str) {
    let [(here, mut killed), (there, _daemon)] = machines(url);
    let (mut first, second) = (serve(&here), serve(&there));
    let mut client = first.connected("2025-11-25");
    assert_eq!(increment(&mut client), (200, json!("1")));
    let mut away = at(&second, &client);
    let held = away.call("increment", &json!({}));
    assert_eq!((held.status, held.header("retry-after")), (503, Some("1")));
    assert_eq!(
        away.ask("GET", &[("Accept", "text/event-stream")], "")
            .status,
        503
    );
    let mut slow = client.call("slow", &json!({"gate": gate(&here, "gate")}));
    let event = slow.said().id.expect("an id");
    assert_eq!(
        away.ask("GET", &[("Last-Event-ID", &event)], "").status,
        503,
        "its server may yet answer"
    );
    assert_eq!(
        increment(&mut client),
        (200, json!("2")),
        "nothing has happened to it"
    );
    killed.kill();
    first.kill();
    assert_eq!(
        taken_over(&mut away),
        "1",
        "a fresh server, which got the recorded handshake"
    );
    let mut back = away.resume(&event);
    let answer = back.answer();
    assert_eq!(answer["error"]["data"]["outcome"], "unknown", "{answer}");
    assert_eq!(back.event(), None, "the stream is complete");
    there
        .log
        .wait("took over a session whose server ran on another machine");
    // The machine is back, with the former server.
    assert!(!here.processes().is_empty());
    killed.start_again();
    here.log
        .wait("ends the server of a session that another machine has taken over");
    here.nothing_left();
    first.start_again();
    assert_eq!(increment(&mut at(&first, &client)), (503, Value::Null));
    assert_eq!(increment(&mut away), (200, json!("2")));
}

pub(crate) fn of_a_daemon_that_was_stopped_and_comes_back(url: &str) {
    let [(here, stopped), (there, _daemon)] = machines(url);
    let (first, second) = (serve(&here), serve(&there));
    let mut client = first.connected("2025-11-25");
    assert_eq!(increment(&mut client), (200, json!("1")));
    stopped.signal(Signal::SIGSTOP);
    let mut away = at(&second, &client);
    assert_eq!(taken_over(&mut away), "1");
    stopped.signal(Signal::SIGCONT);
    here.log
        .wait("ends the server of a session that another machine has taken over");
    // `serve` tells nobody that it has let go of a session.
    until("its server is gone", || {
        (increment(&mut client).0 == 503).then_some(())
    });
    assert_eq!(increment(&mut away), (200, json!("2")));
    assert_eq!(
        increment(&mut first.connected("2025-11-25")),
        (200, json!("1")),
        "others are served as before"
    );
}

/// Passes each connection on to one machine.
struct Balancer {
    url: String,
    to: Arc<Mutex<String>>,
}

impl Balancer {
    fn in_front_of(first: &Serve) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("bound"));
        let to = Arc::new(Mutex::new(first.at.clone()));
        let now = to.clone();
        // It ends with the process.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let to = now.lock().expect("sound").clone();
                if let Ok(server) = TcpStream::connect(to) {
                    let again = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
                    let back = (again(&server), again(&client));
                    for (mut from, mut to) in [(client, server), back] {
                        std::thread::spawn(move || {
                            let _ = std::io::copy(&mut from, &mut to);
                            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                        });
                    }
                }
            }
        });
        Self { url, to }
    }
}

/// Official clients, each with a call under way: all of them hear of it, and go on in their sessions.
#[test]
#[ignore = "needs node and postgresql"]
fn of_a_machine_that_is_gone_under_ten_clients() {
    let database = crate::postgres::Schema::new();
    let [(here, mut killed), (there, _daemon)] = machines(&database.url());
    let (mut first, second) = (serve(&here), serve(&there));
    let balancer = Balancer::in_front_of(&first);
    let mut node = there.node_host();
    let names: [String; 10] = std::array::from_fn(|nth| nth.to_string());
    let calls = names.each_ref().map(|name| {
        node.order(json!({"do": "connect", "as": name, "url": balancer.url}));
        assert_eq!(node.count(name), 1);
        node.begin_slow(name, &gate(&here, name))
    });
    second
        .at
        .clone_into(&mut balancer.to.lock().expect("sound"));
    killed.kill();
    first.kill();
    for call in calls {
        let error = node.text(call).expect_err("its server is gone");
        let why = error["message"].as_str().expect("a sentence");
        assert!(why.contains("outcome of this call is unknown"), "{why}");
    }
    for name in &names {
        assert_eq!(node.count(name), 1, "a fresh server");
        let told = format!(
            r#""as":"{name}","method":"notifications/message","params":{{"level":"warning","logger":"mcp-sessiond","#
        );
        let told = node.told.wait(&told);
        assert!(told.contains("this server begins afresh"), "{told}");
    }
    let sessions = there.listed("list_contents");
    assert_eq!(sessions.len(), names.len(), "none has begun another one");
}

/// Requests without a session have a server on each machine: that of another one is nobody's here.
pub(crate) fn of_requests_without_a_session_on_each_machine(url: &str) {
    let all: [(World, Daemon); 2] = machines(url);
    let serving = all.each_ref().map(|(world, _)| {
        let mut raw = world.raw("server");
        raw.command.push("modern".to_owned());
        (world.serve(&["--name", "test"], &raw.command), raw)
    });
    for (serve, _) in &serving {
        serve.client().modern("ping", &json!({})).must_be(200);
    }
}
