//! The values that the golden bytes stand for.

use super::*;

pub(super) fn claim() -> SessiondRequest {
    let label = Some("prod".parse().expect("label"));
    SessiondRequest::Claim {
        request: ClaimRequest {
            label,
            siblings: Some(Siblings::Oldest),
            ..Default::default()
        },
    }
}

pub(super) fn claimed() -> Claimed {
    Claimed {
        session: "s1".parse().expect("id"),
        epoch: Epoch(7),
        outcome: Outcome::Resumed,
        because: None,
        lost: Vec::new(),
        own: None,
        token_status: TokenStatus::Present,
        token: Some(Token::new(*b"hi").expect("token")),
    }
}

pub(super) fn append() -> AppendRequest {
    let answer = Json::new(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).expect("JSON");
    AppendRequest {
        of: web(),
        stream: "t1".parse().expect("id"),
        request: Some("r1".parse().expect("id")),
        messages: vec![None, Some(answer)],
        close: false,
    }
}

pub(super) fn write() -> WriteStateRequest {
    let value = Json::new("[1]").expect("JSON");
    let write =
        StateWrite::new("k".parse().expect("a key"), value).expires(Duration::from_secs(60));
    WriteStateRequest {
        of: web(),
        writes: vec![write],
        request: None,
    }
}

pub(super) fn written() -> Vec<StateEntry> {
    vec![StateEntry {
        key: "k".parse().expect("a key"),
        version: StateVersion(7),
        value: None,
    }]
}

pub(super) fn secret() -> SecretRequest {
    let request = Some("r2".parse().expect("id"));
    SecretRequest {
        service: "web".parse().expect("name"),
        rotate: true,
        request,
    }
}

pub(super) fn secrets() -> ServiceSecret {
    let key = |digits: &str, last: &str| SecretKey(digits.repeat(10) + last);
    ServiceSecret {
        current: key("AQEB", "AQE"),
        former: vec![key("AgIC", "AgI")],
    }
}

pub(super) fn web() -> SessionRef {
    let service = Some("web".parse().expect("name"));
    SessionRef {
        session: "s1".parse().expect("id"),
        service,
        epoch: None,
        caller: None,
    }
}

pub(super) fn appended() -> Vec<Appended> {
    let stream = || "t1".parse().expect("id");
    vec![
        Appended {
            id: EventId("Zmlyc3Q".into()),
            stream: stream(),
            position: 1,
            number: 7,
        },
        Appended {
            id: EventId("c2Vjb25k".into()),
            stream: stream(),
            position: 2,
            number: 8,
        },
    ]
}

pub(super) fn replayed() -> Replayed {
    let (id, stream) = (EventId("c2V2ZW50aA".into()), "t1".parse().expect("id"));
    let message = Json::new(r#"{"jsonrpc":"2.0","method":"m"}"#).expect("JSON");
    Replayed {
        gaps: vec![Gap {
            stream: Some(stream),
            first: 2,
            last: 6,
        }],
        next: vec![Cursor::Event(id.clone())],
        events: vec![Event {
            id,
            stream: "t1".parse().expect("id"),
            position: 7,
            number: 15,
            message,
        }],
        more: true,
        ended: Vec::new(),
    }
}

pub(super) fn stale() -> Error {
    Error::StaleEpoch {
        given: Epoch(7),
        newest: Epoch(8),
    }
}
