//! The client's sessions against a daemon that is killed between calls and during them: nothing
//! acknowledged is lost, nothing is done twice, and nobody who calls notices.

mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mcp_sessiond_client::{
    Caller, CreateOptions, Cursor, Error, Json, Lifetimes, Sessiond, Sessions, StateVersion,
    StateWrite, credential,
};
use mcp_sessiond_tests::{PATIENCE, RetryingPeer, random, until};
use serde_json::json;

use self::work::{
    assert_refusal, assert_said, assert_unmoved, bound_to, key, listen, lose_the_answer, made,
    message, options, service,
};
use crate::world;

#[tokio::test]
async fn a_services_session_is_there_after_every_kill() {
    let world = world("");
    let mut daemon = world.daemon();
    let session = made(&service(&world)).await;
    assert_unmoved(&mut daemon, &session).await;
    // For whoever says the name of the service, and for nobody else.
    let another = service(&world).open(session.id()).await.expect("opened");
    assert_said(&another, 5).await;
    let stranger = Sessions::of_service("other".parse().expect("a name"), options(&world));
    assert_refusal(stranger.open(session.id()).await, &Error::UnknownSession);
    assert!(stranger.list().await.expect("listed").is_empty());
    session.terminate().await.expect("ended");
    daemon.restart();
    assert_refusal(another.get(&key("round")).await, &Error::SessionTerminated);
}

#[tokio::test]
async fn a_value_that_expires_goes_and_the_secret_of_a_service_stays() {
    let world = world("");
    let mut daemon = world.daemon();
    let sessions = service(&world);
    let session = made(&sessions).await;
    let write = |name: &str, after: Duration| {
        StateWrite::new(key(name), Json::new("\"private\"").expect("JSON")).expires(after)
    };
    let writes = vec![
        write("brief", Duration::from_millis(1)),
        write("long", Duration::from_secs(3_600)),
    ];
    session.write(writes).await.expect("written");
    while session.get(&key("brief")).await.expect("read").is_some() {}
    let secret = sessions.secret().await.expect("a secret");
    daemon.restart();
    let listed = session.keys().await.expect("listed");
    let long = listed
        .iter()
        .find(|one| one.key == key("long"))
        .expect("it is there");
    assert!(long.expires_ms.is_some() && listed.iter().all(|one| one.key != key("brief")));
    assert!(world.listed("list_contents")[0]["state_expires_ms"].is_string());
    assert_eq!(sessions.secret().await.expect("a secret"), secret);
    let rotated = sessions.rotate_secret().await.expect("rotated");
    assert_eq!(rotated.former, [secret.current]);
    let shown = format!(
        "{:?} {:?}\n{}",
        rotated,
        world.listed("list_contents"),
        world.log.text()
    );
    assert!(
        !shown.contains(&rotated.current.0) && !shown.contains("private"),
        "{shown}"
    );
    assert!(Sessions::of_host(options(&world)).secret().await.is_err());
}

#[tokio::test]
async fn a_hosts_session_is_there_after_every_kill() {
    let world = world("");
    let mut daemon = world.daemon();
    let sessions = Sessions::of_host(options(&world));
    let session = made(&sessions).await;
    assert_unmoved(&mut daemon, &session).await;
    let listed = sessions.list().await.expect("listed");
    assert_eq!(
        listed.iter().map(|one| &one.session).collect::<Vec<_>>(),
        [session.id()]
    );
    // The same lease, since it is the same process that holds it.
    let opened = sessions.open(session.id()).await.expect("opened");
    opened
        .set_as(&key("by"), &"the other")
        .await
        .expect("written");
    assert_eq!(
        session
            .get_as::<String>(&key("by"))
            .await
            .expect("read")
            .as_deref(),
        Some("the other")
    );
    let minted = session.mint_handle(None).await.expect("minted");
    daemon.restart();
    let found = sessions.open_handle(&minted.handle).await.expect("found");
    assert_eq!(found.id(), session.id());
    session.terminate().await.expect("ended");
    daemon.restart();
    assert!(session.touch().await.is_err());
}

