//! Servers are killed and started again by the same host: each gets its own session, and nobody
//! else's.

use std::collections::HashSet;

use mcp_sessiond_tests::{Host, Instance, McpServer, until_removed};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::world;

#[test]
fn an_instance_that_is_started_again_resumes() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let mut first = host.instance(&["--db", "prod"]);
    let session = first.load().assert_fresh().session();
    host.log
        .wait("Token file not found (first run or clean slate)");
    first.store("one");
    first.store("two");
    first.kill();
    let (mut second, resumed) = host.loaded(&["--db", "prod"]);
    resumed.assert_resumed(&session, Some("two"));
    second.store("three");
    host.log.wait("Session resumed successfully");
}

#[test]
fn a_session_without_a_token_is_resumed_too() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let mut first = host.instance(&[]);
    let session = first.first_run("one").session();
    first.reject();
    host.log
        .wait("Broker rejected resume token, starting fresh session");
    assert!(world.token_files().is_empty(), "{:?}", world.token_files());
    first.kill();
    host.instance(&[]).load().assert_resumed(&session, None);
}

/// Eight instances that differ in their arguments, which all load.
fn eight(host: &Host) -> Vec<Instance> {
    host.loading((0..8).map(|n| vec!["--db".into(), n.to_string()]))
}

#[test]
fn eight_that_differ_and_are_restarted_at_once_get_each_its_own() {
    let world = world("claim_wait_ms = 5000");
    let _daemon = world.daemon();
    let host = world.host();
    let mut instances = eight(&host);
    let sessions: Vec<String> = instances
        .iter_mut()
        .map(|instance| instance.answer().assert_fresh().session())
        .collect();
    for round in 0..10 {
        for (n, instance) in instances.iter_mut().enumerate() {
            instance.store(&format!("{n}-{round}"));
        }
        // Nobody waits for the death of the old ones.
        instances
            .iter_mut()
            .for_each(|instance| instance.0.signal(Signal::SIGKILL));
        instances = eight(&host);
        for (n, instance) in instances.iter_mut().enumerate() {
            instance
                .answer()
                .assert_resumed(&sessions[n], Some(&format!("{n}-{round}")));
        }
    }
}

#[test]
fn one_that_is_started_before_its_predecessor_dies_resumes() {
    let world = world("claim_wait_ms = 5000");
    let _daemon = world.daemon();
    let host = world.host();
    let mut old = host.instance(&[]);
    let session = old.load().assert_fresh().session();
    for round in 0..20 {
        old.store(&format!("early-{round}"));
        let mut new = world.waiting(&host);
        // What the old one does until its end is not lost.
        old.store(&format!("late-{round}"));
        old.kill();
        new.answer()
            .assert_resumed(&session, Some(&format!("late-{round}")));
        old = new;
    }
}

#[test]
fn a_released_session_is_free_at_once() {
    let world = world("claim_wait_ms = 5000");
    let _daemon = world.daemon();
    let host = world.host();
    let mut old = host.holder(&[], "one");
    let mut new = world.waiting(&host);
    old.release();
    assert_eq!(new.answer().token.as_deref(), Some("one"));
}

#[test]
fn arguments_label_directory_environment_and_conversation_tell_instances_apart() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let program = world.binaries.instance;
    let labelled = |label: &'static str| vec![program, "--label", label];
    let kinds = [
        (vec![program], json!({})),
        (vec![program, "prod"], json!({})),
        (vec![program, "prod", ""], json!({})),
        (vec![program], json!({"DATABASE": "staging"})),
        (vec![program], json!({"directory": "/"})),
        (vec![program], json!({"CLAUDE_CODE_SESSION_ID": "1"})),
        (labelled("a"), json!({})),
        (labelled("b"), json!({})),
        (labelled("b"), json!({"CLAUDE_CODE_SESSION_ID": "1"})),
    ];
    let start = |(arguments, variables): &(Vec<&str>, serde_json::Value)| {
        Instance(host.server_with(arguments, variables))
    };
    let mut sessions = Vec::new();
    for (n, kind) in kinds.iter().enumerate() {
        let mut instance = start(kind);
        sessions.push(instance.first_run(&n.to_string()).session());
        instance.kill();
    }
    assert_eq!(sessions.iter().collect::<HashSet<_>>().len(), kinds.len());
    for (n, kind) in kinds.iter().enumerate() {
        start(kind)
            .load()
            .assert_resumed(&sessions[n], Some(&n.to_string()));
    }
    // Another conversation is another key, and the one that the host has left is over.
    let other = (vec![program], json!({"CLAUDE_CODE_SESSION_ID": "2"}));
    start(&other).load().assert_fresh();
    start(&kinds[5]).load().assert_fresh();
    // A label takes the place of directory and environment, and shells only keep account of
    // themselves.
    let resumed =
        Instance(host.server_with(&labelled("a"), &json!({"DATABASE": "x", "directory": "/"})))
            .load();
    assert_eq!(
        resumed.outcome.as_deref(),
        Some("fresh_held"),
        "the first one still holds it: {resumed:?}"
    );
    let resumed =
        Instance(host.server_with(&[program], &json!({"SHLVL": "7", "directory": "/"}))).load();
    assert_eq!(
        resumed.outcome.as_deref(),
        Some("fresh_held"),
        "{resumed:?}"
    );
}

