//! The front: what `mcp-sessiond wrap` is to its host. It claims a session, finds or starts the
//! keeper that holds the session's backend, and carries lines between the host and the keeper.
//! Whatever happens to the keeper, it stays as long as its host does.
//!
//! - [`first_line`]: the host's first line, which has the client's name. `probe`: a first line that
//!   only asks which era the server speaks. [`failed_start`]: what the
//!   host gets while its server can't be started. `raw`: input that is not
//!   JSON-RPC, and `pass_through` what becomes of it.
//! - [`drive`]: what carries a link's effects out; [`client`] is the host's end of it, over
//!   [`standard`]. `connection_report`: what people are told of a connection. [`leave`]: how the
//!   front ends.
//! - [`shared`]: the front of a server that all hosts share. [`remote`]: of one that is reached
//!   over HTTP. [`bundle`]: of several servers as one. [`lazy`]: of one that is started at its
//!   first call. `stdio`: the host's end of those whose server is a pipe. `input_end`: the end of the
//!   host's input, in all of them.
//!
//! How the server is reached is [`server`](crate::server)'s.
//!
//! **Architecture Invariant:** what was read from the host before a keeper has answered is handed
//! on whole, to the keeper or to the command that is run in its place.

pub mod bundle;
mod client;
mod connection_report;
mod drive;
pub mod failed_start;
pub mod first_line;
mod input_end;
pub mod lazy;
pub mod leave;
mod pass_through;
mod pending_leaves;
pub(crate) mod probe;
mod raw;
pub mod remote;
pub mod shared;
mod standard;
mod stdio;

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use bytes::Bytes;
use futures::future::LocalBoxFuture;
use mcp_sessiond_client::{ClaimRequest, Options};
use mcp_sessiond_process::runtime;
use mcp_sessiond_proto::facts::Learned;

use crate::front_settings::FrontSettings;
use crate::lines::LineBuffer;
use crate::memory::forbid_core_dumps;
use crate::notices::{note_unkept, print};
use crate::program::{LaunchEnv, Program};
use crate::server::child::PlainChild;
use crate::server::connector::{
    Connected, Connector, Hello, NoBackend, WithoutKeeper, connect_first,
};
use crate::server::keeper_connector::{KeeperConnector, SessionCalls};
use crate::signals::{FRONT, GivenMask, exit};
use crate::stderr::{NamedStderr, Stderr};
use client::Client;
use drive::Driver;
use failed_start::{FailedStart, Next, StartError};
use first_line::FirstLine;
use leave::{CurrentKeeper, Leaver};
use pass_through::PassThrough;
use pending_leaves::PendingLeaves;
use probe::{Opening, ProbePolicy};
use stdio::close;

/// The exit code of what can't be run (EX_OSERR of sysexits.h).
pub(crate) const FAILED: u8 = 71;

/// Why a host gets a server of its own.
const PROBES_ONLY: &str = "this host has sent nothing but `server/discover` three times in a row, as a host that speaks only MCP 2026-07-28 does";

/// What a front has found out and read before it asks for a backend.
pub(crate) struct FrontSetup<'a> {
    pub(crate) options: Options,
    pub(crate) claim: ClaimRequest,
    pub(crate) program: &'a Program,
    pub(crate) settings: FrontSettings,
    pub(crate) mask: GivenMask,
    pub(crate) leaver: &'a Leaver,
    pub(crate) input: &'a mut File,
    pub(crate) lines: &'a mut LineBuffer,
}

/// How a front gets to its backend.
pub(crate) enum Way<'a> {
    /// Through what is made of the way to a server of its own.
    Through(Box<dyn Fn(KeeperConnector, GivenMask) -> Box<dyn Connector> + 'a>),
    /// By something that ends the process, or says why the server can't be kept; then it has taken
    /// nothing from the lines but what it has answered.
    Instead(InsteadFn),
}

/// What is asked of it, again and again.
type InsteadFn = for<'b> fn(FrontSetup<'b>, &'b mut KeeperConnector) -> LocalBoxFuture<'b, Instead>;

