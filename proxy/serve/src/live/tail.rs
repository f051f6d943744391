//! The body of a response that is a stream of events: first those that the client has missed, then
//! each new one, until the stream ends.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{BoxStream, unfold};
use mcp_sessiond_client::{Cursor, EventId, StreamId};
use mcp_sessiond_http_session::messages::is_answer;
use mcp_sessiond_http_session::reader::{EventReader, Part};
use mcp_sessiond_http_session::sse::{COMMENT, data, event, priming};
use mcp_sessiond_http_session::substitute::made_room_notice;
use tokio::time::{Duration, Instant, sleep, timeout_at};

use super::{EventReceiver, Live, ReaderEnd};
use crate::refusal::Refusal;

/// The body of a response that is a stream of events, part by part.
pub type Parts = BoxStream<'static, Bytes>;

/// The events that the reader of a stream is sent.
#[derive(Debug)]
pub struct Tail {
    live: Arc<Live>,
    reader: EventReader,
    /// Where new events come from. None: there will be none.
    reading: Option<EventReceiver>,
    /// Whether the daemon may have events that did not come by `reading`.
    behind: bool,
    waiting: VecDeque<Part>,
    over: bool,
    /// Whether the stream has ended, and everything of it was sent.
    has_ended: bool,
}

/// The client has gone: from now on the session may be unused.
impl Drop for Tail {
    fn drop(&mut self) {
        drop(self.reading.take());
        self.live.reader_left(self.reader.stream());
    }
}

impl Tail {
    /// The events after `position`.
    pub fn new(
        live: Arc<Live>,
        stream: StreamId,
        position: u64,
        after: Cursor,
        reading: Option<EventReceiver>,
    ) -> Self {
        Self {
            live,
            reader: EventReader::new(stream, position, after),
            reading,
            behind: false,
            waiting: VecDeque::new(),
            over: false,
            has_ended: false,
        }
    }

    /// First sends what the daemon has stored since then.
    pub fn catching_up(mut self) -> Self {
        self.behind = true;
        self
    }

    /// Sends an event without data: an id to resume with, and how long the client is to wait before
    /// it does.
    pub fn prime(&mut self, id: &EventId) {
        let retry = self.live.settings().retry_ms;
        self.push(priming(id, retry, self.live.handshake().primes()));
    }

    /// The parts of the body.
    pub fn parts(self) -> Parts {
        let parts = unfold(self, async |mut tail| {
            let part = tail.next().await?;
            Some((part, tail))
        });
        parts.boxed()
    }

