//! A request with calls, from its first attempt to its last answer, and what a server says on a
//! stream.

use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use mcp_sessiond_client::Json;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::ledger::StreamCursor;
use super::link::{Judgement, Link};
use super::numbers::Numbers;
use super::wire::{Events, Reply, Stamp};
use crate::messages::{
    Id, answered_ids, not_sent, not_started, outcome_unknown, refused_upstream, tagged,
    unknown_because,
};

/// The pause before another attempt.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause that a server may ask for.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Streams in succession that may end without a word.
const MUTE_MAX: u32 = 10;

/// A stream of the server's.
#[derive(Debug)]
pub(super) struct Stream {
    numbers: Numbers,
    /// What its requests say of their session.
    pub(super) stamp: Stamp,
    /// The last event that came, by which the rest can be had.
    pub(super) event: Option<String>,
    record: Record,
    /// After what time the server wants us to come back.
    retry: Option<Duration>,
    /// Streams in succession that have ended without a word.
    mute: u32,
}

/// Whether the rest of a stream can be had after a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Record {
    /// Nothing was said, or no event had an id.
    None,
    /// An event is on record by which all that was not kept comes again.
    Event,
    /// Something was said that would not come again.
    Never,
}

impl Stream {
    /// One on which nothing was said.
    pub(super) fn new(numbers: Numbers) -> Self {
        let (stamp, record) = (Stamp::default(), Record::None);
        Self {
            numbers,
            stamp,
            event: None,
            record,
            retry: None,
            mute: 0,
        }
    }

    /// One that another process has begun. Its rest can be had only in the session of the server in
    /// which it began.
    pub(super) fn found(place: &StreamCursor, stamp: Stamp) -> Self {
        let is_same = place
            .within
            .as_ref()
            .is_none_or(|within| *within == stamp.tag());
        let event = place.event.clone().filter(|_| is_same);
        let record = if event.is_some() {
            Record::Event
        } else {
            Record::None
        };
        Self {
            stamp,
            event,
            record,
            ..Self::new(Numbers::after(place.number))
        }
    }

    /// The server has another session for ours from now on: events of the former one are none of
    /// this one.
    pub(super) fn begin_again(&mut self) {
        (self.event, self.record) = (None, Record::None);
    }

    /// Where it is.
    fn place(
        &self,
        calls: Vec<Id>,
        event: Option<String>,
        number: u64,
        line: Option<String>,
    ) -> StreamCursor {
        let within = event.is_some().then(|| self.stamp.tag());
        StreamCursor {
            calls,
            event,
            within,
            number,
            line,
        }
    }

    /// The number that stands for it.
    pub(super) fn id(&self) -> u64 {
        self.numbers.base()
    }

    /// How long to wait before its rest is asked for.
    pub(super) fn pause(&self) -> Duration {
        self.retry.unwrap_or(PAUSE * (self.mute + 1))
    }
}

impl Link {
    /// Makes a request with calls, and hears it to its end. What waits at `begun` goes on when the
    /// request is about to be said, or will never be.
    pub(super) async fn call(&self, mut stream: Stream, line: Bytes, begun: oneshot::Sender<()>) {
        let mut begun = Some(begun);
        for is_last in [false, true] {
            let (stamp, generation) = self.stamp();
            stream.stamp = stamp;
            let Ok(connected) = self.connect().await else {
                return self.give_up(stream, not_started).await;
            };
            drop(begun.take());
            let Ok(replied) = connected.post(line.clone(), &stream.stamp).await else {
                return self.give_up(stream, outcome_unknown).await;
            };
            match replied.reply {
                Reply::Refused(why) => {
                    let calls = self.unanswered(stream.id());
                    let id = <[Id; 1]>::try_from(calls).ok().map(|[id]| id);
                    match self.judge(&why, id.as_deref(), &stream.stamp).await {
                        Judgement::Answer => {
                            let text = String::from_utf8_lossy(&why.body);
                            if !self.hear(&mut stream, &text, None).await {
                                self.give_up(stream, outcome_unknown).await;
                            }
                            return;
                        }
                        Judgement::Gone if !is_last => {
                            if let Err(sentence) = self.renew(generation).await {
                                crate::stderr::warn(&sentence);
                                return self.give_up(stream, |id| not_sent(id, &sentence)).await;
                            }
                        }
                        Judgement::Gone | Judgement::Refused | Judgement::Unclear => {
                            let sentence = why.sentence();
                            return self
                                .give_up(stream, |id| refused_upstream(id, why.status, &sentence))
                                .await;
                        }
                    }
                }
                Reply::Taken(taken) => {
                    let sentence = taken.sentence();
                    return self
                        .give_up(stream, |id| unknown_because(id, &sentence))
                        .await;
                }
                Reply::Message(text) => {
                    let text = String::from_utf8_lossy(&text);
                    if !self.hear(&mut stream, &text, None).await {
                        self.give_up(stream, outcome_unknown).await;
                    }
                    return;
                }
                Reply::Events(events) => return self.follow(stream, events).await,
            }
        }
    }

