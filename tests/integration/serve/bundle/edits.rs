//! Edits of `servers.json` reach the sessions of a `serve` that runs.

use mcp_sessiond_tests::{HttpClient, Reply, gone, until};
use serde_json::{Value, json};

use super::{answer, asked, count, listed, text};
use crate::remote::express;
use crate::several::{backend, small, write_down};
use crate::world;

/// Waits until a list of tools has changed.
fn changed(stream: &mut Reply) {
    while stream.said().message()["method"] != "notifications/tools/list_changed" {}
}

/// Whether a session can be begun there.
fn is_there(client: &HttpClient, path: &str) -> bool {
    let mut client = HttpClient {
        path: path.to_owned(),
        headers: Vec::new(),
        ..client.clone()
    };
    client.begin("2025-11-25", &[]).status == 200
}

#[test]
fn a_server_is_added_changed_and_removed_and_the_others_are_not_touched() {
    let world = world("backends.stop_wait_ms = 100");
    let _daemon = world.daemon();
    let mut other = small(&world);
    write_down(&world, &[("a", small(&world))]);
    let serve = world.serve(
        &[
            "--name",
            "test",
            "--all",
            "--without",
            "echo",
            "--without",
            "*_echo",
        ],
        &[],
    );
    let mut client = serve.connected("2025-11-25");
    let mut stream = client.listen();
    assert_eq!(count(&mut client, "increment"), 1);
    let pid = backend(&world, "a").pid();
    assert!(!is_there(&client, "/servers/b"));

    write_down(&world, &[("a", small(&world)), ("b", other.clone())]);
    while listed(&mut client).len() < 6 {
        changed(&mut stream);
    }
    assert_eq!(count(&mut client, "b_increment"), 1);
    let former = backend(&world, "b").pid();
    until("b is served", || {
        is_there(&client, "/servers/b").then_some(())
    });

    // It is another one from now on, and the former one ends.
    other["env"] = json!({"X": "1"});
    other["rename"] = json!({"get": "how_many"});
    write_down(&world, &[("a", small(&world)), ("b", other)]);
    gone(former);
    while !listed(&mut client).contains(&"how_many".to_owned()) {
        changed(&mut stream);
    }
    assert_eq!(count(&mut client, "b_increment"), 1);

    let last = backend(&world, "b").pid();
    write_down(&world, &[("a", small(&world))]);
    gone(last);
    while listed(&mut client) != ["increment", "get", "parent"] {
        changed(&mut stream);
    }
    until("b is not served", || {
        (!is_there(&client, "/servers/b")).then_some(())
    });
    let answer: Value = client.call("b_increment", &json!({})).answer();
    assert_eq!(answer["error"]["message"], "Unknown tool: b_increment");
    assert_eq!(
        (count(&mut client, "increment"), backend(&world, "a").pid()),
        (2, pid)
    );
}

/// The client answers what a server has asked whose URL was written down before: the one whose URL
/// is written there now has asked something under the same id.
#[test]
#[ignore = "needs node"]
fn an_answer_to_a_remote_server_is_not_for_the_one_that_replaces_it() {
    let world = world("");
    let _daemon = world.daemon();
    let servers = [express(&world, &[]), express(&world, &[])];
    write_down(&world, &[("far", json!({"url": servers[0].url}))]);
    let serve = world.serve(&["--name", "test", "--all"], &[]);
    let mut client = serve.connected("2025-11-25");
    let mut stream = client.listen();
    let mut lost = client.call("ask", &json!({"prompt": "first"}));
    let former = asked(&mut lost);
    write_down(&world, &[("far", json!({"url": servers[1].url}))]);
    assert_eq!(lost.answer()["error"]["data"]["outcome"], "unknown");
    while !listed(&mut client).contains(&"ask".to_owned()) {
        changed(&mut stream);
    }
    let mut asking = client.call("ask", &json!({"prompt": "second"}));
    let now = asked(&mut asking);
    for (id, text) in [(former, "for the first"), (now, "for the second")] {
        answer(&client, &id, text);
    }
    assert_eq!(text(&asking.answer()), "for the second");
}
