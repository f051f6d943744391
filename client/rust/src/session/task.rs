//! The tasks of a session: work that goes on after the request that began it was answered.

use std::time::Duration;

use mcp_sessiond_proto::debug::PAGE_MAX;
use mcp_sessiond_proto::streams::WAIT_MAX_MS;
use mcp_sessiond_proto::tasks::{
    CreateTaskRequest, ListTasksRequest, Task as View, TaskAnswer, TaskAsk, TaskEnd, TaskRef,
    UpdateTaskRequest, WaitTaskRequest,
};
use mcp_sessiond_proto::{Json, RequestId, TaskId};
use tokio::time::{Instant, sleep};

use super::Session;
use super::replay::ENDED_EARLY_PAUSE;
use crate::error::SessionError;
use crate::runtime::driven;

/// A task of a session's (the Tasks extension of MCP 2026-07-28, SEP-2663). Clones are the same task.
#[derive(Debug, Clone)]
pub struct Task {
    session: Session,
    id: TaskId,
}

/// How a task begins.
#[derive(Debug, Clone, Default)]
pub struct TaskOptions {
    ttl: Option<Duration>,
    poll_ms: Option<u32>,
    message: Option<String>,
}

impl TaskOptions {
    /// How long after its creation it is kept, whatever has become of it. By default, and at most,
    /// as long as the daemon's setting `sessions.task_life_ms` says.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How often clients should ask for it, in ms.
    #[must_use]
    pub fn poll_ms(mut self, poll_ms: u32) -> Self {
        self.poll_ms = Some(poll_ms);
        self
    }

    /// What people are told of its state, at most 4,096 bytes.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }
}

/// What is to be different about a task. What is absent stays.
#[derive(Debug, Clone, Default)]
pub struct TaskUpdate {
    message: Option<String>,
    ttl: Option<Duration>,
    poll_ms: Option<u32>,
    ask: Vec<TaskAsk>,
    answer: Vec<TaskAnswer>,
    end: Option<TaskEnd>,
    take: bool,
}

impl TaskUpdate {
    /// What people are told of its state, at most 4,096 bytes.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// How long after its creation it is kept.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How often clients should ask for it, in ms.
    #[must_use]
    pub fn poll_ms(mut self, poll_ms: u32) -> Self {
        self.poll_ms = Some(poll_ms);
        self
    }

    /// Asks the client: the task is `input_required` until all of its requests are answered.
    #[must_use]
    pub fn ask(mut self, ask: TaskAsk) -> Self {
        self.ask.push(ask);
        self
    }

    /// Takes an answer of the client's. The daemon ignores those to what was not asked, or is
    /// answered already.
    #[must_use]
    pub fn answer(mut self, answer: TaskAnswer) -> Self {
        self.answer.push(answer);
        self
    }

    /// Ends the task.
    #[must_use]
    pub fn end(mut self, end: TaskEnd) -> Self {
        self.end = Some(end);
        self
    }

