//! A server that can't be started: its host gets the reason where it looks, the front stays, and
//! the next `initialize` is another attempt.

use std::fs;
use std::path::PathBuf;

use mcp_sessiond_tests::{Client, Front, World, gone, signal, until, write_program};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{connect, keeping, tiny};

/// Where there is no program yet.
fn nowhere(world: &World) -> PathBuf {
    world.root().join("later")
}

/// From now on there is a program, which counts.
fn install(world: &World) {
    let words: Vec<String> = tiny(world).iter().map(|word| format!("'{word}'")).collect();
    let script = format!("#!/bin/sh\nexec {}\n", words.join(" "));
    // Moved there, so that nobody finds half of it.
    let new = world.root().join("new");
    write_program(&new, &script);
    fs::rename(new, nowhere(world)).expect("moved");
}

fn write_down(world: &World, text: &str) {
    let new = world.root().join("servers.new");
    fs::write(&new, text).expect("written");
    fs::rename(new, world.root().join("servers.json")).expect("moved");
}

fn front(world: &World, words: &[&str]) -> Client<Front> {
    let words = [&[world.binaries.daemon, "wrap"], words].concat();
    let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    // The host says nothing before the first attempt has failed.
    let at_once = [("MCP_SESSIOND_WRAP_FIRST_LINE_WAIT_MS", "20")];
    Client::new(world.front_with(&words, &at_once))
}

/// What `status` says of servers that could not be started.
fn failures(world: &World) -> Vec<String> {
    let output = world.sessiond(&["status", "--json"]).output();
    let output = output.expect("it runs");
    let status: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let unkept = status["unkept"].as_array().expect("a list").iter();
    unkept
        .filter(|one| one["has_failed"] == true)
        .map(|one| one["why"].as_str().expect("a sentence").to_owned())
        .collect()
}

/// The host's requests get this reason, as the front prints it, and the front stays. Only
/// `initialize` is answered by the reason alone. `status` knows it, too.
#[track_caller]
fn assert_refused(world: &World, client: &mut Client<Front>, why: &str) {
    let printed = client.pipe.errors.wait(why);
    let sentence = printed.strip_prefix("mcp-sessiond: ").expect("ours");
    let probe = client.request("server/discover", json!({}));
    let error = client.answer(probe)["error"].take();
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!(-32601), &json!(sentence))
    );
    for _ in 0..2 {
        let id = client.begin_initialize("test");
        let error = client.answer(id)["error"].take();
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!(-32000), &json!(sentence))
        );
    }
    let list = client.request("tools/list", json!({}));
    let error = client.answer(list)["error"].take();
    assert_eq!(
        error["message"],
        format!("{sentence}; this call was not sent")
    );
    assert_eq!(error["data"]["outcome"], "not_sent");
    assert!(client.pipe.runs());
    assert_eq!(failures(world), [sentence]);
    let lines = client.pipe.errors.text();
    assert_eq!(lines.matches(why).count(), 1, "{lines}");
}

/// The host closes its end, and the front exits so.
#[track_caller]
fn assert_exits(mut client: Client<Front>, code: i32) {
    client.pipe.close();
    assert_eq!(client.pipe.wait().code(), Some(code));
}

/// What has a name outlives its host.
fn stop(world: &World, words: &[&str]) {
    if words.contains(&"mine") {
        let stopped = world.sessiond(&["stop", "mine"]).output();
        assert!(stopped.expect("it runs").status.success());
    }
}

