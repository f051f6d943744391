//! A server on the official Rust SDK with the Tasks extension: `tasks-server ADDRESS`, or
//! `tasks-server stdio`.
//!
//! `SERVICE` names its service (`test`), `PATIENCE` says how long it waits for the daemon, in ms
//! (5,000). With `AUTH` it takes tokens such as `alice.1`, which are `alice`'s. A `gate` is a file
//! that a tool waits for. Its tools:
//!
//!   plain                    answers work {gate}              goes on as a task, and waits watched
//!   {gate}           the same, and logs when it is called, and when its client has gone must
//!   {gate}              the same for clients that take tasks; refuses others short {gate}
//!   the same, kept for 300 ms report {gate, ttl, poll} the same with another time to live and
//!   interval, in ms progress {gate}          the same, and then tells progress greet
//!   goes on as a task, asks for a name, then for a colour, and greets pair {gate}
//!   asks for two names at once, and then waits many                     asks for 65 names at once
//!   sample                   asks the client for a sample impatient                asks, and ends
//!   without waiting for the answer guarded                  asks for a name by
//!   `InputRequiredResult` (SEP-2322), then goes on as a task, and asks for another fail
//!   ends by an error of JSON-RPC wrong                    ends by an error of the tool panic
//!   panics structured               has a structured result big {bytes}              has a result
//!   of so many bytes

use std::path::Path;
use std::time::Duration;

use axum::Router;
use futures::future::{join, join_all};
use mcp_sessiond_client::rmcp::{DurableTasks, RunOptions, Work};
use mcp_sessiond_client::tower::Refusal;
use mcp_sessiond_client::{Caller, Options, Start, TaskUpdate, task_handlers};
use mcp_sessiond_process::changes::Changes;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorCode, InputRequest,
    InputRequests, InputRequiredResult, ProgressNotificationParam, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::stdio;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tracing::warn;
use tracing_subscriber::filter::LevelFilter;

type Context = RequestContext<RoleServer>;
type Done = Result<CallToolResult, ErrorData>;

#[derive(Clone)]
struct Server {
    tasks: DurableTasks,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_tasks()
                .build(),
        )
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let options = RunOptions::default().poll_ms(50).message("begun");
        let options = match &*request.name {
            "plain" => return Ok(said("plain")?.into()),
            "guarded" if request.input_responses.is_none() => {
                let asked = InputRequests::from([("name".to_owned(), question("Who are you?"))]);
                return Ok(InputRequiredResult::from_input_requests(asked).into());
            }
            "watched" => {
                watch(&context);
                options
            }
            "must" => options.required(),
            "short" => options.ttl(Duration::from_millis(300)),
            _ => options,
        };
        let its = context.clone();
        self.tasks
            .run(&context, options, |work| does(request, its, work))
            .await
    }

    task_handlers!(tasks);
}

/// Logs that a call has come, and when its client has gone.
fn watch(context: &Context) {
    warn!("called");
    let gone = context.ct.clone();
    tokio::spawn(async move {
        gone.cancelled().await;
        warn!("gone");
    });
}

/// Logs that work is dropped.
struct Dropped;

impl Drop for Dropped {
    fn drop(&mut self) {
        warn!("dropped");
    }
}