/// A way to a backend, with the connector that it is made of.
enum Reaching {
    Through(Box<dyn Connector>),
    Instead(InsteadFn, Box<KeeperConnector>),
}

impl Reaching {
    fn connector(&mut self) -> &mut dyn Connector {
        match self {
            Self::Through(connector) => &mut **connector,
            Self::Instead(_, connector) => &mut **connector,
        }
    }

    fn into_connector(self) -> Box<dyn Connector> {
        match self {
            Self::Through(connector) => connector,
            Self::Instead(_, connector) => connector,
        }
    }
}

/// What comes of it.
pub(crate) type Instead = io::Result<Result<Infallible, NoBackend>>;

/// Speaks MCP to the host, on standard input and output, until the host closes its end or is gone.
pub fn run(
    options: Options,
    claim: ClaimRequest,
    program: &Program,
    settings: FrontSettings,
) -> ExitCode {
    let way = Way::Through(Box::new(|connector, _| Box::new(connector)));
    let env = LaunchEnv::default();
    run_with(
        options,
        claim,
        program,
        env,
        settings,
        ProbePolicy::AsKnown,
        &way,
    )
}

/// The same by another way to the server.
pub(crate) fn run_with(
    options: Options,
    claim: ClaimRequest,
    program: &Program,
    launch_env: LaunchEnv,
    settings: FrontSettings,
    probes: ProbePolicy,
    way: &Way<'_>,
) -> ExitCode {
    let mask = GivenMask::block(&FRONT);
    let start = Start {
        options,
        claim,
        program,
        launch_env,
        settings,
        mask: &mask,
        probes,
    };
    match serve_host(start, way) {
        Ok(code) => code,
        Err(error) => {
            print(&error);
            ExitCode::from(FAILED)
        }
    }
}

/// What becomes of an attempt to get the server.
enum Attempt {
    /// There is a keeper.
    Kept(Box<Kept>),
    /// The command was run as it is, and has exited.
    Exited(ExitCode),
    /// There is no server.
    Failed(StartError),
}

/// A server that is kept, or that is waited for.
struct Kept {
    connector: Box<dyn Connector>,
    start: drive::Start,
    session: SessionCalls,
}

/// What an attempt to get the server needs, apart from the host's lines.
struct Start<'a> {
    options: Options,
    claim: ClaimRequest,
    program: &'a Program,
    launch_env: LaunchEnv,
    settings: FrontSettings,
    mask: &'a GivenMask,
    probes: ProbePolicy,
}