#[test]
fn a_program_that_is_not_there_is_said_to_the_host_and_started_once_it_is_there() {
    for options in [&[][..], &["--lazy"], &["--name", "mine"], &["--no-start"]] {
        let world = keeping("");
        let _daemon = (options != ["--no-start"]).then(|| world.daemon());
        let program = nowhere(&world);
        let program = program.to_str().expect("UTF-8");
        let words = [options, &["--", program]].concat();
        let front = || {
            let mut client = front(&world, &words);
            // With `--lazy` nothing is tried before the host has said something.
            if options == ["--lazy"] {
                client.notify("notifications/message", json!({}));
            }
            client
        };
        let mut client = front();
        assert_refused(
            &world,
            &mut client,
            &format!("{program} can't be run: No such file"),
        );
        if options != ["--no-start"] {
            // Another front of this host need not wait for this one.
            assert_eq!(world.stat("leases"), 0, "{options:?}");
        }
        assert_exits(client, 127);

        let mut client = front();
        assert_refused(
            &world,
            &mut client,
            &format!("{program} can't be run: No such file"),
        );
        install(&world);
        client.initialize();
        assert_eq!((client.count(), client.count()), (1, 2), "{options:?}");
        assert_eq!(failures(&world), [""; 0], "{options:?}");
        client.pipe.close();
        assert!(client.pipe.wait().success(), "{options:?}");
        stop(&world, options);
    }
}

