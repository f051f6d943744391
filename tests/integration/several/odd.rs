//! What no SDK would write, of hosts and of servers: several servers as one read it as one server alone
//! is read.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mcp_sessiond_tests::{Client, Front, OwnPort, Pipe as _, Raw, World};
use serde_json::{Value, json};

use super::parts::REFUSES;
use super::{all, changed, connect, entry, small, tools, write_down};
use crate::lazy::{says, told, tool};
use crate::world;
use crate::wrap::wrapped;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// However busy the machine is, each server is waited for.
const PATIENT: &str = "bundle.ready_wait_ms = 600000\nbundle.init_timeout_ms = 600000";

/// What a host sends and what a server does.
enum Step {
    /// The host calls a tool with these arguments.
    Call(Vec<u8>),
    /// The host sends a request with these members behind `id`.
    Request(String),
    /// The server answers a call with these members behind `id`.
    Answer(Vec<u8>),
    /// The server sends a message on its own.
    Say(&'static [u8]),
}

/// What a value can be that is not as JSON has it, or not as readers expect it.
fn odd() -> Vec<Vec<u8>> {
    let deep = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels)).into_bytes();
    vec![
        b"[NaN,-Infinity,{\"Infinity\":Infinity}]".to_vec(),
        b"\"caf\xE9 \xFF\xC3\"".to_vec(),
        b"[\"\xE9\",NaN]".to_vec(),
        "\"\u{feff}\u{10ffe9}\u{10ff00}NaN\"".into(),
        br#""\ud83d \udbff\udf22""#.to_vec(),
        deep(127),
        deep(100_000),
        b"null".to_vec(),
        b"1e400".to_vec(),
    ]
}

/// An answer with nothing in it.
const RESULT: &[u8] = br#""result":{"content":[]}"#;

