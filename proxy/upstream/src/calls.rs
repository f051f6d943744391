//! A request with calls, from its first attempt to its last answer, and what a server says on a
//! stream.

use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::id_prefix::tagged;
use mcp_sessiond_jsonrpc::one_line;
use reqwest::StatusCode;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::events::Events;
use crate::http::{HttpRequest, Reply};
use crate::ledger::StreamCursor;
use crate::link::Link;
use crate::messages::{CallFailure, StreamHint, answered, server_messages};
use crate::numbers::{Numbers, base};
use crate::session_headers::SessionHeaders;

/// The pause before another attempt.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause that a server may ask for.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Streams in succession that may end without a word.
const MUTE_MAX: u32 = 10;
/// Bytes of a message that is on record until it is confirmed.
const LINE_MAX: usize = 64 * 1024;

/// A stream of the server's.
#[derive(Debug)]
pub(super) struct Stream {
    numbers: Numbers,
    /// Which one it is, for the host.
    hint: StreamHint,
    /// What its requests say of their session.
    pub(super) stamp: SessionHeaders,
    /// Which of the server's sessions that is.
    pub(super) session: u32,
    /// The last event that came, by which the rest can be had.
    pub(super) event: Option<String>,
    record: Resumable,
    /// After what time the server wants us to come back.
    retry: Option<Duration>,
    /// Streams in succession that have ended without a word.
    mute: u32,
}

/// Whether the rest of a stream can be had after a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resumable {
    /// Nothing was said, or no event had an id.
    None,
    /// An event is on record by which all that was not confirmed comes again.
    Event,
    /// Something was said that would not come again.
    Never,
}

impl Stream {
    /// One on which nothing was said.
    pub(super) fn new(numbers: Numbers, hint: StreamHint) -> Self {
        let (stamp, record) = (SessionHeaders::default(), Resumable::None);
        Self {
            numbers,
            hint,
            stamp,
            session: 0,
            event: None,
            record,
            retry: None,
            mute: 0,
        }
    }

    /// One that another process has begun. Its rest can be had only in the session of the server in
    /// which it began.
    pub(super) fn found(place: &StreamCursor, (stamp, session): (SessionHeaders, u32)) -> Self {
        let event = place.event.clone().filter(|_| place.within == session);
        let record = if event.is_some() {
            Resumable::Event
        } else {
            Resumable::None
        };
        Self {
            stamp,
            session,
            event,
            record,
            ..Self::new(Numbers::after(place.number), place.hint())
        }
    }

    /// The server has another session for ours from now on: events of the former one are none of
    /// this one.
    pub(super) fn begin_again(&mut self) {
        (self.event, self.record, self.retry, self.mute) = (None, Resumable::None, None, 0);
    }

    /// The event that follows can't be read. The stream goes on behind it where its id is known,
    /// else with what is said from now on.
    pub(super) fn skip(&mut self, event: Option<String>) {
        (self.event, self.record) = (event, Resumable::None);
    }

    /// Where it is.
    fn place(
        &self,
        calls: Vec<Box<str>>,
        event: Option<String>,
        number: u64,
        line: Option<String>,
    ) -> StreamCursor {
        StreamCursor {
            calls,
            event,
            within: self.session,
            number,
            line,
        }
    }

    /// The number that stands for it.
    pub(super) fn id(&self) -> u64 {
        self.numbers.base()
    }

    /// Whether it belongs to no call.
    fn is_standalone(&self) -> bool {
        self.hint == StreamHint::Standalone
    }

    /// How long to wait before its rest is asked for.
    pub(super) fn pause(&self) -> Duration {
        self.retry.unwrap_or(PAUSE * (self.mute + 1))
    }
}