async fn does(request: CallToolRequestParams, context: Context, work: Work) -> Done {
    let arguments = Value::from(request.arguments.unwrap_or_default());
    let millis = |name: &str| arguments[name].as_u64().unwrap_or_default();
    let gate = arguments["gate"].as_str().map(Path::new);
    match &*request.name {
        "work" | "watched" | "must" | "short" => {
            warn!("working");
            let working = Dropped;
            work.tell("half of it is done").await;
            opened(gate).await;
            std::mem::forget(working);
            said("worked")
        }
        "report" => {
            let poll = u32::try_from(millis("poll")).expect("a few ms");
            let change = TaskUpdate::default()
                .message("half")
                .ttl(Duration::from_millis(millis("ttl")));
            work.update(change.poll_ms(poll)).await;
            opened(gate).await;
            said("reported")
        }
        "progress" => {
            let token = context.meta.get_progress_token().expect("a token");
            opened(gate).await;
            drop(
                context
                    .peer
                    .notify_progress(ProgressNotificationParam::new(token, 1.0))
                    .await,
            );
            said("worked")
        }
        "greet" => {
            let name = ask(&work, "Who are you?").await?;
            work.tell("asked").await;
            said(format!(
                "Hello, {name} in {}!",
                ask(&work, "Which colour?").await?
            ))
        }
        "pair" => {
            let (first, second) = join(ask(&work, "first"), ask(&work, "second")).await;
            opened(gate).await;
            said(format!("{} and {}", first?, second?))
        }
        "many" => {
            let asked = join_all((0..65).map(|_| ask(&work, "Who are you?"))).await;
            said(asked.into_iter().collect::<Result<Vec<_>, _>>()?.join(", "))
        }
        "sample" => {
            let messages =
                json!([{"role": "user", "content": {"type": "text", "text": "a question"}}]);
            let params = json!({"messages": messages, "maxTokens": 9});
            let answer = work
                .ask(request_of("sampling/createMessage", params))
                .await?;
            said(answer["content"]["text"].as_str().unwrap_or("nothing"))
        }
        "impatient" => {
            tokio::spawn(async move { ask(&work, "Who are you?").await });
            said("impatient")
        }
        "guarded" => {
            let first = request.input_responses.unwrap_or_default();
            let first = first["name"]["content"]["name"]
                .as_str()
                .unwrap_or("nobody")
                .to_owned();
            said(format!("{first} and {}", ask(&work, "Who else?").await?))
        }
        "fail" => Err(ErrorData::new(
            ErrorCode(-32050),
            "API rate limit exceeded",
            Some(json!({"after": 5})),
        )),
        "wrong" => Ok(CallToolResult::error(vec![ContentBlock::text(
            "invalid input",
        )])),
        "panic" => panic!("on demand"),
        "structured" => Ok(CallToolResult::structured(json!({"n": 7}))),
        "big" => said("x".repeat(usize::try_from(millis("bytes")).expect("a size"))),
        name => said(name),
    }
}

fn said(text: impl Into<String>) -> Done {
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]))
}

fn question(message: &str) -> InputRequest {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    request_of(
        "elicitation/create",
        json!({"mode": "form", "message": message, "requestedSchema": schema}),
    )
}

#[expect(clippy::needless_pass_by_value, reason = "it is made for this")]
fn request_of(method: &str, params: Value) -> InputRequest {
    serde_json::from_value(json!({"method": method, "params": params})).expect("a request")
}

/// Asks for a name.
async fn ask(work: &Work, message: &str) -> Result<String, ErrorData> {
    let answer = work.ask(question(message)).await?;
    Ok(answer["content"]["name"]
        .as_str()
        .unwrap_or("nobody")
        .to_owned())
}

/// Waits until the file is moved to its place: the system tells.
async fn opened(gate: Option<&Path>) {
    let Some(gate) = gate else { return };
    let mut changes = Changes::new().expect("a watch");
    changes
        .watch_directory(gate.parent().expect("a folder"))
        .expect("it is there");
    while !gate.exists() {
        changes.wait().await.expect("it is watched");
        changes.take();
    }
}

fn tasks() -> DurableTasks {
    let variable =
        |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.into());
    let patience =
        Duration::from_millis(variable("PATIENCE", "5000").parse().expect("a time in ms"));
    // The tests start the daemon, and start it again.
    let client = Options::default().start(Start::Never).timeout(patience);
    let tasks = DurableTasks::of_service(variable("SERVICE", "test").parse().expect("a name"))
        .client(client);
    if std::env::var_os("AUTH").is_none() {
        return tasks;
    }
    tasks.caller(|parts| {
        let shown = parts
            .headers
            .get("authorization")
            .and_then(|value| value.to_str().ok());
        let subject = shown.and_then(|shown| shown.strip_prefix("Bearer ")?.split_once('.'));
        let (sub, _) = subject.ok_or_else(|| Refusal::unauthorized("a token is needed"))?;
        Ok(Some(Caller::Identity {
            iss: "tests".into(),
            sub: sub.into(),
        }))
    })
}

#[expect(clippy::print_stdout, reason = "it is what the tests wait for")]
#[tokio::main]
async fn main() {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(LevelFilter::WARN)
        .init();
    let address = std::env::args().nth(1).expect("an address");
    let server = Server { tasks: tasks() };
    if address == "stdio" {
        let serving = server.serve(stdio()).await.expect("a client");
        serving.waiting().await.expect("it serves");
        return;
    }
    let config = StreamableHttpServerConfig::default().with_legacy_session_mode(false);
    let mcp = StreamableHttpService::new(
        move || Ok(server.clone()),
        NeverSessionManager::default().into(),
        config,
    );
    let listener = TcpListener::bind(address).await.expect("a port");
    println!(
        "listening at http://{}/mcp",
        listener.local_addr().expect("bound")
    );
    axum::serve(listener, Router::new().route_service("/mcp", mcp))
        .await
        .expect("it serves");
}