/// The member by which a server is told to answer with these members behind `id`.
fn say(members: &[u8]) -> String {
    let answer = [br#"{"jsonrpc":"2.0","id":$ID,"#, members, b"}"].concat();
    format!(r#""say":"{}""#, STANDARD.encode(answer))
}

fn steps() -> Vec<Step> {
    let within =
        |head: &str, value: &[u8], end: &str| [head.as_bytes(), value, end.as_bytes()].concat();
    let mut steps = Vec::new();
    for value in odd() {
        let head = format!(r#"{{{},"x":"#, say(RESULT));
        steps.push(Step::Call(within(&head, &value, "}")));
        steps.push(Step::Answer(within(
            r#""result":{"content":[],"x":"#,
            &value,
            "}",
        )));
        let error = r#""error":{"code":-32000,"message":"no","data":"#;
        steps.push(Step::Answer(within(error, &value, "}")));
    }
    steps.extend([
        Step::Answer(b"\"result\":null".to_vec()),
        Step::Answer(b"\"error\":{\"code\":-1,\"message\":\"\xE9\"}".to_vec()),
        Step::Request(r#""method":"x/y","params":null"#.to_owned()),
        Step::Request(r#""method":"x/y""#.to_owned()),
        Step::Request(format!(
            r#""method":"x/y","params":[{{{}}},NaN]"#,
            say(RESULT)
        )),
        Step::Request(r#""method":"x/y","params":{}"#.to_owned()),
        Step::Request(r#""method":"ping","params":null"#.to_owned()),
    ]);
    let said: [&'static [u8]; 5] = [
        br#"{"jsonrpc":"2.0","method":"x/z","params":null}"#,
        br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":NaN}}"#,
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"\xE9\"}}",
        br#"{"jsonrpc":"2.0","id":7,"method":"x/z","params":null}"#,
        br#"{"jsonrpc":"2.0","id":8,"method":"x/z","params":{"n":NaN}}"#,
    ];
    steps.extend(said.map(Step::Say));
    steps
}

/// Has a host and a server send all of it. Returns what each has got, but for the ids of requests,
/// which differ.
fn conversation(raw: &Raw, mut front: Front) -> [Vec<String>; 2] {
    for line in [INITIALIZE, INITIALIZED] {
        front.write(line);
    }
    let mut said = Vec::new();
    let answered = |front: &mut Front, id: &str| {
        let id = format!("\"id\":{id},").into_bytes();
        loop {
            let line = front.line().expect("an answer");
            if line.windows(id.len()).any(|part| part == id) {
                return line;
            }
        }
    };
    answered(&mut front, "1");
    raw.wait_heard("notifications/initialized");
    for (n, step) in steps().into_iter().enumerate() {
        let id = (n + 2) * 10;
        let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"#);
        let call = r#""method":"tools/call","params":{"name":"query","arguments":"#;
        let line = match step {
            Step::Call(arguments) => [head.as_bytes(), call.as_bytes(), &arguments, b"}}"].concat(),
            Step::Request(members) => format!("{head}{members}}}").into_bytes(),
            Step::Answer(members) => format!("{head}{call}{{{}}}}}}}", say(&members)).into_bytes(),
            Step::Say(line) => {
                raw.say_bytes(line);
                said.push(front.line().expect("a message"));
                continue;
            }
        };
        front.send(&[&line[..], b"\n"].concat());
        said.push(answered(&mut front, &id.to_string()));
    }
    front.close();
    front.wait();
    // A bundle asks for lists of its own, and answers pings itself; a keeper sends some.
    let heard = raw.heard().into_iter();
    let heard = heard.skip_while(|line| !line.starts_with(br#"{"jsonrpc":"2.0","id":20,"#));
    let shown = |lines: Vec<Vec<u8>>| {
        let lines = lines.iter().map(|line| shown(line));
        lines
            .filter(|line| !line.contains(r#"\"method\":\"ping\""#))
            .collect()
    };
    [said, heard.collect()].map(shown)
}

/// A line with each byte that is not ASCII as an escape, and no id of a request of the server's.
fn shown(line: &[u8]) -> String {
    let line = line.escape_ascii().to_string();
    match line.split_once(r#"\"method\":\"x/z\""#) {
        Some((head, rest)) if head.contains("id") => format!("x/z{rest}"),
        _ => line,
    }
}

#[test]
fn what_no_sdk_would_write_goes_through_as_in_a_wrapper_of_one_server() {
    let world = world(PATIENT);
    let _daemon = world.daemon();
    let raw = |name: &str| {
        let mut raw = world.raw(name);
        // It has a tool then.
        raw.command.push("modern".to_owned());
        raw
    };
    let (plain, member) = (raw("plain"), raw("member"));
    write_down(&world, &[("a", entry(&member.command))]);
    let [said, heard] = conversation(&plain, world.front(&wrapped(&world, &plain.command)));
    let [said_by_all, heard_by_member] = conversation(&member, world.front(&all(&world, &[])));
    for (one, other) in said
        .iter()
        .zip(&said_by_all)
        .chain(heard.iter().zip(&heard_by_member))
    {
        assert_eq!(one, other);
    }
    assert_eq!(
        (said.len(), heard.len()),
        (said_by_all.len(), heard_by_member.len())
    );
}

/// A server that says of itself what a file says, and one that counts.
fn scripted(world: &World, what: &Value) {
    says(world, what);
    write_down(
        world,
        &[("odd", entry(&told(world))), ("good", small(world))],
    );
}

fn tools_of(pages: &Value) -> Value {
    json!({"initialize": {"capabilities": {"tools": {}}}, "tools/list": pages})
}

#[test]
fn a_list_ends_where_its_cursor_leads_nowhere_and_where_it_is_too_long() {
    let page = |name: &str, cursor: &str| json!({"tools": [tool(name)], "nextCursor": cursor});
    let long: Vec<Value> = (0..1_002)
        .map(|n| json!({"tools": [tool(&format!("t{n}"))]}))
        .collect();
    for (pages, count) in [
        (json!([page("a", "")]), 1),
        // What such a server is asked with brings the first page.
        (json!([page("a", "again")]), 1),
        (json!([{"tools": [tool("a")]}, page("b", "0")]), 2),
        (json!(long), 1_000),
    ] {
        let world = world(PATIENT);
        let _daemon = world.daemon();
        scripted(&world, &tools_of(&pages));
        let mut client = connect(&world);
        let mut listed = tools(&mut client);
        listed.retain(|name| !["increment", "get", "parent", "echo"].contains(&&**name));
        assert_eq!(listed.len(), count, "{listed:?}");
        if count == 1_000 {
            client
                .pipe
                .errors
                .wait("odd: it has more in tools/list than is listed: it was cut after page 1000");
        }
        let last = listed.last().expect("a tool").clone();
        client.call(&last, json!({}));
    }
}

#[test]
fn an_answer_to_initialize_needs_no_version() {
    let world = world(PATIENT);
    let _daemon = world.daemon();
    let mut what = tools_of(&json!([{"tools": [tool("a")]}]));
    what["initialize"]["protocolVersion"] = Value::Null;
    scripted(&world, &what);
    let mut client = connect(&world);
    assert!(tools(&mut client).contains(&"a".to_owned()));
    client.call("a", json!({}));
}

/// What JSON does not have would keep some hosts from reading the tools of all the others.
#[test]
fn a_tool_whose_description_is_not_json_is_listed_all_the_same() {
    let world = world(PATIENT);
    let _daemon = world.daemon();
    let script = world.root().join("odd.sh");
    let listed = r#"{"tools":[{"name":"odd","description":"caf\351","inputSchema":{"type":"object","properties":{"x":{"default":NaN}}}}]}"#;
    let text = format!(
        r#"while read -r line; do
  id=${{line#*\"id\":}}; id=${{id%%,*}}; id=${{id%%\}}*}}
  case $line in
    *'"initialize"'*) result='{{"protocolVersion":"2025-06-18","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"odd","version":"1"}}}}';;
    *tools/list*) result='{listed}';;
    *) result='{{}}';;
  esac
  case $line in *'"id"'*) printf "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$result}}\n";; esac
done"#
    );
    fs::write(&script, text).expect("a script");
    let odd = json!({"command": "sh", "args": [script]});
    write_down(&world, &[("odd", odd), ("good", small(&world))]);
    let mut front = world.front(&all(&world, &[]));
    for line in [INITIALIZE, INITIALIZED] {
        front.write(line);
    }
    front.line().expect("an answer");
    front.write(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#);
    let listed = front.line().expect("a list").escape_ascii().to_string();
    for part in [
        r#"caf\xe9"#,
        r#"\"default\":null"#,
        r#"\"name\":\"increment\""#,
    ] {
        assert!(listed.contains(part), "{part} in {listed}");
    }
}

/// As a script writes that has all it wants to know.
#[test]
fn what_comes_behind_initialize_in_one_write_waits_for_its_answer() {
    let world = world(PATIENT);
    let _daemon = world.daemon();
    write_down(&world, &[("a", small(&world))]);
    let mut front = world.front(&all(&world, &[]));
    let list = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
    let call = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"increment"}}"#;
    front.send(
        [INITIALIZE, INITIALIZED, list, call, ""]
            .join("\n")
            .as_bytes(),
    );
    front.close();
    let mut answers = Vec::new();
    while let Some(line) = front.line() {
        answers.push(serde_json::from_slice::<Value>(&line).expect("JSON"));
    }
    let ids: Vec<_> = answers.iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!((ids.len(), &ids[0]), (3, &json!(1)), "{answers:?}");
    let answer = |id: u64| {
        answers
            .iter()
            .find(|answer| answer["id"] == id)
            .expect("an answer")
    };
    assert_eq!(
        answer(2)["result"]["tools"].as_array().map(Vec::len),
        Some(4),
        "{answers:?}"
    );
    assert_eq!(
        answer(3)["result"]["content"][0]["text"],
        "1",
        "{answers:?}"
    );
}

/// The first time there is no file with what it says, and then it waits at a gate.
#[test]
fn one_that_has_failed_the_last_time_keeps_no_host_waiting_and_joins() {
    let world = world(&format!("{PATIENT}\nbundle.init_concurrency = 1"));
    let _daemon = world.daemon();
    let servers = [("odd", entry(&told(&world))), ("good", small(&world))];
    write_down(&world, &servers);
    let begin = |why: &str| {
        let mut client = Client::new(world.front(&all(&world, &[])));
        let answer = client.initialize();
        let instructions = answer["result"]["instructions"].as_str().expect("text");
        let sentence = format!("The server \"odd\" is not available: {why}");
        assert!(instructions.contains(&sentence), "{instructions}");
        assert_eq!(tools(&mut client).len(), 4);
        client
    };
    let end = |mut client: Client<Front>| {
        client.pipe.close();
        assert!(client.pipe.wait().success());
    };
    end(begin("it refused to be initialised: "));
    let gate = world.root().join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    says(&world, &tools_of(&json!([{"tools": [tool("a")]}])));
    // It would be waited for as long as nobody waits here.
    let mut client = begin("it failed at its last start: it refused to be initialised: ");
    fs::write(&gate, "").expect("open");
    while !tools(&mut client).contains(&"a".to_owned()) {
        changed(&mut client);
    }
    end(client);
    // It is as good as the others again.
    fs::remove_file(gate).expect("removed");
    let mut client = connect(&world);
    assert_eq!(tools(&mut client).len(), 5);
}

#[test]
fn a_server_is_named_once_in_a_sentence_about_it() {
    let world = world(PATIENT);
    let _daemon = world.daemon();
    let nobody = OwnPort::take();
    let servers = [
        (
            "z-dead",
            json!({"url": format!("http://127.0.0.1:{}/mcp", nobody.number)}),
        ),
        ("z-gone", json!({"command": "no-such-program"})),
        ("z-bad", json!({"args": 1})),
        (
            "z-secret",
            json!({"command": "true", "env": {"KEY": "${env:NOT_THERE}"}}),
        ),
        ("z-ends", json!({"command": "true"})),
        (
            "z-refuses",
            json!({"command": "sh", "args": ["-c", REFUSES]}),
        ),
    ];
    write_down(&world, &servers);
    let mut client = Client::new(world.front(&all(&world, &[])));
    let answer = client.initialize();
    let instructions = answer["result"]["instructions"].as_str().expect("text");
    let said: Vec<&str> = instructions.lines().collect();
    assert_eq!(said.len(), servers.len(), "{instructions}");
    for ((name, _), sentence) in servers.iter().zip(said) {
        let line = client.pipe.errors.wait(&format!("mcp-sessiond: {name}: "));
        for one in [sentence, &line] {
            assert_eq!(one.matches(name).count(), 1, "{one}");
        }
    }
}
