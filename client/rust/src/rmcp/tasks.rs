//! The Tasks extension of MCP 2026-07-28 (SEP-2663), for servers on rmcp: tasks that survive the
//! process, in the daemon.

mod task_store;
mod wire;
mod work;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::request::Parts;
use mcp_sessiond_proto::sessions::Caller;
use mcp_sessiond_proto::tasks::{Task as View, TaskAnswer};
use mcp_sessiond_proto::{Json, ServiceName};
use rmcp::handler::server::tool::IntoCallToolResult;
use rmcp::model::{
    CallToolResponse, CancelTaskMethod, CancelTaskParams, ConstString, CreateTaskResult,
    CustomRequest, ErrorCode, GetTaskMethod, GetTaskParams, GetTaskResult, ProtocolVersion,
    UpdateTaskMethod, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use tracing::warn;
use work::RunningTask;
pub use work::Work;

use super::options::{CallerOf, TIMEOUT};
use crate::LOG_TARGET;
use crate::error::SessionError;
use crate::options::Options;
use crate::session::{Task, TaskOptions, TaskUpdate};
use crate::sessions::Sessions;
use crate::tower::{Refusal, caller};

/// How long a task is kept after its creation, unless its tool says otherwise. Each is a session of
/// the service, whose number is limited.
const TTL: Duration = Duration::from_secs(60 * 60);
/// How often clients should ask for a task, in ms.
const POLL_MS: u32 = 1_000;

type Context = RequestContext<RoleServer>;

/// How one task begins.
#[derive(Debug, Clone)]
pub struct RunOptions {
    ttl: Duration,
    poll_ms: u32,
    message: Option<String>,
    required: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            ttl: TTL,
            poll_ms: POLL_MS,
            message: None,
            required: false,
        }
    }
}

impl RunOptions {
    /// How long it is kept after its creation: an hour by default, and at most what is configured
    /// (`sessions.task_life_ms`).
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// How often clients should ask for it, in ms: 1,000 by default.
    #[must_use]
    pub fn poll_ms(self, poll_ms: u32) -> Self {
        Self { poll_ms, ..self }
    }

    /// What people are told of its state at first, at most 4,096 bytes.
    #[must_use]
    pub fn message(self, message: impl Into<String>) -> Self {
        Self {
            message: Some(message.into()),
            ..self
        }
    }

    /// Refuses clients that take no tasks (-32021). By default they wait for the result.
    #[must_use]
    pub fn required(self) -> Self {
        Self {
            required: true,
            ..self
        }
    }
}

/// Tasks that survive the requests that began them. Every process of the service finds them,
/// whatever SDK it uses. Clones are the same.
///
/// A server declares the extension (`enable_tasks()` in its capabilities), serves its methods by
/// [`task_handlers!`](crate::task_handlers), and lets a tool go on as a task by
/// [`DurableTasks::run`]. `examples/tasks_server.rs` is a whole server.
#[derive(Clone)]
pub struct DurableTasks {
    service: ServiceName,
    sessions: Sessions,
    caller: CallerOf,
    /// What this process works on: it need not wait to hear what it has been told itself.
    working: Arc<Mutex<HashMap<String, Weak<RunningTask>>>>,
    is_failing: Arc<AtomicBool>,
}

impl fmt::Debug for DurableTasks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DurableTasks")
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

impl DurableTasks {
    /// The tasks of this service: every process of this user that says the name finds them. Nothing
    /// is sent before the first call.
    #[must_use]
    pub fn of_service(service: ServiceName) -> Self {
        Self {
            sessions: Sessions::of_service(service.clone(), Options::default().timeout(TIMEOUT)),
            service,
            caller: Arc::new(caller::bearer_if_shown),
            working: Arc::default(),
            is_failing: Arc::default(),
        }
    }

    /// How the daemon is found, and how long it is waited for: 5 s by default.
    #[must_use]
    pub fn client(self, client: Options) -> Self {
        Self {
            sessions: Sessions::of_service(self.service.clone(), client),
            ..self
        }
    }

    /// Tells on whose behalf a request is made: a task is found by the caller that began it, and by
    /// nobody else. [`caller`] has functions that are ready to use; by default it is
    /// [`caller::bearer_if_shown`]. None of them checks a token: do that before. On stdio there is
    /// no caller, and whoever knows a task's id, which has 384 random bits, may ask for it.
    #[must_use]
    pub fn caller(
        self,
        caller: impl Fn(&Parts) -> Result<Option<Caller>, Refusal> + Send + Sync + 'static,
    ) -> Self {
        Self {
            caller: Arc::new(caller),
            ..self
        }
    }

