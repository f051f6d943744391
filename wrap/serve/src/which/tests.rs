//! Which stream a message goes to, case by case.

use super::*;

fn stream(name: &str) -> StreamId {
    name.parse().expect("an id")
}

fn call(id: &str) -> Call {
    Call { id: id.into(), token: Some(format!("\"t{id}\"").into()) }
}

fn with(calls: &[&str]) -> Which {
    let mut which = Which::new(false);
    for id in calls {
        which.open(stream(&format!("s{id}")), vec![call(id)]).expect("opened");
    }
    which
}

#[track_caller]
fn goes(which: &mut Which, said: Said<'_>, to: &str) {
    let place = which.place(said).expect("a place");
    assert_eq!(place.stream.as_str(), to, "{said:?}");
}

#[test]
fn answers_and_progress_go_to_their_calls() {
    let mut which = with(&["1", "2"]);
    goes(&mut which, Said::Progress("\"t1\""), "s1");
    goes(&mut which, Said::Progress("\"t2\""), "s2");
    assert_eq!(which.place(Said::Answer("2")), Some(Place { stream: stream("s2"), ends: true }));
    assert_eq!(which.place(Said::Answer("2")), None, "nobody has asked");
    assert_eq!(which.place(Said::Answer("\"1\"")), None, "a text is no number");
    goes(&mut which, Said::Answer("1"), "s1");
    assert!(which.calls().next().is_none());
}

#[test]
fn anything_else_goes_to_the_only_call() {
    let mut which = with(&["1"]);
    which.reader(&StreamId::standalone(), true);
    goes(&mut which, Said::Other, "s1");
    goes(&mut which, Said::Ask("7"), "s1");
    which.place(Said::Answer("1"));
    goes(&mut which, Said::Other, StreamId::STANDALONE);
}

#[test]
fn with_two_calls_it_goes_to_the_standalone_stream_or_to_the_newest_call() {
    let mut which = with(&["1", "2"]);
    goes(&mut which, Said::Other, "s2");
    which.reader(&StreamId::standalone(), true);
    goes(&mut which, Said::Other, StreamId::STANDALONE);
    which.reader(&StreamId::standalone(), false);
    which.place(Said::Answer("2"));
    goes(&mut which, Said::Other, "s1");
    which.place(Said::Answer("1"));
    goes(&mut which, Said::Other, StreamId::STANDALONE);
}

#[test]
fn a_cancellation_goes_where_the_request_went() {
    let mut which = with(&["1"]);
    goes(&mut which, Said::Ask("7"), "s1");
    which.open(stream("s2"), vec![call("2")]).expect("opened");
    goes(&mut which, Said::Ask("8"), "s2");
    goes(&mut which, Said::Cancelled("7"), "s1");
    which.place(Said::Answer("2"));
    goes(&mut which, Said::Cancelled("8"), "s1");
    goes(&mut which, Said::Ask("9"), "s1");
    which.ask_answered("9");
    which.place(Said::Answer("1"));
    goes(&mut which, Said::Cancelled("9"), StreamId::STANDALONE);
}

#[test]
fn messages_wait_for_a_reader_that_can_come_back() {
    let mut which = with(&["1"]);
    which.resumable(&stream("s1"));
    which.reader(&stream("s1"), false);
    which.reader(&StreamId::standalone(), true);
    goes(&mut which, Said::Progress("\"t1\""), "s1");
    goes(&mut which, Said::Other, "s1");
}

#[test]
fn messages_of_a_stream_that_nobody_can_come_back_to_are_redirected_but_for_the_answer() {
    let mut which = with(&["1"]);
    which.reader(&stream("s1"), false);
    goes(&mut which, Said::Progress("\"t1\""), StreamId::STANDALONE);
    goes(&mut which, Said::Other, StreamId::STANDALONE);
    goes(&mut which, Said::Answer("1"), "s1");
}

#[test]
fn where_that_is_wanted_messages_are_redirected_until_the_reader_is_back() {
    let mut which = Which::new(true);
    which.open(stream("s1"), vec![call("1")]).expect("opened");
    which.resumable(&stream("s1"));
    goes(&mut which, Said::Other, "s1");
    which.reader(&stream("s1"), false);
    goes(&mut which, Said::Other, StreamId::STANDALONE);
    which.reader(&stream("s1"), true);
    goes(&mut which, Said::Other, "s1");
}

#[test]
fn the_stream_of_a_batch_ends_with_its_last_answer() {
    let mut which = Which::new(false);
    which.open(stream("b"), vec![call("1"), call("2")]).expect("opened");
    assert_eq!(which.place(Said::Answer("1")), Some(Place { stream: stream("b"), ends: false }));
    goes(&mut which, Said::Progress("\"t2\""), "b");
    assert_eq!(which.place(Said::Answer("2")), Some(Place { stream: stream("b"), ends: true }));
}

#[test]
fn an_id_is_open_once() {
    let mut which = with(&["1"]);
    assert_eq!(which.open(stream("x"), vec![call("1")]), Err(Duplicate));
    assert_eq!(which.open(stream("x"), vec![call("2"), call("2")]), Err(Duplicate));
    assert!(!which.is_open(&stream("x")));
    assert_eq!(which.cancelled("1"), Some(stream("s1")));
    assert_eq!(which.place(Said::Answer("1")), None, "it is not wanted any more");
    which.open(stream("x"), vec![call("1")]).expect("it may be had again");
}

#[test]
fn what_is_open_when_the_backend_goes_is_told() {
    let mut which = with(&["1", "2"]);
    which.place(Said::Ask("7"));
    let left = which.clear();
    assert_eq!(left, [(stream("s1"), vec![call("1")]), (stream("s2"), vec![call("2")])]);
    goes(&mut which, Said::Other, StreamId::STANDALONE);
}
