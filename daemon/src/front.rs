//! The front: what `mcp-sessiond wrap` is to its host. It claims a session, finds or starts the keeper that holds the
//! session's backend, and carries lines between the host and the keeper. Whatever happens to the keeper, it stays as long as
//! its host does.
//!
//! - [`attach`]: from a claim to a connection to the keeper.
//! - [`open`]: what the host would have to be told if the keeper were lost: the calls that it waits for.
//! - [`carry`]: lines, both ways.
//!
//! **Architecture Invariant:** nothing is read from the host before a keeper has answered; so, where there can be none, the
//! command takes this process over and finds all that the host has said.

pub mod attach;
pub mod carry;
pub mod open;

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcp_sessiond_client::{Error, Options};

use crate::keeper::backend::Program;
use attach::{Attachment, Door, NoBackend};
use carry::Carrier;

/// How long it is tried to find or start a keeper before the command is run without one. A host waits about as long for a
/// server.
const PATIENCE: Duration = Duration::from_secs(10);

/// The first and the longest pause between attempts; each is twice the one before.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The exit code of what can't be run (EX_OSERR of sysexits.h).
const FAILED: u8 = 71;

/// Speaks MCP to the host, on standard input and output, until the host closes its end or is gone.
#[must_use]
pub fn run(options: Options, program: &Program) -> ExitCode {
    let mut door = match Door::new(options, program.clone()) {
        Ok(door) => door,
        Err(error) => return pass_through(program, &error),
    };
    let attachment = match first(&mut door) {
        Ok(attachment) => attachment,
        Err(NoBackend::NoProgram { code, sentence }) => {
            say(&sentence);
            return ExitCode::from(code);
        }
        Err(why) => return pass_through(program, &why),
    };
    match stay(door, attachment) {
        Ok(code) => code,
        Err(error) => {
            say(&error);
            ExitCode::from(FAILED)
        }
    }
}

/// Attaches for the first time. What can pass is tried again.
fn first(door: &mut Door) -> Result<Attachment, NoBackend> {
    let until = Instant::now() + PATIENCE;
    let mut pause = PAUSE;
    loop {
        match door.attach(None) {
            Err(NoBackend::Passing(_)) if Instant::now() + pause < until => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            attached => return attached,
        }
    }
}

/// Carries lines, and attaches again whenever the keeper is lost.
fn stay(mut door: Door, mut attachment: Attachment) -> io::Result<ExitCode> {
    let carrier = Arc::new(Carrier::new(io::stdout().as_fd().try_clone_to_owned()?.into()));
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let (listening, releaser) = (carrier.clone(), door.releaser());
    std::thread::Builder::new()
        .name("from-host".into())
        .spawn(move || listening.from_host(input.into(), releaser))?;
    loop {
        match attachment.attached.lost {
            0 => {}
            1 => say(&"a message was on its way when the former connection ended, and may not have arrived"),
            lost => say(&format_args!(
                "{lost} messages were on their way when the former connection ended, and may not have arrived"
            )),
        }
        show_errors(&attachment)?;
        if carrier.attached(attachment.reader.try_clone()?).is_ok() {
            carrier.from_keeper(attachment);
        }
        let initialize = carrier.lost();
        say(&"the keeper of the server has ended, and the server with it; a fresh one is started");
        let mut pause = PAUSE;
        attachment = loop {
            match door.attach(initialize.clone()) {
                Ok(attachment) => break attachment,
                // The host is gone.
                Err(NoBackend::NoSession(Some(Error::NoVerifiedHost { .. }), _)) => {
                    return Ok(ExitCode::SUCCESS);
                }
                Err(_) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        };
    }
}

/// Copies what the backend writes to its standard error to ours, until the keeper is lost.
fn show_errors(attachment: &Attachment) -> io::Result<()> {
    let Some(beside) = &attachment.beside else { return Ok(()) };
    let mut beside = beside.try_clone()?;
    let mut errors = io::stderr();
    let copy = move || drop(io::copy(&mut beside, &mut errors));
    std::thread::Builder::new().name("errors".into()).spawn(copy).map(drop)
}

/// Lets the command take this process over: the host has a plain server then.
fn pass_through(program: &Program, why: &dyn std::fmt::Display) -> ExitCode {
    say(&format_args!("{why}; {} is run without being kept", program.shown()));
    let error = Command::new(&program.name).args(&program.arguments).exec();
    say(&format_args!("{} can't be run: {error}", program.name.to_string_lossy()));
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}

/// Says something to whoever reads our standard error: hosts keep it in the server's log.
fn say(what: &dyn std::fmt::Display) {
    let text = what.to_string().replace('\n', " ");
    let _ = writeln!(io::stderr(), "mcp-sessiond: {text}");
}
