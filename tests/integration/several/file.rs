//! Edits of `servers.json` reach a session that runs.

use std::fs;

use mcp_sessiond_tests::{Client, gone};
use serde_json::json;

use super::{backend, changed, connect, count, small, tools, write_down};
use crate::world;

#[test]
fn a_server_is_added_changed_and_removed_and_the_others_are_not_touched() {
    let world = world("backends.stop_wait_ms = 100");
    let _daemon = world.daemon();
    let mut other = small(&world);
    write_down(&world, &[("a", small(&world))]);
    let mut client = connect(&world);
    assert_eq!(count(&mut client, "increment"), 1);
    let pid = backend(&world, "a").pid();

    write_down(&world, &[("b", other.clone()), ("a", small(&world))]);
    while tools(&mut client).len() < 8 {
        changed(&mut client);
    }
    assert_eq!(count(&mut client, "b_increment"), 1);
    let former = backend(&world, "b").pid();

    // It is another one from now on, and the former one ends.
    other["env"] = json!({"X": "1"});
    write_down(&world, &[("b", other), ("a", small(&world))]);
    gone(former);
    while tools(&mut client).len() < 8 {
        changed(&mut client);
    }
    assert_eq!(count(&mut client, "b_increment"), 1);

    // What is no list is said, and nothing changes.
    fs::write(world.root().join("servers.json"), "{").expect("a file");
    client.pipe.errors.wait("servers.json");
    assert_eq!(tools(&mut client).len(), 8);

    let last = backend(&world, "b").pid();
    write_down(&world, &[("a", small(&world))]);
    gone(last);
    while tools(&mut client).len() > 4 {
        changed(&mut client);
    }
    let error = client
        .try_call("b_increment", json!({}))
        .expect_err("it is gone");
    assert_eq!(error["message"], "Unknown tool: b_increment");
    assert_eq!(
        (count(&mut client, "increment"), backend(&world, "a").pid()),
        (2, pid)
    );
}

#[test]
fn what_is_let_through_is_the_files_and_a_mistake_lets_nothing_through() {
    let world = world("");
    let _daemon = world.daemon();
    let mut entry = small(&world);
    entry["only"] = json!(["get", "inc*"]);
    entry["rename"] = json!({"get": "how_many"});
    write_down(&world, &[("a", entry.clone())]);
    let words = super::all(&world, &["--without", "*_many"]);
    let mut client = Client::connected(world.front(&words));
    assert_eq!(tools(&mut client), ["increment"]);
    assert_eq!(count(&mut client, "increment"), 1);
    for hidden in ["echo", "get", "how_many"] {
        let error = client
            .try_call(hidden, json!({}))
            .expect_err("it is kept out");
        assert_eq!(error["message"], format!("Unknown tool: {hidden}"));
    }
    // A name that no model's interface takes.
    entry["rename"] = json!({"get": "how many?"});
    write_down(&world, &[("b", small(&world)), ("a", entry.clone())]);
    client.pipe.errors.wait("can't be the name of a tool");
    assert_eq!(tools(&mut client), ["increment"]);

    // The same server with other names is the same server.
    entry["rename"] = json!({"echo": "say"});
    entry["only"] = json!(["echo", "increment"]);
    write_down(&world, &[("a", entry)]);
    while tools(&mut client) != ["increment", "say"] {
        changed(&mut client);
    }
    assert_eq!(count(&mut client, "increment"), 2);

    fs::write(
        world.root().join("servers.json"),
        r#"{"mcpServers": {}, "decorations": [{"filter": {"onyl": []}}]}"#,
    )
    .expect("a file");
    let output = world
        .sessiond(&["wrap", "--all"])
        .output()
        .expect("it runs");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(
        (output.status.code(), said.contains("unknown field `onyl`")),
        (Some(65), true),
        "{said}"
    );
}

#[test]
fn calls_are_noted_without_what_is_in_them() {
    let world = world("");
    let _daemon = world.daemon();
    let servers = json!({"a": small(&world)});
    let text = json!({"mcpServers": servers, "decorations": ["log"]}).to_string();
    fs::write(world.root().join("servers.json"), text).expect("a file");
    let mut client = connect(&world);
    assert_eq!(client.call("increment", json!({"secret": "s3cret"})), "1");
    client
        .pipe
        .errors
        .wait(r#"mcp-sessiond: tools/call "increment" of "a": done after "#);
    client
        .try_call("no such tool", json!({}))
        .expect_err("unknown");
    client
        .pipe
        .errors
        .wait(r#"tools/call "no such tool": unknown after "#);
    assert!(!client.pipe.errors.text().contains("s3cret"));
}

#[test]
fn a_server_that_was_edited_while_nobody_was_there_is_another_one() {
    let world = world("");
    let _daemon = world.daemon();
    let mut entry = small(&world);
    write_down(&world, &[("a", entry.clone()), ("b", small(&world))]);
    let mut client = connect(&world);
    let own = |client: &mut Client<_>| {
        let listed = tools(client);
        ["a", "b"].map(|name| {
            let prefixed = format!("{name}_increment");
            if listed.contains(&prefixed) {
                prefixed
            } else {
                "increment".to_owned()
            }
        })
    };
    let [a, b] = own(&mut client);
    assert_eq!((count(&mut client, &a), count(&mut client, &b)), (1, 1));
    let former = backend(&world, "a");
    client.pipe.kill();
    entry["env"] = json!({"X": "1"});
    write_down(&world, &[("a", entry), ("b", small(&world))]);
    let mut client = connect(&world);
    assert_eq!(own(&mut client), [a.clone(), b.clone()]);
    assert_eq!((count(&mut client, &a), count(&mut client, &b)), (1, 2));
    let told = "a: this server begins afresh: the command line or the environment";
    client.pipe.errors.wait(told);
    former.ended();
}

#[test]
fn an_edit_that_came_with_a_mistake_is_not_lost() {
    let world = world("backends.stop_wait_ms = 100");
    let _daemon = world.daemon();
    let numbered = |number: &str| {
        let mut entry = small(&world);
        entry["env"] = json!({"X": number});
        entry
    };
    // One that is wrong from the beginning, and one that will be.
    write_down(
        &world,
        &[
            ("b", numbered("1")),
            ("late", json!({})),
            ("x", json!({"command": "true"})),
        ],
    );
    let mut client = connect(&world);
    assert_eq!(count(&mut client, "increment"), 1);
    let first = backend(&world, "b").pid();

    // `x` becomes wrong in the edit in which `b` becomes another server.
    write_down(
        &world,
        &[
            ("b", numbered("2")),
            ("late", json!({})),
            ("x", json!({"args": 1})),
        ],
    );
    gone(first);
    while tools(&mut client).len() < 4 {
        changed(&mut client);
    }
    assert_eq!(count(&mut client, "increment"), 1);
    let second = backend(&world, "b").pid();

    // A name that can't be given holds the whole edit up, until it is mended.
    let mut odd = numbered("3");
    odd["rename"] = json!({"get": "how many?"});
    write_down(&world, &[("b", odd.clone())]);
    client.pipe.errors.wait("can't be the name of a tool");
    assert_eq!(
        (count(&mut client, "increment"), backend(&world, "b").pid()),
        (2, second)
    );
    odd["rename"] = json!({"get": "how_many"});
    write_down(&world, &[("b", odd), ("late", numbered("1"))]);
    gone(second);
    while tools(&mut client).len() < 8 {
        changed(&mut client);
    }
    assert_eq!(count(&mut client, "increment"), 1);
}