fn serve_host(mut start: Start<'_>, way: &Way<'_>) -> io::Result<ExitCode> {
    let current = CurrentKeeper::default();
    let leaver = Leaver::listen(&current, start.settings.stop_wait, None)?;
    let mut input: File = io::stdin().as_fd().try_clone_to_owned()?.into();
    let output: File = io::stdout().as_fd().try_clone_to_owned()?.into();
    let settings = start.settings;
    input_end::watch(
        &input,
        &output,
        settings.input_end_wait,
        leaver.at_input_end(&current),
    )?;
    let runtime = runtime::current_thread()?;
    let mut lines = LineBuffer::default();
    let mut failed = FailedStart::of(start.program.display_name());
    let kept = loop {
        let attempt = match first_line::read(&mut input, &mut lines, settings.first_line_wait) {
            FirstLine::Closed => return Ok(start.unasked()),
            FirstLine::Read(client) => {
                start.claim.client = client;
                runtime.block_on(start.attempt(way, &leaver, &mut input, &mut lines))?
            }
            FirstLine::Raw => {
                match runtime.block_on(start.pass_through(&leaver, &lines, &input))? {
                    // No answer of ours would be understood.
                    Attempt::Failed(error) => {
                        print(&error.sentence);
                        return Ok(ExitCode::from(&error));
                    }
                    attempt => attempt,
                }
            }
        };
        match attempt {
            Attempt::Kept(kept) => break *kept,
            Attempt::Exited(code) => return Ok(code),
            Attempt::Failed(error) => {
                if failed.answer(&error, &mut input, &mut lines) == Next::Exit {
                    return Ok(ExitCode::from(&error));
                }
            }
        }
    };
    // Messages are carried from here on.
    forbid_core_dumps();
    let Kept {
        connector,
        start: driver_start,
        session,
    } = kept;
    if let drive::Start::Connected(Connected::Keeper(attachment), _) = &driver_start {
        current.set(Some(attachment.sender.clone()));
    }
    leaver.tells_keeper();
    let stderr = NamedStderr::of_one(Stderr::new()?);
    let rest = runtime.block_on(async {
        let client = Client::host(input, output, lines)?;
        let reports = connection_report::reports(stderr.clone(), None);
        let leave = leaver.leave();
        let driver = Driver::new(client, drive::policy(), stderr)
            .reporting(reports)
            .showing(current)
            .leaving(leave.subscribe(), PendingLeaves::default())
            .releasing(session.clone(), settings.stop_wait)
            .at_close(close(
                leave.clone(),
                Some(session.clone()),
                false,
                (settings.input_end_wait, settings.stop_wait),
            ));
        Ok::<_, io::Error>(driver.run(Some(connector), driver_start).await)
    })?;
    if let Some((lines, input)) = rest {
        let pass_through = PassThrough {
            program: start.program.clone(),
            launch_env: start.launch_env,
            mask: *start.mask,
            session,
            leaver: leaver.clone(),
            is_named: start.claim.named.is_some(),
        };
        pass_through.run(&lines, input);
    }
    // Threads still wait for what never comes.
    exit()
}

