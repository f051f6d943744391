//! Golden bytes, checked both ways, and the page that quotes them. Whoever changes one of these has
//! changed the protocol: an old peer must still understand, or the version grows, and `PROTOCOL.md`
//! says so.

mod samples;

use bytes::BytesMut;
use serde::Serialize;
use serde_json::{Value, json};
use tarpc::ServerError;

use samples::{
    append, appended, claim, claimed, replayed, secret, secrets, stale, web, write, written,
};

use super::message_pack::{Call, Reply};
use super::*;
use crate::client::{self, CallError};
use crate::error::Error;
use crate::hello::{Answer, FRAME_MAX, Hello};
use crate::service::{METHODS, Only};
use crate::services::{SecretKey, SecretRequest, ServiceSecret};
use crate::sessions::SessionRef;
use crate::state::{StateEntry, StateVersion, StateWrite, WriteStateRequest};
use crate::streams::{
    AppendRequest, Appended, Cursor, Event, EventId, Gap, ReplayRequest, Replayed,
};
use crate::text::hex;
use crate::types::{ClaimRequest, Claimed, Epoch, Outcome, Siblings, Stored, TokenStatus};
use crate::{Json, PROTOCOL_VERSION, Token};

const PAGE: &str = include_str!("../../PROTOCOL.md");
/// The page of methods and types.
const TYPES: &str = include_str!("../../TYPES.md");

const HELLO_MESSAGE_PACK: &str = "6d63707365737364000200000100000000400000000000000000000000000000";
const HELLO_JSON_RPC: &str = "6d63707365737364000200000200000000400000000000000000000000000000";
const HELLO_WELCOME: &str = "6d63707365737364000200020100000000400000000000000000000000000000";
const HELLO_VERSION: &str = "6d63707365737364000900020101000000400000000000000000000000000000";
const CALL: &str = "0000004583a2696403ab646561646c696e655f6d73cd2710a463616c6c81a5436c61696d81a77265717565737482a56c6162656ca470726f64a87369626c696e6773a66f6c64657374";
const REPLY: &str = "0000006183a2696403a57265706c7981a5436c61696d81a24f6b85a773657373696f6ea27331a565706f636807a76f7574636f6d65a7726573756d6564ac746f6b656e5f737461747573a770726573656e74a5746f6b656ec4026869a772656675736564c0";
const ERROR: &str = "0000004683a2696403a57265706c7981aa53746f7265546f6b656e81a345727283a4636f6465ab7374616c655f65706f6368a5676976656e07a66e657765737408a772656675736564c0";
const CANCEL: &str = "0000001883a2696403ab646561646c696e655f6d7300a463616c6cc0";
const CROWDED: &str =
    "0000002683a2696403a57265706c79c0a772656675736564b1746f6f206d616e79207265717565737473";
const UNREADABLE: &str = "0000004f84a2696403a57265706c79c0a772656675736564d92d74686973206461656d6f6e2063616e27742072656164207468652063616c6c3a20657870656374656420753634aa756e7265616461626c65c3";
const APPEND: &str = "0000008c83a2696403ab646561646c696e655f6d73cd2710a463616c6c81a6417070656e6481a77265717565737484a26f6682a773657373696f6ea27331a773657276696365a3776562a673747265616da27431a772657175657374a27231a86d6573736167657392c0d9247b226a736f6e727063223a22322e30222c226964223a312c22726573756c74223a7b7d7d";

const JSON_CLAIM: &str =
    r#"{"jsonrpc": "2.0", "id": 1, "method": "claim", "params": {"label": "prod"}}"#;
const JSON_CLAIMED: &str = r#"{"jsonrpc": "2.0", "id": 1, "result": {"session": "s1", "epoch": "7", "outcome": "resumed", "token_status": "present", "token": "aGk="}}"#;
const JSON_STORE: &str = r#"{"jsonrpc": "2.0", "id": "b", "method": "store_token", "params": {"session": "s1", "epoch": "7", "token": "aGk="}}"#;
const JSON_STORED: &str = r#"{"jsonrpc": "2.0", "id": "b", "result": {"resumed": true}}"#;
const JSON_APPEND: &str = r#"{"jsonrpc": "2.0", "id": 2, "method": "append", "params": {"of": {"session": "s1", "service": "web"}, "stream": "t1", "request": "r1", "messages": [null, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"]}}"#;
const JSON_APPENDED: &str = r#"{"jsonrpc": "2.0", "id": 2, "result": [{"id": "Zmlyc3Q", "stream": "t1", "position": "1", "number": "7"}, {"id": "c2Vjb25k", "stream": "t1", "position": "2", "number": "8"}]}"#;
const JSON_WRITE: &str = r#"{"jsonrpc": "2.0", "id": 4, "method": "write_state", "params": {"of": {"session": "s1", "service": "web"}, "writes": [{"key": "k", "value": "[1]", "expires_ms": "60000"}]}}"#;
const JSON_WRITTEN: &str =
    r#"{"jsonrpc": "2.0", "id": 4, "result": [{"key": "k", "version": "7"}]}"#;
