//! What a server says on one stream goes into the daemon, in its order, and then to the reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mcp_sessiond_http_session::keep::{Failure, Keep, Kept, Next, Use};
use mcp_sessiond_proto::streams::{Appended, EventId};
use mcp_sessiond_proto::{Json, RequestId, SessionId};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Sender, UnboundedReceiver};
use tokio::sync::oneshot;
use tokio::time::sleep;
use tracing::warn;

use super::events::Delivery;
use super::lists::Record;
use super::prune::with_room;
use crate::LOG_TARGET;
use crate::error::SessionError;
use crate::session::Stream;

/// What goes into one append, no more than the daemon takes: messages, and bytes of them.
const MESSAGES_MAX: usize = 256;
const BYTES_MAX: usize = 1024 * 1024;
/// Between two attempts to keep an answer while the daemon is away.
const AWAY: Duration = Duration::from_secs(1);

/// The event that is stored in the place of a question, which its reader has.
pub(super) type InPlace = Option<EventId>;

/// A message that a server has said.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) message: Json,
    pub(super) what: Use,
    /// What the client knows with this message: stored before it, and after the messages before it.
    pub(super) record: Option<Record>,
    /// Sent when the message is stored, or its reader has it all the same. Dropped: it is lost.
    pub(super) done: oneshot::Sender<InPlace>,
}

impl Outgoing {
    /// Whether the stream ends with it.
    fn ends(&self) -> bool {
        self.what == Use::Answer { ends: true }
    }
}

/// Tells, once until it is over, that messages of a session are not kept.
#[derive(Debug)]
pub(super) struct StoreFailures {
    session: SessionId,
    is_logged: AtomicBool,
}

impl StoreFailures {
    pub(super) fn of(session: SessionId) -> Self {
        Self {
            session,
            is_logged: AtomicBool::new(false),
        }
    }

    fn are_over(&self) {
        self.is_logged.store(false, Ordering::Relaxed);
    }

    fn log(&self, error: &SessionError) {
        // Nobody misses what was to be said in a session that was ended.
        if !error.is_over() && !self.is_logged.swap(true, Ordering::Relaxed) {
            warn!(target: LOG_TARGET, "Messages of session {} are not kept: {error}", self.session);
        }
    }
}

/// The reader of a stream that this process has opened.
#[derive(Debug)]
pub(super) struct LiveReader {
    pub(super) deliveries: Sender<Delivery>,
    pub(super) is_behind: Arc<AtomicBool>,
}

/// Keeps what is said on a stream.
pub(super) struct Recorder<F> {
    /// The stream, on behalf of whoever is known to have its session now.
    pub(super) stream: F,
    pub(super) failures: Arc<StoreFailures>,
    /// Who reads what is kept, where that is this process's business.
    pub(super) reader: Option<LiveReader>,
}

impl<F: Fn() -> Stream + Send> Recorder<F> {
    /// Keeps what is said, up to the answer, or as long as somebody may say something. Returns
    /// whether the stream was closed: the answer closes it.
    pub(super) async fn run(&mut self, mut messages: UnboundedReceiver<Outgoing>) -> bool {
        let mut waiting = Vec::new();
        while messages.recv_many(&mut waiting, MESSAGES_MAX).await > 0 {
            while !waiting.is_empty() {
                let batch: Vec<Outgoing> = waiting.drain(..fitting(&waiting)).collect();
                if let Some(record) = batch.first().and_then(|said| said.record.as_ref()) {
                    // Without it the client is told once more.
                    let _ = record.store((self.stream)().session()).await;
                }
                let is_answered = batch.iter().any(Outgoing::ends);
                let is_closed = self.keep(batch).await;
                if is_answered {
                    return is_closed;
                }
            }
        }
        false
    }

