//! Sessions without a daemon (`--unkept`): nothing is stored, so nothing can be resumed, and each
//! session ends with this process.
//!
//! - This file: one session. Its server is a child of this process.
//! - `child.rs`: that child. `readers.rs`: clients that read streams. `through.rs`: `--upstream`,
//!   which passes HTTP on.
//!
//! What is said here goes to whoever reads at the moment. Events have no ids. Messages of the
//! standalone stream wait for a reader, as far as there is room; those of a call do not: a client
//! that has closed the connection of a call can't ask for its answer.

pub mod child;
mod readers;
pub mod through;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::BoxStream;
use mcp_sessiond_client::{Caller, Json, RequestId, SessionId, StreamId};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use self::readers::{Full, Readers, Reading};
use crate::backend::{Backend, Ended};
use crate::live::handshake::{Began, Early, refused, shake};
use crate::live::{Shared, same};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::said::{
    Calls, Posted, PostedKind, heard, inward, not_asked, not_started, to_server, unknown,
};
use crate::tail::COMMENT;
use crate::unsent::Unsent;
use crate::which::{Id, Said, Which};

/// What the result of `initialize` has in its `_meta`.
const MARK: &str = r#""io.github.mcp-sessiond/kept":false"#;

/// A session that nobody keeps.
pub struct Unkept {
    shared: Arc<Shared>,
    id: SessionId,
    caller: Caller,
    record: Record,
    backend: Arc<dyn Backend>,
    unsent: Unsent,
    state: Mutex<State>,
    has_ended: watch::Sender<bool>,
}

struct State {
    which: Which,
    readers: Readers,
    /// Whether the server was sent `notifications/initialized`.
    is_welcomed: bool,
    /// When a client last read, called or waited.
    active: Instant,
}

impl fmt::Debug for Unkept {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Unkept({})", self.id)
    }
}

impl Unkept {
    /// Begins a session, with a server of its own.
    ///
    /// # Errors
    /// When no server can be started.
    pub async fn begin(
        shared: &Arc<Shared>,
        caller: Caller,
        params: Box<RawValue>,
    ) -> Result<Began<Arc<Self>>, Refusal> {
        let backend = shared.backends.backend(None).await?;
        let (handshaken, early) = shake(&*backend, &params).await?;
        let Some(result) = handshaken.result else {
            backend.end().await;
            return Ok(Began::Refused(refused(handshaken)?));
        };
        let state = State {
            which: Which::new(shared.settings.redirect),
            readers: Readers::default(),
            is_welcomed: false,
            active: Instant::now(),
        };
        let unkept = Arc::new(Self {
            shared: shared.clone(),
            id: SessionId::mint(),
            caller,
            record: Record::new(params, marked(result)),
            backend,
            unsent: Unsent::default(),
            state: Mutex::new(state),
            has_ended: watch::Sender::new(false),
        });
        tokio::spawn(unkept.clone().pump(early));
        Ok(Began::Session(unkept))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session's id.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Its handshake.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        *self.has_ended.borrow()
    }

    /// Checks that the session was made for this caller.
    ///
    /// # Errors
    /// 403.
    pub fn admit(&self, caller: &Caller) -> Result<(), Refusal> {
        self.state().active = Instant::now();
        if same(&self.caller, caller) {
            Ok(())
        } else {
            Err(crate::who::bound_to_another())
        }
    }

    /// Ends the session if nobody has used it for too long.
    pub async fn look(&self) {
        if self.idle_for() >= self.shared.settings.idle {
            self.end().await;
        }
    }

    /// For how long nobody has used it.
    fn idle_for(&self) -> Duration {
        let mut state = self.state();
        if state.readers.any() || !state.which.is_idle() {
            state.active = Instant::now();
            return Duration::ZERO;
        }
        state.active.elapsed()
    }

    /// For how long nobody has used this session of the caller. None: it is in use, or is another
    /// caller's.
    #[must_use]
    pub fn unused_for(&self, caller: &Caller) -> Option<Duration> {
        let idle = self.idle_for();
        (same(&self.caller, caller) && !idle.is_zero()).then_some(idle)
    }

