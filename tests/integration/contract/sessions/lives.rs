//! From the creation of a session to its tombstone.

use mcp_sessiond_proto::sessions::{CreateRequest, Lifetimes, Part, PartState, Session, Status};
use mcp_sessiond_proto::{Error, SessionId};

use super::bench::{
    Bench, START_MS, after, endless, gap_of_numbers, id, json, request, start_of, texts, visit,
};
use crate::contract::backends::Backend;

pub(crate) async fn created_and_found_again<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    let session = bench.visit("s");
    assert_eq!(session.get().await, Err(Error::UnknownSession));
    let metadata = json(r#"{ "clientInfo": {"name": "größe"},  "x": 1.0 }"#);
    let lifetimes = Lifetimes {
        idle_ms: Some(1_000),
        absolute_ms: Some(9_000),
        grace_ms: Some(500),
    };
    let asked = CreateRequest {
        metadata: Some(metadata.clone()),
        lifetimes,
        ..CreateRequest::default()
    };
    let created = session.create_with(asked).await.expect("created");
    let expected = Session {
        session: id("s"),
        service: Some("shop".parse().expect("a service")),
        program: None,
        label: None,
        epoch: None,
        status: Status::Initializing,
        metadata: Some(metadata),
        bound: false,
        created_ms: START_MS,
        active_ms: START_MS,
        expires_ms: Some(START_MS + 1_000),
        attached: 0,
        last_number: 0,
        state_keys: 0,
        state_bytes: 0,
        streams: 0,
        events: 0,
        event_bytes: 0,
    };
    assert_eq!(created, expected);
    assert_eq!(
        (session.get().await, session.open().await),
        (Ok(expected.clone()), Ok(expected.clone()))
    );
    let listed = bench
        .contents
        .list(&session.access.place.owner, None, |_| true)
        .await;
    assert_eq!(
        listed,
        Ok(vec![Session {
            metadata: None,
            ..expected.clone()
        }])
    );
    bench.reopen().await;
    let found = bench.visit("s").get().await;
    assert_eq!(
        found,
        if B::DURABLE {
            Ok(expected)
        } else {
            Err(Error::UnknownSession)
        }
    );
}

pub(crate) async fn created_twice<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    session.set("k", "1").await.expect("written");
    assert_eq!(session.create().await, Err(Error::AlreadyExists));
    let other = CreateRequest {
        request: Some(request("r")),
        ..CreateRequest::default()
    };
    assert_eq!(session.create_with(other).await, Err(Error::AlreadyExists));
    assert_eq!(session.value("k").await, (1, Some("1".into())));
}

pub(crate) async fn a_creation_that_is_repeated<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    let asked = CreateRequest {
        request: Some(request("r")),
        metadata: Some(json("{}")),
        ..endless()
    };
    let first = bench
        .visit("s")
        .create_with(asked.clone())
        .await
        .expect("created");
    assert_eq!(
        bench.visit("s").create_with(asked.clone()).await,
        Ok(first.clone())
    );
    let other = CreateRequest {
        request: Some(request("other")),
        ..asked.clone()
    };
    assert_eq!(
        bench.visit("s").create_with(other).await,
        Err(Error::AlreadyExists)
    );
    if B::DURABLE {
        bench.reopen().await;
        assert_eq!(bench.visit("s").create_with(asked.clone()).await, Ok(first));
    }
    bench.visit("s").terminate().await.expect("terminated");
    assert_eq!(
        bench.visit("s").create_with(asked).await,
        Err(Error::SessionTerminated)
    );
}

pub(crate) async fn as_many_as_there_may_be<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    bench.limit(super::Limits {
        sessions_per_service: 3,
        ..bench.bounds.limits.clone()
    });
    let asked = CreateRequest {
        request: Some(request("r")),
        ..endless()
    };
    for name in ["a", "b", "c"] {
        bench
            .visit(name)
            .create_with(asked.clone())
            .await
            .expect("created");
    }
    let full = Error::QuotaExceeded {
        what: "the number of sessions of this owner".into(),
        limit: 3,
    };
    assert_eq!(bench.visit("d").create().await, Err(full));
    // Those that are there are no more than before.
    assert!(
        bench.visit("c").create_with(asked).await.is_ok(),
        "the first answer"
    );
    assert_eq!(bench.visit("c").create().await, Err(Error::AlreadyExists));
    assert!(
        visit(&bench.contents, "bank", "d").create().await.is_ok(),
        "another service"
    );
    bench
        .visit("a")
        .live(Lifetimes {
            absolute_ms: Some(1),
            ..Lifetimes::default()
        })
        .await
        .expect("updated");
    bench.clock.advance(1);
    assert!(
        bench.visit("a").create().await.is_ok(),
        "in the place of one that has ended"
    );
}

