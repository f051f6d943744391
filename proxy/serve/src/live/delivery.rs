//! The lines of a server: each message is stored first, and then sent to its stream's reader. Where
//! all sessions of the service together have used up their memory (`limits.owner_bytes`), the
//! oldest events go.

use std::sync::Arc;
use std::time::Duration;

use mcp_sessiond_client::{Error, Json, RequestId, SessionError, SessionStatus, Stream, StreamId};
use tokio::time::sleep;

use super::{Live, StoredEvent};
use crate::backend::{Backend, ServerLine};
use crate::messages::{
    Id, ServerMessage, answer_not_stored, answered_id, in_place_of_request, outcome_unknown,
    read_server_line, undeliverable_request,
};

/// The pause before the daemon is asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// Events of a session that stay when there is no room for more. If that frees nothing, fewer stay.
const EVENTS_LEFT: [u64; 4] = [64, 16, 4, 1];

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    /// It is stored, or an error in its place.
    Yes,
    /// It is lost: it is larger than what can be stored, or its session has ended.
    No,
}

/// What a message is to its stream.
#[derive(Debug, Clone, Copy)]
enum Use<'a> {
    Plain,
    /// The stream ends with it.
    Last,
    /// A request of the server's of this id, which waits for the client's answer.
    Question(&'a Id),
}

impl Live {
    /// Takes what a server says, until it is gone.
    pub(super) async fn read_server(
        self: Arc<Self>,
        backend: Arc<dyn Backend>,
        early: Vec<ServerLine>,
    ) {
        for line in early {
            self.on_line(&*backend, line).await;
        }
        while let Some(line) = backend.next().await {
            self.on_line(&*backend, line).await;
        }
        self.on_backend_lost(&*backend).await;
    }

    async fn on_line(&self, backend: &dyn Backend, line: ServerLine) {
        let ServerLine {
            number,
            line,
            stream,
        } = line;
        let (mut messages, mut unsendable) = (Vec::new(), Vec::new());
        let mut nth = 0_u32;
        read_server_line(&line, backend.incarnation(), |kind, message| {
            // The line may come again. Then each message in it has to have the same number.
            nth += 1;
            if let ServerMessage::Unsendable(id, why) = &kind {
                unsendable.push(undeliverable_request(id, why));
            }
            let mut state = self.state();
            state.forget_gone_readers();
            if let Some(to) = state.router.route(&kind, stream.as_ref()) {
                if to.ends {
                    state.finishing.insert(to.stream.clone());
                }
                messages.push((nth, to, kind, message));
            }
        });
        for refused in unsendable {
            // Else the server would wait for ever.
            let _ = backend.send(refused.into()).await;
        }
        let mark = backend.mark(number);
        for (nth, to, kind, message) in messages {
            let request = format!("{mark}-{nth}");
            let request = request.parse().unwrap_or_else(|_| RequestId::mint());
            let bytes = message.len();
            let stored = match (&kind, to.ends) {
                (ServerMessage::Request(id), _) => {
                    self.append(&to.stream, request, message, Use::Question(id))
                        .await
                }
                (_, true) => self.store_last(&to.stream, request, message).await,
                (_, false) => self.store(&to.stream, request, message).await,
            };
            if let (Stored::No, ServerMessage::Request(id)) = (stored, kind) {
                // Else the server would wait for ever.
                let _ = backend
                    .send(undeliverable_request(&id, &too_large(bytes)).into())
                    .await;
            }
        }
        backend.confirm(number);
    }

    /// Stores a message, however long that takes, and sends it to the stream's reader.
    pub(super) async fn store(
        &self,
        stream: &StreamId,
        request: RequestId,
        message: Json,
    ) -> Stored {
        self.append(stream, request, message, Use::Plain).await
    }

    /// The same with the last message of a stream, which is closed, and whose reader's connection
    /// ends.
    pub(super) async fn store_last(
        &self,
        stream: &StreamId,
        request: RequestId,
        message: Json,
    ) -> Stored {
        let stored = self.append(stream, request, message, Use::Last).await;
        match stored {
            Stored::Yes => self.state().finish(stream),
            Stored::No => self.finish(stream).await,
        }
        stored
    }