const JSON_SECRET: &str = r#"{"jsonrpc": "2.0", "id": 5, "method": "service_secret", "params": {"service": "web", "rotate": true, "request": "r2"}}"#;
const JSON_SECRETS: &str = r#"{"jsonrpc": "2.0", "id": 5, "result": {"current": "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE", "former": ["AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI"]}}"#;
const JSON_REPLAY: &str = r#"{"jsonrpc": "2.0", "id": 3, "method": "replay", "params": {"of": {"session": "s1", "service": "web"}, "after": {"event": "Zmlyc3Q"}, "most": 1}}"#;
const JSON_REPLAYED: &str = r#"{"jsonrpc": "2.0", "id": 3, "result": {"events": [{"id": "c2V2ZW50aA", "stream": "t1", "position": "7", "number": "15", "message": "{\"jsonrpc\":\"2.0\",\"method\":\"m\"}"}], "gaps": [{"stream": "t1", "first": "2", "last": "6"}], "next": [{"event": "c2V2ZW50aA"}], "more": true}}"#;
const JSON_REFUSED: &str = r#"{"jsonrpc": "2.0", "id": "b", "error": {"code": -32000, "message": "the lease is not the newest (epoch 7, newest 8): another process has claimed this session since", "data": {"code": "stale_epoch", "http_status": 409, "given": "7", "newest": "8"}}}"#;
const JSON_MALFORMED: &str = r#"{"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "`params` of claim must be an object"}}"#;
const JSON_CANCEL: &str =
    r#"{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "b"}}"#;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).expect("hex"), 16).expect("hex"))
        .collect()
}

/// A value in MessagePack, as a frame.
fn frame(value: &impl Serialize) -> String {
    let body = rmp_serde::to_vec_named(value).expect("encoded");
    hex(&u32::try_from(body.len()).expect("short").to_be_bytes()) + &hex(&body)
}

#[test]
fn hellos() {
    let client = Hello::client(Codec::MessagePack);
    let hellos = [
        (client, HELLO_MESSAGE_PACK),
        (Hello::client(Codec::JsonRpc), HELLO_JSON_RPC),
        (client.reply(Answer::Welcome), HELLO_WELCOME),
        (
            Hello {
                version: 9,
                ..client.reply(Answer::Version)
            },
            HELLO_VERSION,
        ),
    ];
    for (hello, golden) in hellos {
        assert_eq!(hex(&hello.encode()), golden);
        assert_eq!(
            Hello::decode(&bytes(golden).try_into().expect("32 bytes")).expect("a hello"),
            hello
        );
    }
}

#[test]
fn message_pack_calls() {
    let golden = |call: Option<SessiondRequest>, deadline_ms| {
        frame(&Call {
            id: 3,
            deadline_ms,
            call,
        })
    };
    assert_eq!(golden(Some(claim()), 10_000), CALL);
    assert_eq!(golden(None, 0), CANCEL);
    let append = SessiondRequest::Append { request: append() };
    assert_eq!(golden(Some(append.clone()), 10_000), APPEND);

    let mut server = message_pack::Server::new(FRAME_MAX as usize);
    let mut decode = |golden: &str| match server.decode(&bytes(golden)[4..], &mut BytesMut::new()) {
        Ok(Decoded::Item(message)) => message,
        _ => panic!("{golden} is not understood"),
    };
    let ClientMessage::Request(request) = decode(CALL) else {
        panic!("no request")
    };
    assert_eq!(request.id, 3);
    assert_eq!(json!(request.message), json!(claim()));
    let ClientMessage::Request(request) = decode(APPEND) else {
        panic!("no request")
    };
    assert_eq!(json!(request.message), json!(append));
    assert!(matches!(
        decode(CANCEL),
        ClientMessage::Cancel { request_id: 3, .. }
    ));

    // The client itself.
    assert_eq!(hex(&client::cancellation(3).expect("encoded")), CANCEL);
    let SessiondRequest::Claim { request } = claim() else {
        panic!("no claim")
    };
    let call = client::call(
        3,
        Duration::from_secs(10),
        "claim",
        Only { request },
        FRAME_MAX as usize,
    );
    assert_eq!(hex(&call.expect("encoded")), CALL);
}

