//! What is relayed is relayed as it was written.

use proptest::prelude::*;

use super::*;

#[test]
fn nothing_but_the_id_changes() {
    let odd = "  {\"jsonrpc\" : \"2.0\" ,\t\"x\":1e+09,\"params\":{\"id\":5,\"é\\u00e9\":[1.0, 2 ]},\"id\"  :  \"me\" , \"m\\u0065thod\":\"a\\/b\"} \r";
    let mut bench = Bench::initialized();
    bench.front(odd);
    assert_eq!(bench.backend_gets(), [odd.replace("\"me\"", "1")]);
    let reply = "{ \"result\" : {\"id\":1 , \"n\":-0.0} , \"id\":1 , \"extra\":null }\r";
    bench.backend(reply);
    assert_eq!(
        bench.front_gets(),
        [reply.replace("\"id\":1 , \"extra", "\"id\":\"me\" , \"extra")]
    );
}

#[test]
fn what_is_no_json_rpc_is_for_the_other_side_to_judge() {
    let lines = [
        "hello",
        "{}",
        "[]",
        "7",
        r#"{"id":null,"method":"x"}"#,
        r#"{"method":7}"#,
        r#"{"method":"x""#,
        r#"{"level":"info","of":{"id":1}}"#,
        r#"["x",{}]"#,
    ];
    let mut bench = Bench::initialized();
    for line in lines {
        bench.front(line);
        bench.backend(line);
    }
    assert_eq!(bench.backend_gets(), lines);
    assert_eq!(bench.front_gets(), lines);
    for blank in ["", " \t", "\r"] {
        bench.front(blank);
        bench.backend(blank);
    }
    assert_eq!(
        (bench.backend_gets().len(), bench.front_gets().len()),
        (0, 0)
    );
    bench
        .relay
        .from_front(Bytes::from_static(b"\xff{"), bench.now);
    assert_eq!(
        bench.relay.pull_backend(),
        Some(Bytes::from_static(b"\xff{"))
    );
}

#[test]
fn a_complaint_without_an_id_reaches_whoever_gave_cause() {
    let complaint =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#;
    let mut bench = Bench::initialized();
    bench.front("rubbish");
    bench.backend(complaint);
    bench.backend(complaint);
    assert_eq!(bench.front_gets(), [complaint]);
    assert_eq!(bench.dropped(), 1);
}

#[test]
fn a_batch_stays_a_batch() {
    let mut bench = Bench::initialized();
    bench.front(&format!(
        "[ {} , {INITIALIZED},\n{} , [1,\"x\"], {}]",
        call("\"a\""),
        call("\"b\""),
        notice(1)
    ));
    assert_eq!(
        bench.backend_gets(),
        [format!(
            "[{},{},[1,\"x\"],{}]",
            call("1"),
            call("2"),
            notice(1)
        )]
    );
    bench.backend(&format!(
        "[ {},{} , {}, {} ]",
        answer("2"),
        answer("9"),
        notice(2),
        answer("1")
    ));
    assert_eq!(
        bench.front_gets(),
        [format!(
            "[{},{},{}]",
            answer("\"b\""),
            notice(2),
            answer("\"a\"")
        )]
    );
    bench.backend(&format!(" [ {} ,{}]", notice(3), ask("5", "x")));
    assert_eq!(
        bench.front_gets(),
        [format!(" [ {} ,{}]", notice(3), ask("5", "x"))]
    );
    bench.front(&format!("[{}]", answer("6")));
    assert_eq!(bench.backend_gets(), [""; 0]);
    bench.front(&format!("[{} ]", answer("5")));
    assert_eq!(bench.backend_gets(), [format!("[{} ]", answer("5"))]);
}

#[test]
fn a_batch_that_has_to_wait_in_part_is_split() {
    let mut bench = Bench::initialized();
    bench.relay.detach(0, false, bench.now);
    bench.attach();
    bench.front(&ask("1", "ping"));
    bench.backend_gets();
    bench.backend(&format!(
        "[{},{},{},{}]",
        notice(1),
        ask("1", "roots/list"),
        answer("1"),
        ask("2", "x")
    ));
    assert_eq!(bench.front_gets(), [format!("[{}]", answer("1"))]);
    bench.front(&call("2"));
    assert_eq!(
        bench.front_gets(),
        [format!("[{}]", notice(1)), format!("[{}]", ask("2", "x"))]
    );
}

