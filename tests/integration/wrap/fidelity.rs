//! Lines that no SDK would write go through as they are, both ways, whatever they are.

use mcp_sessiond_tests::{Front, Pipe, Raw, World};

use super::{keeping, wrapped};

/// What a host says, as it stands on the line; and what the server is to answer, if not what it
/// would answer by itself. `$N` and `$M` are numbers that grow from line to line, `$ID` is the id
/// that the server was asked with.
const TOLD: &[(&str, &str)] = &[
    // Spacing, escapes, numbers that lose something in a double, keys in a strange order, members
    // that nobody knows.
    (
        r#"{ "jsonrpc" :"2.0",  "id": $N ,"method":"a/b"   , "params" : { } }"#,
        "",
    ),
    ("\t{\"jsonrpc\":\"2.0\",\t\"id\":$N,\"method\":\"x\"}  ", ""),
    (
        r#"{"method":"x","id":$N,"params":{"a":1.0,"b":1e400,"c":-0.0,"d":9007199254740993,"e":123456789012345678901234567890},"jsonrpc":"2.0"}"#,
        "",
    ),
    (
        r#"{"jsonrpc":"2.0","id":$N,"method":"\u0078\/y","params":{"\u0061":"\ud83d\udc26 \u0000 \u2028 \/ ü 🐦"}}"#,
        "",
    ),
    (
        r#"{"jsonrpc":"2.0","id":$N,"method":"x","params":{"a":1,"a":2,"":null,"id":7,"method":"inner"},"extra":[1,[],{}]}"#,
        "",
    ),
    (
        r#"{"jsonrpc":"2.0","id":$N,"method":"x","params":null}"#,
        "",
    ),
    (
        r#"{"jsonrpc":"2.0","id":$N,"method":"x","params":[1,2]}"#,
        "",
    ),
    ("{\"jsonrpc\":\"2.0\",\"id\":$N,\"method\":\"crlf\"}\r", ""),
    (r#"{"id":$N,"method":"no version"}"#, ""),
    // Ids of every kind. The server is asked with others, and the answer has these again.
    (
        r#"{"jsonrpc":"2.0","id":"abc \u00e9 \" }","method":"x"}"#,
        "",
    ),
    (r#"{"jsonrpc":"2.0","id":"","method":"x"}"#, ""),
    (
        r#"{"jsonrpc":"2.0","id":9007199254740993,"method":"x"}"#,
        "",
    ),
    (r#"{"jsonrpc":"2.0","id":-5,"method":"x"}"#, ""),
    (r#"{"jsonrpc":"2.0","id":1.50,"method":"x"}"#, ""),
    (r#"{"jsonrpc":"2.0","id":"20","method":"x"}"#, ""),
    // Answers.
    (
        r#"{"jsonrpc":"2.0","id":$N,"method":"x"}"#,
        r#"  {"result" : {"n":1.0,"big":18446744073709551616,"s":"\u00fc\/"},"id" :$ID,"jsonrpc":"2.0" }"#,
    ),
    (
        r#"{"jsonrpc":"2.0","id":"e","method":"x"}"#,
        r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"\n","data":{"id":1}},"id":$ID}"#,
    ),
    (
        r#"{"jsonrpc":"2.0","id":$N,"method":"x"}"#,
        r#"{"jsonrpc":"2.0","id":$ID,"result":null,"x":{"a":1,"a":2}}"#,
    ),
    (
        r#"{"jsonrpc":"2.0","id":$N,"method":"x"}"#,
        "{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{}}\r",
    ),
    // Notifications, known and unknown, both ways.
    (
        r#"{"jsonrpc":"2.0","method":"notifications/no-such","params":{"a": 1.0}}"#,
        r#"{ "method":"notifications/none-such", "params":{"b":[ ]},"jsonrpc":"2.0" }"#,
    ),
    (
        r#"{"method":"bare"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1e2}}"#,
    ),
    // What is no JSON-RPC at all, from the server.
    (
        r#"{"jsonrpc":"2.0","id":$N,"method":"x"}"#,
        "Server listening on stdio. (not JSON)\n\n   \n[1,2\n{\"a\":1}\n{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{}}",
    ),
    (r#"{"jsonrpc":"2.0","id":$N,"method":"x"}"#, ""),
    // And from the host, where nobody can take it for a message.
    ("no JSON", ""),
    // Batches.
    (
        r#"[{"jsonrpc":"2.0","id":$N,"method":"x"}, {"jsonrpc":"2.0","method":"n"} ,{"jsonrpc":"2.0","id":$M,"method":"y"}]"#,
        r#"[ {"jsonrpc":"2.0","id":$N,"result":{}},{"jsonrpc":"2.0","id":$M,"error":{"code":1,"message":""}} , {"jsonrpc":"2.0","method":"n"}]"#,
    ),
];

/// The ids that the server is asked with others for.
const OTHER_IDS: [&str; 7] = [
    r#""abc \u00e9 \" }""#,
    r#""""#,
    "9007199254740993",
    "-5",
    "1.50",
    r#""20""#,
    r#""e""#,
];

/// Says all of it, one thing after the other. Returns what the server said, and what it heard.
fn conversation(raw: &Raw, mut front: Front) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    front.write(INITIALIZE);
    let mut said = vec![front.line().expect("an answer")];
    for (n, (line, answer)) in TOLD.iter().enumerate() {
        let number = |line: &str| {
            line.replace("$N", &format!("{}0", n + 1))
                .replace("$M", &format!("{}1", n + 1))
        };
        let (line, answer) = (number(line), number(answer));
        if answer.is_empty() {
            front.write(&line);
        } else {
            // Where the server is to look for it: in a member that it would not know otherwise.
            let at = line.rfind('}').expect("an object");
            front.write(&format!(
                "{},\"say\":\"{}\"{}",
                &line[..at],
                base64(&answer),
                &line[at..]
            ));
        }
        // Behind this comes nothing more of what was asked before.
        let id = format!("{}9", n + 1);
        front.write(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#));
        loop {
            let line = front.line().expect("an answer");
            let is_last =
                line == format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).into_bytes();
            // Blank lines say nothing, and are the one thing that does not go through.
            if !line.trim_ascii().is_empty() {
                said.push(line);
            }
            if is_last {
                break;
            }
        }
    }
    front.close();
    front.wait();
    (said, raw.heard())
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0", "id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"x":1.0},"clientInfo":{"name":"t","version":"1"}}}"#;

/// As RFC 4648 has it.
fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, n| {
            bits << 8 | u32::from(chunk.get(n).copied().unwrap_or_default())
        });
        for n in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * n) & 63) as usize];
            out.push(if n <= chunk.len() { digit.into() } else { '=' });
        }
    }
    out
}

