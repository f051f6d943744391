//! What a server says: it is kept first, and then given to whoever reads.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_client::{Error, Json, RequestId, SessionError, Stream, StreamId};
use tokio::time::sleep;

use super::{Live, Sent};
use crate::backend::Backend;
use crate::refusal::is_passing;
use crate::said::{answers, heard, too_large, unknown};
use crate::which::Call;

/// The pause before the daemon is asked again that was away.
const PAUSE: Duration = Duration::from_millis(100);

impl Live {
    /// Takes what a server says until it is gone.
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
        heard(line, |said, message| {
            // The same each time that the line comes, whatever becomes of the others in it.
            nth += 1;
            let mut state = self.state();
            state.sweep();
            if let Some(place) = state.which.place(said) {
                if place.ends {
                    state.finishing.insert(place.stream.clone());
                }
                messages.push((nth, place, message));
            }
        });
        for (nth, place, message) in messages {
            let request = format!("{}-{number}-{nth}", backend.incarnation());
            let request = request.parse().unwrap_or_else(|_| RequestId::mint());
            self.say(&place.stream, request, message).await;
            if place.ends {
                self.finish(&place.stream).await;
            }
        }
        backend.confirm(number);
    }

    /// Keeps a message, for as long as it takes, and gives it to whoever reads.
    pub(super) async fn say(&self, stream: &StreamId, request: RequestId, message: Json) {
        let to = self.session.stream(stream.clone());
        let mut message = message;
        loop {
            let appended = to.append_as(request.clone(), vec![Some(message.clone())]).await;
            match appended.map(|appended| appended.into_iter().next()) {
                Ok(Some(appended)) => {
                    let sent = Sent { position: appended.position, id: appended.id, message };
                    // Where another process had it kept before, in another stream, that is where it is read.
                    return self.state().give(&appended.stream, sent);
                }
                Err(error) if never_fits(&error, &message) => {
                    let bytes = message.len();
                    match answers(&message).map(|id| too_large(&id, bytes)) {
                        Some(shorter) if shorter.len() < bytes => message = shorter,
                        _ => {
                            return crate::complain(format_args!(
                                "a message of {bytes} bytes is lost: {error}"
                            ));
                        }
                    }
                }
                Err(error) if is_passing(&error) => {
                    if self.has_ended() {
                        return;
                    }
                    sleep(PAUSE).await;
                }
                Ok(None) => return,
                Err(error) => {
                    if !self.has_ended() {
                        crate::complain(format_args!("a message of session {} is lost: {error}", self.id()));
                    }
                    return;
                }
            }
        }
    }

    /// The server is gone: nobody knows what its open calls have done.
    async fn bereft(&self, backend: &dyn Backend) {
        let left = {
            let mut state = self.state();
            if state.running.as_deref() != Some(backend.incarnation()) {
                Vec::new()
            } else {
                state.running = None;
                let left = state.which.clear();
                state.finishing.extend(left.iter().map(|(stream, _)| stream.clone()));
                left
            }
        };
        {
            let mut slot = self.backend.lock().await;
            if slot.as_ref().is_some_and(|held| held.incarnation() == backend.incarnation()) {
                *slot = None;
            }
        }
        self.give_up(left, unknown).await;
        backend.end().await;
    }

    /// Answers calls that nobody else will, in these words, and says their streams to their ends.
    pub(super) async fn give_up(&self, left: Vec<(StreamId, Vec<Call>)>, words: fn(&str) -> Json) {
        for (stream, calls) in left {
            for call in calls {
                self.say(&stream, RequestId::mint(), words(&call.id)).await;
            }
            self.finish(&stream).await;
        }
    }

    /// Whether the server was told already that the client is ready.
    pub(super) fn welcomed(&self, incarnation: &str) -> bool {
        let mut state = self.state();
        let was = state.welcomed.as_deref() == Some(incarnation);
        state.welcomed = Some(incarnation.to_owned());
        was
    }
}

/// Whether a message is too large, however much room there is.
fn never_fits(error: &SessionError, message: &Json) -> bool {
    match error {
        SessionError::Refused(Error::InvalidArgument { .. }) => true,
        SessionError::Refused(Error::QuotaExceeded { limit, .. }) => *limit < message.len() as u64,
        _ => false,
    }
}

/// Closes a stream, for as long as it takes.
pub(super) async fn closed(stream: &Stream) {
    while let Err(error) = stream.close().await {
        if !is_passing(&error) {
            return;
        }
        sleep(PAUSE).await;
    }
}
