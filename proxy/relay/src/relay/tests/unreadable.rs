//! Lines that can't be read as they stand: nobody gets what may be somebody else's, and nobody
//! waits for ever.

use super::*;

const ANSWERED: &str = "the server has answered this call, and its answer can't be read as JSON";

fn parse_error(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32700,"message":"Parse error: this can't be read as JSON-RPC, and was not relayed"}}}}"#
    )
}

/// Answers that hosts can read, and JSON parsers can't, with `ID` for the id.
const ODD: [&[u8]; 5] = [
    b"{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"t\":\"caf\xE9\"}}",
    "{\"é\":\"\u{20ac}NaN\",\"result\":{\"a\":[NaN, -Infinity,Infinity]}, \"id\" : ID }".as_bytes(),
    b"\xEF\xBB\xBF{\"id\":ID,\"result\":{}}",
    b"{\"result\":\"\xC3\xA9\xC3\\\"NaN\xF0\x9F\\\\\",\"x\":-Infinity,\"id\":ID}\r",
    b"[{\"id\":ID,\"result\":\"\xFF\"} , {\"method\":\"\xFE\",\"params\":NaN}]",
];

fn with(line: &[u8], id: &str) -> Bytes {
    let at = line.windows(2).position(|two| two == b"ID").expect("id");
    [&line[..at], id.as_bytes(), &line[at + 2..]]
        .concat()
        .into()
}

#[test]
fn an_answer_that_is_nearly_json_finds_who_asked() {
    for line in ODD {
        let mut bench = Bench::initialized();
        bench.reconnect("{}");
        bench.front(&call("9"));
        bench.front(&call("\"é\""));
        bench.front(&call("9"));
        assert_eq!(bench.backend_gets(), ["9", "10", "11"].map(call));
        bench.backend_sends(&with(line, "11"));
        bench.backend_sends(&with(line, "10"));
        assert_eq!(bench.relay.pull_front(), Some(with(line, "9")));
        assert_eq!(bench.relay.pull_front(), Some(with(line, "\"é\"")));
        assert_eq!(bench.dropped(), 0);
    }
}

#[test]
fn an_answer_to_a_former_front_is_not_given_to_the_next_one() {
    for line in ODD {
        let mut bench = Bench::initialized();
        bench.front(&call("9"));
        bench.backend_gets();
        bench.reconnect("{}");
        bench.front(&call("9"));
        assert_eq!(bench.backend_gets(), [call("10")]);
        bench.backend_sends(&with(line, "9"));
        while let Some(line) = bench.relay.pull_front() {
            assert!(line.windows(2).all(|two| two != b"id"), "{line:?}");
        }
        assert_eq!(bench.relay.view(bench.now).parked.len(), 1);
        bench.backend(&answer("10"));
        assert_eq!(bench.front_gets(), [answer("9")]);
    }
}

#[test]
fn a_call_that_is_nearly_json_is_a_call() {
    let lines: [&[u8]; 3] = [
        b"{\"id\":ID,\"method\":\"x\",\"params\":{\"n\":NaN,\"_meta\":{}}}",
        b"{\"method\":\"x\xE4\",\"params\":{\"\xC3\xA4\":\"\xE4\"},\"id\":ID}",
        b"[{\"id\":ID,\"method\":\"\xE4\",\"params\":Infinity}]",
    ];
    for line in lines {
        let mut bench = Bench::initialized();
        bench.front_sends(&with(line, "\"q\""));
        assert_eq!(bench.relay.pull_backend(), Some(with(line, "1")));
        bench.backend(&answer("1"));
        assert_eq!(bench.front_gets(), [answer("\"q\"")]);
    }
    let token = |id: &str, token: &str| {
        format!(
            r#"{{"id":{id},"method":"é","params":{{"n":NaN,"_meta":{{"progressToken":{token}}}}}}}"#
        )
    };
    let mut bench = Bench::initialized();
    bench.front(&token("\"q\"", "\"t\""));
    assert_eq!(bench.backend_gets(), [token("1", "1")]);
    bench.front(&token("\"q\"", "NaN"));
    assert_eq!(bench.backend_gets(), [token("2", "NaN")]);
}

#[test]
fn an_ask_and_its_answer_may_be_nearly_json() {
    let mut bench = Bench::initialized();
    bench.backend_sends(b"{\"id\":\"s\",\"method\":\"x\",\"params\":\"\xE4\"}");
    let asked = b"{\"id\":1,\"method\":\"x\",\"params\":\"\xE4\"}";
    assert_eq!(bench.relay.pull_front(), Some(Bytes::from_static(asked)));
    bench.front_sends(b"{\"id\":1,\"result\":[NaN,\"\xE4\"]}");
    let answered = b"{\"id\":\"s\",\"result\":[NaN,\"\xE4\"]}";
    assert_eq!(
        bench.relay.pull_backend(),
        Some(Bytes::from_static(answered))
    );
}

