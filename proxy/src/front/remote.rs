//! The front of one server that runs elsewhere.

use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::Instant;

use bytes::Bytes;
use mcp_sessiond_bundle::{Pipe, TrackedLine, WAITING};
use mcp_sessiond_client::{ClaimRequest, Options};
use mcp_sessiond_jsonrpc::message::{Line, Part};
use mcp_sessiond_jsonrpc::owned::Unreadable;
use mcp_sessiond_proto::Claimed;
use mcp_sessiond_proto::types::LeaseRef;
use tokio::sync::{mpsc, watch};

use super::FAILED;
use super::first_line::{self, FirstLine};
use super::input_end::{self, wait_until_unread};
use super::open::{Open, refusals};
use super::probe::{self, Opening, ProbePolicy, Probing, Untold};
use super::stdio::{self, follow_host, signals, write, written};
use crate::closed;
use crate::lines::LineBuffer;
use crate::memory::{forbid_core_dumps, give_back_once_started};
use crate::notices::{note_unkept, print, print_claim};
use crate::program::Program;
use crate::server::facts::ServerFacts;
use crate::server::kept::{Door, Releaser};
use crate::server::remote::{Connecting, ResumeStore};
use crate::signals::{ENDING, GivenMask};
use crate::stderr::Stderr;
use crate::waits::Waits;

/// Why calls are not made any more.
const GONE: &str =
    "the part of mcp-sessiond that carries messages to it has ended; reconnect it in the host";

/// Speaks MCP to the host, on standard input and output, until the host closes its end or is gone.
/// People know the server as `shown`, which has no secrets.
pub fn run(
    options: &Options,
    claim: ClaimRequest,
    shown: &str,
    connecting: Connecting,
    waits: Waits,
) -> ExitCode {
    let mask = GivenMask::block(&ENDING);
    let spoken = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .and_then(|runtime| {
            runtime.spawn(give_back_once_started());
            serve_host(&runtime, options, claim, shown, connecting, waits, mask)
        });
    match spoken {
        Ok(code) => code,
        Err(error) => {
            print(&error);
            ExitCode::from(FAILED)
        }
    }
}

fn serve_host(
    runtime: &tokio::runtime::Runtime,
    options: &Options,
    mut claim: ClaimRequest,
    shown: &str,
    connecting: Connecting,
    waits: Waits,
    mask: GivenMask,
) -> io::Result<ExitCode> {
    let (leave, leaving) = watch::channel(false);
    signals(leave.clone())?;
    let mut input: File = io::stdin().as_fd().try_clone_to_owned()?.into();
    let output: File = io::stdout().as_fd().try_clone_to_owned()?.into();
    let end = stdio::input_end(leave.clone());
    input_end::watch(&input, &output, waits.stop, end)?;
    let mut lines = LineBuffer::default();
    let client = match first_line::read(&mut input, &mut lines, waits.first_line) {
        FirstLine::Closed => return Ok(ExitCode::SUCCESS),
        FirstLine::Read(client) => client,
        // There is no command that could get it. Each line of it is refused.
        FirstLine::Raw => None,
    };
    let facts = ServerFacts::new(options.clone(), connecting.server().clone());
    let as_known = ProbePolicy::AsKnown;
    let known = || facts.clone();
    let opening = probe::answer(client, as_known, &known, &mut input, &mut lines);
    match runtime.block_on(opening) {
        Opening::Client(client) => claim.client = client,
        // A probe is sent outside any session, so nothing of an earlier one is touched.
        Opening::ProbesOnly(client) => claim.client = client,
        Opening::Closed => return Ok(ExitCode::SUCCESS),
    }
    claim.program = Some(shown.to_owned());
    let program = Program {
        name: shown.into(),
        arguments: Vec::new(),
        title: None,
    };
    let claimed = Door::new(options.clone(), claim, program, mask, waits).and_then(|mut door| {
        door.claim(Instant::now() + waits.keeper)
            .map(|claimed| (door, claimed))
    });
    let stderr = Stderr::new()?;
    let (lease, releaser, untold) = match claimed {
        Ok((door, claimed)) => {
            let (to, loss) = (stderr.clone(), door.carried_loss(&claimed));
            let Claimed {
                session,
                epoch,
                outcome,
                ..
            } = claimed;
            let untold = Untold::new(move || {
                print_claim(&to, loss, outcome);
            });
            let lease = LeaseRef { session, epoch };
            (Some(lease), Some(door.releaser()), Some(untold))
        }
        Err(why) => {
            print(&format_args!(
                "{why}; the session with {shown} will not survive a reconnect"
            ));
            note_unkept(shown.to_owned(), &why);
            (None, None, None)
        }
    };
    // Not before the session was claimed: the daemon reads our environment then, and never again.
    forbid_core_dumps();
    let store = ResumeStore::new(options, lease.as_ref(), shown, stderr, leaving);
    let until_unread = output.try_clone()?;
    let (out, spoken) = mpsc::channel(WAITING);
    let (heard, from_host) = mpsc::channel(WAITING);
    let too_large = out.clone();
    std::thread::Builder::new()
        .name("to-host".into())
        .spawn(move || write(output, spoken))?;
    follow_host(input, lines, heard, too_large, waits.stop)?;
    runtime.block_on(async {
        let pipe = match connecting.connect(store.anew()).await {
            Ok(pipe) => pipe,
            Err(why) => {
                print(&format_args!("{shown}: {}", why.message));
                return Ok(ExitCode::from(FAILED));
            }
        };
        let carrying = Carrying {
            pipe,
            out,
            from_host,
            leave,
            open: Open::default(),
            probing: Probing::new(facts),
            untold,
        };
        let gone = tokio::task::spawn_blocking(move || wait_until_unread(&until_unread));
        tokio::select! {
            () = carrying.run(releaser) => {}
            _ = gone => {}
        }
        // Threads still wait for what never comes.
        std::process::exit(0)
    })
}