#[test]
fn a_server_of_the_file_that_can_t_be_run_is_said_to_the_host_and_started_once_it_can() {
    let key = json!({"KEY": "${file:key}"});
    let entry = |world: &World, more: &Value| {
        let mut entry = json!({"command": nowhere(world), "env": key});
        if let (Some(entry), Some(more)) = (entry.as_object_mut(), more.as_object()) {
            entry.extend(more.clone());
        }
        json!({"mcpServers": {"one": entry}}).to_string()
    };
    for (words, more) in [
        (&["@one"][..], json!({})),
        (&["@one"], json!({"lazy": true})),
        (&["--name", "mine", "@one"], json!({})),
        (&["@one"], json!({"shared": true})),
    ] {
        let world = keeping("");
        let _daemon = world.daemon();
        let said = format!("{words:?} {more}");
        let mut client = front(&world, words);
        let path = world.root().join("servers.json");
        assert_refused(
            &world,
            &mut client,
            &format!("there is no {}", path.display()),
        );
        write_down(&world, "{");
        // What comes next is another attempt, with another reason.
        client.notify("notifications/initialized", json!({}));
        assert_refused(&world, &mut client, "servers.json: EOF while parsing");
        write_down(&world, r#"{"mcpServers": {}}"#);
        client.notify("notifications/initialized", json!({}));
        assert_refused(&world, &mut client, "there is no server \"one\" in");
        write_down(&world, &entry(&world, &more));
        client.notify("notifications/initialized", json!({}));
        assert_refused(&world, &mut client, "the server \"one\" in");
        fs::write(world.root().join("key"), "secret\n").expect("written");
        // Its secret is there now, and its program is not.
        client.notify("notifications/initialized", json!({}));
        assert_refused(&world, &mut client, "can't be run: No such file");
        install(&world);
        client.initialize();
        assert_eq!(client.count(), 1, "{said}");
        assert!(!client.pipe.errors.text().contains("secret"), "{said}");
        client.pipe.close();
        assert!(client.pipe.wait().success(), "{said}");
        stop(&world, words);

        write_down(&world, "{");
        let mut client = front(&world, words);
        assert_refused(&world, &mut client, "servers.json: EOF while parsing");
        assert_exits(client, 65);
    }
}

#[test]
fn a_file_of_servers_that_can_t_be_read_is_said_to_the_host_of_all_of_them() {
    let world = keeping("");
    let _daemon = world.daemon();
    write_down(&world, "{");
    let mut client = front(&world, &["--all"]);
    assert_refused(&world, &mut client, "servers.json: EOF while parsing");
    install(&world);
    let servers = json!({"mcpServers": {"one": {"command": nowhere(&world)}}});
    write_down(&world, &servers.to_string());
    client.initialize();
    assert_eq!(client.count(), 1);
    assert_exits(client, 0);
}

#[test]
fn a_url_that_can_t_be_used_is_said_to_the_host() {
    let world = keeping("");
    let far =
        json!({"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "${file:token}"}});
    write_down(&world, &json!({"mcpServers": {"far": far}}).to_string());
    let mut client = front(&world, &["@far"]);
    assert_refused(&world, &mut client, "the server \"far\": ");
    // Who looks for it by its name, or for what is wrong, reads the same.
    for words in [&["restart", "far"][..], &["doctor", "--json"]] {
        let output = world.sessiond(words).output().expect("it runs");
        let said = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
        for part in [
            "far (pid ",
            ") can't be used: the server ",
            "mcp-sessiond tries again when its host connects again",
        ] {
            assert!(said.contains(part), "{words:?}: {said}");
        }
    }
    assert_exits(client, 65);
    let mut client = front(
        &world,
        &["--header", "nonsense", "--", "http://127.0.0.1:1/mcp"],
    );
    assert_refused(&world, &mut client, "a header is written as `NAME: VALUE`");
    assert_exits(client, 65);
}

/// A host's log has what a direct child would have written.
#[test]
fn a_host_gets_the_words_of_its_own_server_and_not_of_the_one_before() {
    let world = keeping("");
    let _daemon = world.daemon();
    let starts = world.root().join("starts");
    let script = "echo x >> \"$0\"; echo \"start $(wc -l < \"$0\")\" >&2; exec \"$@\"";
    let shell = ["sh", "-c", script, starts.to_str().expect("UTF-8")].map(str::to_owned);
    let server = [&shell[..], &tiny(&world)].concat();
    let mut first = connect(&world, &server);
    assert_eq!(first.count(), 1);
    first.pipe.errors.wait("start 1");
    first.pipe.kill();
    let backend = world.backend();
    backend.wait_alone();
    let server_pid = backend.pid();
    signal(server_pid, Signal::SIGKILL);
    gone(server_pid);
    let mut second = connect(&world, &server);
    assert_eq!(second.count(), 1);
    second.pipe.errors.wait("start 2");
    let lines = second.pipe.errors.text();
    assert!(!lines.contains("start 1"), "{lines}");
}

#[test]
fn options_that_are_wrong_are_said_to_the_host() {
    let world = keeping("");
    let mut client = front(&world, &["--no-strat", "--", "npx"]);
    client
        .pipe
        .errors
        .wait("unexpected argument '--no-strat' found");
    let id = client.begin_initialize("test");
    let error = client.answer(id)["error"].take();
    assert_eq!(
        error["message"],
        "unexpected argument '--no-strat' found; tip: a similar argument exists: '--no-start'"
    );
    assert_exits(client, 64);
    let mut client = front(&world, &["--share", "--", "npx"]);
    assert_refused(
        &world,
        &mut client,
        "only a server of servers.json can be shared",
    );
    assert_exits(client, 64);
}

/// A host that has closed its end without a word, such as a shell that tries a command.
#[test]
fn where_the_host_asks_nothing_the_front_exits_once_the_input_ends() {
    let world = keeping("");
    let _daemon = world.daemon();
    let at_once = [("MCP_SESSIOND_WRAP_FIRST_LINE_WAIT_MS", "20")];
    let words = world.wrapping(&[], &["no-such-program".to_owned()]);
    let mut front = world.front_with(&words, &at_once);
    front.errors.wait("no-such-program can't be run");
    assert!(front.runs());
    front.close();
    assert_eq!(front.wait().code(), Some(127));
    assert_eq!(front.line(), None);
    until("no lease", || (world.stat("leases") == 0).then_some(()));
}

/// Nobody has asked for anything, as in a shell: the exit code is a shell's, and nothing is started.
#[test]
fn a_program_that_is_not_there_is_said_to_whoever_closes_the_input_at_once() {
    let world = keeping("");
    let program = nowhere(&world).to_str().expect("UTF-8").to_owned();
    for options in [&[][..], &["--lazy"], &["--name", "mine"]] {
        let words = world.wrapping(options, std::slice::from_ref(&program));
        let mut front = world.front(&words);
        front.close();
        assert_eq!(front.wait().code(), Some(127), "{options:?}");
        front.errors.wait("can't be run: No such file");
    }
    let mut front = world.front(&world.wrapping(&[], &tiny(&world)));
    front.close();
    assert_eq!(front.wait().code(), Some(0));
}
