//! One session of a client: its calls, the streams on which they are answered, the questions of its
//! server, and the server that it has at the moment.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::id::normal;
use mcp_sessiond_jsonrpc::id_prefix::{answering, asked_by};
use mcp_sessiond_proto::streams::EventId;
use mcp_sessiond_proto::{Json, StreamId};

use crate::Time;
use crate::keep::{Message, Use};
use crate::messages::{Id, ServerMessage, addressed, cancelling, read_server_line};
use crate::origin::is_for;
use crate::policy::Policy;
use crate::posted::{Posted, PostedKind};
use crate::route::StreamRouter;
use crate::substitute::{not_started, outcome_unknown, undeliverable_request};

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// This is to be stored, and then sent.
    Keep(Message),
    /// The stream is to be closed.
    Close(StreamId),
    /// The server gets this.
    ToServer(Bytes),
    /// A message of the server's is lost, for this reason.
    Lost(String),
}

/// A call that the client has cancelled.
#[derive(Debug, PartialEq, Eq)]
pub struct Cancelled {
    /// Its id, as the server knows it.
    pub id: Id,
    /// Its stream.
    pub stream: StreamId,
    /// Whether that ends by it.
    pub ends: bool,
}

/// What became of a stream that was opened for calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// Its calls may be sent.
    Open,
    /// The server has ended meanwhile.
    ServerGone,
    /// The session has ended meanwhile.
    Ended,
}

/// A stream of a former process, with calls that were not answered on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inherited {
    /// The stream.
    pub stream: StreamId,
    /// The calls.
    pub calls: Vec<Id>,
    /// Whether all of its events are still there. If not, an answer may be among those that are
    /// gone.
    pub is_whole: bool,
}

/// For how long a session could make room for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disuse {
    /// Nobody reads it, and nobody has used it for this time.
    Unused(Duration),
    /// A client reads it, and has posted nothing for this time.
    Read(Duration),
}

/// A session that somebody serves.
#[derive(Debug)]
pub struct HttpSession {
    router: StreamRouter,
    /// Requests of the server's that are too large to be kept, by the text of the event that is
    /// kept in their place.
    unkept: BTreeMap<Box<str>, Id>,
    /// The incarnation of the server that runs.
    running: Option<Box<str>>,
    /// The incarnation of the server that was sent `notifications/initialized`.
    initialized: Option<Box<str>>,
    /// The calls that a former process has left open, until the server has said which of them it
    /// knows.
    inherited: Vec<Inherited>,
    /// The last event of the standalone stream that was sent to a reader.
    last_delivered: Option<(u64, EventId)>,
    /// When a client last read, called or waited.
    active: Time,
    /// When a client last posted something, or a call of its ended. Reading does not count.
    called: Time,
    ended: bool,
}

/// Calls and cancellations of the client.
impl HttpSession {
    /// A session without calls.
    pub fn new(policy: Policy, now: Time) -> Self {
        Self {
            router: StreamRouter::new(policy),
            unkept: BTreeMap::new(),
            running: None,
            initialized: None,
            inherited: Vec::new(),
            last_delivered: None,
            active: now,
            called: now,
            ended: false,
        }
    }

    /// A client has posted these calls. This stream is being opened for them.
    pub fn begin(&mut self, stream: StreamId, calls: Vec<Id>, now: Time) {
        self.used(now);
        self.router.begin(stream, calls);
    }

    /// The stream is there, and its client reads it. Its calls may be sent to the server of this
    /// incarnation, if that still runs: whoever notices its end answers each call that is open then,
    /// so that a call is open before that, or not at all. `primed`: the client was sent an event id
    /// by which it can come back.
    pub fn opened(&mut self, stream: &StreamId, incarnation: &str, primed: bool) -> Opened {
        let opened = match self.running.as_deref() {
            _ if self.ended => Opened::Ended,
            Some(running) if running == incarnation => Opened::Open,
            _ => Opened::ServerGone,
        };
        if opened == Opened::Open {
            self.router.opened(stream);
            if primed {
                self.router.set_resumable(stream);
            }
        } else {
            self.router.finished(stream);
        }
        opened
    }

