//! Which stream a message goes to, case by case.

use super::*;

fn stream(name: &str) -> StreamId {
    name.parse().expect("an id")
}

fn answer(name: &str, id: &str) -> Said {
    Said::Answer(stream(name), id.into())
}

fn with(calls: &[&str]) -> Which {
    let mut which = Which::new(false);
    for id in calls {
        which.open(stream(&format!("s{id}")), vec![(*id).into()]);
    }
    which
}

#[track_caller]
fn goes(which: &mut Which, said: &Said, to: &str) {
    let place = which.place(said).expect("a place");
    assert_eq!(place.stream.as_str(), to, "{said:?}");
}

#[test]
fn answers_and_progress_go_to_their_calls() {
    let mut which = with(&["1", "2"]);
    goes(&mut which, &Said::Progress(stream("s1")), "s1");
    goes(&mut which, &Said::Progress(stream("s2")), "s2");
    assert_eq!(
        which.place(&answer("s2", "2")),
        Some(Place {
            stream: stream("s2"),
            ends: true
        })
    );
    assert_eq!(
        which.place(&answer("s2", "2")),
        None,
        "no such call is open"
    );
    assert_eq!(
        which.place(&answer("s1", "\"1\"")),
        None,
        "a text is no number"
    );
    assert_eq!(which.place(&answer("s2", "1")), None, "another stream's");
    goes(&mut which, &answer("s1", "1"), "s1");
    assert!(which.is_idle());
    assert_eq!(
        which.place(&Said::Progress(stream("s1"))),
        None,
        "its call is not open"
    );
}

#[test]
fn anything_else_goes_to_the_only_call() {
    let mut which = with(&["1"]);
    which.reader(&StreamId::standalone(), true);
    goes(&mut which, &Said::Other, "s1");
    goes(&mut which, &Said::Ask("7".into()), "s1");
    which.place(&answer("s1", "1"));
    goes(&mut which, &Said::Other, StreamId::STANDALONE);
}

#[test]
fn with_two_calls_it_goes_to_the_standalone_stream_or_to_the_newest_call() {
    let mut which = with(&["1", "2"]);
    goes(&mut which, &Said::Other, "s2");
    which.reader(&StreamId::standalone(), true);
    goes(&mut which, &Said::Other, StreamId::STANDALONE);
    which.reader(&StreamId::standalone(), false);
    which.place(&answer("s2", "2"));
    goes(&mut which, &Said::Other, "s1");
    which.place(&answer("s1", "1"));
    goes(&mut which, &Said::Other, StreamId::STANDALONE);
}

#[test]
fn a_cancellation_goes_where_the_request_went() {
    let mut which = with(&["1"]);
    goes(&mut which, &Said::Ask("7".into()), "s1");
    which.open(stream("s2"), vec!["2".into()]);
    goes(&mut which, &Said::Ask("8".into()), "s2");
    goes(&mut which, &Said::Cancelled("7".into()), "s1");
    which.place(&answer("s2", "2"));
    goes(&mut which, &Said::Cancelled("8".into()), "s1");
    goes(&mut which, &Said::Ask("9".into()), "s1");
    which.ask_answered("9");
    which.place(&answer("s1", "1"));
    goes(
        &mut which,
        &Said::Cancelled("9".into()),
        StreamId::STANDALONE,
    );
}

#[test]
fn messages_wait_for_a_reader_that_can_come_back() {
    let mut which = with(&["1"]);
    which.resumable(&stream("s1"));
    which.reader(&stream("s1"), false);
    which.reader(&StreamId::standalone(), true);
    goes(&mut which, &Said::Progress(stream("s1")), "s1");
    goes(&mut which, &Said::Other, "s1");
}

#[test]
fn messages_of_a_stream_that_nobody_can_come_back_to_are_redirected_but_for_answer_and_progress() {
    let mut which = with(&["1"]);
    which.reader(&stream("s1"), false);
    goes(&mut which, &Said::Other, StreamId::STANDALONE);
    goes(&mut which, &Said::Progress(stream("s1")), "s1");
    goes(&mut which, &answer("s1", "1"), "s1");
}

#[test]
fn where_that_is_wanted_messages_are_redirected_until_the_reader_is_back() {
    let mut which = Which::new(true);
    which.open(stream("s1"), vec!["1".into()]);
    which.resumable(&stream("s1"));
    goes(&mut which, &Said::Other, "s1");
    which.reader(&stream("s1"), false);
    goes(&mut which, &Said::Other, StreamId::STANDALONE);
    which.reader(&stream("s1"), true);
    goes(&mut which, &Said::Other, "s1");
}

#[test]
fn the_stream_of_a_batch_ends_with_its_last_answer() {
    let mut which = Which::new(false);
    which.open(stream("b"), vec!["1".into(), "2".into()]);
    assert_eq!(
        which.place(&answer("b", "1")),
        Some(Place {
            stream: stream("b"),
            ends: false
        })
    );
    goes(&mut which, &Said::Progress(stream("b")), "b");
    assert_eq!(
        which.place(&answer("b", "2")),
        Some(Place {
            stream: stream("b"),
            ends: true
        })
    );
}

#[test]
fn a_client_may_use_an_id_again_while_it_is_open() {
    let mut which = with(&["1"]);
    which.open(stream("x"), vec!["1".into()]);
    assert_eq!(which.stream_of("1"), Some(&stream("x")), "the newest");
    goes(&mut which, &answer("s1", "1"), "s1");
    assert_eq!(which.dropped(&stream("x"), "1"), Some(true));
    assert_eq!(
        which.place(&answer("x", "1")),
        None,
        "the client has cancelled it"
    );
    assert_eq!(
        (which.dropped(&stream("x"), "1"), which.stream_of("1")),
        (None, None)
    );
}

#[test]
fn what_is_open_when_the_backend_goes_is_told() {
    let mut which = with(&["1", "2"]);
    which.place(&Said::Ask("7".into()));
    let left = which.clear();
    assert_eq!(
        left,
        [
            (stream("s1"), vec!["1".into()]),
            (stream("s2"), vec!["2".into()])
        ]
    );
    goes(&mut which, &Said::Other, StreamId::STANDALONE);
}
