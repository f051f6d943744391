//! The lines of a server: each message is stored first, and then sent to its stream's reader. Where
//! all sessions of the service together have used up their memory (`limits.owner_bytes`), the
//! oldest events go.

use std::sync::Arc;
use std::time::Duration;

use mcp_sessiond_client::{Error, RequestId, SessionError, SessionStatus, Stream};
use mcp_sessiond_http_session::keep::{Failure, Keep, Message, Next, Use, too_large};
use mcp_sessiond_http_session::session::Effect;
use mcp_sessiond_http_session::substitute::undeliverable_request;
use tokio::time::{sleep, timeout};

use super::{Live, STORE_WAIT, StoredEvent};
use crate::backend::{Backend, ServerLine};

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
        self.note_losses(backend.losses());
        let ServerLine {
            number,
            line,
            stream,
        } = line;
        let effects = {
            let mut state = self.state();
            state.forget_gone_readers(self.now());
            let incarnation = backend.incarnation();
            state.session.said(&line, stream.as_ref(), incarnation)
        };
        let mark = backend.mark(number);
        for effect in effects {
            match effect {
                Effect::Keep(message) => self.keep_said(backend, &mark, message).await,
                Effect::ToServer(line) => drop(backend.send(line).await),
                other => self.carry_out([other]).await,
            }
        }
        backend.confirm(number);
    }

    /// Carries out what is not the server's.
    pub(super) async fn carry_out(&self, effects: impl IntoIterator<Item = Effect>) {
        for effect in effects {
            match effect {
                Effect::Keep(message) => drop(self.keep(message).await),
                Effect::Close(stream) => self.finish(&stream).await,
                Effect::Lost(why) => crate::stderr::warn(why),
                Effect::ToServer(_) => {}
            }
        }
    }

    /// Keeps a message of the server's, which may come again.
    async fn keep_said(&self, backend: &dyn Backend, mark: &str, message: Message) {
        let request = format!("{mark}-{}", message.nth).parse();
        let bytes = message.message.len();
        let question = match &message.what {
            Use::Question(id) => Some(id.clone()),
            _ => None,
        };
        let stored = self.keep_as(request.unwrap_or_else(|_| RequestId::mint()), message);
        if let (Stored::No, Some(id)) = (stored.await, question) {
            // Else the server would wait for ever.
            let refused = undeliverable_request(&id, &too_large(bytes));
            let _ = backend.send(refused.into()).await;
        }
    }

    /// Stores a message, however long that takes, and sends it to the stream's reader. With the last
    /// message of a stream that is closed, and its reader's connection ends.
    pub(super) async fn keep(&self, message: Message) -> Stored {
        self.keep_as(RequestId::mint(), message).await
    }

    async fn keep_as(&self, request: RequestId, message: Message) -> Stored {
        let Message {
            stream,
            what,
            message,
            ..
        } = message;
        let keep = Keep::new(message, what, false);
        let ends = keep.ends();
        let to = self.session.stream(stream.clone());
        self.send_losses(&stream).await;
        let stored = self.append(&to, request, keep).await;
        match stored {
            _ if !ends => {}
            Stored::Yes => self.state().finish(&stream, self.now()),
            Stored::No => self.finish(&stream).await,
        }
        stored
    }

    pub(super) async fn append(&self, to: &Stream, request: RequestId, mut keep: Keep) -> Stored {
        loop {
            let messages = vec![Some(keep.message().clone())];
            let appended = match keep.ends() {
                true => to.append_and_close_as(request.clone(), messages).await,
                false => to.append_as(request.clone(), messages).await,
            };
            let error = match appended.map(|appended| appended.into_iter().next()) {
                Ok(Some(appended)) => {
                    let kept = keep.stored();
                    let mut state = self.state();
                    // If a former process has stored it, in another stream, it is read there.
                    let is_sent = kept.message.is_some_and(|message| {
                        let sent = StoredEvent {
                            position: appended.position,
                            id: appended.id.clone(),
                            message,
                        };
                        state.deliver(&appended.stream, sent, self.now())
                    });
                    return match kept.unkept {
                        Some(_) if !is_sent => Stored::No,
                        Some(question) => {
                            state.session.request_unkept(&appended.id, question);
                            Stored::Yes
                        }
                        None => Stored::Yes,
                    };
                }
                Ok(None) => return Stored::No,
                Err(error) => error,
            };
            if self.has_ended() {
                return Stored::No;
            }
            let bytes = keep.message().len();
            let failure = Failure::of(error.refusal(), error.passes(), bytes);
            if let Failure::Full { .. } = failure {
                self.warn_once(&error);
            }
            let mut next = self.failed(&mut keep, to, failure, &error);
            if next == Next::Prune {
                next = match self.prune_events().await {
                    true => Next::Store,
                    false => self.failed(&mut keep, to, Failure::FULL, &error),
                };
            }
            match next {
                Next::Store | Next::Prune => {}
                Next::Pause => sleep(PAUSE).await,
                Next::Lost => {
                    if failure == Failure::TooLarge {
                        crate::stderr::warn(format_args!(
                            "a message of {bytes} bytes is lost: {error}"
                        ));
                    } else if failure == Failure::Other {
                        crate::stderr::warn(format_args!(
                            "a message of session {} is lost: {error}",
                            self.id()
                        ));
                        self.on_refusal(error.into());
                    }
                    return Stored::No;
                }
            }
        }
    }

    fn failed(&self, keep: &mut Keep, to: &Stream, failure: Failure, error: &SessionError) -> Next {
        let mut state = self.state();
        state.forget_gone_readers(self.now());
        keep.failed(failure, &error.to_string(), state.session.is_read(to.id()))
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

    /// The server is gone: the outcome of the open calls that it has got is unknown.
    async fn on_backend_lost(&self, backend: &dyn Backend) {
        self.note_losses(backend.losses());
        drop(timeout(STORE_WAIT, self.sending.write()).await);
        let effects = self.state().session.gone(backend.incarnation());
        self.gone.notify_waiters();
        self.backend.forget(backend.incarnation()).await;
        self.carry_out(effects).await;
        backend.end().await;
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

/// Closes a stream, however long that takes.
pub(super) async fn close(stream: &Stream) {
    while let Err(error) = stream.close().await {
        if !error.passes() && !matches!(error, SessionError::Refused(Error::WriteFailed { .. })) {
            return;
        }
        sleep(PAUSE).await;
    }
}