#[test]
fn a_handshake_may_be_nearly_json() {
    let mut bench = Bench::new();
    let first = initialize("0", "2025-06-18", r#"{"x":NaN}"#);
    bench.front(&first);
    assert_eq!(bench.backend_gets(), [&*first]);
    let answer = ANSWER.replace("\"prompts\":{}", "\"n\":-Infinity");
    bench.backend(&answer.replace("ID", "0"));
    assert_eq!(bench.front_gets(), [answer.replace("ID", "0")]);
    bench.attach();
    bench.front(&initialize("\"b\"", "2025-06-18", "{}"));
    bench.is_pinged();
    assert_eq!(bench.front_gets(), [answer.replace("ID", "\"b\"")]);
}

/// Answers that nobody could be handed, with `ID` for the id.
const HOPELESS: [&str; 7] = [
    r#"{"id":ID,"result":{"a":"b"c"}}"#,
    "{\"result\":\"\u{1}\",\"id\":ID}",
    r#"{"id":3,"id":ID,"result":{}}"#,
    r#"{"id":ID,"result":1,"result":2}"#,
    r#"{"jsonrpc":"2.0","id":ID}"#,
    r#"{"id":ID,"result":{"#,
    r#"{"id":ID,"result":{}}{"x":1}"#,
];

#[test]
fn a_call_whose_answer_can_not_be_read_fails() {
    for line in HOPELESS {
        let mut bench = Bench::initialized();
        bench.reconnect("{}");
        bench.front(&call("\"a\""));
        bench.backend_gets();
        bench.backend(&line.replace("ID", "1"));
        assert_eq!(bench.front_gets(), [not_kept("\"a\"", ANSWERED)], "{line}");
        bench.backend(&line.replace("ID", "1"));
        bench.front(&call("7"));
        bench.backend_gets();
        bench.reconnect("{}");
        bench.backend(&line.replace("ID", "7"));
        assert_eq!(bench.front_gets(), [""; 0]);
        let view = bench.relay.view(bench.now);
        assert_eq!(
            (view.dropped, view.parked.len(), view.calls.len()),
            (3, 1, 0)
        );
    }
}

#[test]
fn what_may_be_an_answer_is_never_a_notice() {
    let lines: [&[u8]; 9] = [
        b"{\"id\":\"\xE4\",\"result\":{}}",
        b"{\"id\":NaN,\"result\":{}}",
        b"{\"id\":[],\"method\":\"x\"}",
        b"{\"result\":\"\x01\",\"id\":5,\"x\":\"\x01\"}",
        b"[[{\"id\":5,\"result\":{}}]]",
        b"[{\"id\":5,\"result\":{}}",
        b"[{\"id\":5,\"result\":{}},]]",
        b"\"id\": 5,",
        b"{\"result\":{}, \"id\":5, \"id\":null}",
    ];
    for line in lines {
        let mut bench = Bench::initialized();
        bench.backend_sends(line);
        assert_eq!(
            (
                bench.front_gets().len(),
                bench.backend_gets().len(),
                bench.dropped()
            ),
            (0, 0, 1)
        );
        bench.front_sends(line);
        assert_eq!(bench.backend_gets(), [""; 0]);
        assert!(
            bench
                .front_gets()
                .iter()
                .all(|line| *line == parse_error("null"))
        );
    }
}

#[test]
fn a_host_is_told_that_its_call_can_not_be_read() {
    let lines = [
        r#"{"id":ID,"method":"x","params":{"a":"b"c"}}"#,
        "{\"method\":\"x\",\"params\":\"\u{1}\",\"id\":ID}",
        r#"{"id":3,"id":ID,"method":"x"}"#,
        r#"{"id":ID,"method":7}"#,
        r#"{"id":ID,"method":"x""#,
    ];
    for line in lines {
        let mut bench = Bench::initialized();
        bench.front(&line.replace("ID", "\"q\""));
        assert_eq!(bench.front_gets(), [parse_error("\"q\"")], "{line}");
        bench.front(&call("4"));
        assert_eq!(bench.backend_gets(), [call("4")]);
        bench.front(&line.replace("ID", "4"));
        assert_eq!(
            bench.front_gets(),
            [parse_error("null")],
            "the call of this name has not failed"
        );
        bench.backend(&line.replace("ID", "4"));
        assert_eq!(bench.front_gets(), [""; 0], "this is no answer");
        assert_eq!(bench.backend_gets(), [parse_error("4")]);
        assert_eq!(bench.dropped(), 3);
    }
}

#[test]
fn an_ask_whose_answer_can_not_be_read_fails() {
    for line in HOPELESS {
        let mut bench = Bench::initialized();
        bench.backend(&ask("\"s\"", "x"));
        bench.front_gets();
        bench.front(&line.replace("ID", "1"));
        assert_eq!(
            bench.backend_gets(),
            [failed("\"s\"", "the host's answer can't be read as JSON")]
        );
        assert_eq!(bench.front_gets(), [""; 0]);
    }
}

#[test]
fn the_rest_of_a_batch_goes_on() {
    let mut bench = Bench::initialized();
    let bad = "{\"id\":3,\"method\":\"x\",\"params\":\"],\u{1}\\\"\"}";
    bench.front(&format!(
        "[{},{bad} , {}, {{\"id\":7}}]",
        call("1"),
        call("2")
    ));
    assert_eq!(
        bench.backend_gets(),
        [format!("[{},{}]", call("1"), call("2"))]
    );
    assert_eq!(bench.front_gets(), [parse_error("3"), parse_error("7")]);
    bench.backend(&format!(
        " [ {{\"id\":2,\"result\":\"\u{1}\"}},{} ] ",
        answer("1")
    ));
    assert_eq!(
        bench.front_gets(),
        [format!("[{}]", answer("1")), not_kept("2", ANSWERED)]
    );
    assert_eq!(bench.dropped(), 3);
}
