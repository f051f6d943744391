//! Messages that are too large: whoever waits is told.

use mcp_sessiond_jsonrpc::{Oversized, answers};

use super::*;

const LARGE: &str = "the server has answered this call, and its answer is larger than `wrap.message_max_mib` allows, so it is not passed on";

fn refused(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32600,"message":"a message that is larger than `wrap.message_max_mib` allows is not relayed"}}}}"#
    )
}

#[test]
fn the_id_is_found_at_either_end() {
    let cases = [
        (
            r#"{"jsonrpc":"2.0","id":"a","method":"x","params":{"y":"zz"#,
            r#"zz"}}"#,
            "\"a\"",
        ),
        (
            r#" { "params":{"id":9,"y":"zz"#,
            r#"zz"},"method":"x","id":5}"#,
            "5",
        ),
        (
            r#"{"params":"zz"#,
            r#"zz", "id" : "q" ,"jsonrpc":"2.0","method":"x" } "#,
            "\"q\"",
        ),
        (r#"{"params":{"y":"zz"#, r#"zz","id":9}}"#, "null"),
        (r#"{"params":"zz"#, r#"zz\",\"id\":9}"#, "null"),
        (r#"{"method":"x","params":"zz"#, "zz\"}", "null"),
        (r#"[{"id":1,"method":"x"},"#, r#""id":1}"#, "null"),
        ("", "", "null"),
    ];
    for (head, tail, id) in cases {
        let mut bench = Bench::initialized();
        bench
            .relay
            .oversized_from_front(head.as_bytes(), tail.as_bytes(), bench.now);
        assert_eq!(bench.front_gets(), [refused(id)], "{head}");
        assert_eq!(bench.dropped(), 1);
    }
}

#[test]
fn a_cut_through_a_character_does_not_matter() {
    let mut bench = Bench::initialized();
    bench.relay.oversized_from_front(
        b"{\"method\":\"x\",\"params\":\"\xc3",
        b"\xa4\",\"id\":7}",
        bench.now,
    );
    assert_eq!(bench.front_gets(), [refused("7")]);
}

#[test]
fn a_call_whose_answer_is_too_large_fails() {
    let mut bench = Bench::initialized();
    bench.front(&call("\"a\""));
    bench.backend_gets();
    bench.relay.oversized_from_backend(
        br#"{"jsonrpc":"2.0","id":1,"result":{"x":""#,
        b"\"}}",
        bench.now,
    );
    assert_eq!(bench.front_gets(), [not_kept("\"a\"", LARGE)]);
    assert!(matches!(&bench.relay.effects()[..], [Effect::Say(_)]));
    assert_eq!(bench.dropped(), 1);
    bench.relay.oversized_from_backend(
        br#"{"jsonrpc":"2.0","id":1,"result":{"x":""#,
        b"\"}}",
        bench.now,
    );
    assert_eq!((bench.front_gets().len(), bench.dropped()), (0, 2));
}

#[test]
fn what_the_backend_asks_in_too_many_words_is_no_answer() {
    let mut bench = Bench::initialized();
    bench.front(&call("1"));
    bench.backend_gets();
    bench.relay.oversized_from_backend(
        br#"{"id":1,"method":"x","params":{"x":""#,
        b"\"}}",
        bench.now,
    );
    assert_eq!(bench.front_gets(), [""; 0]);
    assert_eq!(bench.backend_gets(), [refused("1")]);
}

#[test]
fn an_answer_of_the_host_that_is_too_large_fails_the_ask() {
    let mut bench = Bench::initialized();
    bench.backend(&ask("\"s\"", "x"));
    bench.front_gets();
    bench
        .relay
        .oversized_from_front(br#"{"id":1,"result":{"x":""#, b"\"}}", bench.now);
    assert_eq!(bench.front_gets(), [""; 0]);
    let words =
        "the host's answer is larger than `wrap.message_max_mib` allows, and can't be relayed";
    assert_eq!(bench.backend_gets(), [failed("\"s\"", words)]);
}

#[test]
fn without_a_relay_it_goes_the_same_ways() {
    let of_host = Oversized::Failed(answers::failed("3", answers::OVERSIZED_ANSWER));
    let of_server = Oversized::Failed(not_kept("3", LARGE).into());
    let refused = |id: &str| Oversized::Refused(refused(id).into());
    for (line, host, server) in [
        (
            r#"{"id":3,"method":"x","params":"#,
            refused("3"),
            refused("3"),
        ),
        (r#"{"id":3,"result":"#, of_host, of_server),
        (r#"{"result":"#, Oversized::Dropped, Oversized::Dropped),
        (
            r#"{"method":"x","params":"#,
            refused("null"),
            Oversized::Dropped,
        ),
        ("[", refused("null"), Oversized::Dropped),
    ] {
        assert_eq!(Oversized::of_host(line.as_bytes(), b""), host, "{line}");
        assert_eq!(Oversized::of_server(line.as_bytes(), b""), server, "{line}");
    }
}
