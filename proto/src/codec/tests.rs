//! What a peer may send that is not meant well.

use bytes::BytesMut;
use serde_json::{Value, json};
use tarpc::ClientMessage;

use super::*;
use crate::client::{self, CallError};
use crate::error::Error;
use crate::hello::FRAME_MAX;
use crate::json::Json;
use crate::state::{StateEntry, StateVersion};

/// What stands for a token in garbage. It must never come back, nor reach a log.
const SECRET: &str = "hunter2";

fn message_pack(
    frame: &[u8],
    outbound: &mut BytesMut,
) -> io::Result<Decoded<ClientMessage<SessiondRequest>>> {
    message_pack::Server::new(FRAME_MAX as usize).decode(frame, outbound)
}

fn text(outbound: &BytesMut) -> String {
    String::from_utf8_lossy(outbound).into_owned()
}

/// The call is refused, and what else the connection carries goes on.
#[test]
fn an_answer_that_does_not_fit_is_a_refusal() {
    let large = || StateEntry {
        key: "k".parse().expect("a key"),
        version: StateVersion(1),
        value: Some(Json::trusted(format!("\"{}\"", "x".repeat(10_000)))),
    };
    let reply = |request_id| Response {
        request_id,
        message: Ok(SessiondResponse::ReadState(Ok(vec![large()]))),
    };
    let mut outbound = BytesMut::new();
    message_pack::Server::new(1_000)
        .encode(reply(7), &mut outbound)
        .expect("encoded");
    let told = client::reply::<Result<Vec<StateEntry>, Error>>(&outbound[4..]);
    assert_eq!(told, Err(CallError::Refused(TOO_LARGE.into())));

    let mut server = json_rpc::Server::new(1_000);
    let call = json!({"jsonrpc": "2.0", "id": "a", "method": "ping"}).to_string();
    let Ok(Decoded::Item(ClientMessage::Request(call))) =
        server.decode(call.as_bytes(), &mut outbound)
    else {
        panic!("no call")
    };
    outbound.clear();
    server
        .encode(reply(call.id), &mut outbound)
        .expect("encoded");
    let told: Value = serde_json::from_slice(&outbound[4..]).expect("JSON");
    assert_eq!(
        (&told["id"], &told["error"]["data"]["code"]),
        (&json!("a"), &json!("invalid_argument"))
    );
}

/// A field that is not known may mean what the caller relies on. It is refused where there is no
/// field at all, too.
#[test]
fn a_method_without_an_argument_takes_none() {
    for (method, variant) in [
        ("ping", "Ping"),
        ("about", "About"),
        ("list_hosts", "ListHosts"),
        ("stats", "Stats"),
        ("metrics", "Metrics"),
        ("settings", "Settings"),
        ("sweep", "Sweep"),
    ] {
        for (params, is_taken) in [(json!({}), true), (json!({"x": SECRET}), false)] {
            let frame =
                json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
            let mut outbound = BytesMut::new();
            let mut server = json_rpc::Server::new(FRAME_MAX as usize);
            let decoded = server
                .decode(frame.as_bytes(), &mut outbound)
                .expect("answered");
            assert_eq!(
                matches!(decoded, Decoded::Item(_)),
                is_taken,
                "{method} {params}"
            );
            assert!(
                is_taken || text(&outbound).contains("-32602"),
                "{outbound:?}"
            );
            assert!(!text(&outbound).contains(SECRET));

            let call = json!({"id": 1, "deadline_ms": 1_000, "call": {variant: params}});
            let mut outbound = BytesMut::new();
            let decoded = message_pack(
                &rmp_serde::to_vec_named(&call).expect("encoded"),
                &mut outbound,
            );
            assert_eq!(
                matches!(decoded, Ok(Decoded::Item(_))),
                is_taken,
                "{variant} {params}"
            );
            assert!(
                matches!(decoded, Ok(Decoded::Item(_) | Decoded::Answered)),
                "the connection goes on"
            );
            assert!(!text(&outbound).contains(SECRET));
        }
    }
    // What clients of before send, and what those of now do, come to the same.
    let new = json!({"id": 1, "call": {"Sweep": {"request": {}}}});
    let decoded = message_pack(
        &rmp_serde::to_vec_named(&new).expect("encoded"),
        &mut BytesMut::new(),
    );
    assert!(matches!(decoded, Ok(Decoded::Item(_))));
}

#[test]
fn a_deadline_is_clamped() {
    let call = message_pack::Call {
        id: 1,
        deadline_ms: u64::MAX,
        call: Some(SessiondRequest::Ping {}),
    };
    let frame = rmp_serde::to_vec_named(&call).expect("encoded");
    let before = Instant::now();
    let decoded = message_pack(&frame, &mut BytesMut::new()).expect("decoded");
    let Decoded::Item(ClientMessage::Request(request)) = decoded else {
        panic!("no request")
    };
    let deadline = request.context.deadline - before;
    assert!(
        deadline >= DEADLINE_MAX && deadline < DEADLINE_MAX + Duration::from_secs(60),
        "{deadline:?}"
    );
}

#[test]
fn a_call_of_the_future_is_refused_and_the_connection_goes_on() {
    let calls = [
        json!({"id": 7, "deadline_ms": 1, "call": {"Juggle": {"request": {"balls": 3}}}}),
        json!({"id": 7, "deadline_ms": 1, "call": {"Claim": {"request": {"secret": SECRET}}}, "new": [1, {}]}),
        json!({"id": 7, "call": {"Release": {"request": {"session": "s", "epoch": SECRET}}}}),
    ];
    for call in calls {
        let mut outbound = BytesMut::new();
        let frame = rmp_serde::to_vec_named(&call).expect("encoded");
        assert!(
            matches!(message_pack(&frame, &mut outbound), Ok(Decoded::Answered)),
            "{call}"
        );
        assert!(!text(&outbound).contains(SECRET), "{}", text(&outbound));
        let told = rmp_serde::from_slice::<Value>(&outbound[4..]).expect("MessagePack");
        assert_eq!(told["id"], 7);
        let told = client::reply::<Result<(), Error>>(&outbound[4..]);
        let Err(CallError::Refused(detail)) = told else {
            panic!("not refused")
        };
        assert!(
            detail.starts_with("this daemon can't read the call: "),
            "{detail}"
        );
    }
}