    /// Goes on with calls that another process has made.
    pub(super) async fn go_on(&self, place: StreamCursor) {
        let stream = Stream::found(&place, self.stamp().0);
        if self.again(&place).await {
            return;
        }
        match self.resumed(&stream).await {
            Some(events) => self.follow(stream, events).await,
            None => self.give_up(stream, outcome_unknown).await,
        }
    }

    /// Says once more what another process may have left unkept. Whether that was the last answer.
    pub(super) async fn again(&self, place: &StreamCursor) -> bool {
        let Some(line) = place.line.clone() else {
            return false;
        };
        let line = Bytes::from(line);
        let is_over = self.answers(super::numbers::base(place.number), &line);
        if is_over {
            self.ledger.last(place.number);
        }
        self.emit(place.number, line).await;
        is_over
    }

    /// Hears a stream to its end, or as far as it can be had.
    async fn follow(&self, mut stream: Stream, mut events: Events) {
        loop {
            if self.listen_to(&mut stream, &mut events).await {
                return;
            }
            match self.resumed(&stream).await {
                Some(rest) => events = rest,
                None => return self.give_up(stream, outcome_unknown).await,
            }
        }
    }

    /// Hears events until there are no more. Whether the last answer was among them.
    pub(super) async fn listen_to(&self, stream: &mut Stream, events: &mut Events) -> bool {
        stream.mute += 1;
        while let Some(event) = events.next().await {
            stream.mute = 0;
            stream.retry = event
                .retry
                .map(Duration::from_millis)
                .or(stream.retry)
                .map(|retry| retry.min(RETRY_MAX));
            if event.id.is_some() && event.id == stream.event {
                // Some servers say again the very event that we come back with.
                continue;
            }
            stream.event = event.id.clone().or(stream.event.take());
            if !event.data.is_empty() && event.is_message {
                if self.hear(stream, &event.data, event.id).await {
                    return true;
                }
            } else if let (Some(event), Record::None) = (event.id, stream.record) {
                stream.record = Record::Event;
                let (calls, number) = (self.unanswered(stream.id()), stream.numbers.last());
                self.ledger
                    .place(stream.id(), stream.place(calls, Some(event), number, None))
                    .await;
            }
        }
        if events.broke_off {
            // The server has not asked for a pause.
            stream.retry = None;
        }
        false
    }

    /// Passes on what the server has said, in an event of this id. Whether it was the last answer.
    async fn hear(&self, stream: &mut Stream, text: &str, event: Option<String>) -> bool {
        // A server that was started again counts its own requests anew.
        let line = tagged(
            &Bytes::from(text.replace(['\n', '\r'], " ")),
            &stream.stamp.tag(),
        );
        let number = stream.numbers.next();
        let calls = self.unanswered(stream.id());
        let is_over = self.answers(stream.id(), &line);
        match (event, stream.record) {
            (Some(event), Record::Event) => self.ledger.reached(number, event),
            (Some(event), Record::None) => {
                stream.record = Record::Event;
                let line = Some(String::from_utf8_lossy(&line).into_owned());
                self.ledger
                    .place(stream.id(), stream.place(calls, Some(event), number, line))
                    .await;
            }
            (None, Record::Event) => {
                stream.record = Record::Never;
                self.ledger
                    .place(stream.id(), stream.place(calls, None, number, None))
                    .await;
            }
            (None, Record::None) => stream.record = Record::Never,
            (_, Record::Never) => {}
        }
        if is_over {
            self.ledger.last(number);
        }
        self.emit(number, line).await;
        is_over
    }

    /// Notes which calls a line answers. Whether none is left.
    fn answers(&self, stream: u64, line: &Bytes) -> bool {
        answered_ids(line)
            .into_iter()
            .fold(false, |is_over, id| is_over | self.answered(stream, &id))
    }

    /// What follows on the last event of a stream. None: it can't be had.
    async fn resumed(&self, stream: &Stream) -> Option<Events> {
        let event = stream.event.as_deref()?;
        if stream.mute > MUTE_MAX {
            return None;
        }
        sleep(stream.pause()).await;
        let until = Instant::now() + self.hold;
        loop {
            let replied = self
                .connect()
                .await
                .ok()?
                .get(Some(event), &stream.stamp)
                .await;
            match replied.map(|replied| replied.reply) {
                Ok(Reply::Events(events)) => return Some(events),
                Ok(Reply::Refused(why)) if is_passing(why.status) => {}
                Ok(_) => return None,
                Err(_) => {}
            }
            if Instant::now() >= until {
                return None;
            }
            sleep(PAUSE).await;
        }
    }

    /// Answers what is open on a stream in these words.
    pub(super) async fn give_up(&self, mut stream: Stream, words: impl Fn(&str) -> Json) {
        for id in self.unanswered(stream.id()) {
            let number = stream.numbers.ours();
            if self.answered(stream.id(), &id) {
                self.ledger.last(number);
            }
            self.emit(number, words(&id).as_str().to_owned()).await;
        }
    }
}

/// Whether the same request may be taken a little later: the server has yet to see that the former
/// connection is gone, say.
pub(super) fn is_passing(status: StatusCode) -> bool {
    status.is_server_error()
        || [StatusCode::CONFLICT, StatusCode::TOO_MANY_REQUESTS].contains(&status)
}
