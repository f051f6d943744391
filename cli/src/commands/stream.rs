//! `mcp-sessiond stream`: the streams of a session, for what has no library.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use mcp_sessiond_client::{Cursor, EventId, Json, Replayed, RequestId, Session, StreamId};

use crate::exit_code::DATA_ERROR;
use crate::session_args::{IfMissing, SessionArgs, parse_json, read_stdin, report, run_for_server};
use crate::ui::output::{print, warn};

/// Messages that one call appends.
const BATCH: usize = 64;

/// How long one wait for the next message may take.
const WAIT: Duration = Duration::from_secs(25);

#[derive(Debug, Args)]
#[command(after_help = "\
The session is that of the process that calls this command, as for `token`: in a shell script say `--for $$`. With --service and \
--session it is one of a service, for servers that no host has started. STREAM is `_GET_stream`, which is always open, or a name of \
your own.

Exit codes: 0; 4 resume is disabled, or no daemon answers; 65 refused, or not JSON; 66 no such stream, event or session.

Example:
  echo '{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}' |
    mcp-sessiond stream append _GET_stream --service web --session 7")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Args)]
struct Reading {
    /// The stream
    stream: StreamId,
    /// Begin after the event of this id, not at the beginning
    // One id in sixty-four begins with a hyphen.
    #[arg(long, value_name = "EVENT", allow_hyphen_values = true)]
    after: Option<String>,
    #[command(flatten)]
    session: SessionArgs,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Append messages, one a line of standard input, and print the ids of their events
    #[command(
        after_help = "Example:\n  mcp-sessiond stream append call-7 --close --service web --session 7 <messages"
    )]
    Append {
        /// The stream. It is opened unless it is open
        stream: StreamId,
        /// Close the stream with the last of them
        #[arg(long)]
        close: bool,
        #[command(flatten)]
        session: SessionArgs,
    },
    /// Print what was said on a stream: a line each, with the event's id, a tab and the message
    #[command(after_help = "Example: mcp-sessiond stream replay call-7 --service web --session 7")]
    Replay(Reading),
    /// Print what was said on a stream, and what is said from then on, until the stream is closed
    #[command(after_help = "Example: mcp-sessiond stream tail _GET_stream --for $$")]
    Tail(Reading),
}

pub(crate) fn run(arguments: Arguments) -> ExitCode {
    run_for_server(async { execute(arguments.verb).await.map(|()| ExitCode::SUCCESS) })
}

/// Where something is wrong, that was said, and this is the exit code.
async fn execute(verb: Verb) -> Result<(), u8> {
    match verb {
        Verb::Append {
            stream,
            close,
            session,
        } => {
            let messages = read_stdin()?;
            let messages = messages.lines().filter(|line| !line.trim().is_empty());
            let messages = messages
                .map(|line| parse_json(line).map(Some))
                .collect::<Result<Vec<_>, u8>>()?;
            append(
                &session.session(IfMissing::Create).await?,
                stream,
                messages,
                close,
            )
            .await
        }
        Verb::Replay(reading) => reading.print(false).await,
        Verb::Tail(reading) => reading.print(true).await,
    }
}

async fn append(
    session: &Session,
    id: StreamId,
    messages: Vec<Option<Json>>,
    close: bool,
) -> Result<(), u8> {
    let is_standalone = id.as_str() == StreamId::STANDALONE;
    let stream = if is_standalone {
        session.standalone()
    } else {
        session
            .open_stream(&id, None)
            .await
            .map_err(|error| report(&error))?
    };
    let parts = messages.chunks(BATCH);
    let last = parts.len().checked_sub(1).filter(|_| close);
    for (at, part) in parts.enumerate() {
        let appended = match last == Some(at) {
            true => {
                stream
                    .append_and_close_as(RequestId::mint(), part.to_vec())
                    .await
            }
            false => stream.append_all(part.to_vec()).await,
        };
        let appended = appended.map_err(|error| report(&error))?;
        print_or_fail(
            &appended
                .iter()
                .map(|event| format!("{}\n", event.id.0))
                .collect::<String>(),
        )?;
    }
    if close && last.is_none() {
        stream.close().await.map_err(|error| report(&error))?;
    }
    Ok(())
}

impl Reading {
    /// Prints what was said. If it `follows`, what is said from then on, too.
    async fn print(self, follows: bool) -> Result<(), u8> {
        let session = self.session.session(IfMissing::Refuse).await?;
        let mut after = match self.after {
            Some(event) => Cursor::Event(EventId(event)),
            None => Cursor::Stream(self.stream),
        };
        loop {
            let page = session
                .replay(&after)
                .await
                .map_err(|error| report(&error))?;
            let (is_last, ended) = (!page.more, !page.ended.is_empty());
            after = print_page(page, after)?;
            if is_last && (ended || !follows) {
                return Ok(());
            }
            if is_last {
                let page = session
                    .wait(&[after.clone()], WAIT)
                    .await
                    .map_err(|error| report(&error))?;
                let ended = !page.ended.is_empty();
                after = print_page(page, after)?;
                if ended {
                    return Ok(());
                }
            }
        }
    }
}

/// Prints a page. Returns where the next one begins.
fn print_page(page: Replayed, after: Cursor) -> Result<Cursor, u8> {
    for gap in &page.gaps {
        warn(format_args!(
            "{} events are missing: they were pruned",
            gap.last + 1 - gap.first
        ));
    }
    // No string of JSON has a line break in it.
    let line = |text: &str| text.replace(['\r', '\n'], " ");
    let lines = page
        .events
        .iter()
        .map(|event| format!("{}\t{}\n", event.id.0, line(event.message.as_str())));
    print_or_fail(&lines.collect::<String>())?;
    Ok(page.next.into_iter().next().unwrap_or(after))
}

/// Prints to standard output. Where that fails, it was said, and this is the exit code.
fn print_or_fail(text: &str) -> Result<(), u8> {
    if print(text) == ExitCode::SUCCESS {
        Ok(())
    } else {
        Err(DATA_ERROR)
    }
}