#[test]
fn message_pack_replies() {
    let replies = [
        (Ok(SessiondResponse::Claim(Ok(claimed()))), REPLY),
        (Ok(SessiondResponse::StoreToken(Err(stale()))), ERROR),
        (
            Err(ServerError::new(
                io::ErrorKind::WouldBlock,
                "too many requests".into(),
            )),
            CROWDED,
        ),
    ];
    for (message, golden) in replies {
        let mut server = message_pack::Server::new(FRAME_MAX as usize);
        let mut outbound = BytesMut::new();
        server
            .encode(
                Response {
                    request_id: 3,
                    message,
                },
                &mut outbound,
            )
            .expect("encoded");
        assert_eq!(hex(&outbound), golden);
    }
    // What the client makes of them.
    let read = |golden: &str| bytes(golden)[4..].to_vec();
    let reply = client::reply::<Result<Claimed, Error>>(&read(REPLY)).expect("a reply");
    assert_eq!(json!(reply), json!(Ok::<_, Error>(claimed())));
    assert_eq!(client::reply(&read(ERROR)), Ok(Err::<Stored, _>(stale())));
    let crowded = CallError::Crowded("too many requests".into());
    assert_eq!(
        client::reply::<Result<Stored, Error>>(&read(CROWDED)),
        Err(crowded)
    );
    let unreadable = "this daemon can't read the call: expected u64".to_owned();
    assert_eq!(
        client::reply::<()>(&read(UNREADABLE)),
        Err(CallError::Refused(unreadable))
    );
    let refused = Some("this daemon can't read the call: expected u64".into());
    assert_eq!(
        frame(&Reply::<SessiondResponse> {
            id: 3,
            reply: None,
            refused,
            unreadable: true
        }),
        UNREADABLE
    );
}