impl Start<'_> {
    /// Claims a session and attaches to its server, or runs the command as it is.
    async fn attempt(
        &mut self,
        way: &Way<'_>,
        leaver: &Leaver,
        input: &mut File,
        lines: &mut LineBuffer,
    ) -> io::Result<Attempt> {
        let program = self.program;
        if lines.is_empty() && input.is_terminal() && io::stderr().is_terminal() {
            print(&format_args!(
                "{} runs, and waits for a host's messages on this terminal; `mcp-sessiond setup` makes a host start it",
                program.display_name()
            ));
        }
        // Who has the name is told by its command.
        self.claim.program = Some(match self.claim.named {
            Some(_) => program.command_words(),
            None => program.display_name(),
        });
        let mut connector = match self.connector() {
            Ok(connector) => connector,
            Err(error) => return self.run_unkept(&error, leaver, lines, input),
        };
        let client = self.claim.client.take();
        let facts = || connector.facts();
        if self.claim.fresh {
            facts().learn(Learned::Forgotten {}).await;
        }
        let opening = probe::answer(client, self.probes, &facts, input, lines);
        self.claim.client = match opening.await {
            Opening::Client(client) => client,
            Opening::Closed => return Ok(Attempt::Exited(ExitCode::SUCCESS)),
            // A name has one server, which the probe does not reach where it was initialised.
            Opening::ProbesOnly(client) if self.claim.named.is_some() => client,
            Opening::ProbesOnly(_) => return self.run_unkept(&PROBES_ONLY, leaver, lines, input),
        };
        connector.set_client(self.claim.client.clone());
        let session = connector.session();
        let mut reaching = match way {
            Way::Through(way) => Reaching::Through(way(connector, *self.mask)),
            Way::Instead(instead) => Reaching::Instead(*instead, Box::new(connector)),
        };
        let start = loop {
            let connected = match &mut reaching {
                Reaching::Through(connector) => {
                    let first = lines.whole_line().unwrap_or(lines.buffered());
                    let hello = Hello {
                        first: Some(Bytes::copy_from_slice(first)),
                        ..Hello::default()
                    };
                    connect_first(&mut **connector, &hello, self.settings.keeper_wait).await
                }
                Reaching::Instead(instead, connector) => {
                    let begun = FrontSetup {
                        options: self.options.clone(),
                        claim: self.claim.clone(),
                        program,
                        settings: self.settings,
                        mask: *self.mask,
                        leaver,
                        input,
                        lines,
                    };
                    match instead(begun, connector).await? {
                        Ok(never) => match never {},
                        Err(why) => Err(why),
                    }
                }
            };
            break match connected {
                Ok(connected) => drive::Start::Connected(connected, None),
                // Somebody else has what the user has named, or the keeper lives and does not
                // answer. It is waited for.
                Err(NoBackend::Taken(_) | NoBackend::Stalled(_)) => drive::Start::Waiting(None),
                Err(NoBackend::NoProgram { code, sentence }) => {
                    // Another front of this host would wait for the lease.
                    reaching.connector().release().await;
                    return Ok(Attempt::Failed(StartError { code, sentence }));
                }
                Err(why) => match reaching.connector().without_keeper(&why) {
                    WithoutKeeper::ClaimAgain => continue,
                    WithoutKeeper::RunUnkept(_name) => {
                        return self.run_unkept(&why, leaver, lines, input);
                    }
                    WithoutKeeper::Wait(sentence) => {
                        print(&sentence);
                        drive::Start::Waiting(None)
                    }
                    WithoutKeeper::Refuse(sentence) => {
                        print(&sentence);
                        drive::Start::Waiting(Some(sentence))
                    }
                },
            };
        };
        let connector = reaching.into_connector();
        Ok(Attempt::Kept(Box::new(Kept {
            connector,
            start,
            session,
        })))
    }

    /// How the server is reached that is kept for this host.
    fn connector(&self) -> Result<KeeperConnector, NoBackend> {
        let (options, claim) = (self.options.clone(), self.claim.clone());
        let (program, (environment, home)) = (self.program.clone(), self.launch_env.clone());
        let connector = KeeperConnector::new(options, claim, program, *self.mask, self.settings)?;
        Ok(connector.with_launch_env(environment, home))
    }

    /// The exit code where the host has closed its end and asked for nothing: no server is started
    /// then, but a shell that has no such program hears so.
    fn unasked(&self) -> ExitCode {
        let has_own_path = self.launch_env.0.iter().any(|(name, _)| name == "PATH");
        match self.program.why_missing().filter(|_| !has_own_path) {
            Some((code, sentence)) => {
                print(&sentence);
                ExitCode::from(code)
            }
            None => ExitCode::SUCCESS,
        }
    }

    /// Runs the command for a host that does not speak JSON-RPC.
    async fn pass_through(
        &self,
        leaver: &Leaver,
        lines: &LineBuffer,
        input: &File,
    ) -> io::Result<Attempt> {
        if self.claim.named.is_some() {
            let refused = match self.connector() {
                Ok(connector) => {
                    pass_through::take_name(connector, self.settings.keeper_wait).await
                }
                Err(_) => None,
            };
            if let Some(refused) = refused {
                return Ok(Attempt::Failed(refused));
            }
        }
        self.run_unkept(&raw::WHY, leaver, lines, input)
    }

    /// Runs the command as our child until it exits.
    fn run_unkept(
        &self,
        why: &dyn std::fmt::Display,
        leaver: &Leaver,
        lines: &LineBuffer,
        input: &File,
    ) -> io::Result<Attempt> {
        let program = self.program;
        print(&format_args!(
            "{why}; {} is run without being kept: it will not survive a reconnect",
            program.display_name()
        ));
        let (environment, home) = &self.launch_env;
        match PlainChild::start(program, environment, home.as_deref(), self.mask) {
            Ok(plain) => {
                note_unkept(program.display_name(), why);
                leaver.hand_on_to(plain.pid());
                let input = input.try_clone()?;
                Ok(Attempt::Exited(plain.forward(lines, input).into()))
            }
            Err(error) => {
                let (code, sentence) = program.not_run(&error);
                Ok(Attempt::Failed(StartError { code, sentence }))
            }
        }
    }
}