    /// The stream could not be opened.
    pub fn not_opened(&mut self, stream: &StreamId) {
        self.router.finished(stream);
    }

    /// A client has posted a message that wants no answer. The server of this incarnation does not
    /// get it if it is about a request of a former server, or about a call that is not open.
    pub fn posted(&mut self, message: &Posted, incarnation: &str) -> Vec<Effect> {
        let Posted { kind, line, .. } = message;
        let (mut effects, own) = (Vec::new(), |own: Id| answering(line, &own));
        let line = match kind {
            PostedKind::Answer(id) => self.answered(incarnation, id).map(own),
            PostedKind::Progress(token) => asked_by(incarnation, token).map(own),
            PostedKind::Cancelled(id) => self.cancelled(id).map(|cancelled| {
                let line = cancelling(line, &cancelled.stream);
                // At once, though the server may be busy, or gone.
                effects.extend(cancelled.ends.then_some(Effect::Close(cancelled.stream)));
                line
            }),
            // A client says it again when it has sent `initialize` again.
            PostedKind::Initialized => self.initialized(incarnation).then(|| line.clone()),
            _ => Some(line.clone()),
        };
        effects.extend(line.map(Effect::ToServer));
        effects
    }

    /// The client has answered a request of the server's of this incarnation. Returns the server's
    /// own id of it. None: another server has sent it.
    pub fn answered(&mut self, incarnation: &str, id: &str) -> Option<Id> {
        let own = asked_by(incarnation, id)?;
        self.router.request_answered(&own);
        self.unkept.retain(|_, request| *request != own);
        Some(own)
    }

    /// The client cancels its call of this id. None: the server is not to hear of it.
    pub fn cancelled(&mut self, id: &str) -> Option<Cancelled> {
        let stream = self.router.cancelled(id)?.clone();
        let ends = self.router.drop_call(&stream, id)?;
        Some(Cancelled {
            id: addressed(&stream, id),
            stream,
            ends,
        })
    }

    /// The server of this incarnation is sent `notifications/initialized`. False: it was sent it
    /// before.
    pub fn initialized(&mut self, incarnation: &str) -> bool {
        let is_new = self.initialized.as_deref() != Some(incarnation);
        self.initialized = Some(incarnation.into());
        is_new
    }

    /// The server ended before it had acknowledged this call.
    pub fn not_sent(&mut self, stream: &StreamId, id: &Id, may_have_arrived: bool) -> Vec<Effect> {
        let error = if may_have_arrived {
            outcome_unknown
        } else {
            not_started
        };
        match self.router.drop_call(stream, id) {
            Some(ends) => in_place(stream, core::slice::from_ref(id), error, ends),
            // It was answered with all others that were open.
            None => Vec::new(),
        }
    }
}

/// The server.
impl HttpSession {
    /// A server runs.
    pub fn runs(&mut self, incarnation: &str) {
        self.running = Some(incarnation.into());
    }

    /// Whether the server of this incarnation runs.
    pub fn is_running(&self, incarnation: &str) -> bool {
        self.running.as_deref() == Some(incarnation)
    }

    /// The server of this incarnation has said a line. `said_on`: on which stream, where the
    /// transport tells.
    pub fn said(
        &mut self,
        line: &Bytes,
        said_on: Option<&StreamId>,
        incarnation: &str,
    ) -> Vec<Effect> {
        let (mut effects, mut nth) = (Vec::new(), 0);
        read_server_line(line, incarnation, |kind, message| {
            // The line may come again. Then each message in it has to have the same number.
            nth += 1;
            let to = self.router.route(&kind, said_on);
            let what = match kind {
                ServerMessage::Unsendable(id, why) => {
                    // Else the server would wait for ever.
                    let refused = undeliverable_request(&id, &why);
                    return effects.push(Effect::ToServer(refused.into()));
                }
                ServerMessage::Lost(why) => return effects.push(Effect::Lost(why)),
                ServerMessage::Request(id) => Use::Question(id),
                ServerMessage::Answer(..) => Use::Answer {
                    ends: to.as_ref().is_some_and(|to| to.ends),
                },
                _ => Use::Plain,
            };
            if let Some(to) = to {
                effects.push(Effect::Keep(Message {
                    nth,
                    stream: to.stream,
                    what,
                    message,
                }));
            }
        });
        effects
    }