    /// This process is the task's writer from now on: its exit is the end of the task.
    #[must_use]
    pub fn take(mut self) -> Self {
        self.take = true;
        self
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Session {
    /// Creates a task, whose writer is this process: if it exits before the task has ended, the
    /// task has failed, and its error says that the outcome is unknown. The task is kept when this
    /// returns, so its id may be told then.
    ///
    /// # Errors
    /// `quota_exceeded` where all of the session's tasks are under way, `invalid_argument`; those
    /// of every change ([`Session::update`]).
    ///
    /// ```no_run
    /// # async fn example(session: mcp_sessiond_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use mcp_sessiond_client::{Json, TaskOptions};
    ///
    /// let (task, created) = session.create_task(TaskOptions::default().poll_ms(1_000)).await?;
    /// println!("{} is {:?}", task.id(), created.status);
    /// task.complete(Json::new(r#"{"content":[]}"#)?).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn create_task(&self, options: TaskOptions) -> Result<(Task, View), SessionError> {
        // By this a repetition is known.
        self.create_task_as(RequestId::mint(), options).await
    }

    /// As [`Session::create_task`], with an idempotency key: repeating the call with the same
    /// `request`, also in another process, returns the same task.
    ///
    /// # Errors
    /// As [`Session::create_task`].
    pub async fn create_task_as(
        &self,
        request: RequestId,
        options: TaskOptions,
    ) -> Result<(Task, View), SessionError> {
        let created = self.call(|connection, context, of| {
            let TaskOptions {
                ttl,
                poll_ms,
                message,
            } = options.clone();
            let (request, ttl_ms) = (Some(request.clone()), ttl.map(ms));
            let request = CreateTaskRequest {
                of,
                request,
                ttl_ms,
                poll_ms,
                message,
            };
            async move { connection.create_task(context, request).await }
        });
        let created = created.await?;
        Ok((self.task(created.task.clone()), created))
    }

    /// The task of this id. Nothing is asked.
    #[must_use]
    pub fn task(&self, id: TaskId) -> Task {
        Task {
            session: self.clone(),
            id,
        }
    }

    /// All tasks, in order of their ids, without their requests and results.
    ///
    /// # Errors
    /// `unknown_session`, `session_terminated`, `binding_mismatch`.
    pub async fn tasks(&self) -> Result<Vec<View>, SessionError> {
        let mut all: Vec<View> = Vec::new();
        loop {
            let after = all.last().map(|last| last.task.clone());
            let page = self.call(|connection, context, of| {
                let request = ListTasksRequest {
                    of,
                    after: after.clone(),
                };
                async move { connection.list_tasks(context, request).await }
            });
            let page = page.await?;
            let is_last = page.len() < PAGE_MAX;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }
}

impl Task {
    /// Its id, for the client: whoever knows it and the session may ask for the task.
    #[must_use]
    pub fn id(&self) -> &TaskId {
        &self.id
    }

    /// The task as it is.
    ///
    /// # Errors
    /// `unknown_task`: there is none, or its time is over; `unknown_session`, `session_terminated`,
    /// `binding_mismatch`.
    pub async fn view(&self) -> Result<View, SessionError> {
        self.session
            .call(|connection, context, of| {
                let request = TaskRef {
                    of,
                    task: self.id.clone(),
                };
                async move { connection.get_task(context, request).await }
            })
            .await
    }

    /// Changes the task: all that the update says, or nothing. Repeating it has no further effect.
    ///
    /// # Errors
    /// `unknown_task`, `task_ended`, `invalid_argument`; those of every change
    /// ([`Session::update`]).
    pub async fn update(&self, update: TaskUpdate) -> Result<View, SessionError> {
        self.session
            .call(|connection, context, of| {
                let TaskUpdate {
                    message,
                    ttl,
                    poll_ms,
                    ask,
                    answer,
                    end,
                    take,
                } = update.clone();
                let (task, ttl_ms) = (self.id.clone(), ttl.map(ms));
                let request = UpdateTaskRequest {
                    of,
                    task,
                    message,
                    ttl_ms,
                    poll_ms,
                    ask,
                    answer,
                    end,
                    take,
                };
                async move { connection.update_task(context, request).await }
            })
            .await
    }

    /// Ends the task by its result.
    ///
    /// # Errors
    /// As [`Task::update`].
    pub async fn complete(&self, result: Json) -> Result<View, SessionError> {
        self.update(TaskUpdate::default().end(TaskEnd::Completed(result)))
            .await
    }

    /// Ends the task by an error of JSON-RPC.
    ///
    /// # Errors
    /// As [`Task::update`].
    pub async fn fail(&self, error: Json) -> Result<View, SessionError> {
        self.update(TaskUpdate::default().end(TaskEnd::Failed(error)))
            .await
    }

    /// Cancels the task. Its writer finds that out by [`Task::changed`], or by `task_ended`.
    ///
    /// # Errors
    /// As [`Task::update`].
    pub async fn cancel(&self) -> Result<View, SessionError> {
        self.update(TaskUpdate::default().end(TaskEnd::Cancelled))
            .await
    }

    /// Waits until the task has another version than this, or has ended, and returns it; when the
    /// time is over, as it is. Other calls are not kept waiting, and dropping this future does no
    /// harm.
    ///
    /// # Errors
    /// As [`Task::view`].
    pub async fn changed(&self, version: u64, time: Duration) -> Result<View, SessionError> {
        driven(self.changed_here(version, time)).await
    }

    async fn changed_here(&self, version: u64, time: Duration) -> Result<View, SessionError> {
        let until = Instant::now().checked_add(time);
        loop {
            let left = until.map_or(Duration::MAX, |until| {
                until.saturating_duration_since(Instant::now())
            });
            let part = left.min(Duration::from_millis(WAIT_MAX_MS.into()));
            let began = Instant::now();
            let waited = self
                .session
                .waiting_call(part, |connection, context, of, timeout_ms| {
                    let request = WaitTaskRequest {
                        of,
                        task: self.id.clone(),
                        version,
                        timeout_ms: Some(timeout_ms),
                    };
                    async move { connection.wait_task(context, request).await }
                });
            let task = waited.await?;
            let is_over = until.is_some_and(|until| Instant::now() >= until);
            if task.version != version || task.status.is_final() || is_over {
                return Ok(task);
            }
            if began.elapsed() < part {
                sleep(ENDED_EARLY_PAUSE.min(part)).await;
            }
        }
    }
}