    /// For a tool to return: does the work as a task, which is stored before the client hears of
    /// it. What the work returns is the task's result, as it would be the tool's. Work whose task
    /// is cancelled, or whose time is over, is dropped. Where the client takes no tasks, or the
    /// daemon is away, the work is done while the client waits, and dropped when it goes away.
    ///
    /// # Errors
    /// What the work returns where there is no task. With [`RunOptions::required`]: -32021 where
    /// the client takes no tasks, -32603 where none can be created. What the function of
    /// [`DurableTasks::caller`] refuses.
    pub async fn run<F>(
        &self,
        context: &RequestContext<RoleServer>,
        options: RunOptions,
        work: impl FnOnce(Work) -> F,
    ) -> Result<CallToolResponse, ErrorData>
    where
        F: Future<Output: IntoCallToolResult> + Send + 'static,
    {
        let RunOptions {
            ttl,
            poll_ms,
            message,
            required,
        } = options;
        let mut begin = TaskOptions::default().ttl(ttl).poll_ms(poll_ms);
        if let Some(message) = message {
            begin = begin.message(message);
        }
        let live = match self.begin(context, begin).await? {
            Err(why) if required => return Err(why),
            Err(why) => {
                let work = work(Work(Err(why)));
                return tokio::select! {
                    done = work => done.into_call_tool_result(),
                    () = context.ct.cancelled() => Err(gone()),
                };
            }
            Ok((live, view)) => (Arc::new(live), view),
        };
        let (live, view) = live;
        self.working()
            .insert(live.id.clone(), Arc::downgrade(&live));
        let work = work(Work(Ok(live.clone())));
        let work = tokio::spawn(async move { work.await.into_call_tool_result() });
        let created = CreateTaskResult::new(wire::task(&live.id, &view));
        let tasks = self.clone();
        drop(tokio::spawn(async move {
            live.drive(work).await;
            tasks.working().remove(&live.id);
        }));
        Ok(created.into())
    }

    /// A task of this call's, or why there is none.
    async fn begin(
        &self,
        context: &Context,
        begin: TaskOptions,
    ) -> Result<Result<(RunningTask, View), ErrorData>, ErrorData> {
        let declared = context
            .client_capabilities()
            .filter(|declared| declared.supports_tasks());
        let Some(declared) = declared.filter(|_| is_of_the_extension(context)) else {
            return Ok(Err(wire::undeclared()));
        };
        let capabilities = serde_json::to_value(declared).unwrap_or_default();
        let (id, task, view) = match task_store::create(
            &self.sessions,
            self.caller_of(context)?,
            begin,
        )
        .await
        {
            Ok(created) => created,
            Err(error) => {
                if !self.is_failing.swap(true, Ordering::Relaxed) {
                    warn!(target: LOG_TARGET, "No task can be created, so clients wait for results: {error}");
                }
                let why = "the task could not be created: try again later";
                return Ok(Err(ErrorData::internal_error(why, None)));
            }
        };
        self.is_failing.store(false, Ordering::Relaxed);
        // Who has gone by now never hears of the task.
        if context.ct.is_cancelled() {
            drop(task.cancel().await);
            return Err(gone());
        }
        Ok(Ok((
            RunningTask::new(id, task, view.clone(), capabilities),
            view,
        )))
    }

    /// Answers `tasks/get`: the task as it is now.
    ///
    /// # Errors
    /// -32602: there is no such task for this caller. -32603: the daemon is away.
    pub async fn get(
        &self,
        request: GetTaskParams,
        context: &Context,
    ) -> Result<GetTaskResult, ErrorData> {
        let id = request.task_id;
        let task = self.find::<GetTaskMethod>(context, &id).await?;
        let view = task.view().await.map_err(|error| wire::refused(&error))?;
        Ok(GetTaskResult::new(wire::detailed(&id, &view)?))
    }

    /// Answers `tasks/update`: takes the client's answers. Those to what was not asked, or is
    /// answered already, are ignored.
    ///
    /// # Errors
    /// As [`DurableTasks::get`].
    pub async fn update(
        &self,
        request: UpdateTaskParams,
        context: &Context,
    ) -> Result<(), ErrorData> {
        let UpdateTaskParams {
            task_id,
            input_responses,
            ..
        } = request;
        let task = self.find::<UpdateTaskMethod>(context, &task_id).await?;
        let view = task.view().await.map_err(|error| wire::refused(&error))?;
        let mut update = None;
        for input in view.inputs.iter().filter(|input| input.response.is_none()) {
            if let Some(response) = input_responses.get(input.key.as_str()) {
                let (key, response) = (input.key.clone(), Json::trusted(response.to_string()));
                update = Some(
                    update
                        .unwrap_or_else(TaskUpdate::default)
                        .answer(TaskAnswer { key, response }),
                );
            }
        }
        match update {
            Some(update) => self.observe_change(&task_id, task.update(update).await),
            None => Ok(()),
        }
    }