    /// The server of this incarnation is gone: the outcome of its open calls is unknown.
    pub fn gone(&mut self, incarnation: &str) -> Vec<Effect> {
        if !self.is_running(incarnation) {
            return Vec::new();
        }
        self.running = None;
        self.give_up()
    }

    /// No call that is open will be answered by its server.
    pub fn give_up(&mut self) -> Vec<Effect> {
        self.unkept.clear();
        let open = self.router.clear().into_iter();
        open.flat_map(|(stream, calls)| in_place(&stream, &calls, outcome_unknown, true))
            .collect()
    }
}

/// What a former process has left.
impl HttpSession {
    /// A former process has left these streams open. Something may come there until
    /// [`Self::settle`].
    pub fn inherit(&mut self, inherited: Vec<Inherited>) {
        for left in &inherited {
            self.router.inherit(left.stream.clone());
        }
        self.inherited = inherited;
    }

    /// Whether streams of a former process wait for [`Self::settle`].
    pub fn has_inherited(&self) -> bool {
        !self.inherited.is_empty()
    }

    /// The outcome of all calls that a former process has left open is unknown.
    pub fn give_up_inherited(&mut self) -> Vec<Effect> {
        self.settle(None, "", false).1
    }

    /// Goes on with the calls that this server has taken from a former process: these are open
    /// there. None: it is gone. Each other call is answered here. If it was meant for this server,
    /// the server has never got it; if for one that is gone, its outcome is unknown. `knows_all`:
    /// whether the server knows of each call that it was sent. First what is to be done before the
    /// server is heard, as it ends no stream; then the rest.
    pub fn settle(
        &mut self,
        open: Option<&[Id]>,
        incarnation: &str,
        knows_all: bool,
    ) -> (Vec<Effect>, Vec<Effect>) {
        let known = open.unwrap_or_default().iter().map(|id| normal(id));
        let known: BTreeSet<Id> = known.collect();
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        for Inherited {
            stream,
            calls,
            is_whole,
        } in core::mem::take(&mut self.inherited)
        {
            let is_for = is_for(&stream, incarnation);
            let error = match open.is_some() && knows_all && is_whole && is_for {
                true => not_started,
                false => outcome_unknown,
            };
            let is_open = |id: &Id| known.contains(&normal(&addressed(&stream, id)));
            let (open, lost): (Vec<Id>, Vec<Id>) = calls.into_iter().partition(is_open);
            let ends = open.is_empty();
            let effects = in_place(&stream, &lost, error, ends);
            if ends {
                rest.extend(effects);
            } else {
                first.extend(effects);
                self.router.reopen(&stream, open);
            }
        }
        (first, rest)
    }
}

/// Readers, and who uses it.
impl HttpSession {
    /// Somebody wants to read a stream. False: nothing more will come there.
    pub fn reads(&mut self, stream: &StreamId, now: Time) -> bool {
        let comes = stream.as_str() == StreamId::STANDALONE || self.router.goes_on(stream);
        if !comes || self.ended {
            return false;
        }
        self.router.set_reader(stream, true);
        self.active = now;
        true
    }

    /// The reader of a stream is gone.
    pub fn reader_gone(&mut self, stream: &StreamId, now: Time) {
        self.router.set_reader(stream, false);
        self.active = now;
    }

    /// Whether somebody reads this stream here.
    pub fn is_read(&self, stream: &StreamId) -> bool {
        self.router.readers().contains(stream)
    }