/// Any JSON text without a token that is replaced on purpose, with whitespace, escapes and numbers
/// as nobody would write them.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,3})?",
        "[a-zü\u{2028}]{0,6}(\\\\(n|\"|\\\\|u00e9|/)){0,2}"
            .prop_map(|inner| format!("\"{inner}\"")),
        prop_oneof!["id", "method", "_meta", "requestId"].prop_map(|key| format!("\"{key}\"")),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let space = "[ \t\r]{0,2}";
        prop_oneof![
            (prop::collection::vec(inner.clone(), 0..4), space).prop_map(
                |(values, space)| format!("[{space}{}{space}]", values.join(&format!("{space},")))
            ),
            (
                prop::collection::vec(
                    (prop_oneof!["id", "progressToken", "[a-z]{0,3}"], inner),
                    0..4
                ),
                space
            )
                .prop_map(|(pairs, space)| {
                    let pairs: Vec<_> = pairs
                        .into_iter()
                        .map(|(key, value)| format!("\"{key}\"{space}:{value}"))
                        .collect();
                    format!("{{{space}{}}}", pairs.join(","))
                }),
        ]
    })
}

/// The same with what is not JSON, though some peers write it and others read it: bytes that are no
/// UTF-8 in strings, and numbers that are none.
fn nearly_json() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(
        prop_oneof![
            Just(b'a'),
            0x80..=0xFF_u8,
            Just(b'\xC3'),
            Just(b'\xA9'),
            Just(b'N')
        ],
        0..8,
    );
    let string = bytes.prop_map(|inner| [b"\"", &inner[..], b"\""].concat());
    let names = [
        "NaN",
        "Infinity",
        "-Infinity",
        "\"NaN\"",
        "\" -Infinity\\\\\"",
    ];
    let name = prop::sample::select(names.map(str::to_owned).to_vec());
    let value = prop_oneof![
        string,
        name.prop_map(String::into_bytes),
        json().prop_map(String::into_bytes)
    ];
    prop::collection::vec(value, 0..6)
        .prop_map(|values| [b"[", &values.join(&b", "[..])[..], b"]"].concat())
}

proptest! {
    #[test]
    fn whatever_can_nearly_be_read(params in nearly_json(), first in any::<bool>()) {
        let line = |id: &str, key: &str| {
            let id = format!("\"id\" :{id}");
            let rest = [format!("\"é\":\"ü\",\"{key}\":").as_bytes(), &params[..]].concat();
            let (one, two) = if first { (id.as_bytes(), &rest[..]) } else { (&rest[..], id.as_bytes()) };
            [b"{", one, b" ,\t", two, b"}"].concat()
        };
        let request = |id: &str| line(id, "method\":\"x\",\"params");
        let mut bench = Bench::initialized();
        bench.front_sends(&request("\"é\""));
        prop_assert_eq!(bench.relay.pull_backend(), Some(request("1").into()));
        bench.backend_sends(&line("1", "result"));
        prop_assert_eq!(bench.relay.pull_front(), Some(line("\"é\"", "result").into()));
        let batch = |id: &str| [b"[", &line(id, "result")[..], b",", notice(1).as_bytes(), b"]"].concat();
        bench.front_sends(&request("\"é\""));
        prop_assert_eq!(bench.relay.pull_backend(), Some(request("2").into()));
        bench.backend_sends(&batch("2"));
        prop_assert_eq!(bench.relay.pull_front(), Some(batch("\"é\"").into()));
    }

    #[test]
    fn whatever_the_parameters_are(params in json(), id in "\"[a-z]{1,5}\"|[1-9][0-9]{10}", first in any::<bool>()) {
        let line = |id: &str| if first {
            format!("{{\"id\" :{id}, \"params\":{params}, \"method\":\"x\"}}")
        } else {
            format!("{{\"method\":\"x\",\"params\": {params} ,\"id\":{id} }}")
        };
        let mut bench = Bench::initialized();
        bench.front(&line(&id));
        prop_assert_eq!(bench.backend_gets(), [line("1")]);
        let reply = |id: &str| format!("{{\"result\": {params} ,\"id\":{id} }}");
        bench.backend(&reply("1"));
        prop_assert_eq!(bench.front_gets(), [reply(&id)]);
        let note = format!("{{\"method\":\"notifications/x\",\"params\": {params} }}");
        bench.backend(&note);
        bench.front(&note);
        prop_assert_eq!(bench.front_gets(), [note.clone()]);
        prop_assert_eq!(bench.backend_gets(), [note]);
    }
}
