//! Which stream a message goes to, case by case.

use super::*;

const STDIO: Policy = Policy {
    redirect: false,
    attributes: false,
};

fn stream(name: &str) -> StreamId {
    name.parse().expect("an id")
}

fn answer(name: &str, id: &str) -> ServerMessage {
    ServerMessage::Answer(stream(name), id.into())
}

fn with(calls: &[&str]) -> StreamRouter {
    let mut router = StreamRouter::new(STDIO);
    for id in calls {
        open(&mut router, &format!("s{id}"), &[id]);
    }
    router
}

fn open(router: &mut StreamRouter, name: &str, calls: &[&str]) {
    let calls = calls.iter().map(|id| (*id).into()).collect();
    router.begin(stream(name), calls);
    router.opened(&stream(name));
}

#[track_caller]
fn goes(router: &mut StreamRouter, message: &ServerMessage, to: &str) {
    let destination = router.route(message, None).expect("a stream");
    assert_eq!(destination.stream.as_str(), to, "{message:?}");
}

#[test]
fn answers_and_progress_go_to_their_calls() {
    let mut router = with(&["1", "2"]);
    goes(&mut router, &ServerMessage::Progress(stream("s1")), "s1");
    goes(&mut router, &ServerMessage::Progress(stream("s2")), "s2");
    assert_eq!(
        router.route(&answer("s2", "2"), None),
        Some(Destination {
            stream: stream("s2"),
            ends: true
        })
    );
    assert_eq!(
        router.route(&answer("s2", "2"), None),
        None,
        "no such call is open"
    );
    assert_eq!(
        router.route(&answer("s1", "\"1\""), None),
        None,
        "a text is no number"
    );
    assert_eq!(
        router.route(&answer("s2", "1"), None),
        None,
        "another stream's"
    );
    goes(&mut router, &answer("s1", "1"), "s1");
    assert!(router.is_idle());
    assert_eq!(
        router.route(&ServerMessage::Progress(stream("s1")), None),
        None,
        "its call is not open"
    );
}

#[test]
fn anything_else_goes_to_the_only_call() {
    let mut router = with(&["1"]);
    router.set_reader(&StreamId::standalone(), true);
    goes(&mut router, &ServerMessage::Other, "s1");
    goes(&mut router, &ServerMessage::Request("7".into()), "s1");
    router.route(&answer("s1", "1"), None);
    goes(&mut router, &ServerMessage::Other, StreamId::STANDALONE);
}

#[test]
fn with_two_calls_it_goes_to_the_standalone_stream_or_to_the_newest_call() {
    let mut router = with(&["1", "2"]);
    goes(&mut router, &ServerMessage::Other, "s2");
    router.set_reader(&StreamId::standalone(), true);
    goes(&mut router, &ServerMessage::Other, StreamId::STANDALONE);
    router.set_reader(&StreamId::standalone(), false);
    router.route(&answer("s2", "2"), None);
    goes(&mut router, &ServerMessage::Other, "s1");
    router.route(&answer("s1", "1"), None);
    goes(&mut router, &ServerMessage::Other, StreamId::STANDALONE);
}

#[test]
fn what_a_server_with_streams_has_said_on_one_stays_on_it() {
    let mut router = with(&["1", "2"]);
    let on = |router: &mut StreamRouter, message: ServerMessage, said_on: &str| {
        let to = router.route(&message, Some(&stream(said_on)));
        to.expect("a stream").stream.to_string()
    };
    assert_eq!(on(&mut router, ServerMessage::Other, "s1"), "s1");
    let question = ServerMessage::Request("7".into());
    assert_eq!(on(&mut router, question, "s1"), "s1");
    let standalone = StreamId::STANDALONE;
    assert_eq!(
        on(&mut router, ServerMessage::Other, standalone),
        standalone
    );
    // A call that was answered has no stream any more.
    router.route(&answer("s1", "1"), None);
    assert_eq!(on(&mut router, ServerMessage::Other, "s1"), "s2");
}

#[test]
fn a_question_of_a_server_on_stdio_goes_to_the_newest_call() {
    let mut router = with(&["1", "2"]);
    router.set_reader(&StreamId::standalone(), true);
    goes(&mut router, &ServerMessage::Request("7".into()), "s2");
}