pub(crate) async fn ids_of_every_kind<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let all: String = ('!'..='~').collect();
    let mut names: Vec<String> = all.chars().map(String::from).collect();
    names.extend([
        all,
        "x".repeat(128),
        "~".repeat(128),
        SessionId::mint().to_string(),
    ]);
    for name in &names {
        let visit = bench.visit(name);
        assert_eq!(
            visit.create().await.map(|session| session.session),
            Ok(id(name))
        );
        visit
            .set("k", &format!("{:?}", name.len()))
            .await
            .expect("written");
    }
    for name in &names {
        assert_eq!(
            bench.visit(name).value("k").await.1,
            Some(name.len().to_string()),
            "{name}"
        );
    }
    assert!(SessionId::mint() != SessionId::mint());
}

pub(crate) async fn listed_in_pages<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let mut names: Vec<String> = (0..230).map(|at| format!("s{at:03}")).collect();
    for name in &names {
        bench.session(name).await;
    }
    visit(&bench.contents, "bank", "s000b")
        .create()
        .await
        .expect("created");
    // Records that are no sessions.
    for _ in 0..5 {
        bench.visit("s000").mint(None).await.expect("minted");
    }
    assert_eq!(listed(&bench).await, names);
    // A whole page of sessions that have ended does not end the list.
    for name in &names[20..180] {
        let soon = Lifetimes {
            absolute_ms: Some(1),
            ..Lifetimes::default()
        };
        bench.visit(name).live(soon).await.expect("updated");
    }
    bench.clock.advance(1);
    names.drain(20..180);
    assert_eq!(listed(&bench).await, names);
}

/// All of the service's sessions, page by page until there is none.
async fn listed<B: Backend>(bench: &Bench<B>) -> Vec<String> {
    let owner = bench.visit("s").access.place.owner;
    let (mut found, mut last) = (Vec::new(), None);
    loop {
        let page = bench
            .contents
            .list(&owner, last.as_ref(), |_| true)
            .await
            .expect("listed");
        let Some(end) = page.last() else { return found };
        last = Some(end.session.clone());
        found.extend(page.into_iter().map(|session| session.session.to_string()));
    }
}

pub(crate) async fn what_is_updated_is_kept<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    let session = bench.session("s").await;
    let part = |part: &str, is| Part {
        part: part.into(),
        is,
        since_ms: None,
        code: None,
        message: None,
    };
    let parts = vec![
        Part {
            since_ms: Some(u64::MAX),
            code: Some("-32603".into()),
            message: Some("no such user: größe".into()),
            ..part("mail", PartState::Failed)
        },
        part("search", PartState::Initializing),
        part("calendar", PartState::NotTried),
        part("maps", PartState::Ready),
    ];
    let ready = Status::Ready {
        parts: parts.clone(),
    };
    let updated = session.set_status(ready.clone()).await.expect("updated");
    assert_eq!(updated.status, ready);
    let failed = Status::Failed { parts };
    bench.clock.advance(10);
    let updated = session.set_status(failed.clone()).await.expect("updated");
    assert_eq!(
        (&updated.status, updated.active_ms),
        (&failed, START_MS + 10)
    );
    assert_eq!(session.get().await, Ok(updated));
    let updated = session
        .update(None, Some(json("[1]")), Lifetimes::default())
        .await
        .expect("updated");
    assert_eq!(
        (updated.status, updated.metadata),
        (failed.clone(), Some(json("[1]")))
    );
    let updated = session
        .live(Lifetimes {
            idle_ms: Some(77),
            ..Lifetimes::default()
        })
        .await;
    let updated = updated.expect("updated");
    assert_eq!(
        (updated.metadata.clone(), updated.expires_ms),
        (Some(json("[1]")), Some(START_MS + 87))
    );
    if B::DURABLE {
        bench.reopen().await;
        let session = bench.visit("s");
        assert_eq!(session.get().await, Ok(updated));
        assert_eq!(
            session
                .set_status(Status::ready())
                .await
                .map(|seen| seen.status),
            Ok(Status::ready())
        );
    }
}