/// Carries lines between the host and the server.
struct Carrying {
    pipe: Pipe,
    out: mpsc::Sender<TrackedLine>,
    from_host: mpsc::Receiver<Bytes>,
    leave: watch::Sender<bool>,
    open: Open,
    probing: Probing,
    untold: Option<Untold>,
}

impl Carrying {
    /// Until the host has closed its end, and what was under way by then is answered.
    async fn run(mut self, releaser: Option<Releaser>) {
        loop {
            tokio::select! {
                line = self.from_host.recv() => match line {
                    Some(line) => self.pass(line).await,
                    None => break,
                },
                Some(said) = self.pipe.from.recv() => self.say(said).await,
            }
        }
        // Where its `initialize` had no answer, no conversation has begun that could be closed.
        if self.probing.goes_on && self.open.unanswered().is_none() {
            closed::mark();
        }
        self.leave.send_replace(true);
        if let Some(releaser) = releaser {
            drop(
                std::thread::Builder::new()
                    .name("release".into())
                    .spawn(move || releaser.release()),
            );
        }
        while !self.open.is_settled() {
            match self.pipe.from.recv().await {
                Some(said) => self.say(said).await,
                None => break,
            }
        }
        written(&self.out).await;
    }

    /// Passes on what the host says. What can't be read goes no further, and whoever waits for it
    /// is told.
    async fn pass(&mut self, line: Bytes) {
        for answer in unreadable(&line) {
            self.say(TrackedLine::once(answer)).await;
        }
        self.open.from_host(&line);
        self.probing.host_sent(&line);
        let untold = self.untold.iter_mut();
        untold.for_each(|untold| untold.host_sent(&line));
        if let Err(mpsc::error::SendError(line)) = self.pipe.to.send(line).await {
            // Whatever has ended it: no call stays without an answer.
            let answers = refusals(&line, GONE);
            for answer in answers
                .split(|byte| *byte == b'\n')
                .filter(|answer| !answer.is_empty())
            {
                self.say(TrackedLine::once(Bytes::copy_from_slice(answer)))
                    .await;
            }
        }
    }

    /// Passes on what the server says.
    async fn say(&mut self, TrackedLine { line, receipt }: TrackedLine) {
        self.open.from_keeper(&line);
        self.probing.server_sent(&line);
        // Whoever writes ends this process when the host is gone.
        let _ = self.out.send(TrackedLine { line, receipt }).await;
    }
}

/// An answer to each part of a line that is not JSON-RPC.
fn unreadable(line: &Bytes) -> Vec<Bytes> {
    let copy = OnceCell::new();
    let read = Line::of(line, &copy);
    let odd = read.parts().filter_map(|(span, part)| match part {
        Part::Message(_) => None,
        Part::Unreadable(_) | Part::Other => Some(span.map_or(&line[..], |span| &line[span])),
    });
    odd.filter_map(|sent| Unreadable::of(sent).refusal())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_can_not_be_read_is_answered_to_whoever_waits_for_it() {
        let answers = |text: &'static str| -> Vec<(Value, Value)> {
            let answers = unreadable(&Bytes::from(text)).into_iter();
            let answers =
                answers.map(|answer| serde_json::from_slice::<Value>(&answer).expect("JSON"));
            answers
                .map(|answer| (answer["id"].clone(), answer["error"]["code"].clone()))
                .collect()
        };
        for fine in [
            "",
            " ",
            r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#,
            r#"[{"jsonrpc":"2.0","method":"x"}]"#,
        ] {
            assert_eq!(answers(fine), [], "{fine}");
        }
        assert_eq!(answers("nonsense"), [(Value::Null, json!(-32700))]);
        assert_eq!(
            answers(r#"{"id":7,"methode":"x"}"#),
            [(json!(7), json!(-32600))]
        );
        assert_eq!(answers(r#"{"id":7,"result":1,"id":8}"#), []);
        assert_eq!(
            answers(r#"[{"jsonrpc":"2.0","id":1,"method":"x"}, {"id":"a"}]"#),
            [(json!("a"), json!(-32600))]
        );
    }
}
