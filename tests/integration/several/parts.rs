//! What could not be started is visible to people, whichever door has the list: on standard error, in
//! the daemon's log, and in every verb that looks.

use mcp_sessiond_tests::{Client, Daemon, Log, OwnPort, World, until};
use serde_json::{Value, json};

use super::{all, small, tools, write_down};
use crate::world;

/// One that hangs, one that refuses, one that nobody listens for, and one that works.
const NAMES: [&str; 4] = ["ok", "hangs", "refuses", "dead"];

/// Answers everything with an error.
pub(super) const REFUSES: &str = r#"while read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}; id=${id%%\}*}
  case $line in *\"id\"*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"no licence"}}\n' "$id";; esac
done"#;

fn listed(nobody: &OwnPort) -> (World, Daemon) {
    let world = world(
        "bundle.init_timeout_ms = 6000\nbundle.ready_wait_ms = 100\nbackends.stop_wait_ms = 100",
    );
    let daemon = world.daemon();
    let url = format!("http://127.0.0.1:{}/mcp", nobody.number);
    let servers = [
        small(&world),
        json!({"command": "sh", "args": ["-c", "echo about to hang >&2; exec sleep 1000"]}),
        json!({"command": "sh", "args": ["-c", REFUSES]}),
        json!({"url": url}),
    ];
    let entries: Vec<(&str, Value)> = NAMES.into_iter().zip(servers).collect();
    write_down(&world, &entries);
    (world, daemon)
}