    /// Ends the session, and its server.
    pub async fn end(&self) {
        self.has_ended.send_replace(true);
        self.state().readers.clear();
        self.backend.end().await;
    }

    /// Sends the server messages that want no answer.
    ///
    /// # Errors
    /// When the server has ended.
    pub async fn post(&self, messages: Vec<Posted>) -> Result<(), Refusal> {
        for Posted { kind, line } in messages {
            if let PostedKind::Initialized = kind
                && std::mem::replace(&mut self.state().is_welcomed, true)
            {
                continue;
            }
            let line = inward(
                &kind,
                line,
                self.backend.incarnation(),
                &mut self.state().which,
            );
            let Some(line) = line else { continue };
            if let PostedKind::Cancelled(id) = &kind {
                self.drop_call(id);
            }
            self.send(line)
                .await?
                .map_err(|_| Refusal::unknown_session())?;
        }
        Ok(())
    }

    /// A call is not to be answered any more.
    fn drop_call(&self, id: &str) {
        let mut state = self.state();
        let Some(stream) = state.which.stream_of(id).cloned() else {
            return;
        };
        if state.which.dropped(&stream, id) == Some(true) {
            state.readers.finish(&stream);
        }
    }

    /// Sends the server calls. Returns a stream of events, which ends with the last answer.
    ///
    /// # Errors
    /// When two calls have one id, or the server has ended.
    pub async fn call(
        self: &Arc<Self>,
        messages: Vec<Posted>,
    ) -> Result<BoxStream<'static, Bytes>, Refusal> {
        let Calls { calls, lines, rest } = Calls::of(messages)?;
        if !rest.is_empty() {
            self.post(rest).await?;
        }
        let stream: StreamId = RequestId::mint()
            .as_str()
            .parse()
            .map_err(|_| Refusal::unknown_session())?;
        let reading = {
            let mut state = self.state();
            if self.has_ended() {
                return Err(Refusal::unknown_session());
            }
            state.which.open(stream.clone(), calls.clone());
            state.readers.read(&stream)
        };
        // In a task of its own: the client reads meanwhile, also while the server does not.
        let unkept = self.clone();
        tokio::spawn(async move {
            let all = calls.iter().zip(&lines);
            // In their order, and none waits for another one to be taken.
            join_all(all.map(|(id, line)| unkept.send_call(&stream, id, line))).await;
        });
        Ok(self.events(reading))
    }

    async fn send_call(&self, stream: &StreamId, id: &Id, line: &Bytes) {
        let words = match self.send(to_server(line, stream.as_str())).await {
            Ok(Ok(())) => return,
            Ok(Err(Ended {
                may_have_arrived: true,
            })) => unknown(id),
            Ok(Err(_)) => not_started(id),
            Err(refusal) => crate::said::refused(id, &refusal),
        };
        let ends = self.state().which.dropped(stream, id);
        if let Some(ends) = ends {
            let _ = self.give(stream, &words).await;
            if ends {
                self.state().readers.finish(stream);
            }
        }
    }

    async fn send(&self, line: Bytes) -> Result<Result<(), Ended>, Refusal> {
        let share = self.unsent.take(line.len())?;
        let sent = self.backend.deliver(line).await;
        drop(share);
        Ok(sent)
    }

    /// The standalone stream. A former reader's connection ends.
    ///
    /// # Errors
    /// When the session has ended.
    pub fn listen(&self) -> Result<BoxStream<'static, Bytes>, Refusal> {
        let standalone = StreamId::standalone();
        let mut state = self.state();
        if self.has_ended() {
            return Err(Refusal::unknown_session());
        }
        state.which.reader(&standalone, true);
        let reading = state.readers.read(&standalone);
        drop(state);
        Ok(self.events(reading))
    }

    /// What a reader is sent, with comments while there is nothing.
    fn events(&self, reading: Reading) -> BoxStream<'static, Bytes> {
        let keep_alive = self.shared.settings.keep_alive;
        futures::stream::unfold(reading, move |mut reading| async move {
            let part = match timeout(keep_alive, reading.next()).await {
                Ok(part) => part?,
                Err(_) => COMMENT.into(),
            };
            Some((part, reading))
        })
        .boxed()
    }

    /// Passes on what the server says, until it is gone.
    async fn pump(self: Arc<Self>, early: Early) {
        for (_, line) in early {
            self.hear(&line).await;
        }
        while let Some((_, line)) = self.backend.next().await {
            self.hear(&line).await;
        }
        let left = self.state().which.clear();
        for (stream, calls) in left {
            for id in calls {
                let _ = self.give(&stream, &unknown(&id)).await;
            }
        }
        self.end().await;
    }

    async fn hear(&self, line: &Bytes) {
        let mut messages = Vec::new();
        heard(line, self.backend.incarnation(), |said, message| {
            let mut state = self.state();
            let State { which, readers, .. } = &mut *state;
            readers
                .gone()
                .iter()
                .for_each(|stream| which.reader(stream, false));
            if let Some(place) = which.place(&said) {
                messages.push((place, said, message));
            }
        });
        for (place, said, message) in messages {
            let given = self.give(&place.stream, &message).await;
            if place.ends {
                self.state().readers.finish(&place.stream);
            }
            if let (Err(Full), Said::Ask(id)) = (given, said) {
                // Else the server would wait for ever.
                let _ = self
                    .backend
                    .send(not_asked(&id, "no client reads it").into())
                    .await;
            }
        }
    }

    /// Gives a message to the reader of its stream, however slowly that reads.
    async fn give(&self, stream: &StreamId, message: &Json) -> Result<(), Full> {
        let part: Bytes = format!("event: message\ndata: {}\n\n", message.as_str()).into();
        loop {
            let Some(reader) = self.state().readers.of(stream) else {
                return self.state().readers.wait(stream, part);
            };
            let mut ends = self.has_ended.subscribe();
            tokio::select! {
                sent = reader.send(part.clone()) => if sent.is_ok() {
                    return Ok(());
                },
                _ = ends.wait_for(|has_ended| *has_ended) => return Ok(()),
            }
            self.state().readers.gone();
        }
    }
}