#[test]
fn json_rpc_frames() {
    let mut server = json_rpc::Server::new(FRAME_MAX as usize);
    let mut outbound = BytesMut::new();
    let mut decode = |server: &mut json_rpc::Server, golden: &str| match server
        .decode(golden.as_bytes(), &mut outbound)
    {
        Ok(Decoded::Item(message)) => message,
        _ => panic!("{golden} is not understood"),
    };
    let mut call = |server: &mut json_rpc::Server, golden: &str| match decode(server, golden) {
        ClientMessage::Request(request) => (request.id, json!(request.message)),
        _ => panic!("{golden} is no call"),
    };
    let answer = |server: &mut json_rpc::Server, request_id, reply| {
        let mut outbound = BytesMut::new();
        server
            .encode(
                Response {
                    request_id,
                    message: Ok(reply),
                },
                &mut outbound,
            )
            .expect("encoded");
        let length = u32::try_from(outbound.len() - 4)
            .expect("short")
            .to_be_bytes();
        assert_eq!(outbound[..4], length);
        serde_json::from_slice::<Value>(&outbound[4..]).expect("json")
    };
    let golden = |text: &str| serde_json::from_str::<Value>(text).expect("json");

    let (id, message) = call(&mut server, JSON_CLAIM);
    assert_eq!(message, json!({"Claim": {"request": {"label": "prod"}}}));
    assert_eq!(
        answer(&mut server, id, SessiondResponse::Claim(Ok(claimed()))),
        golden(JSON_CLAIMED)
    );

    let (id, message) = call(&mut server, JSON_STORE);
    assert_eq!(
        message,
        json!({"StoreToken": {"request": {"session": "s1", "epoch": "7", "token": "aGk="}}})
    );
    let stored = SessiondResponse::StoreToken(Ok(Stored { resumed: true }));
    assert_eq!(answer(&mut server, id, stored), golden(JSON_STORED));

    let (id, message) = call(&mut server, JSON_APPEND);
    assert_eq!(
        message,
        json!(SessiondRequest::Append { request: append() })
    );
    assert_eq!(
        answer(&mut server, id, SessiondResponse::Append(Ok(appended()))),
        golden(JSON_APPENDED)
    );

    let (id, message) = call(&mut server, JSON_WRITE);
    assert_eq!(
        message,
        json!(SessiondRequest::WriteState { request: write() })
    );
    assert_eq!(
        answer(&mut server, id, SessiondResponse::WriteState(Ok(written()))),
        golden(JSON_WRITTEN)
    );

    let (id, message) = call(&mut server, JSON_SECRET);
    assert_eq!(
        message,
        json!(SessiondRequest::ServiceSecret { request: secret() })
    );
    assert_eq!(
        answer(
            &mut server,
            id,
            SessiondResponse::ServiceSecret(Ok(secrets()))
        ),
        golden(JSON_SECRETS)
    );

    let (id, message) = call(&mut server, JSON_REPLAY);
    let after = Cursor::Event(EventId("Zmlyc3Q".into()));
    let replay = SessiondRequest::Replay {
        request: ReplayRequest {
            of: web(),
            after,
            most: Some(1),
        },
    };
    assert_eq!(message, json!(replay));
    assert_eq!(
        answer(&mut server, id, SessiondResponse::Replay(Ok(replayed()))),
        golden(JSON_REPLAYED)
    );
    let result = golden(JSON_REPLAYED)["result"].take();
    assert_eq!(
        serde_json::from_value::<Replayed>(result).expect("read back"),
        replayed()
    );

    let (id, _) = call(&mut server, JSON_STORE);
    assert_eq!(
        answer(&mut server, id, SessiondResponse::StoreToken(Err(stale()))),
        golden(JSON_REFUSED)
    );

    let (id, _) = call(&mut server, JSON_STORE);
    let cancelled = decode(&mut server, JSON_CANCEL);
    assert!(matches!(cancelled, ClientMessage::Cancel { request_id, .. } if request_id == id));

    let malformed = br#"{"jsonrpc": "2.0", "id": 1, "method": "claim", "params": "x"}"#;
    let mut outbound = BytesMut::new();
    assert!(matches!(
        server.decode(malformed, &mut outbound),
        Ok(Decoded::Answered)
    ));
    assert_eq!(
        serde_json::from_slice::<Value>(&outbound[4..]).expect("json"),
        golden(JSON_MALFORMED)
    );
}

/// The names of all variants, in order. A variant that is not listed does not compile.
macro_rules! every {
    ($type:ident: $($variant:ident => $name:literal),+ $(,)?) => {{
        fn name(value: &$type) -> &'static str {
            match value { $($type::$variant { .. } => $name),+ }
        }
        (name as fn(&$type) -> &'static str, [$($name),+])
    }};
}