impl Link {
    /// Makes a request with calls, and hears it to its end. What waits at `begun` goes on when the
    /// request is about to be said.
    pub(super) async fn call(&self, mut stream: Stream, line: Bytes, begun: oneshot::Sender<()>) {
        drop(begun);
        let ask = HttpRequest::Post(line);
        for is_last in [false, true] {
            (stream.stamp, stream.session) = self.stamp();
            let replied = match self.wire.ask(&ask, &stream.stamp).await {
                Ok(replied) => replied,
                Err(why) => return self.give_up(stream, &why).await,
            };
            match replied.reply {
                Reply::Lost(loss, Some(begun)) => {
                    let _ = self.renew(stream.session, loss).await;
                    return self.give_up(stream, &begun).await;
                }
                Reply::Lost(loss, None) if !is_last => {
                    if let Err(sentence) = self.renew(stream.session, loss).await {
                        return self.give_up(stream, &CallFailure::NotSent(sentence)).await;
                    }
                }
                Reply::Lost(_, None) => {
                    let why = format!(
                        "the session with the server {:?} was lost twice: the call was not started",
                        self.wire.name()
                    );
                    return self.give_up(stream, &CallFailure::NotSent(why)).await;
                }
                Reply::Refused(_, why) | Reply::Denied(why) => {
                    return self.give_up(stream, &why).await;
                }
                Reply::Taken(taken) => {
                    let why = CallFailure::Unknown(taken.sentence(self.wire.name()));
                    return self.give_up(stream, &why).await;
                }
                Reply::Message(text) => {
                    let text = String::from_utf8_lossy(&text);
                    if !self.receive(&mut stream, &text, None).await {
                        self.give_up(stream, &CallFailure::lost(self.wire.name()))
                            .await;
                    }
                    return;
                }
                Reply::Events(events) => return self.follow(stream, events).await,
            }
        }
    }

    /// Goes on with calls that another process has made.
    pub(super) async fn resume_calls(&self, place: StreamCursor) {
        let stream = Stream::found(&place, self.stamp());
        if self.redeliver(&place).await {
            return;
        }
        match self.resumed(&stream).await {
            Some(events) => self.follow(stream, events).await,
            None => {
                self.give_up(stream, &CallFailure::lost(self.wire.name()))
                    .await;
            }
        }
    }

    /// Says once more what another process may not have confirmed. Whether that was the last
    /// answer.
    pub(super) async fn redeliver(&self, place: &StreamCursor) -> bool {
        let Some(line) = place.line.clone() else {
            return false;
        };
        let line = Bytes::from(line);
        let is_over = answered(&line).is_some_and(|id| self.answered(base(place.number), &id));
        if is_over {
            self.ledger.last(place.number);
        }
        self.deliver(place.number, Some(place.hint()), line).await;
        is_over
    }

    /// Hears a stream to its end, or as far as it can be had.
    async fn follow(&self, mut stream: Stream, mut events: Events) {
        loop {
            if self.listen_to(&mut stream, &mut events).await {
                return;
            }
            if events.is_too_large {
                // It would be as large if it was asked for again.
                let failure = CallFailure::too_large(self.wire.name());
                return self.give_up(stream, &failure).await;
            }
            match self.resumed(&stream).await {
                Some(rest) => events = rest,
                None => {
                    return self
                        .give_up(stream, &CallFailure::lost(self.wire.name()))
                        .await;
                }
            }
        }
    }