#[tokio::test]
async fn the_session_that_is_claimed_is_there_after_every_kill_until_one_is_begun_anew() {
    let world = world("");
    let mut daemon = world.daemon();
    let sessiond = Sessiond::init(options(&world));
    let session = sessiond.session().await.expect("a session");
    assert!(sessiond.store(b"token").await);
    assert_unmoved(&mut daemon, &session).await;
    daemon.restart();
    assert_eq!(sessiond.load().await.expect("the token").expose(), b"token");
    let fresh = sessiond.begin_anew().await.expect("a fresh one");
    assert_ne!(fresh.id(), session.id());
    daemon.restart();
    assert!(sessiond.load().await.is_none(), "its token went with it");
    assert_eq!(fresh.get(&key("round")).await.expect("read"), None);
    assert_refusal(session.touch().await, &Error::UnknownSession);
    assert_unmoved(&mut daemon, &fresh).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_under_way_when_the_daemon_is_killed_is_done_once() {
    const MESSAGES: u64 = 300;
    let world = world("");
    let mut random = random();
    let mut daemon = world.daemon();
    let of = [service(&world), Sessions::of_host(options(&world))];
    let done = Arc::new(AtomicU64::new(0));
    let mut workers = Vec::new();
    for sessions in of {
        let session = made(&sessions).await;
        let done = done.clone();
        workers.push(tokio::spawn(async move {
            // Somebody listens all the time, and hears everything once.
            let listening = tokio::spawn(listen(session.clone(), MESSAGES));
            for number in 1..=MESSAGES {
                let appended = session
                    .standalone()
                    .append(message(number))
                    .await
                    .expect("appended");
                assert_eq!(appended.number, number);
                session
                    .set_as(&key("last"), &number)
                    .await
                    .expect("written");
                done.fetch_add(1, Ordering::Relaxed);
            }
            assert_eq!(
                session.get_as::<u64>(&key("last")).await.expect("read"),
                Some(MESSAGES)
            );
            assert_said(&session, MESSAGES).await;
            listening.await.expect("heard");
        }));
    }
    let mut kills = 0;
    while workers.iter().any(|worker| !worker.is_finished()) {
        let enough = done.load(Ordering::Relaxed) + random.u64(5..60);
        let finished = || workers.iter().all(tokio::task::JoinHandle::is_finished);
        // Either the workers go on, or they have ended.
        until("it goes on", || {
            (done.load(Ordering::Relaxed) >= enough || finished()).then_some(())
        });
        if done.load(Ordering::Relaxed) < 2 * MESSAGES {
            daemon.restart();
            kills += 1;
        }
    }
    for worker in workers {
        worker.await.expect("all is there");
    }
    assert!(kills > 5, "{kills} kills");
}

#[tokio::test]
async fn a_call_whose_answer_is_lost_is_done_once() {
    let world = world("");
    let mut daemon = world.daemon();
    for sessions in [service(&world), Sessions::of_host(options(&world))] {
        let made = sessions.create(bound_to(b"a key"));
        let session = lose_the_answer(&mut daemon, made).await.expect("made");
        let appended = lose_the_answer(&mut daemon, session.standalone().append(message(1))).await;
        assert_eq!(appended.expect("appended").number, 1);
        assert_said(&session, 1).await;
        lose_the_answer(&mut daemon, session.rotate_credential(b"another key"))
            .await
            .expect("rotated");
        let once = Json::new("1").expect("JSON");
        let (first, once) = (StateVersion(0), Some(&once));
        let written =
            lose_the_answer(&mut daemon, session.compare_and_set(&key("k"), first, once)).await;
        assert_eq!(
            written.expect("it is asked again, and was done once"),
            StateVersion(1)
        );
        assert_eq!(
            session.entry(&key("k")).await.expect("read").value.as_ref(),
            once
        );
        lose_the_answer(&mut daemon, session.terminate())
            .await
            .expect("ended");
        assert!(
            sessions.list().await.expect("listed").len() <= 1,
            "no other was made"
        );
    }
}

#[tokio::test]
async fn a_client_is_attached_again_by_itself() {
    let world = world("");
    let mut daemon = world.daemon();
    let grace_ms = Some(600_000);
    let lifetimes = Lifetimes {
        grace_ms,
        ..Lifetimes::default()
    };
    let session = service(&world)
        .create(CreateOptions::default().lifetimes(lifetimes))
        .await;
    let session = session.expect("made");
    let one = session.attach().await.expect("attached");
    let two = session.attach().await.expect("attached");
    let of = json!({"session": session.id(), "service": "web"});
    let attached = async |expected: u32| {
        let (mut caller, of) = (RetryingPeer::new(world.socket()), of.clone());
        // Nothing tells of it; and elsewhere, so that the client can do what is waited for.
        let looks = tokio::task::spawn_blocking(move || {
            let mut seen = || caller.done("get_session", of.clone())["attached"] == expected;
            until("so many clients are attached", || seen().then_some(()));
        });
        looks.await.expect("so many");
    };
    attached(2).await;
    daemon.restart();
    attached(2).await;
    one.detach().await;
    attached(1).await;
    drop(two);
    attached(0).await;
    daemon.restart();
    assert_eq!(session.view().await.expect("there").attached, 0);
}

#[tokio::test]
async fn a_client_that_goes_after_its_credential_was_rotated_out_is_no_stranger() {
    let world = world("");
    let _daemon = world.daemon();
    let sessions = service(&world);
    let session = sessions.create(bound_to(b"former")).await.expect("made");
    let attachment = session.attach().await.expect("attached");
    let Caller::Credential { hash } = credential(b"new") else {
        panic!("no credential")
    };
    let of = json!({"session": session.id(), "service": "web", "caller": credential(b"former")});
    let rotate = json!({"of": of, "hash": hash, "grace_ms": "0"});
    world
        .peer()
        .call("rotate_credential", rotate)
        .expect("rotated");
    attachment.detach().await;
    let session = sessions
        .on_behalf_of(credential(b"new"))
        .open(session.id())
        .await
        .expect("it lives");
    assert_eq!(session.view().await.expect("it lives").attached, 0);
    // It is refused what it asks for from now on; a refresh never ends a session.
    assert_refusal(
        session.on_behalf_of(credential(b"former")).touch().await,
        &Error::BindingMismatch,
    );
    session.touch().await.expect("it lives");
    // And whoever is a stranger, ends it.
    assert_refusal(
        session.on_behalf_of(credential(b"nobody's")).touch().await,
        &Error::BindingMismatch,
    );
    assert_refusal(session.touch().await, &Error::SessionTerminated);
}

#[tokio::test]
async fn more_wait_than_one_connection_could_carry() {
    let world = world("");
    let _daemon = world.daemon();
    let session = made(&service(&world)).await;
    let waits: Vec<_> = (0..100)
        .map(|_| {
            let session = session.clone();
            tokio::spawn(async move { session.wait(&[Cursor::Number(0)], PATIENCE).await })
        })
        .collect();
    // Half of them are there by now, or not; they hear it either way.
    session.touch().await.expect("touched");
    session
        .standalone()
        .append(message(1))
        .await
        .expect("appended");
    for wait in waits {
        assert_eq!(wait.await.expect("no panic").expect("said").events.len(), 1);
    }
}

#[tokio::test]
async fn a_list_is_whole_although_some_have_ended() {
    let world = world("");
    let _daemon = world.daemon();
    let sessions = service(&world);
    let mut living = Vec::new();
    for number in 0..220 {
        let idle_ms = Some(if number < 105 { 1 } else { 0 });
        let lifetimes = Lifetimes {
            idle_ms,
            ..Lifetimes::default()
        };
        let id = format!("s{number:03}").parse().expect("an id");
        let options = CreateOptions::default().id(id).lifetimes(lifetimes);
        let session = sessions.create(options).await.expect("made");
        if number >= 105 {
            living.push(session.id().clone());
        }
    }
    let listed: Vec<_> = sessions
        .list()
        .await
        .expect("listed")
        .into_iter()
        .map(|one| one.session)
        .collect();
    assert_eq!(listed, living);
}

#[tokio::test]
async fn few_at_a_time_are_all_in_the_end() {
    let world = world("");
    let _daemon = world.daemon();
    let session = made(&service(&world)).await;
    let other = session
        .open_stream(&"other".parse().expect("an id"), None)
        .await
        .expect("opened");
    let standalone = session
        .standalone()
        .append(message(1))
        .await
        .expect("appended")
        .id;
    for number in 2..=300 {
        other.append(message(number)).await.expect("appended");
    }
    let last = session
        .streams()
        .await
        .expect("listed")
        .pop()
        .expect("a stream")
        .cursor
        .expect("an event");
    session
        .standalone()
        .append(message(301))
        .await
        .expect("appended");
    let mut peer = world.peer();
    let of = json!({"session": session.id(), "service": "web"});
    let by_number = json!({"of": of, "after": {"number": "300"}, "most": 1});
    let by_number = peer.call("replay", by_number).expect("replayed");
    let after = [json!({"event": standalone}), json!({"event": last})];
    let waited = peer
        .call(
            "wait",
            json!({"of": of, "after": after, "most": 1, "timeout_ms": 0}),
        )
        .expect("waited");
    for said in [by_number, waited] {
        assert_eq!(said["events"][0]["number"], "301", "{said}");
    }
}

#[test]
fn the_example_says_again_what_was_missed() {
    let world = world("");
    let mut daemon = world.daemon();
    let service = world.event_service();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"count"}"#;
    let first = service.ask("POST", &[], call);
    let (head, said) = first.split_once("\r\n\r\n").expect("a head");
    let session = head
        .lines()
        .find_map(|line| line.strip_prefix("Mcp-Session-Id: "))
        .expect("a session");
    let (primed, rest) = said.split_once("\ndata:\n\n").expect("a priming event");
    let primed = primed.strip_prefix("id: ").expect("its id");
    assert!(rest.contains(r#""calls":1"#), "{rest}");
    drop(service);
    daemon.restart();
    let service = world.event_service();
    let of = ("mcp-session-id", session);
    let again = service.ask("GET", &[of, ("Last-Event-ID", primed)], "");
    assert_eq!(
        again.split_once("\r\n\r\n").map(|(_, said)| said),
        Some(rest)
    );
    assert!(service.ask("POST", &[of], call).contains(r#""calls":2"#));
    let unknown = service.ask("GET", &[of, ("Last-Event-ID", "made-up")], "");
    assert!(
        unknown.starts_with("HTTP/1.1 400 "),
        "{unknown}: the client would throw its session away"
    );
    assert!(
        service
            .ask("DELETE", &[of], "")
            .starts_with("HTTP/1.1 204 ")
    );
    assert!(
        service
            .ask("POST", &[of], call)
            .starts_with("HTTP/1.1 404 ")
    );
}
