//! A task that this process works on: it hears of answers and of the end, and stores what the work
//! comes to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mcp_sessiond_proto::tasks::{Task as View, TaskAsk, TaskEnd};
use mcp_sessiond_proto::{Error, InputKey};
use rmcp::ErrorData;
use rmcp::model::{CallToolResponse, InputRequest};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::sleep;
use tracing::warn;

use super::wire::{has_ended, is_gone, missing, refused, to_json};
use crate::LOG_TARGET;
use crate::error::SessionError;
use crate::session::{Task, TaskUpdate};

/// The longest wait for a change.
const WAIT: Duration = Duration::from_secs(25);
/// Between two attempts while the daemon is away.
const AWAY: Duration = Duration::from_secs(1);

/// What the work of a task has to do with its client. Clones are the same.
#[derive(Debug, Clone)]
pub struct Work(pub(super) Result<Arc<RunningTask>, ErrorData>);

impl Work {
    /// The task's id. None where the call is answered directly.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.0.as_ref().ok().map(|live| live.id.as_str())
    }

    /// Tells people how it is going, at most 4,096 bytes. Never fails.
    pub async fn tell(&self, message: impl Into<String>) {
        self.update(TaskUpdate::default().message(message)).await;
    }

    /// Changes the task's message, its ttl, or how often clients should ask. Never fails: what
    /// can't be kept is logged.
    pub async fn update(&self, change: TaskUpdate) {
        let Ok(live) = &self.0 else { return };
        match live.task.update(change).await {
            Ok(view) => live.observe(view),
            Err(error) => unless_ended(&error),
        }
    }

    /// Asks the client, and waits for its answer, which may come to any process of the service. The
    /// task is `input_required` until then.
    ///
    /// # Errors
    /// -32021 where the client can't be asked this: it has not declared the capability, or takes no
    /// tasks. -32602 where the daemon refuses: a task has 64 requests at most. Return the error,
    /// and the client gets it.
    pub async fn ask(&self, request: InputRequest) -> Result<Value, ErrorData> {
        self.0
            .as_ref()
            .map_err(ErrorData::clone)?
            .ask(&request)
            .await
    }
}

/// A task while its tool works.
#[derive(Debug)]
pub(super) struct RunningTask {
    pub(super) id: String,
    task: Task,
    /// What the client has declared in its call.
    capabilities: Value,
    asked: AtomicU32,
    news: watch::Sender<View>,
}

impl RunningTask {
    pub(super) fn new(id: String, task: Task, view: View, capabilities: Value) -> Self {
        let news = watch::Sender::new(view);
        Self {
            id,
            task,
            capabilities,
            asked: AtomicU32::new(0),
            news,
        }
    }

    /// Hears how the task is.
    pub(super) fn observe(&self, view: View) {
        self.news.send_if_modified(|known| {
            let is_newer = view.version > known.version;
            if is_newer {
                *known = view;
            }
            is_newer
        });
    }

    async fn ask(&self, request: &InputRequest) -> Result<Value, ErrorData> {
        let request = to_json(request);
        let method =
            serde_json::from_str::<Value>(request.as_str()).unwrap_or_default()["method"].take();
        let needed = method
            .as_str()
            .and_then(|method| method.split('/').next())
            .unwrap_or_default();
        if !self.capabilities[needed].is_object() {
            return Err(missing(&json!({needed: {}})));
        }
        let nth = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let key: InputKey = format!("input-{nth}").parse().expect("a key");
        let ask = TaskUpdate::default().ask(TaskAsk {
            key: key.clone(),
            request,
        });
        self.observe(self.insist(ask).await.map_err(|error| refused(&error))?);
        let mut news = self.news.subscribe();
        loop {
            let known = news.borrow_and_update().clone();
            let answer = known.inputs.iter().find(|input| input.key == key);
            if let Some(response) = answer.and_then(|answer| answer.response.as_ref()) {
                return Ok(serde_json::from_str(response.as_str()).unwrap_or_default());
            }
            if known.status.is_final() || news.changed().await.is_err() {
                return Err(ErrorData::internal_error("the task has ended", None));
            }
        }
    }

    /// Does the work, and stores what it comes to. Work whose task has ended by other means is
    /// dropped.
    pub(super) async fn drive(&self, mut work: JoinHandle<Result<CallToolResponse, ErrorData>>) {
        let done = tokio::select! {
            done = &mut work => done,
            () = self.ended() => return work.abort(),
        };
        let error = match self.insist(TaskUpdate::default().end(end(done))).await {
            Err(error) => error,
            Ok(_) => return,
        };
        if !matches!(
            error.refusal(),
            Some(Error::QuotaExceeded { .. } | Error::InvalidArgument { .. })
        ) {
            return unless_ended(&error);
        }
        let why = format!("the result could not be stored: {error}");
        let failed = ErrorData::internal_error(why, Some(json!({"outcome": "not_kept"})));
        if let Err(error) = self
            .insist(TaskUpdate::default().end(TaskEnd::Failed(to_json(&failed))))
            .await
        {
            unless_ended(&error);
        }
    }

    /// Returns when the task has ended, or its time is over.
    async fn ended(&self) {
        let mut news = self.news.subscribe();
        let ended = async {
            drop(news.wait_for(|view| view.status.is_final()).await);
        };
        let lost = async {
            let mut known = self.news.borrow().version;
            loop {
                match self.task.changed(known, WAIT).await {
                    Ok(view) => {
                        known = view.version;
                        self.observe(view);
                    }
                    Err(error) if is_gone(&error) => return,
                    Err(_) => sleep(AWAY).await,
                }
            }
        };
        tokio::select! {
            () = ended => {}
            () = lost => {}
        }
    }

    /// Repeats what may succeed later: it waits in this process while the daemon is away.
    async fn insist(&self, update: TaskUpdate) -> Result<View, SessionError> {
        let mut is_logged = false;
        loop {
            match self.task.update(update.clone()).await {
                Err(error) if error.passes() => {
                    if !is_logged {
                        warn!(target: LOG_TARGET, "A task waits to be stored: {error}");
                    }
                    is_logged = true;
                    sleep(AWAY).await;
                }
                made => return made,
            }
        }
    }
}

/// How a task ends whose work has ended so. An error of JSON-RPC alone is a failure.
fn end(done: Result<Result<CallToolResponse, ErrorData>, JoinError>) -> TaskEnd {
    let failed = |why| TaskEnd::Failed(to_json(&ErrorData::internal_error(why, None)));
    match done {
        Ok(Ok(CallToolResponse::Complete(result))) => TaskEnd::Completed(to_json(&result)),
        Ok(Ok(_)) => failed("a tool that goes on as a task asks its client by `Work::ask`"),
        Ok(Err(error)) => TaskEnd::Failed(to_json(&error)),
        Err(_) => failed("the tool has panicked"),
    }
}

/// Nobody misses what was to become of a task that has ended.
fn unless_ended(error: &SessionError) {
    if !is_gone(error) && !has_ended(error) {
        warn!(target: LOG_TARGET, "A change of a task is not kept: {error}");
    }
}