#[test]
fn what_is_no_messagepack_of_ours_ends_the_connection_and_is_not_quoted() {
    let wrong = rmp_serde::to_vec_named(&json!({"id": SECRET})).expect("encoded");
    let string = rmp_serde::to_vec_named(&SECRET).expect("encoded");
    for garbage in [
        &b""[..],
        b"\xc1",
        b"GET / HTTP/1.1\r\n",
        SECRET.as_bytes(),
        &wrong,
        &string,
    ] {
        let mut outbound = BytesMut::new();
        let Err(error) = message_pack(garbage, &mut outbound) else {
            panic!("{garbage:?} is accepted")
        };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(!error.to_string().contains(SECRET), "{error}");
        assert!(outbound.is_empty());
    }
}

fn json_rpc(frame: &[u8]) -> Value {
    let mut outbound = BytesMut::new();
    let decoded = json_rpc::Server::new(FRAME_MAX as usize)
        .decode(frame, &mut outbound)
        .expect("goes on");
    assert!(
        matches!(decoded, Decoded::Answered),
        "{}",
        String::from_utf8_lossy(frame)
    );
    serde_json::from_slice(&outbound[4..]).expect("json")
}

#[test]
fn json_rpc_garbage_is_answered_and_not_quoted() {
    let store = |params: Value| {
        json!({"jsonrpc": "2.0", "id": 1, "method": "store_token", "params": params}).to_string()
    };
    let good = json!({"session": "s", "epoch": "1", "token": "aHVudGVyMg=="});
    let with = |name: &str, value: Value| {
        let mut params = good.clone();
        params[name] = value;
        store(params)
    };
    let cases = [
        (SECRET.to_owned(), -32700),
        (format!("{{\"{SECRET}"), -32700),
        (format!("{}{SECRET}", "[".repeat(100_000)), -32700),
        (json!([SECRET]).to_string(), -32600),
        (json!(SECRET).to_string(), -32600),
        (json!({"id": [SECRET]}).to_string(), -32600),
        (
            json!({"jsonrpc": SECRET, "id": 1, "method": "ping"}).to_string(),
            -32600,
        ),
        (
            json!({"jsonrpc": "2.0", "id": 1, "method": {SECRET: 1}}).to_string(),
            -32600,
        ),
        (
            json!({"jsonrpc": "2.0", "id": 1, "method": SECRET}).to_string(),
            -32601,
        ),
        (
            json!({"jsonrpc": "2.0", "id": 1, "method": "Ping"}).to_string(),
            -32601,
        ),
        (store(json!(SECRET)), -32602),
        (store(json!([SECRET, SECRET, SECRET])), -32602),
        (store(json!({SECRET: SECRET})), -32602),
        (store(json!({})), -32602),
        (with("session", json!(format!("{SECRET} {SECRET}"))), -32602),
        (with("epoch", json!(SECRET)), -32602),
        (
            with("epoch", json!(format!("{SECRET}, expected {SECRET}"))),
            -32602,
        ),
        (with("token", json!(SECRET)), -32602),
        (with("token", json!({SECRET: SECRET})), -32602),
        (with(SECRET, json!(1)), -32602),
    ];
    for (frame, code) in cases {
        let answer = json_rpc(frame.as_bytes());
        assert_eq!(answer["error"]["code"], code, "{frame}: {answer}");
        assert!(!answer.to_string().contains(SECRET), "{answer}");
    }
}

#[test]
fn a_cancelled_call_is_forgotten() {
    let mut server = json_rpc::Server::new(FRAME_MAX as usize);
    let mut outbound = BytesMut::new();
    let mut decode = |server: &mut json_rpc::Server, message: Value| {
        server
            .decode(message.to_string().as_bytes(), &mut outbound)
            .expect("goes on")
    };
    let call = json!({"jsonrpc": "2.0", "id": "x", "method": "ping"});
    let Decoded::Item(ClientMessage::Request(request)) = decode(&mut server, call) else {
        panic!("no call")
    };
    let notice = |id: &str| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    assert!(matches!(decode(&mut server, notice("y")), Decoded::Ignored));
    let cancelled = decode(&mut server, notice("x"));
    let Decoded::Item(ClientMessage::Cancel { request_id, .. }) = cancelled else {
        panic!("no cancel")
    };
    assert_eq!(request_id, request.id);
    assert!(
        matches!(decode(&mut server, notice("x")), Decoded::Ignored),
        "once"
    );
    let late = Response {
        request_id,
        message: Ok(SessiondResponse::Ping(())),
    };
    server.encode(late, &mut outbound).expect("encoded");
    assert!(outbound.is_empty(), "a cancelled call has no answer");
}

#[test]
fn an_id_that_would_be_kept_for_long_is_short() {
    let call = |id: &str| json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string();
    let refused = json_rpc(call(&"i".repeat(129)).as_bytes());
    assert_eq!(
        (&refused["error"]["code"], &refused["id"]),
        (&json!(-32600), &Value::Null)
    );
    let mut server = json_rpc::Server::new(FRAME_MAX as usize);
    let taken = server.decode(call(&"i".repeat(128)).as_bytes(), &mut BytesMut::new());
    assert!(matches!(taken, Ok(Decoded::Item(_))));
}
