//! `mcp-sessiond task`: the tasks of a session, for what has no library.

mod display;
mod run;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use mcp_sessiond_client::{
    InputKey, Json, Session, SessionError, Task, TaskAnswer, TaskAsk, TaskId, TaskStatus,
    TaskUpdate, TaskView,
};

use crate::exit_code::NO_INPUT;
use crate::session_args::{IfMissing, SessionArgs, parse_json, read_stdin, report, run_for_server};
use crate::ui::output::{print, to_json, warn};

/// How long one wait for a change may take.
const WAIT: Duration = Duration::from_secs(25);

#[derive(Debug, Args)]
#[command(after_help = "\
A task is work that goes on after the request that began it was answered (MCP's Tasks extension, SEP-2663). `task run` creates one \
and does its work; the other verbs answer `tasks/get`, `tasks/update` and `tasks/cancel`.

The session is that of the process that calls this command, as for `token`: in a shell script say `--for $$`. With --service and \
--session it is one of a service, for servers that no host has started.

Exit codes: 0; 4 resume is disabled, or no daemon answers; 65 refused, or not JSON; 66 no such task or session.

Example, in a server's script:
  id=$(mcp-sessiond task run --service web --session 7 -- make report &)
  mcp-sessiond task get \"$id\" --service web --session 7")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a task, print its id, run a command, and end the task by what the command has printed
    Run(run::Arguments),
    /// Print a task as JSON, as `tasks/get` answers it
    #[command(after_help = "Example: mcp-sessiond task get \"$id\" --service web --session 7")]
    Get(One),
    /// Wait until a task has ended or asks its client, and print it as JSON
    #[command(after_help = "Example: mcp-sessiond task wait \"$id\" --service web --session 7")]
    Wait(One),
    /// Print the tasks: a line each, with the id, a tab and the status
    #[command(after_help = "Example: mcp-sessiond task list --service web --session 7")]
    List {
        /// Print them as JSON, as `tasks/get` answers them, without their requests and results
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        session: SessionArgs,
    },
    /// Say how a task is getting on: its `statusMessage`
    #[command(
        after_help = "Example, in what `task run` runs:\n  mcp-sessiond task message \"$MCP_SESSIOND_TASK\" half --service web --session 7"
    )]
    Message {
        #[command(flatten)]
        one: One,
        /// The message, for people
        message: String,
    },
    /// Ask the task's client, wait for its answer, and print that as JSON
    #[command(after_help = "\
The task is `input_required` until then. Exit code 65, too, when it ends in the meantime.

Example, in what `task run` runs:
  mcp-sessiond task ask \"$MCP_SESSIOND_TASK\" name --service web --session 7 <<E
  {\"method\": \"elicitation/create\", \"params\": {\"message\": \"Your name?\",
   \"requestedSchema\": {\"type\": \"object\", \"properties\": {}}}}
  E")]
    Ask {
        #[command(flatten)]
        one: One,
        /// The key of the request, which the task has never used
        key: InputKey,
        /// The request, as JSON. Without it, it is read from standard input
        request: Option<String>,
    },
    /// Answer a request of a task's: an entry of `inputResponses` of `tasks/update`
    #[command(after_help = "\
An answer to what was not asked, or is answered already, is ignored (SEP-2663, Task Update Requests).

Example:
  answer='{\"action\": \"decline\"}'
  mcp-sessiond task answer \"$id\" name \"$answer\" --service web --session 7")]
    Answer {
        #[command(flatten)]
        one: One,
        /// The key of the request
        key: InputKey,
        /// The answer, as JSON. Without it, it is read from standard input
        response: Option<String>,
    },
    /// Cancel a task: `task run` ends its command
    #[command(after_help = "Example: mcp-sessiond task cancel \"$id\" --service web --session 7")]
    Cancel(One),
}

/// A task, and the session that it belongs to.
#[derive(Debug, Args)]
struct One {
    /// The task's id
    id: TaskId,
    #[command(flatten)]
    session: SessionArgs,
}

impl One {
    async fn task(self) -> Result<Task, u8> {
        Ok(self.session.session(IfMissing::Refuse).await?.task(self.id))
    }
}

pub(crate) fn run(arguments: Arguments) -> ExitCode {
    run_for_server(execute(arguments.verb))
}

/// Returns the exit code, also where something is wrong, which was said then.
async fn execute(verb: Verb) -> Result<ExitCode, u8> {
    match verb {
        Verb::Run(arguments) => arguments.run().await,
        Verb::Get(one) => Ok(print_task(&report_failure(one.task().await?.view().await)?)),
        Verb::Wait(one) => wait(&one.task().await?).await,
        Verb::List { json, session } => {
            list(&session.session(IfMissing::Refuse).await?, json).await
        }
        Verb::Message { one, message } => change(one, TaskUpdate::default().message(message)).await,
        Verb::Ask { one, key, request } => {
            let request = parse_json(&request.map_or_else(read_stdin, Ok)?)?;
            ask(&one.task().await?, key, request).await
        }
        Verb::Answer { one, key, response } => {
            let response = parse_json(&response.map_or_else(read_stdin, Ok)?)?;
            change(
                one,
                TaskUpdate::default().answer(TaskAnswer { key, response }),
            )
            .await
        }
        Verb::Cancel(one) => {
            report_failure(one.task().await?.cancel().await).map(|_| ExitCode::SUCCESS)
        }
    }
}

/// Where it is an error, that was said, and this is the exit code.
fn report_failure<T>(result: Result<T, SessionError>) -> Result<T, u8> {
    result.map_err(|error| report(&error))
}

fn print_task(task: &TaskView) -> ExitCode {
    print(&to_json(&display::TaskJson::from(task)))
}

async fn change(one: One, update: TaskUpdate) -> Result<ExitCode, u8> {
    report_failure(one.task().await?.update(update).await).map(|_| ExitCode::SUCCESS)
}

async fn wait(task: &Task) -> Result<ExitCode, u8> {
    let mut view = report_failure(task.view().await)?;
    while view.status == TaskStatus::Working {
        view = report_failure(task.changed(view.version, WAIT).await)?;
    }
    Ok(print_task(&view))
}

async fn list(session: &Session, as_json: bool) -> Result<ExitCode, u8> {
    let tasks = report_failure(session.tasks().await)?;
    if as_json {
        return Ok(print(&to_json(
            &tasks
                .iter()
                .map(display::TaskJson::from)
                .collect::<Vec<_>>(),
        )));
    }
    let line = |task: &TaskView| format!("{}\t{}\n", task.task, task.status.name());
    Ok(print(&tasks.iter().map(line).collect::<String>()))
}

async fn ask(task: &Task, key: InputKey, request: Json) -> Result<ExitCode, u8> {
    let mut view = report_failure(
        task.update(TaskUpdate::default().ask(TaskAsk {
            key: key.clone(),
            request,
        }))
        .await,
    )?;
    loop {
        if view.status.is_final() {
            warn("the task ended before its client answered");
            return Err(crate::exit_code::DATA_ERROR);
        }
        let Some(input) = view.inputs.iter().find(|input| input.key == key) else {
            warn(format_args!("the request {key} of this task is gone"));
            return Err(NO_INPUT);
        };
        if let Some(response) = &input.response {
            return Ok(print(&format!("{}\n", response.as_str())));
        }
        view = report_failure(task.changed(view.version, WAIT).await)?;
    }
}