pub(crate) async fn reset_empties<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    session
        .update(
            Some(Status::ready()),
            Some(json("{}")),
            Lifetimes::default(),
        )
        .await
        .expect("updated");
    let version = session.set("k", "1").await.expect("written");
    session.open_stream("a").await.expect("opened");
    let asked = (
        Some(request("r")),
        vec![Some(json("1")), None, Some(json("2"))],
    );
    let former = session
        .append_all("a", asked.0.clone(), asked.1.clone())
        .await
        .expect("appended");
    let general = session.say("_GET_stream", "3").await;
    let reset = session.reset().await.expect("reset");
    assert_eq!(
        (reset.status.clone(), reset.last_number),
        (Status::Initializing, 4)
    );
    let left = (
        reset.state_keys,
        reset.state_bytes,
        reset.streams,
        reset.events,
        reset.event_bytes,
    );
    assert_eq!(left, (0, 0, 0, 0, 0));
    assert_eq!(session.get().await, Ok(reset));
    assert_eq!(session.value("k").await, (0, None));
    assert_eq!(session.list_streams(None).await, Ok(Vec::new()));
    assert_eq!(session.append("a", &["1"]).await, Err(Error::UnknownStream));
    for id in former.iter().map(|event| &event.id).chain([&general]) {
        assert_eq!(
            session.replay(after(id), None).await,
            Err(Error::UnknownCursor)
        );
    }
    // What was said is told as missing, by number.
    let (events, gaps) = session
        .replay_all(mcp_sessiond_proto::streams::Cursor::Number(1), None)
        .await;
    assert_eq!((events, gaps), (Vec::new(), vec![gap_of_numbers(2, 4)]));
    // Numbers and versions go on, positions begin again, and a request is another one.
    session.open_stream("a").await.expect("opened");
    let again = session
        .append_all("a", asked.0, asked.1)
        .await
        .expect("appended");
    assert_eq!((again[0].position, again[0].number), (1, 5));
    let (events, gaps) = session.replay_all(start_of("a"), None).await;
    assert_eq!((texts(&events), gaps), (vec!["1", "2"], Vec::new()));
    for id in former.iter().map(|event| &event.id).chain([&general]) {
        assert_eq!(
            session.replay(after(id), None).await,
            Err(Error::UnknownCursor)
        );
    }
    assert!(session.set("k", "1").await.expect("written") > version);
}

pub(crate) async fn a_tombstone_refuses_everything<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    let session = bench.session("s").await;
    session.open_stream("a").await.expect("opened");
    let event = session.say("a", "1").await;
    let handle = session.mint(None).await.expect("minted").handle;
    session.set("k", "1").await.expect("written");
    session.terminate().await.expect("terminated");
    if B::DURABLE {
        bench.reopen().await;
    }
    let session = bench.visit("s");
    super::errors::refused_by_all(&session, &event, &Error::SessionTerminated).await;
    let owner = &session.access.place.owner;
    assert_eq!(bench.contents.session_of(owner, &handle).await, Ok(id("s")));
    let found = session.get().await.expect("a tombstone");
    assert_eq!(
        (found.status, found.state_keys, found.streams, found.events),
        (Status::Terminated, 0, 0, 0)
    );
    assert_eq!(session.terminate().await, Ok(()), "once more");
    assert_eq!(session.create().await, Err(Error::SessionTerminated));
    let listed = bench
        .contents
        .list(owner, None, |_| true)
        .await
        .expect("listed");
    assert_eq!(listed[0].status, Status::Terminated);
}

pub(crate) async fn a_tombstone_is_forgotten<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    session.set("k", "1").await.expect("written");
    session.open_stream("a").await.expect("opened");
    let event = session.say("a", "1").await;
    let handle = session.mint(None).await.expect("minted").handle;
    session.terminate().await.expect("terminated");
    bench.clock.advance(bench.bounds.sessions.tombstone_ms - 1);
    assert_eq!(session.create().await, Err(Error::SessionTerminated));
    assert_eq!(
        session.touch().await,
        Err(Error::SessionTerminated),
        "which does not prolong it"
    );
    bench.clock.advance(1);
    assert_eq!(session.get().await, Err(Error::UnknownSession));
    // Nothing former is visible in another session of that id.
    let created = session.create_with(endless()).await.expect("created");
    assert_eq!(
        (created.last_number, created.state_keys, created.streams),
        (0, 0, 0)
    );
    assert_eq!(session.value("k").await, (0, None));
    assert_eq!(session.append("a", &["1"]).await, Err(Error::UnknownStream));
    session.open_stream("a").await.expect("opened");
    session.say("a", "2").await;
    assert_eq!(
        session.replay(after(&event), None).await,
        Err(Error::UnknownCursor)
    );
    let owner = &session.access.place.owner;
    assert_eq!(
        bench.contents.session_of(owner, &handle).await,
        Err(Error::UnknownHandle)
    );
    let (events, _) = session.replay_all(start_of("a"), None).await;
    assert_eq!(texts(&events), ["2"]);
}

pub(crate) async fn whoever_waits_is_told_of_the_end<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let (told, mut ends) = tokio::sync::mpsc::unbounded_channel();
    bench
        .contents
        .on_end(move |place| told.send(place.name.clone()).expect("received"));
    session.terminate().await.expect("terminated");
    assert_eq!(ends.recv().await.as_deref(), Some("s"));
    bench.clock.advance(bench.bounds.sessions.tombstone_ms);
    bench.sweep().await;
    assert!(
        ends.try_recv().is_err(),
        "that was told already; there may be another of that id by now"
    );
}
