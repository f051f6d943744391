//! The protocol in forty lines of Python, standard library only: `tests/python/sessiond.py`.

use crate::{fixture, world};

#[test]
#[ignore = "needs python3"]
fn a_server_in_python_speaks_the_protocol_itself() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let script = fixture("python/server.py");
    let start = |name: &str| host.server(&["python3", &script, "protocol", name]);
    for round in 0..3 {
        for name in ["a", "b"] {
            let mut server = start(name);
            let before = server.ask("load");
            assert_eq!(
                before,
                if round == 0 {
                    "3".into()
                } else {
                    format!("0 {name} {}", round - 1)
                }
            );
            assert_eq!(server.ask(&format!("store {name} {round}")), "0");
            assert_eq!(server.ask("load"), format!("0 {name} {round}"));
            server.kill();
        }
        daemon.restart();
    }
    let mut server = start("a");
    assert_eq!(server.ask("reject"), "0");
    assert_eq!(server.ask("load"), "3");
    assert_eq!(start("b").ask("load"), "0 b 2");
}

#[test]
#[ignore = "needs python3"]
fn the_same_forty_lines_are_a_command() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let script = fixture("python/sessiond.py");
    // Each line of it is a child of the shell, which is the instance.
    let steps = "python3 \"$0\" load; echo \" $?\"; printf one | python3 \"$0\" store; echo $?; \
                 python3 \"$0\" load; echo \" $?\"; read end";
    let mut server = host.server(&["sh", "-c", steps, &script]);
    let said: Vec<String> = (0..3).map(|_| server.read()).collect();
    assert_eq!(said, [" 3", "0", "one 0"]);
    server.kill();
    let next = "python3 \"$0\" load; echo; read end";
    let mut other = host.server(&["sh", "-c", next, &script]);
    assert_eq!(other.read(), "", "it has other arguments");
    assert_eq!(host.server(&["sh", "-c", steps, &script]).read(), "one 0");
}

#[test]
#[ignore = "needs python3"]
fn a_server_in_python_outlives_the_daemon() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut server = host.server(&["python3", &fixture("python/server.py"), "protocol"]);
    assert_eq!(server.ask("store one"), "0");
    daemon.restart();
    assert_eq!(
        server.ask("load"),
        "0 one",
        "over a connection that is none any more"
    );
    daemon.restart();
    assert_eq!(server.ask("store two"), "0");
    assert_eq!(server.ask("load"), "0 two");
}

#[test]
#[ignore = "needs python3"]
fn a_server_in_python_starts_a_daemon_where_none_runs() {
    let world = world("");
    let host = world.host();
    let mut server = host.server(&["python3", &fixture("python/server.py"), "protocol"]);
    assert_eq!(server.ask("store one"), "0");
    assert_eq!(world.about()["started_by"], "on_demand");
    assert_eq!(server.ask("load"), "0 one");
}

#[test]
#[ignore = "needs python3"]
fn a_refusal_in_python_has_its_code() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let mut server = host.server(&["python3", &fixture("python/server.py"), "protocol"]);
    assert_eq!(server.ask("stale"), "stale_epoch");
    assert_eq!(server.ask("wrong"), "-32602");
}
