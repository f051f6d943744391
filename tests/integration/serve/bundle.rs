//! `serve` of several servers of `servers.json`: all of them as one, and each for itself.

mod edits;
mod kills;
mod resume_state;

use mcp_sessiond_tests::{Daemon, HttpClient, Raw, Reply, Serve, Upstream, World};
use serde_json::{Value, json};

use crate::remote::express;
use crate::several::{able, entry, modern, small, write_down};
use crate::world;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Three servers that do what tests ask of them, behind one `serve`.
pub(super) fn serving(configuration: &str) -> (World, Daemon, Serve) {
    serving_these(configuration, |world| NAMES.map(|_| able(world)))
}

/// The same, where one of them speaks MCP 2026-07-28 alone.
pub(super) fn serving_eras(configuration: &str) -> (World, Daemon, Serve) {
    serving_these(configuration, |world| {
        [able(world), modern(world), able(world)]
    })
}

fn serving_these(
    configuration: &str,
    servers: impl FnOnce(&World) -> [Value; 3],
) -> (World, Daemon, Serve) {
    let world = world(configuration);
    let daemon = world.daemon();
    let servers: Vec<_> = NAMES.into_iter().zip(servers(&world)).collect();
    write_down(&world, &servers);
    let serve = world.serve(&["--name", "test", "--all"], &[]);
    (world, daemon, serve)
}

/// A server here and one elsewhere, `far`, behind one `serve`.
pub(super) fn with_one_elsewhere(configuration: &str) -> (World, Daemon, Upstream, Serve) {
    let world = world(configuration);
    let daemon = world.daemon();
    let far = express(&world, &["events"]);
    let entries = [("near", able(&world)), ("far", json!({"url": far.url}))];
    write_down(&world, &entries);
    let serve = world.serve(&["--name", "test", "--all"], &[]);
    (world, daemon, far, serve)
}

