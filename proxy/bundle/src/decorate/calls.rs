//! A limit of calls under way. Others wait for their turn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::error::RpcError;
use mcp_sessiond_jsonrpc::object::Object;
use mcp_sessiond_jsonrpc::owned::{Id, Message};
use tokio::sync::{Semaphore, oneshot};

use crate::bundle::{Bundle, Error};
use crate::call::Call;
use crate::connection::Answer;
use crate::decorate::{Calls, Decorator, concerns, setting_name};
use crate::lock::lock;

/// Calls that wait. Each holds its arguments; a host that has so many open does not look at their
/// answers.
const WAITING_MAX: usize = 1_000;

/// Calls that wait, and how each is cancelled.
type WaitingCalls = Mutex<HashMap<Id, oneshot::Sender<()>>>;

pub(super) struct QueuedBundle {
    inner: Arc<dyn Bundle>,
    calls: Calls,
    slots: Semaphore,
    waiting: WaitingCalls,
}

/// A call that waits. Dropped, it waits no more.
struct WaitGuard<'a> {
    waiting: &'a WaitingCalls,
    id: Id,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        lock(self.waiting).remove(&self.id);
    }
}

impl QueuedBundle {
    pub(super) fn new(inner: Arc<dyn Bundle>, calls: Calls) -> Self {
        let most = usize::try_from(calls.most.get())
            .unwrap_or(usize::MAX)
            .min(Semaphore::MAX_PERMITS);
        Self {
            inner,
            calls,
            slots: Semaphore::new(most),
            waiting: Mutex::default(),
        }
    }

    /// Puts a call among those that wait.
    fn wait(&self, id: &Id) -> Result<(WaitGuard<'_>, oneshot::Receiver<()>), Error> {
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= WAITING_MAX {
            let setting = setting_name("calls.most", self.calls.server.as_deref());
            return Err(Error::Busy {
                waiting: waiting.len(),
                setting,
            });
        }
        if waiting.contains_key(id) {
            let message = format!("a request with the id {id} is not answered yet");
            return Err(Error::Refused(RpcError::new(
                code::INVALID_REQUEST,
                message,
            )));
        }
        let (cancel, cancelled) = oneshot::channel();
        waiting.insert(id.clone(), cancel);
        Ok((
            WaitGuard {
                waiting: &self.waiting,
                id: id.clone(),
            },
            cancelled,
        ))
    }
}

impl Decorator for QueuedBundle {
    fn inner(&self) -> &dyn Bundle {
        &*self.inner
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Error>> {
        Box::pin(async move {
            if !concerns(&*self.inner, self.calls.server.as_deref(), &call.target) {
                return self.inner.call(call).await;
            }
            let slot = match self.slots.try_acquire() {
                Ok(slot) => Some(slot),
                Err(_) => {
                    let (turn, cancelled) = self.wait(&call.id)?;
                    let slot = tokio::select! {
                        biased;
                        // The turn is there until it is dropped below.
                        _ = cancelled => return Err(Error::Cancelled),
                        slot = self.slots.acquire() => slot.ok(),
                    };
                    drop(turn);
                    slot
                }
            };
            let answer = self.inner.call(call).await;
            drop(slot);
            answer
        })
    }

    fn tell(&self, message: Message) -> BoxFuture<'_, ()> {
        let cancelled = match &message {
            Message::Notification { method, .. } if method == "notifications/cancelled" => message
                .params()
                .as_ref()
                .and_then(|params: &Object| Id::read(params.get("requestId")?)),
            _ => None,
        };
        // No backend knows it.
        match cancelled.and_then(|id| lock(&self.waiting).remove(&id)) {
            Some(cancel) => {
                let _ = cancel.send(());
                Box::pin(std::future::ready(()))
            }
            None => self.inner.tell(message),
        }
    }
}
