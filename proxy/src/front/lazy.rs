//! The front of one server that is started at its first call. Lines go through as they are; what is
//! answered before the server runs is `mcp_sessiond_bundle::Lazy`'s.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use mcp_sessiond_bundle::{Handshake, Lazy, Message, Pipe, Source, TrackedLine, WAITING};
use mcp_sessiond_client::{ClaimRequest, Options};
use tokio::sync::{mpsc, watch};

use super::bundle::answer_memory::AnswerMemory;
use super::bundle::leave::PendingLeaves;
use super::bundle::member::{Backend, BundleContext};
use super::bundle::{Launch, Server};
use super::first_line::FOR_EVER;
use super::input_end::wait_until_unread;
use super::open::Open;
use super::probe::{ProbePolicy, Untold};
use super::stdio::{follow_host, write, written};
use super::{FAILED, FrontSetup, Way, run_with};
use crate::memory::forbid_core_dumps;
use crate::notices::print_claim;
use crate::program::{LaunchEnv, Program};
use crate::server::attach::NoBackend;
use crate::server::kept::{Door, Releaser};
use crate::server::remote::StoreUsers;
use crate::stderr::Stderr;
use crate::waits::Waits;

/// Speaks MCP to the host, on standard input and output, until the host closes its end or is gone.
/// The server is started at the first call, if it is known what it would say until then.
pub fn run(options: Options, claim: ClaimRequest, program: &Program, waits: Waits) -> ExitCode {
    let waits = Waits {
        first_line: FOR_EVER,
        ..waits
    };
    run_with(
        options,
        claim,
        program,
        LaunchEnv::default(),
        waits,
        ProbePolicy::FromMemory,
        &Way::Instead(serve_host),
    )
}

fn serve_host(begun: FrontSetup<'_>, door: &mut Door) -> io::Result<Result<Infallible, NoBackend>> {
    let FrontSetup {
        options,
        claim,
        program,
        waits,
        mask,
        leaver,
        input,
        lines,
    } = begun;
    let claimed = match door.claim(Instant::now() + waits.keeper) {
        Ok(claimed) => claimed,
        Err(why) => return Ok(Err(why)),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (leave, leaving) = watch::channel(false);
    let (stderr, pending_leaves) = (Stderr::new()?, PendingLeaves::default());
    let common = Arc::new(BundleContext {
        options,
        claim,
        mask,
        waits,
        stderr: stderr.clone(),
        leaving,
        lease: None,
        shelves: StoreUsers::default(),
        pending_leaves: pending_leaves.clone(),
        lost: None,
        lost_members: Vec::new(),
        claimed_losses: claimed.lost.iter().map(|lost| lost.id).collect(),
        unkept: None,
    });
    let memory = AnswerMemory::new(common.options.clone(), stderr.clone());
    let known = Arc::new(memory.of(&program.digest(), None));
    let backend = Arc::new(Backend::single(server(program), common));
    let handshake = lines.whole_line().and_then(introduction);
    let lazy = Lazy::new(backend.clone(), known, handshake);
    let opened = runtime.block_on(lazy.open());
    let failed = backend.first_failure();
    let pipe = match opened {
        Ok(pipe) => pipe,
        Err(failure) => return Ok(Err(failed.unwrap_or(NoBackend::Passing(failure.message)))),
    };
    // Not before the session was claimed: the daemon reads our environment then, and never again.
    forbid_core_dumps();
    leaver.leaves_by(leave.clone());
    let (loss, outcome) = (door.carried_loss(&claimed), claimed.outcome);
    let untold = Untold::new(move || {
        print_claim(&stderr, loss, outcome);
    });
    let output: File = io::stdout().as_fd().try_clone_to_owned()?.into();
    let until_unread = output.try_clone()?;
    let (out, spoken) = mpsc::channel(WAITING);
    let (heard, from_host) = mpsc::channel(WAITING);
    let too_large = out.clone();
    std::thread::Builder::new()
        .name("to-host".into())
        .spawn(move || write(output, spoken))?;
    let (input, lines) = (input.try_clone()?, std::mem::take(lines));
    follow_host(input, lines, heard, too_large, waits.stop)?;
    let carrying = Carrying {
        pipe,
        out,
        from_host,
        leave,
        releaser: door.releaser(),
        until_unread,
        memory,
        pending_leaves,
        untold,
    };
    runtime.block_on(carrying.carry())
}

fn server(program: &Program) -> Server {
    let (name, program) = (program.display_name(), program.clone());
    let launch = move || {
        Ok(Launch::Program {
            program: program.clone(),
            environment: Vec::new(),
            home: None,
        })
    };
    Server {
        name,
        identity: String::new(),
        launch: Arc::new(launch),
        lazy: true,
    }
}

/// The parameters of the host's `initialize`, if that is the line.
fn introduction(line: &[u8]) -> Option<Handshake> {
    match &mut Message::read(line)[..] {
        [Message::Request { method, params, .. }] if method == "initialize" => {
            params.take().map(Handshake)
        }
        _ => None,
    }
}

struct Carrying {
    pipe: Pipe,
    out: mpsc::Sender<TrackedLine>,
    from_host: mpsc::Receiver<Bytes>,
    leave: watch::Sender<bool>,
    releaser: Releaser,
    until_unread: File,
    memory: Arc<AnswerMemory>,
    pending_leaves: PendingLeaves,
    untold: Untold,
}

impl Carrying {
    async fn carry(self) -> ! {
        let Self {
            pipe:
                Pipe {
                    to,
                    mut from,
                    end: _end,
                },
            out,
            mut from_host,
            leave,
            releaser,
            until_unread,
            memory,
            pending_leaves,
            mut untold,
        } = self;
        let open = Mutex::new(Open::default());
        let lock = || open.lock().unwrap_or_else(PoisonError::into_inner);
        let (closed, is_closed) = watch::channel(false);
        let to_backend = async {
            while let Some(line) = from_host.recv().await {
                lock().from_host(&line);
                untold.host_sent(&line);
                // Where it is gone, the other direction ends.
                let _ = to.send(line).await;
            }
            leave.send_replace(true);
            drop(
                std::thread::Builder::new()
                    .name("release".into())
                    .spawn(move || releaser.release()),
            );
            closed.send_replace(true);
            let _ = tokio::task::spawn_blocking(move || wait_until_unread(&until_unread)).await;
        };
        let to_host = async {
            let mut is_closed = is_closed;
            // What is under way is still answered, to a host that still reads.
            while !(*is_closed.borrow() && lock().is_settled()) {
                tokio::select! {
                    biased;
                    said = from.recv() => {
                        let Some(TrackedLine { line, receipt }) = said else { return ExitCode::from(FAILED) };
                        lock().from_keeper(&line);
                        let _ = out.send(TrackedLine { line, receipt }).await;
                    }
                    _ = is_closed.changed() => {}
                }
            }
            written(&out).await;
            memory.flush().await;
            ExitCode::SUCCESS
        };
        let code = tokio::select! {
            () = to_backend => ExitCode::SUCCESS,
            code = to_host => code,
        };
        pending_leaves.wait().await;
        // Threads still wait for what never comes.
        std::process::exit(i32::from(code != ExitCode::SUCCESS) * i32::from(FAILED))
    }
}
