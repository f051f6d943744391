//! A connection to one backend: requests and their answers, and the backend's own messages.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::error::RpcError;
use mcp_sessiond_jsonrpc::object::Object;
use mcp_sessiond_jsonrpc::owned::{Id, Message, Outcome};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::lock::lock;
use crate::pipe::{Receipt, TrackedLine};

/// Ids of our own requests begin with this, so that an answer which comes late is not taken for one
/// of the host's.
const OWN: &str = "mcp-sessiond/";

/// How long a backend that takes nothing any more is still read: it may answer earlier requests,
/// and its pipe has the time to end it.
const DRAIN_WAIT: Duration = Duration::from_secs(5);

/// An answer, and what to do once it was passed on.
#[derive(Debug)]
pub struct Answer {
    /// The result or the error.
    pub outcome: Outcome,
    /// To be confirmed.
    pub receipt: Receipt,
}

/// The requests that wait for their answers.
#[derive(Debug, Default)]
struct PendingAnswers {
    /// None: the request was given up, and its answer is dropped when it comes.
    answers: Mutex<HashMap<Id, Option<oneshot::Sender<Answer>>>>,
    is_over: AtomicBool,
}

/// A connection. It is over when the backend's channel ends.
#[derive(Debug)]
pub(crate) struct Connection {
    to: mpsc::Sender<Bytes>,
    waiting: Arc<PendingAnswers>,
    own_count: AtomicU64,
    prefix: String,
}

/// A request that waits for its answer. Dropped, it waits no more.
#[derive(Debug)]
struct PendingRequest<'a> {
    waiting: &'a PendingAnswers,
    id: Id,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        let mut answers = lock(&self.waiting.answers);
        if answers.get(&self.id).is_some_and(Option::is_some) {
            answers.remove(&self.id);
        }
    }
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The backend has got it, and is gone: the outcome is unknown.
    Lost,
    /// The backend was gone before it got it.
    NotSent,
    /// It can't be made.
    Refused(RpcError),
}

/// Marks the end of a connection, however it comes: what was asked and not answered has no answer
/// then.
struct EndGuard(Arc<PendingAnswers>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        lock(&self.0.answers).clear();
    }
}

impl Connection {
    /// `nonce` tells the ids of this process from those of another one.
    pub(crate) fn new(to: mpsc::Sender<Bytes>, nonce: u64) -> Self {
        let prefix = format!("{OWN}{nonce:x}/");
        Self {
            to,
            waiting: Arc::default(),
            own_count: AtomicU64::new(0),
            prefix,
        }
    }

    /// Forwards the messages of the backend, in its order, until it is gone, or takes nothing any
    /// more: answers to the requests that wait for them, everything else to `receive`. Requests
    /// that are not answered by then get no answer.
    pub(crate) fn forward<R, F>(
        &self,
        mut from: mpsc::Receiver<TrackedLine>,
        receive: R,
    ) -> impl Future<Output = ()> + Send + use<R, F>
    where
        R: Fn(Message, Receipt) -> F + Send + Sync,
        F: Future<Output = ()> + Send,
    {
        // Made here, so that it is dropped even if the future never runs.
        let over = EndGuard(self.waiting.clone());
        let to = self.to.clone();
        async move {
            let EndGuard(waiting) = &over;
            let closed = async {
                to.closed().await;
                sleep(DRAIN_WAIT).await;
            };
            tokio::pin!(closed);
            loop {
                let line = tokio::select! {
                    biased;
                    line = from.recv() => line,
                    () = &mut closed => None,
                };
                let Some(TrackedLine { line, receipt }) = line else {
                    return;
                };
                let mut messages = Message::read_all(&line).into_iter().peekable();
                let mut receipt = Some(receipt);
                while let Some(message) = messages.next() {
                    // The line was passed on when its last message was.
                    let receipt = receipt
                        .take_if(|_| messages.peek().is_none())
                        .unwrap_or_default();
                    match message {
                        Ok(message) => dispatch(waiting, &receive, message, receipt).await,
                        Err(unread) => match (unread.may_answer(), unread.id) {
                            (true, Some(id)) => {
                                let outcome = Err(RpcError::unreadable_of_server());
                                dispatch(
                                    waiting,
                                    &receive,
                                    Message::Answer { id, outcome },
                                    receipt,
                                )
                                .await;
                            }
                            (false, Some(id)) => {
                                let why = "Parse error: this can't be read as JSON-RPC";
                                let outcome = Err(RpcError::new(code::UNREADABLE, why));
                                push(&to, Message::Answer { id, outcome }.write());
                                receipt.confirm();
                            }
                            (_, None) => receipt.confirm(),
                        },
                    }
                }
                // A line without messages.
                if let Some(receipt) = receipt {
                    receipt.confirm();
                }
            }
        }
    }

