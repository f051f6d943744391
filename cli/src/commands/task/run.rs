//! `task run`: a command whose output is the result of a task.

use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use clap::Args;
use futures::StreamExt as _;
use mcp_sessiond_client::{Json, SessionError, Task, TaskEnd, TaskOptions, TaskUpdate, TaskView};
use mcp_sessiond_process::fault;
use mcp_sessiond_process::signals::not_ignored;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use signal_hook_tokio::Signals;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::{WAIT, report_failure};
use crate::exit_code::SOFTWARE;
use crate::session_args::{IfMissing, SessionArgs, report};
use crate::ui::output::{print, warn};

/// The variable that tells the command its task.
const TASK_VARIABLE: &str = "MCP_SESSIOND_TASK";

/// Bytes of a command's output that are taken: with what stands around them, a message's bound by
/// default.
const OUTPUT_MAX: u64 = 900_000;

/// How long after SIGTERM a command is killed.
const GRACE: Duration = Duration::from_secs(5);
/// How long the end of its output is waited for then. A process that has left its group may never
/// close it.
const REST: Duration = Duration::from_secs(1);

/// How long a result is offered to a daemon that is away, or whose storage is: it may be one that
/// is being replaced.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// An internal error of JSON-RPC 2.0, section 5.1.
const INTERNAL_ERROR: i32 = -32_603;

#[derive(Debug, Args)]
#[command(after_help = "\
The id is printed once the task is kept, and standard output is closed then, so that `id=$(mcp-sessiond task run … &)` goes on at \
once. The command finds the id in MCP_SESSIOND_TASK, and reads nothing from standard input.

What the command prints becomes the text of a tool's result; `isError` is true when its exit code is not 0. With --json it prints the \
result itself, a JSON object, and the task has failed when it prints none or when its exit code is not 0. When this process is killed, \
the task has failed, and its error says that the outcome is unknown. When somebody else ends the task, as `task cancel` does, or this process gets \
SIGINT, SIGTERM or SIGHUP, the command and its children get SIGTERM, and SIGKILL after five seconds.

Exit codes: 0 the task has ended, whatever its result; 4 resume is disabled, or no daemon answers; 65 refused, such as when the lease has ended; 70 there is no such command.

Example: id=$(mcp-sessiond task run --service web --session 7 -- make report &)")]
pub(super) struct Arguments {
    /// How long after its creation the task is kept, in seconds. By default, and at most,
    /// `sessions.task_life_ms`
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    ttl: Option<u64>,
    /// How often clients should ask for it, in ms
    #[arg(long, value_name = "MS")]
    poll: Option<u32>,
    /// What people read about its state
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
    /// The command prints the result itself, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    of: SessionArgs,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Arguments {
    pub(super) async fn run(self) -> Result<ExitCode, u8> {
        let Self {
            ttl,
            poll,
            message,
            json,
            of,
            command,
        } = self;
        let session = of.session(IfMissing::Create).await?;
        let options = TaskOptions::default();
        let options = ttl
            .map(Duration::from_secs)
            .into_iter()
            .fold(options, TaskOptions::ttl);
        let options = poll.into_iter().fold(options, TaskOptions::poll_ms);
        let options = message.into_iter().fold(options, TaskOptions::message);
        let (task, view) = report_failure(session.create_task(options).await)?;
        if print(&format!("{}\n", task.id())) != ExitCode::SUCCESS {
            return Err(SOFTWARE);
        }
        // Whoever waits for the end of the output has the id.
        close_standard_output();
        let (end, code) = match start(&command, &task) {
            Ok(child) => match work(child, &task, view).await {
                Outcome::Exited(status, output) => (outcome(json, status, &output), 0),
                // Such as by cancellation.
                Outcome::Ended(None) => return Ok(ExitCode::SUCCESS),
                Outcome::Ended(Some(error)) => return Err(report(&error)),
            },
            Err(error) => {
                warn(format_args!("{}: {error}", command[0]));
                (
                    failed("the command of this task could not be started"),
                    SOFTWARE,
                )
            }
        };
        keep(&task, end).await?;
        Ok(ExitCode::from(code))
    }
}

fn close_standard_output() {
    if let Ok(nothing) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdout(OwnedFd::from(nothing));
    }
}

fn start(command: &[String], task: &Task) -> io::Result<Child> {
    Command::new(&command[0])
        .args(&command[1..])
        .env(TASK_VARIABLE, task.id().as_str())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // So that its children can be ended with it.
        .process_group(0)
        .spawn()
}

/// What has ended first.
enum Outcome {
    /// The command: how, and what it has printed.
    Exited(io::Result<ExitStatus>, Vec<u8>),
    /// The task, or this process's way to it: then why. The command was ended.
    Ended(Option<SessionError>),
}