    /// Keeps a batch, and closes the stream with it if there is an answer in it. Returns whether it
    /// was closed.
    async fn keep(&mut self, batch: Vec<Outgoing>) -> bool {
        let messages = batch.iter().map(|said| said.message.clone()).collect();
        let closes = batch.iter().any(Outgoing::ends);
        match self.append(&RequestId::mint(), messages, closes).await {
            Ok(appended) => {
                self.failures.are_over();
                for (said, appended) in batch.into_iter().zip(appended) {
                    self.deliver(Some(appended), said.message);
                    let _ = said.done.send(None);
                }
                closes
            }
            // One of them was refused. The others need not suffer from it.
            Err(error) if batch.len() > 1 && !error.passes() && !error.is_over() => {
                let mut is_closed = false;
                for said in batch {
                    is_closed |= Box::pin(self.keep(vec![said])).await;
                }
                is_closed
            }
            Err(error) => {
                self.failures.log(&error);
                let (mut is_closed, mut error) = (false, error);
                for said in batch {
                    is_closed |= self.keep_on(said, &mut error).await;
                }
                is_closed
            }
        }
    }

    /// Goes on with a message that was not kept. Whoever waits for it gets it all the same; who comes
    /// back for an answer gets it once it is kept, or is told what became of it. Returns whether the
    /// stream was closed.
    async fn keep_on(&mut self, said: Outgoing, error: &mut SessionError) -> bool {
        let mut keep = Keep::new(said.message, said.what, true);
        let (request, mut done) = (RequestId::mint(), Some(said.done));
        loop {
            let bytes = keep.message().len();
            let failure = match Failure::of(error.refusal(), error.passes(), bytes) {
                // Those that could be deleted are.
                Failure::Full { .. } => Failure::FULL,
                other => other,
            };
            let next = keep.failed(failure, &error.to_string(), self.reader.is_some());
            if let Some(message) = keep.unstored(next) {
                let is_read = self.deliver(None, message);
                let _ = done.take().filter(|_| is_read).map(|done| done.send(None));
            }
            match next {
                Next::Lost => return false,
                Next::Pause => sleep(AWAY).await,
                Next::Store | Next::Prune => {}
            }
            let (messages, closes) = (vec![keep.message().clone()], keep.ends());
            match self.append(&request, messages, closes).await {
                Ok(appended) => {
                    self.failures.are_over();
                    let Kept { message, unkept } = keep.stored();
                    let kept = appended.into_iter().next();
                    let in_place = unkept.and(kept.as_ref()).map(|kept| kept.id.clone());
                    let is_read = message.is_some_and(|message| self.deliver(kept, message));
                    let is_lost = in_place.is_some() && !is_read;
                    let done = done.take().filter(|_| !is_lost);
                    let _ = done.map(|done| done.send(in_place));
                    return closes;
                }
                Err(next) => *error = next,
            }
        }
    }

    async fn append(
        &self,
        request: &RequestId,
        messages: Vec<Json>,
        closes: bool,
    ) -> Result<Vec<Appended>, SessionError> {
        let stream = (self.stream)();
        let append = async || {
            let messages = messages.iter().cloned().map(Some).collect();
            match closes {
                true => stream.append_and_close_as(request.clone(), messages).await,
                false => stream.append_as(request.clone(), messages).await,
            }
        };
        with_room(stream.session(), append).await
    }

    /// Gives a message to the reader. One that is too slow gets the rest from the daemon. False: there
    /// is none.
    fn deliver(&mut self, kept: Option<Appended>, message: Json) -> bool {
        let Some(reader) = &self.reader else {
            return false;
        };
        let event = kept.map(|kept| (kept.position, kept.id));
        let sent = reader.deliveries.try_send(Delivery { event, message });
        if let Err(failed) = &sent {
            if matches!(failed, TrySendError::Full(_)) {
                reader.is_behind.store(true, Ordering::Release);
            }
            self.reader = None;
        }
        sent.is_ok()
    }
}

/// How many of these go into one append.
fn fitting(waiting: &[Outgoing]) -> usize {
    let mut bytes = 0;
    let fits = |said: &&Outgoing| {
        bytes += said.message.len();
        bytes <= BYTES_MAX
    };
    let later = waiting.iter().skip(1);
    let unrecorded = 1 + later.take_while(|said| said.record.is_none()).count();
    let fitting = waiting.iter().take_while(fits).count();
    fitting.clamp(1, unrecorded)
}