/// The line with `$ID` in place of its ids, which the server has others of.
fn without_ids(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line).into_owned();
    // What is no message has none.
    if !text.contains("\"method\"") {
        return text;
    }
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("\"id\":") {
        let (before, after) = rest.split_at(at + 5);
        let value = after.trim_start();
        let mut stream =
            serde_json::Deserializer::from_str(value).into_iter::<&serde_json::value::RawValue>();
        let Some(Ok(_)) = stream.next() else {
            out.push_str(before);
            rest = after;
            continue;
        };
        out.push_str(before);
        out.push_str("$ID");
        rest = &value[stream.byte_offset()..];
    }
    out + rest
}

#[test]
fn what_no_sdk_would_write_goes_through_as_it_is() {
    let world = keeping("");
    let _daemon = world.daemon();
    let (plain, kept) = (world.raw("direct"), world.raw("wrapped"));
    let (said, heard) = conversation(&plain, world.front(&plain.command));
    let (said_wrapped, heard_wrapped) =
        conversation(&kept, world.front(&wrapped(&world, &kept.command)));
    assert_eq!(world.stat("backends_kept_total"), 1);
    // A kept server may be started again and have other tools then, and the host is to listen for that.
    let promised = |line: &[u8]| {
        let line = String::from_utf8_lossy(line).into_owned();
        line.replace(r#""tools":{}"#, r#""tools":{"listChanged":true}"#)
    };
    for (direct, kept) in said.iter().zip(&said_wrapped) {
        assert_eq!(
            promised(direct),
            String::from_utf8_lossy(kept),
            "what the host was told"
        );
    }
    assert_eq!(said.len(), said_wrapped.len());
    assert!(said.len() > 2 * TOLD.len());
    // Small numbers that grow are kept, so that most of it is the same to the last byte.
    for (direct, kept) in heard
        .iter()
        .zip(&heard_wrapped)
        .filter(|(direct, kept)| direct != kept)
    {
        assert_eq!(
            without_ids(direct),
            without_ids(kept),
            "what the server heard"
        );
        let line = String::from_utf8_lossy(direct);
        assert!(
            OTHER_IDS
                .iter()
                .any(|id| line.contains(&format!("\"id\":{id},"))),
            "{line}"
        );
    }
    assert_eq!(heard.len(), heard_wrapped.len());
}

/// Requests of the server have ids of its own choice, and the answers come back with them.
#[test]
fn requests_of_the_server_are_answered_with_its_own_ids() {
    let world: World = keeping("");
    let _daemon = world.daemon();
    for wrap in [false, true] {
        let raw = world.raw(if wrap { "wrapped" } else { "direct" });
        let mut front = world.front(&if wrap {
            wrapped(&world, &raw.command)
        } else {
            raw.command.clone()
        });
        front.write(INITIALIZE);
        front.line().expect("an answer");
        front.write(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        raw.wait_heard("initialized");
        for (n, id) in [
            "\"s \\u0031\"",
            "7",
            "7.0",
            "-1",
            "9007199254740993",
            "\"7\"",
        ]
        .iter()
        .enumerate()
        {
            raw.say(&format!(
                r#"{{"jsonrpc":"2.0", "method":"no/such{n}","params":{{"x": 1.0}},"id":{id}}}"#
            ));
            let asked = String::from_utf8(front.line().expect("a request")).expect("UTF-8");
            let head =
                format!(r#"{{"jsonrpc":"2.0", "method":"no/such{n}","params":{{"x": 1.0}},"id":"#);
            let own = asked
                .strip_prefix(&head)
                .and_then(|rest| rest.strip_suffix('}'));
            let own = own.unwrap_or_else(|| panic!("{asked}"));
            front.write(&format!(
                r#"{{ "id":{own},"result":{{"of":"{n}", "y":2.50}},"jsonrpc":"2.0"}}"#
            ));
            let heard = raw.wait_heard(&format!("\"of\":\"{n}\""));
            assert_eq!(
                heard,
                format!(
                    "{{ \"id\":{id},\"result\":{{\"of\":\"{n}\", \"y\":2.50}},\"jsonrpc\":\"2.0\"}}\n"
                )
            );
        }
    }
}

/// What begins like a message and can't be read is answered as every server would answer it, and
/// the server does not hear it: it may read it otherwise than the relay does, and take it for
/// somebody's call.
#[test]
fn what_is_nearly_a_message_is_answered_by_an_error_and_goes_no_further() {
    let world = keeping("");
    let _daemon = world.daemon();
    let raw = world.raw("server");
    let mut front = world.front(&wrapped(&world, &raw.command));
    front.write(INITIALIZE);
    front.line().expect("an answer");
    // With an id, where one can be made out.
    for (line, id) in [
        (r#"{"jsonrpc":"2.0","id":"#, "null"),
        (r#"{"jsonrpc":"2.0","id":2,"method":"x"} {}"#, "2"),
    ] {
        front.write(line);
        let answer: serde_json::Value = serde_json::from_str(&front.read()).expect("JSON");
        assert_eq!(
            (&*answer["id"].to_string(), &answer["error"]["code"]),
            (id, &(-32700).into()),
            "{answer}"
        );
    }
    front.write(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#);
    assert_eq!(front.read(), r#"{"jsonrpc":"2.0","id":3,"result":{}}"#);
    assert_eq!(raw.heard().len(), 2, "{:?}", raw.heard());
}
