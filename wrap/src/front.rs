//! The front: what `mcp-sessiond wrap` is to its host. It claims a session, finds or starts the keeper that holds the
//! session's backend, and carries lines between the host and the keeper. Whatever happens to the keeper, it stays as long as
//! its host does.
//!
//! - [`attach`]: from a claim to a connection to the keeper.
//! - [`open`]: what the host would have to be told if the keeper were lost: the calls that it waits for.
//! - [`carry`]: lines, both ways. [`voice`]: standard error.
//!
//! **Architecture Invariant:** nothing is read from the host before a keeper has answered; so, where there can be none, the
//! command takes this process over and finds all that the host has said.

pub mod attach;
pub mod carry;
pub mod open;
pub mod voice;

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcp_sessiond_client::{Error, Options};

use crate::keeper::{self, backend::Program};
use attach::{Attachment, Door, NoBackend};
use carry::Carrier;
use voice::{Voice, sentence};

/// How long it is tried to find or start a keeper before the command is run without one. A host waits about as long for a
/// server.
const PATIENCE: Duration = Duration::from_secs(10);

/// The first and the longest pause between attempts; each is twice the one before.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How long the host's messages wait for a keeper that was lost, before they are refused: as long as the keeper itself would
/// let them wait for a server that has died.
const HOLD: Duration = Duration::from_secs(2);

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

/// Carries lines, and attaches again whenever the keeper is lost and the host has something to say.
fn stay(mut door: Door, mut attachment: Attachment) -> io::Result<ExitCode> {
    // Not before the session was claimed: the daemon reads our environment then, and never again.
    keeper::keep_to_ourselves();
    let voice = Voice::new()?;
    let carrier = Arc::new(Carrier::new(io::stdout().as_fd().try_clone_to_owned()?.into()));
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let (listening, releaser) = (carrier.clone(), door.releaser());
    std::thread::Builder::new()
        .name("from-host".into())
        .spawn(move || listening.from_host(input.into(), releaser))?;
    loop {
        match attachment.attached.lost {
            0 => {}
            1 => voice
                .say(&"a message was on its way when the former connection ended, and may not have arrived"),
            lost => voice.say(&format_args!(
                "{lost} messages were on their way when the former connection ended, and may not have arrived"
            )),
        }
        if let Some(beside) = &attachment.beside {
            voice.repeat(beside)?;
        }
        if carrier.attached(attachment.reader.try_clone()?).is_ok() {
            carrier.from_keeper(attachment);
        }
        carrier.lost();
        carrier.wait_until_wanted();
        attachment = match again(&mut door, &carrier, &voice) {
            Some(attachment) => attachment,
            None => return Ok(ExitCode::SUCCESS),
        };
        voice.say(&"the keeper of the server had ended, and the server with it; a fresh one was started");
    }
}

/// Attaches again, however long it takes. When it takes too long, what the host asks for is refused meanwhile. None: the
/// host is gone.
fn again(door: &mut Door, carrier: &Carrier, voice: &Voice) -> Option<Attachment> {
    let began = Instant::now();
    let mut pause = PAUSE;
    let mut said = String::new();
    loop {
        let why = match door.attach(carrier.initialized()) {
            Ok(attachment) => return Some(attachment),
            Err(NoBackend::NoSession(Some(Error::NoVerifiedHost { .. }), _)) => return None,
            Err(why) => why.to_string(),
        };
        if began.elapsed() >= HOLD {
            carrier.refuse(&why);
            if said != why {
                voice.say(&format_args!("the server can't be started again: {why}; trying on"));
                said = why;
            }
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Lets the command take this process over: the host has a plain server then.
fn pass_through(program: &Program, why: &dyn std::fmt::Display) -> ExitCode {
    say(&format_args!("{why}; {} is run without being kept", program.shown()));
    let error = Command::new(&program.name).args(&program.arguments).exec();
    let (code, sentence) = program.not_run(&error);
    say(&sentence);
    ExitCode::from(code)
}

/// Says something to whoever reads our standard error, before there is anything that could be kept waiting.
fn say(what: &dyn std::fmt::Display) {
    let _ = io::stderr().write_all(sentence(what).as_bytes());
}
