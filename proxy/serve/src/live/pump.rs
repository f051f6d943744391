//! What a server says: it is stored first, and then sent to the stream's reader.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_client::{Error, Json, RequestId, SessionError, Stream, StreamId};
use tokio::time::sleep;

use super::{Live, Sent};
use crate::backend::Backend;
use crate::said::{answers, heard, not_asked, not_kept, unknown};
use crate::which::{Id, Said};

/// The pause before the daemon is asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    /// It is stored, or an error in its place.
    Yes,
    /// It is lost: it is larger than what can be stored, or its session has ended.
    No,
}

impl Live {
    /// Takes what a server says, until it is gone.
    pub(super) async fn pump(self: Arc<Self>, backend: Arc<dyn Backend>, early: Vec<(u64, Bytes)>) {
        for (number, line) in early {
            self.hear(&*backend, number, &line).await;
        }
        while let Some((number, line)) = backend.next().await {
            self.hear(&*backend, number, &line).await;
        }
        self.bereft(&*backend).await;
    }

    async fn hear(&self, backend: &dyn Backend, number: u64, line: &Bytes) {
        let mut messages = Vec::new();
        let mut nth = 0_u32;
        heard(line, backend.incarnation(), |said, message| {
            // The line may come again. Then each message in it has to have the same number.
            nth += 1;
            let mut state = self.state();
            state.sweep();
            if let Some(place) = state.which.place(&said) {
                if place.ends {
                    state.finishing.insert(place.stream.clone());
                }
                messages.push((nth, place, said, message));
            }
        });
        let mark = backend.mark(number);
        for (nth, place, said, message) in messages {
            let request = format!("{mark}-{nth}");
            let request = request.parse().unwrap_or_else(|_| RequestId::mint());
            let bytes = message.len();
            let stored = match place.ends {
                true => self.say_last(&place.stream, request, message).await,
                false => self.say(&place.stream, request, message).await,
            };
            if let (Stored::No, Said::Ask(id)) = (stored, said) {
                // Else the server would wait for ever.
                let _ = backend.send(not_asked(&id, &too_large(bytes)).into()).await;
            }
        }
        backend.confirm(number);
    }

    /// Stores a message, however long that takes, and sends it to the stream's reader.
    pub(super) async fn say(&self, stream: &StreamId, request: RequestId, message: Json) -> Stored {
        self.store(stream, request, message, false).await
    }

    /// The same with the last message of a stream, which is closed, and whose reader's connection
    /// ends.
    pub(super) async fn say_last(
        &self,
        stream: &StreamId,
        request: RequestId,
        message: Json,
    ) -> Stored {
        let stored = self.store(stream, request, message, true).await;
        match stored {
            Stored::Yes => self.state().finish(stream),
            Stored::No => self.finish(stream).await,
        }
        stored
    }

    async fn store(
        &self,
        stream: &StreamId,
        request: RequestId,
        message: Json,
        closes: bool,
    ) -> Stored {
        let to = self.session.stream(stream.clone());
        let mut message = message;
        loop {
            let messages = vec![Some(message.clone())];
            let appended = match closes {
                true => to.append_and_close_as(request.clone(), messages).await,
                false => to.append_as(request.clone(), messages).await,
            };
            let error = match appended.map(|appended| appended.into_iter().next()) {
                Ok(Some(appended)) => {
                    let sent = Sent {
                        position: appended.position,
                        id: appended.id,
                        message,
                    };
                    // If a former process has stored it, in another stream, it is read there.
                    self.state().give(&appended.stream, sent);
                    return Stored::Yes;
                }
                Ok(None) => return Stored::No,
                Err(error) => error,
            };
            if self.has_ended() {
                return Stored::No;
            }
            let bytes = message.len();
            let shorter = || answers(&message).map(|id| not_kept(&id, bytes, &error.to_string()));
            let shorter = || shorter().filter(|shorter| shorter.len() < bytes);
            if never_fits(&error, bytes) {
                let Some(shorter) = shorter() else {
                    crate::complain(format_args!("a message of {bytes} bytes is lost: {error}"));
                    return Stored::No;
                };
                message = shorter;
            } else if let SessionError::Refused(Error::QuotaExceeded { .. }) = &error {
                self.complain_once(&error);
                let has_room =
                    error.refusal().is_some_and(Error::is_of_memory) && self.make_room().await;
                match shorter() {
                    _ if has_room => {}
                    Some(shorter) => message = shorter,
                    None if answers(&message).is_none() => return Stored::No,
                    None => sleep(PAUSE).await,
                }
            } else if error.passes()
                || matches!(error, SessionError::Refused(Error::WriteFailed { .. }))
            {
                sleep(PAUSE).await;
            } else {
                crate::complain(format_args!(
                    "a message of session {} is lost: {error}",
                    self.id()
                ));
                self.notice(error.into());
                return Stored::No;
            }
        }
    }

    /// Says once for each session that there is no room for its events.
    fn complain_once(&self, error: &SessionError) {
        if !std::mem::replace(&mut self.state().has_complained, true) {
            crate::complain(format_args!(
                "there is no room for the events of session {}: {error}. The oldest are deleted",
                self.id()
            ));
        }
    }

    /// The server is gone: the outcome of its open calls is unknown.
    async fn bereft(&self, backend: &dyn Backend) {
        let left = {
            let mut state = self.state();
            if state.running.as_deref() != Some(backend.incarnation()) {
                Vec::new()
            } else {
                state.running = None;
                let left = state.which.clear();
                state
                    .finishing
                    .extend(left.iter().map(|(stream, _)| stream.clone()));
                left
            }
        };
        self.gone.notify_waiters();
        self.backend.forget(backend.incarnation()).await;
        self.give_up(left, unknown).await;
        backend.end().await;
    }

    /// Answers calls in these words, and closes their streams.
    pub(super) async fn give_up(&self, left: Vec<(StreamId, Vec<Id>)>, words: fn(&str) -> Json) {
        for (stream, mut calls) in left {
            let last = calls.pop();
            for id in calls {
                self.say(&stream, RequestId::mint(), words(&id)).await;
            }
            match last {
                Some(id) => drop(self.say_last(&stream, RequestId::mint(), words(&id)).await),
                None => self.finish(&stream).await,
            }
        }
    }

    /// Whether the server was sent `notifications/initialized` before.
    pub(super) fn is_welcomed(&self, incarnation: &str) -> bool {
        self.state().welcomed.as_deref() == Some(incarnation)
    }
}

fn too_large(bytes: usize) -> String {
    format!(
        "the request has {bytes} bytes, more than can be stored for the client (limits.message_bytes)"
    )
}

/// Whether a message is too large, however much room there is.
fn never_fits(error: &SessionError, bytes: usize) -> bool {
    match error {
        SessionError::Refused(Error::InvalidArgument { .. }) => true,
        SessionError::Refused(Error::QuotaExceeded { limit, .. }) => *limit < bytes as u64,
        _ => false,
    }
}

/// Closes a stream, however long that takes.
pub(super) async fn closed(stream: &Stream) {
    while let Err(error) = stream.close().await {
        if !error.passes() && !matches!(error, SessionError::Refused(Error::WriteFailed { .. })) {
            return;
        }
        sleep(PAUSE).await;
    }
}
