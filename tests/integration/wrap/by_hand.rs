//! `mcp-sessiond status`, `stop` and `restart`: what is kept, and what people do about it.

use std::process::Output;

use mcp_sessiond_process::PinnedProcess;
use mcp_sessiond_proto::time::now_ms;
use mcp_sessiond_proxy::unkept::{self, Unkept};
use mcp_sessiond_tests::{Backend, Client, Front, World, gone, lives, until, write_program};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{connect, counter, gate, keeping, root, tiny, wrapped};
use crate::world;

/// What a command printed, and its exit code.
pub(super) struct Printed {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

#[track_caller]
pub(super) fn say(world: &World, arguments: &[&str]) -> Printed {
    let Output {
        status,
        stdout,
        stderr,
    } = world.sessiond(arguments).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let said = Printed {
        code: status.code(),
        out: text(stdout),
        err: text(stderr),
    };
    // Every server of these tests has the world's directory as its last argument.
    let all =
        format!("{}{}", said.out, said.err).replace(world.directory().to_str().expect("UTF-8"), "");
    assert!(
        !all.contains(&root(world)),
        "no argument is shown but what tells servers apart: {all}"
    );
    said
}

/// What it printed, wherever the lines were broken.
fn words(said: &Printed) -> String {
    said.out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The line of `status` that begins so, all of which have at most 80 columns.
#[track_caller]
fn line(world: &World, server: &str) -> String {
    let said = say(world, &["status"]);
    assert!(
        said.out.lines().all(|line| line.chars().count() <= 80),
        "{}",
        said.out
    );
    let found = said
        .out
        .lines()
        .find(|line| line.starts_with(server))
        .map(str::to_owned);
    found.unwrap_or_else(|| panic!("no {server} in:\n{}{}", said.out, said.err))
}

fn status_json(world: &World) -> Value {
    serde_json::from_str(&say(world, &["status", "--json"]).out).expect("JSON")
}

/// Two servers of one program, and the pids of their keepers.
fn twins(world: &World) -> [(Client<Front>, Backend); 2] {
    ["a", "b"].map(|label| {
        let front = world.front(&world.wrapping(&["--instance", label], &tiny(world)));
        let mut client = Client::connected(front);
        client.count();
        let pid: u32 = client.call("parent", json!({})).parse().expect("a pid");
        (
            client,
            world
                .backends()
                .into_iter()
                .find(|known| known.keeper == pid)
                .expect("its keeper"),
        )
    })
}

#[test]
fn status_shows_what_is_kept_a_line_each() {
    let world = keeping("");
    let nothing = say(&world, &["status"]);
    assert_eq!((nothing.code, &*nothing.err), (Some(0), ""));
    assert!(
        nothing
            .out
            .starts_with("No server is kept now. To wrap the servers of your hosts, run"),
        "{}",
        nothing.out
    );
    let _daemon = world.daemon();
    let mut first = connect(&world, &counter(&world));
    let server = world.backend().pid();
    let _second = connect(&world, &tiny(&world));
    let host = std::process::id().to_string();
    let shown = line(&world, "counter  ");
    for word in [&*host, "in use", " 0 ", "KiB"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    line(&world, "tiny  ");

    first.pipe.kill();
    // A keeper tells nobody of itself unasked.
    until("its host is away", || {
        line(&world, "counter").contains("waiting").then_some(())
    });
    let all = status_json(&world);
    assert_eq!(all["daemon"], json!({"answers": true, "why": null}));
    let servers = all["servers"].as_array().expect("a list");
    let named: Vec<&str> = servers
        .iter()
        .filter_map(|server| server["server"].as_str())
        .collect();
    assert_eq!(named, ["counter", "tiny"]);
    assert_eq!(servers[0]["state"], "waiting");
    assert_eq!(servers[0]["host"].to_string(), host);
    assert_eq!(servers[0]["pid"].to_string(), server.to_string());
    assert_eq!(
        (&servers[0]["restarts"], &servers[0]["known"]),
        (&json!(0), &json!(true))
    );
    let wide = say(&world, &["status", "--wide"]).out;
    assert!(
        wide.contains(servers[0]["session"].as_str().expect("an id"))
            && wide.contains(&server.to_string()),
        "{wide}"
    );
    assert_eq!(say(&world, &["debug", "backends"]).code, Some(0));
}

#[test]
fn a_restart_is_noticed_by_nobody_but_whose_call_was_open() {
    let world = keeping("stop_wait_ms = 300");
    let _daemon = world.daemon();
    let mut client = connect(&world, &counter(&world));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    world.log.wait("a server was started ");
    let slow = client.begin_slow(&gate(&world, "never"));
    let former = backend.pid();
    let said = say(&world, &["restart", "counter"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let fresh = backend.pid();
    assert!(
        said.out.starts_with("counter of ") && said.out.ends_with(&format!("{fresh}\n")),
        "{}",
        said.out
    );
    assert_eq!(
        (lives(former), world.backend().keeper),
        (false, backend.keeper)
    );
    let error = client.answer(slow)["error"].take();
    assert_eq!(error["data"]["outcome"], "unknown");
    assert!(
        error["message"].to_string().contains("restarted"),
        "{error}"
    );
    assert_eq!(client.count(), 1, "it is initialised, and begins afresh");
    client
        .pipe
        .errors
        .wait("mcp-sessiond: the server is restarted by `mcp-sessiond restart`");
    assert!(line(&world, "counter").contains(" 1 "), "restarts");
    let logged = world.log.wait("a server was started again");
    assert!(
        logged.contains("by hand") && logged.contains("counter"),
        "{logged}"
    );

    // By every pid, by part of the id, and all of them; attached or not.
    let host = std::process::id();
    client.pipe.kill();
    backend.wait_alone();
    let part = &backend.session[backend.session.len() - 12..];
    for what in [
        &fresh.to_string(),
        &backend.keeper.to_string(),
        &host.to_string(),
        part,
        "--all",
    ] {
        // The first of them is that of a server which is gone when the second is asked for.
        let what = if what == fresh.to_string() {
            backend.pid().to_string()
        } else {
            what.to_owned()
        };
        let said = say(&world, &["restart", &what]);
        assert_eq!(said.code, Some(0), "{what}: {}", said.err);
    }
    assert_eq!(backend.status().restarts, 6);
    let mut client = connect(&world, &counter(&world));
    assert_eq!(client.count(), 1);
    assert_eq!(
        backend.status().restarts,
        6,
        "the host found the server that was started last"
    );
}

#[test]
fn a_server_that_can_t_start_is_told_of_with_the_reason() {
    let world = keeping("");
    let _daemon = world.daemon();
    let script = world.root().join("script");
    write_program(&script, "#!/bin/sh\nexit 42\n");
    let server = script.to_str().expect("UTF-8").to_owned();
    let mut client = Client::new(world.front(&wrapped(&world, &[server])));
    let asked = client.request("initialize", json!({"protocolVersion": "2025-06-18"}));
    assert!(client.answer(asked)["error"].is_object());
    let said = say(&world, &["status"]);
    assert!(
        words(&said).contains("has ended (exit status 42)"),
        "{}",
        said.out
    );
    let row = said.out.lines().find(|line| line.starts_with("script"));
    let row = row.expect("its row");
    assert!(
        row.contains("  ended  ") && !row.contains("starting"),
        "{row}"
    );
    std::fs::remove_file(&script).expect("it was there");
    let said = say(&world, &["restart", "script"]);
    assert_eq!((said.code, &*said.out), (Some(70), ""));
    assert!(
        said.err
            .contains("the fresh one has ended: it could not be started: No such file"),
        "{}",
        said.err
    );
}

#[test]
fn a_restart_does_not_wait_for_a_server_that_keeps_dying() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut client = connect(&world, &counter(&world));
    let backend = world.backend();
    for _ in 0..4 {
        client
            .try_call("die", json!({"code": 3}))
            .expect_err("it died");
    }
    let said = say(&world, &["restart", "counter"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(client.count(), 1);
    assert!(backend.status().restarts >= 4);
}

#[test]
fn stop_says_what_it_did() {
    let world = keeping("stop_wait_ms = 300");
    let _daemon = world.daemon();
    let mut client = connect(&world, &counter(&world));
    client.count();
    let backend = world.backend();
    let said = say(&world, &["stop", "COUNTER"]);
    assert_eq!((said.code, &*said.err), (Some(0), ""));
    assert!(
        said.out.starts_with("counter of ")
            && said.out.contains("is stopped; it starts again when "),
        "{}",
        said.out
    );
    gone(backend.keeper);
    let logged = world.log.wait("a server has ended");
    assert!(
        logged.contains("`mcp-sessiond stop` has ended it") && logged.contains("counter"),
        "{logged}"
    );
    assert_eq!(client.count(), 1, "the host's next call starts a fresh one");

    let twins = twins(&world);
    let said = say(
        &world,
        &[
            "stop",
            &twins[0].1.pid().to_string(),
            &twins[1].1.keeper.to_string(),
            "counter",
        ],
    );
    assert_eq!(
        (said.code, said.out.lines().count()),
        (Some(0), 3),
        "{}",
        said.err
    );
    world.backends().iter().for_each(Backend::ended);
    assert_eq!(say(&world, &["stop", "--all"]).code, Some(0));
    world.backends().iter().for_each(Backend::ended);
}

#[test]
fn what_could_be_several_is_none() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut twins = twins(&world);
    let host = std::process::id().to_string();
    for verb in ["stop", "restart"] {
        for what in ["tiny", "tiny", &host] {
            let said = say(&world, &[verb, what]);
            assert_eq!((said.code, &*said.out), (Some(64), ""), "{verb} {what}");
            for (_, backend) in &twins {
                assert!(
                    said.err.contains(&backend.keeper.to_string()),
                    "{}",
                    said.err
                );
            }
        }
        let nobody = say(
            &world,
            &[verb, &twins[0].1.pid().to_string(), "no-such-server"],
        );
        assert_eq!((nobody.code, &*nobody.out), (Some(66), ""));
        assert!(nobody.err.contains("tiny  "), "{}", nobody.err);
        for bad in [&[verb][..], &[verb, ""], &[verb, "--all", "tiny"]] {
            assert_eq!(say(&world, bad).code, Some(64), "{bad:?}");
        }
    }
    for (client, _) in &mut twins {
        assert_eq!(client.count(), 2, "nothing was done");
    }
}

#[test]
fn what_is_kept_can_be_seen_and_stopped_without_a_daemon() {
    let world = world("idle_exit_ms = 600000\n[backends]\nstop_wait_ms = 300\n");
    // It is started on demand.
    let mut client = connect(&world, &counter(&world));
    client.count();
    let _other = connect(&world, &tiny(&world));
    let backends = world.backends();
    world.kill_any_daemon();
    let said = say(&world, &["status"]);
    assert_eq!(said.code, Some(69));
    assert!(said.err.contains("no daemon runs"), "{}", said.err);
    assert!(line(&world, "counter  ").contains("in use"));
    line(&world, "tiny  ");
    let servers = status_json(&world)["servers"].take();
    assert_eq!(
        (&servers[0]["known"], &servers[0]["host"]),
        (&json!(false), &json!(std::process::id()))
    );
    assert!(servers[0]["host_name"].is_string());

    assert_eq!(say(&world, &["restart", "counter"]).code, Some(0));
    assert_eq!(client.count(), 1);
    assert_eq!(say(&world, &["stop", "nothing"]).code, Some(66));
    let said = say(&world, &["stop", "--all"]);
    assert_eq!(
        (said.code, said.out.lines().count()),
        (Some(0), 2),
        "{}",
        said.err
    );
    backends.iter().for_each(Backend::ended);
    let nothing = say(&world, &["status"]);
    assert_eq!((nothing.code, &*nothing.err), (Some(0), ""));
    assert!(
        nothing.out.starts_with("No server is kept"),
        "{}",
        nothing.out
    );
    assert_eq!(say(&world, &["stop", "counter"]).code, Some(66));
    assert_eq!(say(&world, &["stop", "--all"]).code, Some(0));
}

#[test]
fn a_keeper_that_the_daemon_does_not_know_is_shown_and_stopped() {
    let world = keeping("stop_wait_ms = 300");
    let mut daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    client.count();
    let backend = world.backend();
    daemon.kill();
    world.lose_records();
    // A daemon that finds it at its start ends it.
    let away = world.root().join("away");
    std::fs::rename(backend.socket(), &away).expect("moved");
    daemon.start_again();
    std::fs::rename(&away, backend.socket()).expect("moved back");
    assert_eq!(world.backends().len(), 0);
    let said = say(&world, &["status"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(
        words(&said).contains("is not known to the daemon"),
        "{}",
        said.out
    );
    line(&world, "tiny");
    assert_eq!(say(&world, &["stop", "tiny"]).code, Some(0));
    backend.ended();
}

#[test]
fn a_server_that_is_not_kept_is_shown_as_such() {
    let world = world("");
    let mut client =
        Client::connected(world.front(&world.wrapping(&["--no-start"], &tiny(&world))));
    let server = PinnedProcess::open(client.pipe.pid()).expect("it runs");
    unkept::note(
        &world.directory(),
        &Unkept::now(
            &server,
            "npx some-mcp".into(),
            &"no daemon could be started",
        ),
    );
    assert_eq!(say(&world, &["status"]).code, Some(69));
    let _daemon = world.daemon();
    let shown = line(&world, "npx some-mcp  ");
    assert!(shown.contains("not kept"), "{shown}");
    let said = say(&world, &["status"]);
    assert_eq!(said.code, Some(0));
    let pid = format!("(pid {})", client.pipe.pid());
    assert!(words(&said).contains(&pid), "{}", said.out);
    assert!(
        words(&said).contains("no daemon could be started"),
        "{}",
        said.out
    );
    assert_eq!(status_json(&world)["unkept"][0]["program"], "npx some-mcp");
    let refused = say(&world, &["stop", "some-mcp"]);
    assert_eq!(refused.code, Some(66));
    assert!(refused.err.contains("is not kept"), "{}", refused.err);
    client.pipe.close();
    client.pipe.wait();
    assert!(
        say(&world, &["status"])
            .out
            .starts_with("No server is kept")
    );
}

#[test]
fn a_keeper_that_hangs_is_shown_as_silent() {
    let world = keeping("");
    let _daemon = world.daemon();
    let _client = connect(&world, &tiny(&world));
    let backend = world.backend();
    mcp_sessiond_tests::signal(backend.keeper, Signal::SIGSTOP);
    let said = say(&world, &["status"]);
    mcp_sessiond_tests::signal(backend.keeper, Signal::SIGCONT);
    assert_eq!(said.code, Some(0));
    assert!(
        said.out.contains("silent") && words(&said).contains("did not answer"),
        "{}",
        said.out
    );
}

#[test]
fn the_log_tells_how_servers_end() {
    let world = keeping("linger_ms = 100\nclosed_linger_ms = 100\nstop_wait_ms = 300");
    let _daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    client.pipe.kill();
    let logged = world.log.wait("a server has ended");
    assert!(
        logged.contains("no host has come back for it in time"),
        "{logged}"
    );
    let from = world.log.len();
    let host = world.host();
    let server = host.server(
        &wrapped(&world, &tiny(&world))
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    );
    Client::connected(server).count();
    drop(host);
    let logged = world.log.wait_from(from, &["a server has ended"]);
    assert!(logged.contains("its session has ended"), "{logged}");
}

/// A host that closes a server, and a user who stops one, have lost nothing.
#[test]
fn what_a_host_or_its_user_has_ended_is_no_loss() {
    let world = keeping("closed_linger_ms = 100\nlinger_ms = 600000\nstop_wait_ms = 300");
    let _daemon = world.daemon();
    let no_loss = |world: &World| {
        assert_eq!(status_json(world)["lost"], json!([]));
        let shown = words(&say(world, &["status"]));
        assert!(!shown.contains("lost"), "{shown}");
        let check = world.sessiond(&["doctor"]).output().expect("it runs");
        let check = String::from_utf8(check.stdout).expect("UTF-8");
        assert!(!check.contains("lost"), "{check}");
    };
    let mut servers: Vec<_> = (0..3)
        .map(|number| {
            let label = number.to_string();
            let words = world.wrapping(&["--instance", &label], &tiny(&world));
            Client::connected(world.front(&words))
        })
        .collect();
    for server in &mut servers {
        server.count();
    }
    for mut server in servers {
        server.pipe.close();
        server.pipe.wait();
    }
    world.wait_backends(0);
    no_loss(&world);
    let words = world.wrapping(&["--instance", "1"], &tiny(&world));
    let mut again = Client::connected(world.front(&words));
    assert_eq!(again.count(), 1);
    again
        .pipe
        .errors
        .wait("the host had closed the previous server, and did not come back for it in time");

    let mut stopped = connect(&world, &tiny(&world));
    stopped.count();
    stopped.pipe.kill();
    let backend = world
        .backends()
        .into_iter()
        .find(|backend| backend.status().front.is_none());
    let backend = backend.expect("it waits");
    assert_eq!(say(&world, &["stop", &backend.session]).code, Some(0));
    no_loss(&world);
    let mut next = connect(&world, &tiny(&world));
    assert_eq!(next.count(), 1);
    next.pipe.errors.wait("the previous server was stopped");
}

#[test]
fn what_was_lost_is_shown_until_a_server_is_told() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut first = connect(&world, &tiny(&world));
    first.count();
    let backend = world.backend();
    first.pipe.kill();
    backend.wait_alone();
    PinnedProcess::open(backend.keeper)
        .expect("it lives")
        .signal(Signal::SIGKILL)
        .expect("killed");
    let sentence = "has ended, and the server with it";
    // What was lost the daemon shows when it is asked, and at no other time.
    until("it is shown", || {
        words(&say(&world, &["status"]))
            .contains(sentence)
            .then_some(())
    });
    let lost = &status_json(&world)["lost"];
    assert_eq!(
        (&lost[0]["because"], &lost[0]["host"]),
        (&json!("killed"), &json!(std::process::id()))
    );
    let at = lost[0]["at_ms"].as_u64().expect("a time");
    assert!(at.abs_diff(now_ms()) < 60_000, "{lost}");
    // It names the file of settings, and folds its lines at 80 columns.
    let check = world
        .sessiond(&["doctor"])
        .output()
        .expect("it runs")
        .stdout;
    let check = String::from_utf8(check).expect("UTF-8");
    let config = world.root().join("config.toml");
    let directory = world.directory();
    let [config, directory] = [&*config, &directory].map(|path| path.to_str().expect("UTF-8"));
    assert!(
        !check
            .replace(config, "")
            .replace(directory, "")
            .contains(&root(&world)),
        "no argument is shown: {check}"
    );
    let check = check.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(check.contains(sentence), "{check}");

    let mut next = connect(&world, &tiny(&world));
    assert_eq!(next.count(), 1);
    next.pipe.errors.wait(sentence);
    assert_eq!(status_json(&world)["lost"], json!([]));
}