/// Waits until the command has exited and its output has ended, or ends it because its result could
/// not be kept any more.
async fn work(mut child: Child, task: &Task, view: TaskView) -> Outcome {
    let group = child
        .id()
        .and_then(|pid| i32::try_from(pid).ok())
        .map(Pid::from_raw);
    let output = child.stdout.take();
    let (mut printed, mut over) = (Vec::new(), None);
    let status = {
        let mut done = pin!(async {
            if let Some(mut output) = output {
                let _ = (&mut output)
                    .take(OUTPUT_MAX + 1)
                    .read_to_end(&mut printed)
                    .await;
                // The rest is not taken, and does not hold the command up.
                let _ = tokio::io::copy(&mut output, &mut tokio::io::sink()).await;
            }
            child.wait().await
        });
        tokio::select! {
            status = &mut done => Some(status),
            why = ended(task, view) => {
                over = Some(why);
                end(group, done).await
            }
            () = end_signal() => end(group, done).await,
        }
    };
    let status = match status {
        Some(status) => status,
        None => {
            let _ = child.start_kill();
            child.wait().await
        }
    };
    over.map_or(Outcome::Exited(status, printed), Outcome::Ended)
}

/// Ends the processes of a command. None: one that is not of its group keeps the output open.
async fn end<T>(group: Option<Pid>, mut done: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let send = |signal| group.is_some_and(|group| killpg(group, signal).is_ok());
    send(Signal::SIGTERM);
    if let Ok(done) = timeout(GRACE, &mut done).await {
        return Some(done);
    }
    send(Signal::SIGKILL);
    timeout(REST, done).await.ok()
}

/// Waits until somebody has ended the task, or its time is over. An error: this process may not
/// write to it any more, such as when the lease has ended.
async fn ended(task: &Task, mut view: TaskView) -> Option<SessionError> {
    loop {
        match task.changed(view.version, WAIT).await {
            Ok(now) if now.status.is_final() => return None,
            Ok(now) => view = now,
            // The daemon or its storage is away; the work goes on.
            Err(error) if error.passes() => sleep(PAUSE).await,
            Err(error) => return Some(error).filter(|error| !is_over(error)),
        }
    }
}

/// Waits until this process is to end.
async fn end_signal() {
    let ending = not_ignored(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    match Signals::new(ending) {
        Ok(mut signals) => drop(signals.next().await),
        Err(_) => pending().await,
    }
}

fn failed(sentence: &str) -> TaskEnd {
    TaskEnd::Failed(Json::from(
        &json!({"code": INTERNAL_ERROR, "message": sentence}),
    ))
}

fn outcome(as_json: bool, status: io::Result<ExitStatus>, output: &[u8]) -> TaskEnd {
    let is_error = !status.as_ref().is_ok_and(ExitStatus::success);
    if output.len() as u64 > OUTPUT_MAX {
        return failed(&format!(
            "the command of this task has printed more than {OUTPUT_MAX} bytes"
        ));
    }
    let text = String::from_utf8_lossy(output);
    if !as_json {
        let content = json!([{"type": "text", "text": text}]);
        return TaskEnd::Completed(Json::from(
            &json!({"content": content, "isError": is_error}),
        ));
    }
    match Json::new(text.trim()) {
        _ if is_error => {
            let ended = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            failed(&format!("the command of this task has ended: {ended}"))
        }
        Ok(result)
            if serde_json::from_str(result.as_str())
                .is_ok_and(|result: Value| result.is_object()) =>
        {
            TaskEnd::Completed(result)
        }
        _ => failed("the command of this task did not print a JSON object"),
    }
}

/// Ends the task. One that has ended in the meantime, such as by cancellation, stays as it is.
async fn keep(task: &Task, end: TaskEnd) -> Result<(), u8> {
    let Err(error) = offer(task, end).await else {
        return Ok(());
    };
    let code = report(&error);
    // Where the storage was away, the result may be kept after all.
    if error.refusal().is_some() && !error.passes() {
        // Such as one with more bytes than the daemon takes. Its client need not wait for it.
        let _ = offer(task, failed("the result of this task could not be kept")).await;
    }
    Err(code)
}

async fn offer(task: &Task, end: TaskEnd) -> Result<(), SessionError> {
    let until = Instant::now() + fault::patience().unwrap_or(ANSWER_TIMEOUT);
    loop {
        match task.update(TaskUpdate::default().end(end.clone())).await {
            Err(error) if is_over(&error) => return Ok(()),
            Err(error) if error.passes() && Instant::now() < until => sleep(PAUSE).await,
            ended => return ended.map(drop),
        }
    }
}

fn is_over(error: &SessionError) -> bool {
    use mcp_sessiond_client::Error::{TaskEnded, UnknownTask};
    matches!(error.refusal(), Some(TaskEnded | UnknownTask))
}