    /// The next part of the body. None: the body ends.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.next_part().await.map(|part| part.text.into())
    }

    /// The answer, as JSON, if it is all that the server says within this time and before the next comment is due, and
    /// its event has more than so many bytes. None: what was said stays for the body.
    pub async fn only_answer(&mut self, more_than: usize, wait: Duration) -> Option<String> {
        let until = Instant::now() + wait;
        let mut said = VecDeque::new();
        let answer = loop {
            let Ok(Some(part)) = timeout_at(until, self.next_part()).await else {
                break None;
            };
            let is_prelude = part.event.is_none() && part.text != COMMENT;
            let answer = data(&part.text)
                .filter(|data| part.text.len() > more_than && is_answer(data))
                .map(str::to_owned);
            said.push_back(part);
            if answer.is_some() || !is_prelude {
                break answer;
            }
        };
        if answer.is_some() {
            // It is read to its end, as by a client.
            while self.next_part().await.is_some() {}
        } else {
            said.append(&mut self.waiting);
            self.waiting = said;
        }
        answer
    }

    async fn next_part(&mut self) -> Option<Part> {
        loop {
            if let Some(part) = self.waiting.pop_front() {
                if let Some((position, id)) = &part.event
                    && self.reader.stream().as_str() == StreamId::STANDALONE
                {
                    self.live.delivered(*position, id);
                }
                return Some(part);
            }
            if self.over {
                if self.has_ended {
                    self.live.confirm_losses(self.reader.stream());
                }
                return None;
            }
            if self.behind {
                self.catch_up().await;
            } else {
                self.follow().await;
            }
        }
    }

    /// Sends a page of what is stored.
    async fn catch_up(&mut self) {
        let page = match self.live.session().replay(self.reader.after()).await {
            Ok(page) => page,
            Err(error) if error.passes() && !self.live.has_ended() => {
                self.push(COMMENT);
                sleep(self.live.settings().keep_alive / 4).await;
                return;
            }
            Err(_) => {
                self.over = true;
                return;
            }
        };
        self.behind = page.more;
        let (parts, has_ended) = self.reader.page(page);
        self.has_ended = has_ended;
        self.over = has_ended || (!self.behind && self.reading.is_none());
        for part in parts {
            if let Some((_, event)) = &part.event {
                self.live.replayed(event).await;
            }
            self.waiting.push_back(part);
        }
    }

    /// Sends what is said next.
    async fn follow(&mut self) {
        let Some(reading) = &mut self.reading else {
            self.over = true;
            return;
        };
        let keep_alive = self.live.settings().keep_alive;
        tokio::select! {
            said = reading.events.recv() => match (said, reading.end.get()) {
                (Some(said), _) => {
                    let message = said.message.as_str();
                    let part = self.reader.event(said.position, &said.id, message);
                    self.waiting.extend(part);
                }
                (None, Some(ReaderEnd::Lagging)) => {
                    self.reading = self.live.read(self.reader.stream());
                    self.behind = true;
                }
                (None, Some(ReaderEnd::MadeRoom(uncalled))) => {
                    let notice = made_room_notice(*uncalled);
                    self.push(event(None, &notice));
                    self.over = true;
                }
                (None, end) => {
                    self.over = true;
                    self.has_ended = end == Some(&ReaderEnd::Ended);
                }
            },
            () = sleep(keep_alive) => self.push(COMMENT),
        }
    }

    /// What has no place in the stream is sent in its turn, too.
    fn push(&mut self, part: impl Into<String>) {
        self.waiting.push_back(Part::from(part.into()));
    }
}

/// A stream from an event on. None: it has ended, and that was its last event.
///
/// # Errors
/// When there is no such event, or no daemon.
pub async fn resumed(live: &Arc<Live>, event: EventId) -> Result<Option<Tail>, Refusal> {
    let found = live.within_hold(live.session().find_event(&event)).await?;
    if found.ended {
        return Ok(None);
    }
    let stream = found.stream.stream;
    // Before what is stored is read: this reader is sent everything that comes after that.
    let reading = live.read(&stream);
    let after = Cursor::Event(event.clone());
    let mut tail = Tail::new(live.clone(), stream, found.position, after, reading).catching_up();
    // Some clients forget the id of the last event with each connection.
    tail.prime(&event);
    Ok(Some(tail))
}

/// The standalone stream, from the first event that no reader of it was sent.
///
/// # Errors
/// When there is no daemon, or no server can be started.
pub async fn standalone(live: &Arc<Live>) -> Result<Tail, Refusal> {
    live.wake().await?;
    if let Some((_, event)) = live.last_delivered()
        && let Some(tail) = resumed(live, event).await?
    {
        return Ok(tail);
    }
    let stream = StreamId::standalone();
    let reading = live.read(&stream);
    let after = Cursor::Stream(stream.clone());
    let mut tail = Tail::new(live.clone(), stream.clone(), 0, after, reading).catching_up();
    let stored = live
        .within_hold(live.session().replay(&Cursor::Stream(stream.clone())))
        .await?;
    if stored.events.is_empty() {
        let primed = live
            .within_hold(live.session().stream(stream).prime())
            .await?;
        live.delivered(primed.position, &primed.id);
        tail.prime(&primed.id);
    }
    Ok(tail)
}