#[test]
fn a_cancellation_goes_where_the_request_went() {
    let mut router = with(&["1"]);
    goes(&mut router, &ServerMessage::Request("7".into()), "s1");
    open(&mut router, "s2", &["2"]);
    goes(&mut router, &ServerMessage::Request("8".into()), "s2");
    goes(&mut router, &ServerMessage::Cancelled("7".into()), "s1");
    router.route(&answer("s2", "2"), None);
    goes(&mut router, &ServerMessage::Cancelled("8".into()), "s1");
    goes(&mut router, &ServerMessage::Request("9".into()), "s1");
    router.request_answered("9");
    router.route(&answer("s1", "1"), None);
    goes(
        &mut router,
        &ServerMessage::Cancelled("9".into()),
        StreamId::STANDALONE,
    );
}

#[test]
fn messages_wait_for_a_reader_that_can_come_back() {
    let mut router = with(&["1"]);
    router.set_resumable(&stream("s1"));
    router.set_reader(&stream("s1"), false);
    router.set_reader(&StreamId::standalone(), true);
    goes(&mut router, &ServerMessage::Progress(stream("s1")), "s1");
    goes(&mut router, &ServerMessage::Other, "s1");
}

#[test]
fn messages_of_a_stream_that_nobody_can_come_back_to_are_redirected_but_for_answer_and_progress() {
    let mut router = with(&["1"]);
    router.set_reader(&stream("s1"), false);
    goes(&mut router, &ServerMessage::Other, StreamId::STANDALONE);
    goes(&mut router, &ServerMessage::Progress(stream("s1")), "s1");
    goes(&mut router, &answer("s1", "1"), "s1");
}

#[test]
fn where_that_is_wanted_messages_are_redirected_until_the_reader_is_back() {
    let mut router = StreamRouter::new(Policy {
        redirect: true,
        ..STDIO
    });
    open(&mut router, "s1", &["1"]);
    router.set_resumable(&stream("s1"));
    goes(&mut router, &ServerMessage::Other, "s1");
    router.set_reader(&stream("s1"), false);
    goes(&mut router, &ServerMessage::Other, StreamId::STANDALONE);
    router.set_reader(&stream("s1"), true);
    goes(&mut router, &ServerMessage::Other, "s1");
}

#[test]
fn the_stream_of_a_batch_ends_with_its_last_answer() {
    let mut router = with(&[]);
    open(&mut router, "b", &["1", "2"]);
    assert_eq!(
        router.route(&answer("b", "1"), None),
        Some(Destination {
            stream: stream("b"),
            ends: false
        })
    );
    goes(&mut router, &ServerMessage::Progress(stream("b")), "b");
    assert_eq!(
        router.route(&answer("b", "2"), None),
        Some(Destination {
            stream: stream("b"),
            ends: true
        })
    );
}

#[test]
fn a_cancellation_that_may_mean_either_of_two_calls_cancels_none() {
    let mut router = with(&["1"]);
    assert_eq!(router.cancelled("1"), Some(&stream("s1")));
    // A page that was reloaded counts from the beginning.
    router.begin(stream("x"), vec!["1".into()]);
    assert_eq!(router.cancelled("1"), None, "the server has not got it yet");
    router.opened(&stream("x"));
    assert_eq!(router.cancelled("1"), None);
    goes(&mut router, &answer("x", "1"), "x");
    assert_eq!(router.cancelled("1"), None, "the other one is meant");
    assert_eq!(router.drop_call(&stream("s1"), "1"), Some(true));
    assert_eq!(
        router.route(&answer("s1", "1"), None),
        None,
        "it is not to be answered any more"
    );
    assert_eq!(router.drop_call(&stream("s1"), "1"), None);
}

#[test]
fn a_server_that_tells_of_its_messages_says_to_no_call_what_it_does_not_tell_of() {
    let mut router = StreamRouter::new(Policy {
        attributes: true,
        ..STDIO
    });
    let standalone = StreamId::STANDALONE;
    open(&mut router, "s1", &["1"]);
    goes(&mut router, &ServerMessage::Log, "s1");
    goes(&mut router, &ServerMessage::Other, standalone);
    goes(&mut router, &ServerMessage::Request("7".into()), standalone);
    open(&mut router, "s2", &["2"]);
    goes(&mut router, &ServerMessage::Log, standalone);
    let question = ServerMessage::Request("8".into());
    let to = router.route(&question, Some(&stream("s1")));
    assert_eq!(to.expect("a stream").stream, stream("s1"));
    goes(&mut router, &ServerMessage::Cancelled("8".into()), "s1");
}

#[test]
fn what_is_open_when_the_backend_goes_is_told() {
    let mut router = with(&["1", "2"]);
    router.route(&ServerMessage::Request("7".into()), None);
    let left = router.clear();
    assert_eq!(
        left,
        [
            (stream("s1"), vec!["1".into()]),
            (stream("s2"), vec!["2".into()])
        ]
    );
    goes(&mut router, &ServerMessage::Other, StreamId::STANDALONE);
}