#[test]
fn the_methods_are_those_of_the_service() {
    let (name, names) = every!(SessiondRequest:
        Ping => "ping",
        Claim => "claim",
        StoreToken => "store_token",
        RejectToken => "reject_token",
        LossTold => "loss_told",
        NoteLoss => "note_loss",
        Release => "release",
        CreateSession => "create_session",
        OpenSession => "open_session",
        GetSession => "get_session",
        ListOwnSessions => "list_own_sessions",
        UpdateSession => "update_session",
        TouchSession => "touch_session",
        AttachSession => "attach_session",
        DetachSession => "detach_session",
        ResetSession => "reset_session",
        TerminateSession => "terminate_session",
        RotateCredential => "rotate_credential",
        MintHandle => "mint_handle",
        OpenHandle => "open_handle",
        ReadState => "read_state",
        WriteState => "write_state",
        ListState => "list_state",
        OpenStream => "open_stream",
        ListStreams => "list_streams",
        CloseStream => "close_stream",
        OrphanStream => "orphan_stream",
        UnorphanStream => "unorphan_stream",
        FindEvent => "find_event",
        PruneEvents => "prune_events",
        Append => "append",
        Replay => "replay",
        Wait => "wait",
        CreateTask => "create_task",
        GetTask => "get_task",
        UpdateTask => "update_task",
        WaitTask => "wait_task",
        ListTasks => "list_tasks",
        LeaseService => "lease_service",
        ReleaseService => "release_service",
        ServiceSecret => "service_secret",
        FindBackend => "find_backend",
        KeepBackend => "keep_backend",
        BackendStarted => "backend_started",
        CheckFront => "check_front",
        FrontLeft => "front_left",
        BackendEnding => "backend_ending",
        BackendCounted => "backend_counted",
        ListBackends => "list_backends",
        StopBackend => "stop_backend",
        FindFacts => "find_facts",
        LearnFact => "learn_fact",
        About => "about",
        ListHosts => "list_hosts",
        ListServiceLosses => "list_service_losses",
        ListSessions => "list_sessions",
        ListTokens => "list_tokens",
        ListContents => "list_contents",
        ListParts => "list_parts",
        InspectSession => "inspect_session",
        Sweep => "sweep",
        Stats => "stats",
        Metrics => "metrics",
        Settings => "settings",
        WhoAmI => "who_am_i",
    );
    assert_eq!(names, METHODS);
    for method in METHODS {
        let of = json!({"session": "s"});
        let params = match method {
            "store_token" => json!({"session": "s", "epoch": "1", "token": "aGk="}),
            "reject_token" | "release" | "find_backend" => json!({"session": "s", "epoch": "1"}),
            "loss_told" => json!({"session": "s", "epoch": "1", "losses": ["7"]}),
            "note_loss" => {
                json!({"service": "web", "epoch": "1", "session": "s", "because": "forgotten"})
            }
            "service_secret" => json!({"service": "web", "rotate": true, "request": "r"}),
            "lease_service" => json!({"service": "web"}),
            "release_service" => json!({"service": "web", "epoch": "1"}),
            "open_session" | "get_session" | "touch_session" | "attach_session"
            | "detach_session" | "reset_session" | "terminate_session" | "inspect_session" => of,
            "update_session" | "mint_handle" | "list_state" | "list_streams" | "list_tasks" => {
                json!({"of": of})
            }
            "rotate_credential" => json!({"of": of, "hash": "00".repeat(32)}),
            "open_handle" => json!({"handle": "h"}),
            "read_state" => json!({"of": of, "keys": ["k"]}),
            "write_state" => {
                json!({"of": of, "writes": [{"key": "k", "value": "1", "expected": "0"}]})
            }
            "open_stream" | "close_stream" | "orphan_stream" | "unorphan_stream" => {
                json!({"of": of, "stream": "t"})
            }
            "append" => json!({"of": of, "stream": "t", "messages": ["{}", null], "close": true}),
            "find_event" => json!({"of": of, "event": "x"}),
            "prune_events" => json!({"of": of, "stream": "t", "keep": "7", "older_than_ms": "1"}),
            "replay" => json!({"of": of, "after": {"number": "7"}}),
            "wait" => json!({"of": of, "after": [{"event": "x"}, {"stream": "t"}]}),
            "create_task" => json!({"of": of, "ttl_ms": "60000"}),
            "get_task" => json!({"of": of, "task": "k"}),
            "update_task" => json!({
                "of": of, "task": "k",
                "ask": [{"key": "name", "request": "{}"}], "answer": [{"key": "age", "response": "{}"}],
                "end": {"completed": "{}"},
            }),
            "wait_task" => json!({"of": of, "task": "k", "version": "7"}),
            "keep_backend" => {
                json!({"session": "s", "epoch": "1", "keeper": "00c0ffee", "program": "server"})
            }
            "backend_started" => json!({"session": "s", "keeper": "00c0ffee", "pid": 7}),
            "check_front" => json!({"session": "s", "keeper": "00c0ffee", "epoch": "1"}),
            "front_left" => {
                json!({"session": "s", "keeper": "00c0ffee", "epoch": "1", "orderly": true, "at_ms": "0", "used": false})
            }
            "backend_counted" => {
                let [counted, told] = ["1", "0"].map(|lost| json!({"lost": lost, "parked": "0"}));
                json!({"session": "s", "keeper": "00c0ffee", "counted": counted, "told": told})
            }
            "backend_ending" => json!({"session": "s", "keeper": "00c0ffee", "why": "lingered"}),
            "stop_backend" => json!({"session": "s"}),
            "find_facts" => json!({"server": "0".repeat(32)}),
            "learn_fact" => {
                json!({"server": "0".repeat(32), "learned": {"discover": {"exits": {}}}})
            }
            "sweep" => json!({"service": "web", "older_than_ms": "1"}),
            _ => json!({}),
        };
        let frame =
            json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let mut outbound = BytesMut::new();
        let decoded =
            json_rpc::Server::new(FRAME_MAX as usize).decode(frame.as_bytes(), &mut outbound);
        let Ok(Decoded::Item(ClientMessage::Request(request))) = decoded else {
            panic!("{method}: {outbound:?}")
        };
        assert_eq!(name(&request.message), method);
        assert!(
            TYPES.contains(&format!("| `{method}` |")),
            "TYPES.md has no row for {method}"
        );
    }
}