/// The result of `initialize`, whose `_meta` says that nothing is kept. The rest stays as it is.
fn marked(result: Box<RawValue>) -> Box<RawValue> {
    #[derive(Deserialize)]
    struct Result<'a> {
        #[serde(borrow, rename = "_meta")]
        meta: Option<&'a RawValue>,
    }
    let text = result.get();
    let Ok(Result { meta }) = serde_json::from_str(text) else {
        return result;
    };
    let meta = meta.map(RawValue::get).filter(|meta| meta.starts_with('{'));
    // Where the members of `_meta` begin.
    let (before, after, mark) =
        match meta.map(|meta| meta.as_ptr() as usize - text.as_ptr() as usize + 1) {
            Some(at) => (&text[..at], &text[at..], MARK.to_owned()),
            None => (&text[..1], &text[1..], format!(r#""_meta":{{{MARK}}}"#)),
        };
    let comma = if after.trim_start().starts_with('}') {
        ""
    } else {
        ","
    };
    RawValue::from_string(format!("{before}{mark}{comma}{after}")).unwrap_or(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_initialize_says_that_nothing_is_kept_and_is_the_same_otherwise() {
        for (result, expected) in [
            ("{}", r#"{"_meta":{MARK}}"#),
            (
                r#"{ "b": 1.0, "a": 2 }"#,
                r#"{"_meta":{MARK}, "b": 1.0, "a": 2 }"#,
            ),
            (r#"{"a":1,"_meta": { }}"#, r#"{"a":1,"_meta": {MARK }}"#),
            (
                r#"{"_meta":{"x":1},"a":{}}"#,
                r#"{"_meta":{MARK,"x":1},"a":{}}"#,
            ),
            ("[]", "[]"),
        ] {
            let raw = RawValue::from_string(result.into()).expect("JSON");
            assert_eq!(
                marked(raw).get(),
                expected.replace("MARK", MARK),
                "{result}"
            );
        }
    }
}
