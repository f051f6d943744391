//! Servers that are started at their first call: `mcp-sessiond wrap --lazy`.

mod alone;
mod behind;

use std::fs;

use mcp_sessiond_tests::{Client, Front, World, gone};
use serde_json::{Value, json};

/// A server that says of itself what a file says.
pub(crate) fn told(world: &World) -> Vec<String> {
    let root = world.root().to_str().expect("UTF-8").to_owned();
    vec![world.binaries.scripted_lists.into(), root]
}

/// What it says from now on.
pub(crate) fn says(world: &World, what: &Value) {
    fs::write(world.root().join("told.json"), what.to_string()).expect("a file");
}

/// What it says in most tests: everything that there are lists of, in several pages, but no
/// templates.
pub(crate) fn usual() -> Value {
    json!({
        "initialize": {
            "capabilities": {"tools": {}, "resources": {"subscribe": true}, "prompts": {}, "logging": {}},
            "serverInfo": {"name": "told", "version": "1"},
            "instructions": "Ask me.",
        },
        "tools/list": [{"tools": [tool("a"), tool("b")]}, {"tools": [tool("c")]}],
        "resources/list": [{"resources": [{"name": "r", "uri": "x://r"}]}],
        "prompts/list": [{"prompts": [{"name": "p"}], "_meta": {"k": 1.0}}],
    })
}

pub(crate) fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

/// What the servers of this world have got, one after the other.
fn heard(world: &World) -> Vec<Value> {
    let text = fs::read_to_string(world.root().join("heard")).unwrap_or_default();
    // The last one may be in the middle of being written.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line"))
        .collect()
}

/// How many were started.
pub(crate) fn starts(world: &World) -> usize {
    heard(world)
        .iter()
        .filter(|line| line.get("pid").is_some())
        .count()
}

/// The pid of the one that was started last.
pub(crate) fn pid(world: &World) -> u32 {
    let pid = heard(world)
        .iter()
        .rev()
        .find_map(|line| line["pid"].as_u64())
        .expect("it was started");
    u32::try_from(pid).expect("a pid")
}

/// The command line of a front.
fn lazy(world: &World, server: &[String]) -> Vec<String> {
    world.wrapping(&["--lazy"], server)
}

/// Asks for a list, page by page. Returns its items.
fn listed(client: &mut Client<Front>, method: &str, key: &str) -> Vec<Value> {
    let (mut items, mut params) = (Vec::new(), json!({}));
    loop {
        let id = client.request(method, params);
        let answer = client.answer(id);
        let result = &answer["result"];
        items.extend(
            result[key]
                .as_array()
                .unwrap_or_else(|| panic!("{answer}"))
                .clone(),
        );
        match &result["nextCursor"] {
            Value::Null => return items,
            cursor => params = json!({"cursor": cursor}),
        }
    }
}

/// All that a host asks a server at first: its lists, and the error for templates.
fn ask_all(client: &mut Client<Front>) -> Vec<Value> {
    let lists = [
        ("tools/list", "tools"),
        ("resources/list", "resources"),
        ("prompts/list", "prompts"),
    ];
    let mut all: Vec<Value> = lists
        .into_iter()
        .flat_map(|(method, key)| listed(client, method, key))
        .collect();
    let id = client.request("resources/templates/list", json!({}));
    all.push(client.answer(id)["error"].take());
    all
}

/// Has a host ask the server everything, and go. Returns what it was answered.
fn introduced(world: &World, server: &[String]) -> (Value, Vec<Value>) {
    let mut client = Client::new(world.front(&lazy(world, server)));
    let mut answer = client.initialize();
    let all = ask_all(&mut client);
    client.pipe.close();
    assert!(client.pipe.wait().success());
    gone(pid(world));
    (answer["result"].take(), all)
}