    /// Answers `tasks/cancel`: the task is cancelled, unless it has ended.
    ///
    /// # Errors
    /// As [`DurableTasks::get`].
    pub async fn cancel(
        &self,
        request: CancelTaskParams,
        context: &Context,
    ) -> Result<(), ErrorData> {
        let task = self
            .find::<CancelTaskMethod>(context, &request.task_id)
            .await?;
        self.observe_change(&request.task_id, task.cancel().await)
    }

    /// For `on_custom_request`, which rmcp calls with what it can't read, too: -32602 for a request
    /// of the extension whose parameters are not as they should be, and -32601 for any other.
    #[must_use]
    pub fn unreadable(&self, request: &CustomRequest, context: &Context) -> ErrorData {
        let needed = match &*request.method {
            GetTaskMethod::VALUE | CancelTaskMethod::VALUE => "`taskId`, a string",
            UpdateTaskMethod::VALUE => "`taskId`, a string, and `inputResponses`, an object",
            _ => "",
        };
        if needed.is_empty() || !is_of_the_extension(context) {
            return ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method.clone(), None);
        }
        ErrorData::invalid_params(format!("{} needs {needed}", request.method), None)
    }

    /// A client has changed a task, unless it has ended.
    fn observe_change(
        &self,
        id: &str,
        changed: Result<View, SessionError>,
    ) -> Result<(), ErrorData> {
        match changed {
            Ok(view) => {
                let live = self.working().get(id).and_then(Weak::upgrade);
                if let Some(live) = live {
                    live.observe(view);
                }
                Ok(())
            }
            Err(error) if wire::has_ended(&error) => Ok(()),
            Err(error) => Err(wire::refused(&error)),
        }
    }

    async fn find<M: ConstString>(&self, context: &Context, id: &str) -> Result<Task, ErrorData> {
        // Before 2026-07-28 there is no such extension, whatever a client declares.
        if !is_of_the_extension(context) {
            return Err(ErrorData::method_not_found::<M>());
        }
        task_store::find(&self.sessions, self.caller_of(context)?, id).await
    }

    fn caller_of(&self, context: &Context) -> Result<Option<Caller>, ErrorData> {
        let Some(parts) = context.extensions.get::<Parts>() else {
            return Ok(None);
        };
        (self.caller)(parts).map_err(|refusal| ErrorData::invalid_request(refusal.message, None))
    }

    fn working(&self) -> MutexGuard<'_, HashMap<String, Weak<RunningTask>>> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What nobody reads: rmcp wants an answer to a request that was cancelled, too.
fn gone() -> ErrorData {
    ErrorData::internal_error("the client has gone", None)
}

/// Whether a request speaks a version of MCP that has the extension.
fn is_of_the_extension(context: &Context) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

/// Serves `tasks/get`, `tasks/update` and `tasks/cancel` in an `impl ServerHandler`, by the
/// [`DurableTasks`](crate::rmcp::DurableTasks) in this field of the server's. The server's
/// capabilities must say `enable_tasks()`.
///
/// It also writes `on_custom_request`. A server that has its own writes these handlers itself, each
/// of which is a call of [`DurableTasks`](crate::rmcp::DurableTasks).
///
/// ```
/// use mcp_sessiond_client::rmcp::DurableTasks;
/// use rmcp::ServerHandler;
/// use rmcp::model::{ServerCapabilities, ServerConfig};
///
/// struct Shop {
///     tasks: DurableTasks,
/// }
///
/// impl ServerHandler for Shop {
///     fn get_info(&self) -> ServerConfig {
///         ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tasks().build())
///     }
///
///     mcp_sessiond_client::task_handlers!(tasks);
/// }
/// ```
#[macro_export]
macro_rules! task_handlers {
    ($tasks:ident) => {
        async fn get_task(
            &self,
            request: ::rmcp::model::GetTaskParams,
            context: ::rmcp::service::RequestContext<::rmcp::RoleServer>,
        ) -> ::std::result::Result<::rmcp::model::GetTaskResult, ::rmcp::ErrorData> {
            self.$tasks.get(request, &context).await
        }

        async fn update_task(
            &self,
            request: ::rmcp::model::UpdateTaskParams,
            context: ::rmcp::service::RequestContext<::rmcp::RoleServer>,
        ) -> ::std::result::Result<(), ::rmcp::ErrorData> {
            self.$tasks.update(request, &context).await
        }

        async fn cancel_task(
            &self,
            request: ::rmcp::model::CancelTaskParams,
            context: ::rmcp::service::RequestContext<::rmcp::RoleServer>,
        ) -> ::std::result::Result<(), ::rmcp::ErrorData> {
            self.$tasks.cancel(request, &context).await
        }

        async fn on_custom_request(
            &self,
            request: ::rmcp::model::CustomRequest,
            context: ::rmcp::service::RequestContext<::rmcp::RoleServer>,
        ) -> ::std::result::Result<::rmcp::model::CustomResult, ::rmcp::ErrorData> {
            ::std::result::Result::Err(self.$tasks.unreadable(&request, &context))
        }
    };
}