#[test]
fn launchers_do_not_count_as_hosts() {
    let world = world("claim_wait_ms = 5000");
    let _daemon = world.daemon();
    let host = world.host();
    let program = world.binaries.instance;
    // Neither shell nor env is replaced by what it starts: all of them stay, between host and
    // instance.
    let script = "env sh -c '\"$0\"; true' \"$0\"; true";
    let mut wrapped = Instance(host.server(&["sh", "-c", script, program]));
    let session = wrapped.first_run("one").session();
    // The instance itself is orphaned by this, and ends with its standard input.
    wrapped.kill();
    let mut next = Instance(host.server(&["sh", "-c", script, program]));
    next.load().assert_resumed(&session, Some("one"));
}

#[test]
fn a_host_and_what_belongs_to_it_end_together() {
    let world = world("");
    let _daemon = world.daemon();
    let (mut host, other) = (world.host(), world.host());
    let _holder = host.holder(&[], "one");
    let mut of_other = other.holder(&[], "other");
    assert_eq!(world.token_files().len(), 2);
    host.kill();
    let tokens = world.directory().join("tokens");
    until_removed(
        &tokens,
        "sessions and tokens of the dead host are gone",
        || (world.sessions().len() == 1 && world.token_files().len() == 1).then_some(()),
    );
    let replaced = world.host();
    replaced.instance(&[]).load().assert_fresh();
    of_other.kill();
    assert_eq!(other.instance(&[]).load().token.as_deref(), Some("other"));
}

#[test]
fn a_real_server_goes_through_the_whole_flow_with_a_broker() {
    let world = world("");
    let _daemon = world.daemon();
    let broker = world.broker();
    let host = world.host();
    let began = |server: &mut McpServer| {
        let session = server.call("session");
        (
            session["broker_session"].as_str().expect("text").to_owned(),
            session["began"].as_str() == Some("resumed"),
        )
    };
    // Startup and rotation, again and again.
    let mut server = host.mcp_server(&broker, &[]);
    assert_eq!(began(&mut server), ("session-1".into(), false));
    for visits in 1..=5 {
        // A handler finds the session of its instance by its context.
        assert_eq!(server.call("visit"), visits);
        assert_eq!(server.call("rotate")["stored"], true);
        server.process.kill();
        server = host.mcp_server(&broker, &[]);
        assert_eq!(began(&mut server), ("session-1".into(), true));
    }
    assert_eq!(broker.refused(), 0);
    // Rejection.
    server.process.kill();
    assert_eq!(
        broker.ask(&json!({"op": "expire", "session": "session-1"}))["expired"],
        1
    );
    server = host.mcp_server(&broker, &[]);
    assert_eq!(server.call("session")["began"], "fresh after rejection");
    assert_eq!(
        (began(&mut server), broker.refused()),
        (("session-2".into(), false), 1)
    );
    host.log
        .wait("Broker rejected resume token, starting fresh session");
    // And on from there.
    server.process.kill();
    server = host.mcp_server(&broker, &[]);
    assert_eq!(began(&mut server), ("session-2".into(), true));
    // Corruption.
    let resume = server.call("session")["resume"]["session"]
        .as_str()
        .expect("text")
        .to_owned();
    server.process.kill();
    std::fs::write(world.token_file(&resume), "made up").expect("written");
    server = host.mcp_server(&broker, &[]);
    assert_eq!(
        (began(&mut server), broker.refused()),
        (("session-3".into(), false), 1)
    );
    host.log.wait("Token file corrupted, treating as stale");
}