    /// Hears events until there are no more. Whether the last answer was among them.
    pub(super) async fn listen_to(&self, stream: &mut Stream, events: &mut Events) -> bool {
        stream.mute += 1;
        while let Some(event) = events.next().await {
            // A call was made by whoever was logged in then. What belongs to none is for nobody
            // else either.
            if stream.is_standalone() && !self.wire.is_login_of(&stream.stamp) {
                return false;
            }
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
                if self.receive(stream, &event.data, event.id).await {
                    return true;
                }
            } else if let (Some(event), Resumable::None) = (event.id, stream.record) {
                stream.record = Resumable::Event;
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
    async fn receive(&self, stream: &mut Stream, text: &str, event: Option<String>) -> bool {
        let lines = server_messages(&Bytes::from(one_line(text)));
        let Some(most) = lines.len().checked_sub(1) else {
            return false;
        };
        let mut is_over = false;
        for (at, line) in lines.into_iter().enumerate() {
            // The event comes again unless its last message is confirmed.
            let event = event.as_ref().filter(|_| at == most).cloned();
            let is_part = most > 0;
            is_over |= self.receive_one(stream, &line, event, is_part).await;
        }
        is_over
    }

    /// Passes on one message, which may be a part of an event. Whether it was the last answer.
    async fn receive_one(
        &self,
        stream: &mut Stream,
        line: &Bytes,
        event: Option<String>,
        is_part: bool,
    ) -> bool {
        let line = tagged(line, &stream.session.to_string());
        let (former, number) = (stream.numbers.last(), stream.numbers.next());
        let calls = self.unanswered(stream.id());
        let answers = answered(&line);
        // Its host may have a call of this id at another server. Without an id it is nobody's
        // answer, and tells what the server can't read.
        let is_nobodys = answers
            .as_ref()
            .is_some_and(|id| **id != *"null" && !self.waits_for(id));
        if answers.is_some() {
            self.wire.request_headers.learn(&line);
        }
        let is_over = answers.is_some_and(|id| self.answered(stream.id(), &id));
        match (event, stream.record) {
            (Some(event), Resumable::Event) => self.ledger.reached(number, event),
            (Some(event), Resumable::None) if is_part || is_nobodys || line.len() > LINE_MAX => {
                stream.record = Resumable::Event;
                // The stream is there from this event on once that is confirmed.
                self.ledger
                    .place(stream.id(), stream.place(calls, None, former, None))
                    .await;
                self.ledger.reached(number, event);
            }
            (Some(event), Resumable::None) => {
                stream.record = Resumable::Event;
                let line = Some(String::from_utf8_lossy(&line).into_owned());
                self.ledger
                    .place(stream.id(), stream.place(calls, Some(event), number, line))
                    .await;
            }
            // The rest of it has the event's id.
            (None, _) if is_part => {}
            (None, Resumable::Event) => {
                stream.record = Resumable::Never;
                self.ledger
                    .place(stream.id(), stream.place(calls, None, number, None))
                    .await;
            }
            (None, Resumable::None) => stream.record = Resumable::Never,
            (_, Resumable::Never) => {}
        }
        if is_over {
            self.ledger.last(number);
        }
        // What nobody is told is confirmed with the next one: what came before may still be on its
        // way.
        if !is_nobodys {
            self.deliver(number, Some(stream.hint.clone()), line).await;
        }
        is_over
    }

    /// What follows on the last event of a stream. None: it can't be had.
    async fn resumed(&self, stream: &Stream) -> Option<Events> {
        let event = stream.event.clone()?;
        if stream.mute > MUTE_MAX {
            return None;
        }
        sleep(stream.pause()).await;
        let (until, ask) = (
            Instant::now() + 2 * self.wire.hold(),
            HttpRequest::Get(Some(event)),
        );
        loop {
            let replied = self.wire.try_once(&ask, &stream.stamp).await;
            match replied.map(|replied| replied.reply) {
                Some(Reply::Events(events)) => return Some(events),
                Some(Reply::Refused(status, _)) if is_passing(status) => {}
                Some(_) => return None,
                None => {}
            }
            if Instant::now() >= until {
                return None;
            }
            sleep(PAUSE).await;
        }
    }

    /// Answers what is open on a stream in these words.
    pub(super) async fn give_up(&self, mut stream: Stream, why: &CallFailure) {
        for id in self.unanswered(stream.id()) {
            let number = stream.numbers.ours();
            if self.answered(stream.id(), &id) {
                self.ledger.last(number);
            }
            self.deliver(number, Some(stream.hint.clone()), why.answer(&id))
                .await;
        }
    }
}

/// Whether the same request may be taken a little later: the server has yet to see that the former
/// connection is gone, say.
pub(super) fn is_passing(status: StatusCode) -> bool {
    status.is_server_error()
        || [StatusCode::CONFLICT, StatusCode::TOO_MANY_REQUESTS].contains(&status)
}
