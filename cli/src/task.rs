//! `mcp-sessiond task`: the tasks of a session, for what has no library.

mod run;
mod shown;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use mcp_sessiond_client::{
    InputKey, Json, Session, SessionError, Task, TaskAnswer, TaskAsk, TaskId, TaskStatus,
    TaskUpdate, TaskView,
};

use super::whose::{Missing, Whose, json, report, speak_for, standard_input};
use super::{NOT_THERE, complain, print, to_json};

/// How long one wait for a change may take.
const WAIT: Duration = Duration::from_secs(25);

#[derive(Debug, Args)]
#[command(after_help = "\
A task is work that goes on after the request that began it was answered (MCP's Tasks extension, SEP-2663). `task run` creates one \
and does its work; the other verbs answer `tasks/get`, `tasks/update` and `tasks/cancel`.

The session is that of the process that calls this command, as for `token`: in a shell script say `--for $$`. With --service and \
--session it is one of a service, for servers that no host has started.

Exit codes: 0; 4 resume is disabled, or no daemon answers; 65 refused, or no JSON; 66 no such task or session.

Example, in a server's script:
  id=$(mcp-sessiond task run --service web --session 7 -- make report &)
  mcp-sessiond task get \"$id\" --service web --session 7")]
pub(super) struct Arguments {
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
        whose: Whose,
    },
    /// Say how a task is getting on: its `statusMessage`
    #[command(
        after_help = "Example, in what `task run` runs: mcp-sessiond task message \"$MCP_SESSIOND_TASK\" '2 of 5' --service web --session 7"
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
  mcp-sessiond task ask \"$MCP_SESSIOND_TASK\" name --service web --session 7 <<'END'
  {\"method\": \"elicitation/create\", \"params\": {\"message\": \"Your name?\", \"requestedSchema\": {\"type\": \"object\", \"properties\": {}}}}
  END")]
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

Example: mcp-sessiond task answer \"$id\" name '{\"action\":\"decline\"}' --service web --session 7")]
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

/// A task, and whose it is.
#[derive(Debug, Args)]
struct One {
    /// The task's id
    id: TaskId,
    #[command(flatten)]
    whose: Whose,
}

impl One {
    async fn task(self) -> Result<Task, u8> {
        Ok(self.whose.session(Missing::Refused).await?.task(self.id))
    }
}

pub(super) fn run(arguments: Arguments) -> ExitCode {
    speak_for(carry_out(arguments.verb))
}

/// Returns the exit code, also where something is wrong, which was said then.
async fn carry_out(verb: Verb) -> Result<ExitCode, u8> {
    match verb {
        Verb::Run(arguments) => arguments.run().await,
        Verb::Get(one) => Ok(shown(&said(one.task().await?.view().await)?)),
        Verb::Wait(one) => wait(&one.task().await?).await,
        Verb::List { json, whose } => list(&whose.session(Missing::Refused).await?, json).await,
        Verb::Message { one, message } => change(one, TaskUpdate::default().message(message)).await,
        Verb::Ask { one, key, request } => {
            let request = json(&request.map_or_else(standard_input, Ok)?)?;
            ask(&one.task().await?, key, request).await
        }
        Verb::Answer { one, key, response } => {
            let response = json(&response.map_or_else(standard_input, Ok)?)?;
            change(
                one,
                TaskUpdate::default().answer(TaskAnswer { key, response }),
            )
            .await
        }
        Verb::Cancel(one) => said(one.task().await?.cancel().await).map(|_| ExitCode::SUCCESS),
    }
}

/// Where it is an error, that was said, and this is the exit code.
fn said<T>(result: Result<T, SessionError>) -> Result<T, u8> {
    result.map_err(|error| report(&error))
}

fn shown(task: &TaskView) -> ExitCode {
    print(&to_json(&shown::Shown::from(task)))
}

async fn change(one: One, update: TaskUpdate) -> Result<ExitCode, u8> {
    said(one.task().await?.update(update).await).map(|_| ExitCode::SUCCESS)
}

async fn wait(task: &Task) -> Result<ExitCode, u8> {
    let mut view = said(task.view().await)?;
    while view.status == TaskStatus::Working {
        view = said(task.changed(view.version, WAIT).await)?;
    }
    Ok(shown(&view))
}

async fn list(session: &Session, as_json: bool) -> Result<ExitCode, u8> {
    let tasks = said(session.tasks().await)?;
    if as_json {
        return Ok(print(&to_json(
            &tasks.iter().map(shown::Shown::from).collect::<Vec<_>>(),
        )));
    }
    let line = |task: &TaskView| format!("{}\t{}\n", task.task, task.status.name());
    Ok(print(&tasks.iter().map(line).collect::<String>()))
}

async fn ask(task: &Task, key: InputKey, request: Json) -> Result<ExitCode, u8> {
    let mut view = said(
        task.update(TaskUpdate::default().ask(TaskAsk {
            key: key.clone(),
            request,
        }))
        .await,
    )?;
    loop {
        if view.status.is_final() {
            complain("the task has ended before its client has answered");
            return Err(super::REFUSED);
        }
        let Some(input) = view.inputs.iter().find(|input| input.key == key) else {
            complain(format_args!("the request {key} of this task is gone"));
            return Err(NOT_THERE);
        };
        if let Some(response) = &input.response {
            return Ok(print(&format!("{}\n", response.as_str())));
        }
        view = said(task.changed(view.version, WAIT).await)?;
    }
}