    /// The reader of a stream was sent an event.
    pub fn sent(&mut self, stream: &StreamId) {
        self.router.set_resumable(stream);
    }

    /// A reader is sent a request of the server's, of which another event is kept.
    pub fn request_unkept(&mut self, event: &EventId, id: Id) {
        self.unkept.insert(event.0.as_str().into(), id);
    }

    /// A reader is sent an event that was stored before. If it is kept in the place of a request of
    /// the server's that was not answered, no reader got that, and this is what the server gets.
    pub fn replayed(&mut self, event: &EventId) -> Option<Bytes> {
        let id = self.unkept.remove(event.0.as_str())?;
        self.router.request_answered(&id);
        let why = "the client hung up before it got this request, which is too large to be kept (limits.message_bytes)";
        Some(undeliverable_request(&id, why).into())
    }

    /// The last event of the standalone stream that was sent to a reader, and its position.
    pub fn last_delivered(&self) -> Option<&(u64, EventId)> {
        self.last_delivered.as_ref()
    }

    /// This event of the standalone stream is being sent to its reader, or was sent by a former
    /// process. False: it is not the last one.
    pub fn delivered(&mut self, position: u64, id: &EventId) -> bool {
        let is_last = self
            .last_delivered
            .as_ref()
            .is_none_or(|(last, _)| *last < position);
        if is_last {
            self.last_delivered = Some((position, id.clone()));
        }
        is_last
    }

    /// A stream is closed.
    pub fn finished(&mut self, stream: &StreamId, now: Time) {
        self.called = now;
        self.router.finished(stream);
    }

    /// Somebody uses the session, and has not only come to read.
    pub fn used(&mut self, now: Time) {
        (self.active, self.called) = (now, now);
    }

    /// Somebody has asked for the session.
    pub fn touch(&mut self, now: Time) {
        self.active = now;
    }

    /// For how long nobody has used it.
    pub fn idle(&self, now: Time) -> Duration {
        now.saturating_sub(self.active)
    }

    /// Whether the server works on a call, or is about to.
    pub fn has_calls(&self) -> bool {
        !self.router.is_idle()
    }

    /// Whether this stream has open calls.
    pub fn is_open(&self, stream: &StreamId) -> bool {
        self.router.is_open(stream)
    }

    /// The streams that have open calls, and how many.
    pub fn open_calls(&self) -> impl Iterator<Item = (&StreamId, usize)> {
        self.router.open_calls()
    }

    /// Whether a client reads, or waits for an answer.
    pub fn is_busy(&mut self, now: Time) -> bool {
        let is_busy = !self.router.readers().is_empty() || self.has_calls();
        if is_busy {
            self.active = now;
        }
        is_busy
    }

    /// How it could make room for another one. None: a call or a question of its server's is open.
    pub fn disuse(&mut self, now: Time) -> Option<Disuse> {
        let is_busy = self.is_busy(now);
        // A question that nobody is there to answer keeps no session.
        if self.has_calls() || (is_busy && self.router.has_question()) {
            return None;
        }
        Some(match is_busy {
            true => Disuse::Read(now.saturating_sub(self.called)),
            false => Disuse::Unused(self.idle(now)),
        })
    }

    /// Nobody serves it here any more.
    pub fn end(&mut self) {
        self.ended = true;
        self.running = None;
        self.give_up();
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.ended
    }
}

/// Answers these calls of a stream, in the place of the server.
fn in_place(stream: &StreamId, calls: &[Id], error: fn(&str) -> Json, ends: bool) -> Vec<Effect> {
    if calls.is_empty() && ends {
        return [Effect::Close(stream.clone())].into();
    }
    let answer = |(nth, id): (usize, &Id)| {
        Effect::Keep(Message {
            nth: 0,
            stream: stream.clone(),
            what: Use::Answer {
                ends: ends && nth + 1 == calls.len(),
            },
            message: error(id),
        })
    };
    calls.iter().enumerate().map(answer).collect()
}

#[cfg(test)]
mod tests;