#[test]
fn the_page_has_every_error() {
    let sentence = || "x".to_owned();
    let errors = [
        Error::NoVerifiedHost {
            sentence: sentence(),
        },
        Error::NotAnAncestor { pid: 1 },
        Error::NamesHost { pid: 1 },
        stale(),
        Error::LeaseEnded,
        Error::UnknownSession,
        Error::AlreadyExists,
        Error::SessionTerminated,
        Error::SessionHeld,
        Error::NameTaken {
            sentence: sentence(),
        },
        Error::ServiceTaken {
            pid: 1,
            since_ms: 2,
        },
        Error::VersionConflict {
            key: "k".parse().expect("a key"),
            current: StateVersion(1),
        },
        Error::BindingMismatch,
        Error::UnknownHandle,
        Error::HandleExpired,
        Error::UnknownStream,
        Error::StreamClosed,
        Error::UnknownTask,
        Error::TaskEnded,
        Error::UnknownCursor,
        Error::UnknownBackend,
        Error::InvalidArgument {
            sentence: sentence(),
        },
        Error::QuotaExceeded {
            what: sentence(),
            limit: 1,
        },
        Error::WriteFailed {
            sentence: sentence(),
        },
        Error::Unavailable {
            sentence: sentence(),
            retry_after_ms: 1,
        },
        Error::OutcomeUnknown {
            sentence: sentence(),
            retry_after_ms: 1,
        },
        Error::Unknown,
    ];
    let (name, names) = every!(Error:
        NoVerifiedHost => "no_verified_host", NotAnAncestor => "not_an_ancestor", NamesHost => "names_host", StaleEpoch => "stale_epoch",
        LeaseEnded => "lease_ended", UnknownSession => "unknown_session", AlreadyExists => "already_exists", SessionTerminated => "session_terminated", SessionHeld => "session_held", NameTaken => "name_taken",
        ServiceTaken => "service_taken", VersionConflict => "version_conflict", BindingMismatch => "binding_mismatch",
        UnknownHandle => "unknown_handle", HandleExpired => "handle_expired", UnknownStream => "unknown_stream",
        StreamClosed => "stream_closed", UnknownTask => "unknown_task", TaskEnded => "task_ended", UnknownCursor => "unknown_cursor", UnknownBackend => "unknown_backend", InvalidArgument => "invalid_argument",
        QuotaExceeded => "quota_exceeded", WriteFailed => "write_failed", Unavailable => "unavailable",
        OutcomeUnknown => "outcome_unknown",
        Unknown => "unknown",
    );
    assert_eq!(errors.each_ref().map(name), names);
    for error in &errors {
        assert_eq!(error.code(), name(error));
        let row = format!("| `{}` | {} |", error.code(), error.http_status());
        assert!(
            PAGE.contains(&row) || *error == Error::Unknown,
            "PROTOCOL.md has no row that begins with {row}"
        );
    }
}

#[test]
fn the_page_quotes_the_golden_bytes() {
    let bare = |text: &str| text.split_whitespace().collect::<String>();
    let page = bare(PAGE);
    let goldens = [
        HELLO_MESSAGE_PACK,
        HELLO_JSON_RPC,
        HELLO_WELCOME,
        HELLO_VERSION,
        CALL,
        REPLY,
        ERROR,
        CANCEL,
        JSON_APPEND,
        JSON_APPENDED,
        JSON_REPLAY,
        JSON_REPLAYED,
        JSON_CLAIM,
        JSON_CLAIMED,
        JSON_STORE,
        JSON_STORED,
        JSON_REFUSED,
        JSON_MALFORMED,
        JSON_CANCEL,
    ];
    for golden in goldens {
        assert!(
            page.contains(&bare(golden)),
            "PROTOCOL.md does not quote {golden}"
        );
    }
    assert!(
        PAGE.contains(&format!("Protocol version {PROTOCOL_VERSION}")),
        "PROTOCOL.md has another version"
    );
}

#[test]
fn the_page_names_the_program_that_is_tested() {
    let program = include_str!("../../../tests/python/sessiond.py");
    assert!(PAGE.contains("(../tests/python/sessiond.py)") && program.lines().count() <= 40);
}