fn text(world: &World, words: &[&str]) -> String {
    let output = world.sessiond(words).output().expect("it runs");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// What `status --json` says of the servers that can't be used: name and code.
fn failed(world: &World) -> Vec<(String, String)> {
    let seen: Value = serde_json::from_str(&text(world, &["status", "--json"])).expect("JSON");
    let list = |name: &str| seen[name].as_array().expect("a list").clone();
    let of_keepers = list("servers").into_iter().filter_map(|server| {
        let code = server["trouble"]["code"].as_str()?.to_owned();
        Some((server["server"].as_str()?.to_owned(), code))
    });
    let others = list("unready").into_iter().filter_map(|server| {
        let code = server["code"].as_str()?.to_owned();
        Some((server["server"].as_str()?.to_owned(), code))
    });
    let mut failed: Vec<_> = of_keepers.chain(others).collect();
    failed.sort();
    failed
}

/// Whoever looks finds all three that can't be used, and why.
fn all_three_are_named(world: &World, daemon: &Daemon, errors: &Log) {
    let expected = [
        ("dead", "unreachable"),
        ("hangs", "timed_out"),
        ("refuses", "refused"),
    ]
    .map(|(name, code)| (name.to_owned(), code.to_owned()));
    until("all three to have failed", || {
        (failed(world) == expected).then_some(())
    });
    let whys = [
        ("hangs", "it was not ready within 6 s"),
        ("refuses", "it refused to be initialised: no licence"),
        ("dead", "can't be reached: Connection refused"),
    ];
    let [status, doctor] = [text(world, &["status"]), text(world, &["doctor"])]
        // Lines are wrapped.
        .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    let metrics = text(world, &["stats", "--prometheus"]);
    for (name, why) in whys {
        errors.wait(&format!(": {name}: "));
        errors.wait(why);
        for shown in [&status, &doctor] {
            assert!(shown.contains(&format!("{name} of ")), "{shown}");
            assert!(shown.contains(why), "{shown}");
        }
        let code = &expected
            .iter()
            .find(|(one, _)| one == name)
            .expect("a code")
            .1;
        let line = format!(r#"part="{name}" code="{code}""#);
        daemon.log().wait(&line);
        let sample = format!(r#"parts_failed{{part="{name}",code="{code}"}} 1"#);
        assert!(metrics.contains(&sample), "{metrics}");
    }
    // Whose line it is, each of a server says.
    errors.wait("hangs: about to hang");
    // And at length, also those that can be used.
    let sessions: Value =
        serde_json::from_str(&text(world, &["debug", "sessions", "--json"])).expect("JSON");
    let session = sessions.as_array().expect("a list").iter().find_map(|one| {
        let parts = one["status"]["parts"].as_array()?;
        (!parts.is_empty()).then(|| one["session"].as_str())?
    });
    let session = session.unwrap_or_else(|| panic!("{sessions}"));
    let shown = text(world, &["debug", "session", session]);
    for name in NAMES {
        assert!(shown.contains(name), "{shown}");
    }
    assert!(shown.contains("ready, initialized "), "{shown}");
}

#[test]
fn a_wrapper_of_all_names_what_can_t_be_used() {
    let nobody = OwnPort::take();
    let (world, daemon) = listed(&nobody);
    let mut client = Client::connected(world.front(&all(&world, &[])));
    let errors = client.pipe.errors.clone();
    all_three_are_named(&world, &daemon, &errors);
    // Nothing is shown of a wrapper that is gone, however it went.
    client.pipe.kill();
    until("nothing to be shown", || {
        failed(&world).is_empty().then_some(())
    });
}

#[test]
fn so_does_serve_also_after_the_daemon_was_killed() {
    let nobody = OwnPort::take();
    let (world, mut daemon) = listed(&nobody);
    let serve = world.serve(&["--name", "test", "--all", "--inspect"], &[]);
    let client = serve.connected("2025-11-25");
    all_three_are_named(&world, &daemon, &serve.errors);
    let path = format!("/inspect/sessions/{}", client.session());
    let headers = [("Content-Type", ""), ("Mcp-Session-Id", "")];
    let mut looked = client.ask_at("GET", &path, &headers, "");
    looked.must_be(200);
    let parts = looked.message()["parts"].clone();
    let states = parts.as_array().expect("a list").iter();
    let states: Vec<_> = states.map(|part| (&part["part"], &part["is"])).collect();
    let expected = ["ready", "failed", "failed", "failed"].map(|is| json!(is));
    let names = NAMES.map(|name| json!(name));
    assert_eq!(states, names.iter().zip(&expected).collect::<Vec<_>>());
    daemon.restart();
    until("another daemon to be told", || {
        (failed(&world).len() == 3).then_some(())
    });
    client.ask("DELETE", &[], "").must_be(204);
    until("nothing to be shown", || {
        failed(&world).is_empty().then_some(())
    });
}

#[test]
fn a_program_that_is_not_there_is_no_loss() {
    let world = world("");
    let daemon = world.daemon();
    write_down(
        &world,
        &[
            ("ok", small(&world)),
            ("missing", json!({"command": "no-such-program"})),
        ],
    );
    let client = Client::connected(world.front(&all(&world, &[])));
    client
        .pipe
        .errors
        .wait("mcp-sessiond: missing: no-such-program can't be run: it was not found in PATH=");
    until("it to be shown", || {
        (failed(&world) == [("missing".to_owned(), "not_found".to_owned())]).then_some(())
    });
    let seen: Value = serde_json::from_str(&text(&world, &["status", "--json"])).expect("JSON");
    assert_eq!(seen["lost"], json!([]), "{seen}");
    assert!(!daemon.log().text().contains("begins afresh"));
}

/// A host that starts its list twice drops one of the two. That the daemon was told how its servers
/// are is nothing that anybody has kept, so the twin ends, and the other is found again.
#[test]
fn a_twin_whose_servers_are_only_ready_costs_the_other_nothing() {
    let world = world("claim_wait_ms = 50\n[backends]\ncloses = 1000\n");
    let _daemon = world.daemon();
    write_down(&world, &[("small", small(&world))]);
    let start = || Client::connected_as("claude-ai", world.front(&all(&world, &[])));
    let mut servers = [(); 2].map(|()| start());
    for server in &mut servers {
        assert!(!tools(server).is_empty());
    }
    until("the daemon has heard of both that they are ready", || {
        let seen: Value =
            serde_json::from_str(&text(&world, &["debug", "sessions", "--json"])).expect("JSON");
        let is_ready = |session: &&Value| session["status"]["parts"][0]["is"] == "ready";
        let ready = seen.as_array()?.iter().filter(is_ready).count();
        (ready == 2).then_some(())
    });
    let [mut used, mut twin] = servers;
    assert_eq!((used.count(), used.count()), (1, 2));
    twin.pipe.close();
    twin.pipe.wait();
    world.wait_backends(1);
    used.pipe.close();
    used.pipe.wait();
    let mut used = start();
    assert_eq!(used.count(), 3);
    assert_eq!(world.backends().len(), 1);
}