    async fn append(
        &self,
        stream: &StreamId,
        request: RequestId,
        message: Json,
        what: Use<'_>,
    ) -> Stored {
        let to = self.session.stream(stream.clone());
        // An answer that is too large is sent to the reader that waits all the same, under the id
        // of the short error that is stored in its place: a reader that got it resumes behind it,
        // and one that did not gets the error. So is a question, in whose place its cancellation
        // is stored; if nobody got it, the server gets an error.
        let whole = message.clone();
        let (mut message, mut is_whole) = (message, true);
        loop {
            let messages = vec![Some(message.clone())];
            let appended = match what {
                Use::Last => to.append_and_close_as(request.clone(), messages).await,
                Use::Plain | Use::Question(_) => to.append_as(request.clone(), messages).await,
            };
            let error = match appended.map(|appended| appended.into_iter().next()) {
                Ok(Some(appended)) => {
                    let sent = StoredEvent {
                        position: appended.position,
                        id: appended.id,
                        message: whole,
                    };
                    let mut state = self.state();
                    let id = sent.id.clone();
                    // If a former process has stored it, in another stream, it is read there.
                    let is_sent = state.deliver(&appended.stream, sent);
                    return match what {
                        Use::Question(_) if !is_whole && !is_sent => Stored::No,
                        Use::Question(question) if !is_whole => {
                            state.router.request_unkept(id, question.clone());
                            Stored::Yes
                        }
                        _ => Stored::Yes,
                    };
                }
                Ok(None) => return Stored::No,
                Err(error) => error,
            };
            if self.has_ended() {
                return Stored::No;
            }
            let bytes = message.len();
            let shorter = || {
                answered_id(&message).map(|id| answer_not_stored(&id, bytes, &error.to_string()))
            };
            let shorter = || shorter().filter(|shorter| shorter.len() < bytes);
            if never_fits(&error, bytes) {
                let in_place = || match what {
                    Use::Question(_) if self.is_read(stream) => in_place_of_request(&message),
                    _ => None,
                };
                let Some(shorter) = shorter().or_else(in_place) else {
                    crate::stderr::warn(format_args!(
                        "a message of {bytes} bytes is lost: {error}"
                    ));
                    return Stored::No;
                };
                (message, is_whole) = (shorter, false);
            } else if let SessionError::Refused(Error::QuotaExceeded { .. }) = &error {
                self.warn_once(&error);
                let has_room =
                    error.refusal().is_some_and(Error::is_of_memory) && self.prune_events().await;
                match shorter() {
                    _ if has_room => {}
                    Some(shorter) => (message, is_whole) = (shorter, false),
                    None if answered_id(&message).is_none() => return Stored::No,
                    None => sleep(PAUSE).await,
                }
            } else if error.passes()
                || matches!(error, SessionError::Refused(Error::WriteFailed { .. }))
            {
                sleep(PAUSE).await;
            } else {
                crate::stderr::warn(format_args!(
                    "a message of session {} is lost: {error}",
                    self.id()
                ));
                self.on_refusal(error.into());
                return Stored::No;
            }
        }
    }

    /// Whether a client reads this stream.
    fn is_read(&self, stream: &StreamId) -> bool {
        let mut state = self.state();
        state.forget_gone_readers();
        state.readers.contains_key(stream)
    }

    /// Says once for each session that there is no room for its events.
    fn warn_once(&self, error: &SessionError) {
        if !std::mem::replace(&mut self.state().has_warned, true) {
            crate::stderr::warn(format_args!(
                "there is no room for the events of session {}: {error}. The oldest are deleted",
                self.id()
            ));
        }
    }

    /// The server is gone: the outcome of its open calls is unknown.
    async fn on_backend_lost(&self, backend: &dyn Backend) {
        let open = {
            let mut state = self.state();
            if state.running.as_deref() != Some(backend.incarnation()) {
                Vec::new()
            } else {
                state.running = None;
                let open = state.router.clear();
                state
                    .finishing
                    .extend(open.iter().map(|(stream, _)| stream.clone()));
                open
            }
        };
        self.gone.notify_waiters();
        self.backend.forget(backend.incarnation()).await;
        self.give_up(open, outcome_unknown).await;
        backend.end().await;
    }

    /// Answers calls with this error, and closes their streams.
    pub(super) async fn give_up(&self, open: Vec<(StreamId, Vec<Id>)>, error: fn(&str) -> Json) {
        for (stream, mut calls) in open {
            let last = calls.pop();
            for id in calls {
                self.store(&stream, RequestId::mint(), error(&id)).await;
            }
            match last {
                Some(id) => drop(
                    self.store_last(&stream, RequestId::mint(), error(&id))
                        .await,
                ),
                None => self.finish(&stream).await,
            }
        }
    }

    /// Whether the server was sent `notifications/initialized` before.
    pub(super) fn is_initialized(&self, incarnation: &str) -> bool {
        self.state().initialized.as_deref() == Some(incarnation)
    }

    /// Deletes the oldest events of this session, or else of the other sessions of its caller: most
    /// of them were delivered long ago. False: there are none to delete.
    pub(super) async fn prune_events(&self) -> bool {
        for keep in EVENTS_LEFT {
            if self
                .session
                .prune(keep)
                .await
                .is_ok_and(|pruned| pruned > 0)
                || self.prune_others(keep).await
            {
                return true;
            }
        }
        false
    }

    async fn prune_others(&self, keep: u64) -> bool {
        let sessions = self.shared.sessions.on_behalf_of(self.caller.clone());
        let listed = sessions.list().await.unwrap_or_default();
        // To open a session is to use it, so those that have nothing to delete are left alone.
        let others = listed.iter().filter(|view| {
            let is_there = view.session != *self.id() && view.status != SessionStatus::Terminated;
            is_there && u64::from(view.events) > keep
        });
        let mut pruned = 0;
        for other in others {
            if let Ok(other) = sessions.open(&other.session).await {
                pruned += other.prune(keep).await.unwrap_or(0);
            }
        }
        pruned > 0
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
pub(super) async fn close(stream: &Stream) {
    while let Err(error) = stream.close().await {
        if !error.passes() && !matches!(error, SessionError::Refused(Error::WriteFailed { .. })) {
            return;
        }
        sleep(PAUSE).await;
    }
}