/// What a list has, by name.
fn listed(client: &mut HttpClient) -> Vec<String> {
    let answer = client.request("tools/list", &json!({})).answer();
    let listed = answer["result"]["tools"]
        .as_array()
        .unwrap_or_else(|| panic!("{answer}"));
    listed
        .iter()
        .map(|tool| tool["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// By which names a tool that all of them have is called at each.
pub(super) fn of_each(client: &mut HttpClient, tool: &str) -> [String; 3] {
    let listed = listed(client);
    NAMES.map(|name| {
        let prefixed = format!("{name}_{tool}");
        if listed.contains(&prefixed) {
            prefixed
        } else {
            tool.to_owned()
        }
    })
}

fn count(client: &mut HttpClient, tool: &str) -> u64 {
    client.text(tool, &json!({})).parse().expect("a number")
}

/// A call of this tool that waits at a gate, and has begun: the event by which it is resumed.
fn begin(client: &mut HttpClient, tool: &str, gate: &str) -> (u64, String) {
    let mut call = client.call(tool, &json!({"gate": gate}));
    let begun = call.said();
    assert_eq!(begun.message()["params"]["data"], format!("begun {gate}"));
    (client.last, begun.id.expect("an id"))
}

/// The text of an answer to a call of a tool.
fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
}

/// A server that says what the test tells it.
fn raw() -> (World, Daemon, Serve, Raw) {
    let world = world("");
    let daemon = world.daemon();
    let mut raw = world.raw("server");
    // It has a tool then.
    raw.command.push("modern".to_owned());
    write_down(&world, &[("a", entry(&raw.command))]);
    let serve = world.serve(&["--name", "test", "--all"], &[]);
    (world, daemon, serve, raw)
}

/// The id of what a server asks its client next.
fn asked(reply: &mut Reply) -> Value {
    loop {
        // Lists may have changed, too.
        let said = reply.said().message();
        if said["method"] == "sampling/createMessage" {
            return said["id"].clone();
        }
    }
}

/// Answers that.
fn answer(client: &HttpClient, id: &Value, text: &str) {
    let result =
        json!({"role": "assistant", "content": {"type": "text", "text": text}, "model": "none"});
    client
        .post(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
        .must_be(202);
}

#[test]
fn what_is_kept_out_of_the_whole_can_not_be_called_at_one_server_either() {
    // Else who comes first has the bare name.
    let world = world("bundle.names = \"always\"");
    let _daemon = world.daemon();
    write_down(&world, &["a", "b"].map(|name| (name, small(&world))));
    let serve = world.serve(
        &["--name", "test", "--all", "--without", "b_increment"],
        &[],
    );
    let mut all = serve.connected("2025-11-25");
    let names = listed(&mut all);
    let has = |name: &str| names.iter().any(|listed| listed == name);
    assert_eq!(
        ["a_increment", "b_increment", "b_get"].map(has),
        [true, false, true],
        "{names:?}"
    );
    let mut alone = serve.connected_at("/servers/b");
    assert_eq!(listed(&mut alone), ["get", "parent", "echo"]);
    let answer = alone.call("increment", &json!({})).answer();
    assert_eq!(
        answer["error"]["message"], "Unknown tool: increment",
        "{answer}"
    );
    assert_eq!(alone.text("get", &json!({})), "0");
    assert_eq!(count(&mut serve.connected_at("/servers/a"), "increment"), 1);
}

#[test]
fn all_as_one_and_each_for_itself() {
    let (_world, _daemon, serve) = serving("");
    let mut all = serve.connected("2025-11-25");
    let counting = of_each(&mut all, "increment");
    assert_eq!(
        counting.iter().filter(|tool| *tool == "increment").count(),
        1,
        "{counting:?}"
    );
    for (nth, tool) in (1..).zip(&counting) {
        for _ in 0..nth {
            count(&mut all, tool);
        }
    }
    // Its own session has a server of its own, and its names are bare.
    let mut alone = serve.connected_at("/servers/b");
    assert!(listed(&mut alone).contains(&"increment".to_owned()));
    assert_eq!(count(&mut alone, "increment"), 1);
    assert_eq!(counting.map(|tool| count(&mut all, &tool)), [2, 3, 4]);

    // A session is found where it has begun, and nowhere else.
    for other in ["/servers/a", "/servers/c", "/mcp"] {
        let stray = HttpClient {
            path: other.to_owned(),
            ..alone.clone()
        };
        let mut reply = stray.post(&json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list"}));
        reply.must_be(404);
    }
    let stray = HttpClient {
        path: "/servers/b".to_owned(),
        ..all.clone()
    };
    stray
        .post(&json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list"}))
        .must_be(404);
    serve
        .client()
        .ask_at("POST", "/servers/none", &[], "{}")
        .must_be(404);

    alone.ask("DELETE", &[], "").must_be(204);
    alone
        .post(&json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list"}))
        .must_be(404);
    assert_eq!(
        of_each(&mut all, "increment").map(|tool| count(&mut all, &tool)),
        [3, 4, 5]
    );
}

#[test]
fn which_servers_are_meant_is_said_by_name() {
    let world = world("");
    let _daemon = world.daemon();
    let mut off = able(&world);
    off["disabled"] = json!(true);
    write_down(
        &world,
        &[("a", able(&world)), ("b", able(&world)), ("off", off)],
    );
    let serve = world.serve(&["--only", "*get", "a", "@off"], &[]);
    let mut client = serve.connected("2025-11-25");
    let mut names = listed(&mut client);
    names.sort();
    assert!(
        names == ["a_get", "get"] || names == ["get", "off_get"],
        "{names:?}"
    );
    serve
        .client()
        .ask_at("POST", "/servers/b", &[], "{}")
        .must_be(404);

    // Behind two dashes it is a command.
    for (words, code, why) in [
        (&["a", "none"][..], 66, "there is no server \"none\""),
        (&["@none"], 66, "there is no server \"none\""),
        (
            &["--only", "x", "--", "a"],
            64,
            "--only and --without are for servers of servers.json",
        ),
        (&["--all", "a"], 64, "cannot be used with"),
        (
            &["--name", "x/a", "--", "cat"],
            64,
            "--name: a name can't have a \"/\"",
        ),
        (
            &["--name", "x/a", "--all"],
            64,
            "--name: a name can't have a \"/\"",
        ),
    ] {
        let output = world
            .sessiond(&[&["serve", "--no-start"], words].concat())
            .output()
            .expect("it runs");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(
            (output.status.code(), said.contains(why)),
            (Some(code), true),
            "{words:?}: {said}"
        );
    }
}

#[test]
fn a_cookie_is_for_the_address_at_which_its_session_was_begun() {
    let world = world("");
    let _daemon = world.daemon();
    write_down(&world, &[("a b", small(&world)), ("c", small(&world))]);
    let serve = world.serve(&["--all", "--cookie"], &[]);
    for path in ["/mcp", "/servers/a%20b", "/servers/c"] {
        let mut client = HttpClient {
            path: path.to_owned(),
            ..serve.client()
        };
        let begun = client.begin("2025-11-25", &[]);
        let cookie = begun.header("set-cookie").expect("a cookie");
        assert!(
            cookie
                .split("; ")
                .any(|part| part == format!("Path={path}")),
            "{cookie}"
        );
        let again = client.begin(
            "2025-11-25",
            &[("Cookie", cookie.split(';').next().expect("a pair"))],
        );
        assert_eq!(
            (again.status, again.header("mcp-session-id")),
            (200, None),
            "the same session"
        );
    }
}

#[test]
fn who_has_no_token_learns_no_names() {
    let world = world("");
    let _daemon = world.daemon();
    write_down(&world, &[("a", able(&world))]);
    let serve = world.serve(&["--all", "--token"], &[]);
    let [there, missing] = ["/servers/a", "/servers/none"].map(|path| {
        let client = serve.client();
        ["POST", "GET", "DELETE", "OPTIONS", "PUT"]
            .map(|method| client.ask_at(method, path, &[], "{}").status)
    });
    assert_eq!(there, missing);
    assert_eq!(missing[0], 401);
}

/// The client answers what a server has asked that is gone: the one that was started instead has
/// asked something under the same id.
#[test]
fn an_answer_to_a_server_that_is_gone_is_not_for_its_successor() {
    let (_world, _daemon, serve) = serving("");
    let mut client = serve.connected_at("/servers/a");
    let mut lost = client.call("ask", &json!({"prompt": "first"}));
    let former = asked(&mut lost);
    client
        .request(
            "tools/call",
            &json!({"name": "die", "arguments": {"code": 1}}),
        )
        .answer();
    assert_eq!(lost.answer()["error"]["data"]["outcome"], "unknown");
    let mut asking = client.call("ask", &json!({"prompt": "second"}));
    let now = asked(&mut asking);
    for (id, text) in [(former, "for the first"), (now, "for the second")] {
        answer(&client, &id, text);
    }
    assert_eq!(text(&asking.answer()), "for the second");
}

#[test]
fn what_a_server_asks_in_a_batch_is_answered() {
    let (_world, _daemon, serve, raw) = raw();
    let client = serve.connected("2025-11-25");
    let mut stream = client.listen();
    let ask =
        r#"{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{"messages":[]}}"#;
    raw.say(&format!(r#"[{{"jsonrpc":"2.0","method":"x"}},{ask}]"#));
    let id = asked(&mut stream);
    answer(&client, &id, "for the batch");
    let heard = raw.wait_heard("for the batch");
    assert!(heard.contains(r#""id":"q""#), "{heard}");
}