    /// Whether the backend is gone.
    pub(crate) fn is_over(&self) -> bool {
        self.waiting.is_over.load(Ordering::SeqCst)
    }

    /// Makes a request, once there is room for it.
    pub(crate) async fn request(
        &self,
        id: Id,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> Result<Answer, NoAnswer> {
        let Ok(room) = self.to.reserve().await else {
            return Err(NoAnswer::NotSent);
        };
        let (tell, answer) = oneshot::channel();
        {
            let mut answers = lock(&self.waiting.answers);
            if answers.contains_key(&id) {
                let message = format!("a request with the id {id} is not answered yet");
                return Err(NoAnswer::Refused(RpcError::new(
                    code::INVALID_REQUEST,
                    message,
                )));
            }
            answers.insert(id.clone(), Some(tell));
        }
        let asked = PendingRequest {
            waiting: &self.waiting,
            id: id.clone(),
        };
        // It may have ended between the two.
        if self.is_over() {
            return Err(NoAnswer::NotSent);
        }
        room.send(
            Message::Request {
                id,
                method: method.to_owned(),
                params,
            }
            .write(),
        );
        let answer = answer.await.map_err(|_| NoAnswer::Lost);
        drop(asked);
        answer
    }

    /// Makes a request of our own.
    pub(crate) async fn request_own(
        &self,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> Option<Outcome> {
        let id = Id::text(&format!(
            "{}{}",
            self.prefix,
            self.own_count.fetch_add(1, Ordering::Relaxed)
        ));
        let Answer { outcome, receipt } = self.request(id, method, params).await.ok()?;
        receipt.confirm();
        Some(outcome)
    }

    /// Whether this process waits for the answer to this request.
    pub(crate) fn is_waiting_for(&self, id: &Id) -> bool {
        lock(&self.waiting.answers)
            .get(id)
            .is_some_and(Option::is_some)
    }

    /// Whether this process has made this request, and it is not answered yet.
    pub(crate) fn has_requested(&self, id: &Id) -> bool {
        lock(&self.waiting.answers).contains_key(id)
    }

    /// Cancels a request. Its answer is dropped, should it come nevertheless. False: there is no
    /// such request.
    pub(crate) fn give_up(&self, id: &Id, why: &str) -> bool {
        match lock(&self.waiting.answers).get_mut(id) {
            Some(answer @ Some(_)) => *answer = None,
            _ => return false,
        }
        let mut params = Object::default();
        params.set("requestId", id.raw());
        params.set_text("reason", why);
        let method = "notifications/cancelled".to_owned();
        self.push(
            Message::Notification {
                method,
                params: Some(params.write()),
            }
            .write(),
        );
        true
    }

    /// Passes a message on, after all before it. Where the backend is gone, the message is
    /// dropped.
    pub(crate) async fn tell(&self, message: &Message) {
        let _ = self.to.send(message.write()).await;
    }

    /// Passes a line on, without waiting for a backend that reads nothing: it gets the line
    /// when it reads again.
    pub(crate) fn push(&self, line: Bytes) {
        push(&self.to, line);
    }
}

/// Sends a line, without waiting for it.
pub(crate) fn push(to: &mpsc::Sender<Bytes>, line: Bytes) {
    if let Err(mpsc::error::TrySendError::Full(line)) = to.try_send(line) {
        let to = to.clone();
        tokio::spawn(async move { to.send(line).await });
    }
}

async fn dispatch<F: Future<Output = ()>>(
    waiting: &PendingAnswers,
    receive: &impl Fn(Message, Receipt) -> F,
    message: Message,
    receipt: Receipt,
) {
    let Message::Answer { id, outcome } = message else {
        return receive(message, receipt).await;
    };
    let asked = lock(&waiting.answers).remove(&id);
    match asked {
        Some(Some(asked)) => {
            if let Err(Answer { receipt, .. }) = asked.send(Answer { outcome, receipt }) {
                receipt.confirm();
            }
        }
        Some(None) => receipt.confirm(),
        // Of a former process of ours.
        None if id.begins_with(OWN) => receipt.confirm(),
        None => receive(Message::Answer { id, outcome }, receipt).await,
    }
}
