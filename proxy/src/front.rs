//! The front: what `mcp-sessiond wrap` is to its host. It claims a session, finds or starts the
//! keeper that holds the session's backend, and carries lines between the host and the keeper.
//! Whatever happens to the keeper, it stays as long as its host does.
//!
//! - [`first`]: the host's first line, which says what it calls itself.
//! - [`attach`]: from a claim to a connection to the keeper. [`calls`]: what else it asks the
//!   daemon.
//! - [`open`]: what the host would have to be told if the keeper were lost: the calls that it waits
//!   for.
//! - [`carry`]: lines, both ways. [`voice`]: standard error. [`leave`]: how it goes.
//! - [`surroundings`]: where it runs, for what is remembered of a server.
//! - [`plain`]: the command as it is, where there can be no keeper.
//!
//! **Architecture Invariant:** what was read from the host before a keeper has answered is handed
//! on whole, to the keeper or to the command that is run in its place.

pub mod attach;
pub mod calls;
pub mod carry;
pub mod first;
pub mod leave;
pub mod open;
pub mod plain;
pub mod surroundings;
pub mod voice;

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mcp_sessiond_client::{ClaimRequest, Error, Loss, Options, Outcome};
use mcp_sessiond_process::Pinned;
use mcp_sessiond_proto::paths;

use crate::keeper;
use crate::keeper::backend::Program;
use crate::keeper::lines::LineBuffer;
use crate::signals::{ENDING, GivenMask};
use crate::unkept::{self, Unkept};
use attach::{Attaching, Attachment, Door, NoBackend};
use carry::Carrier;
use first::First;
use leave::Leaver;
use plain::Plain;
use voice::{Voice, sentence};

/// How long it is tried to attach where a former server of this one is still being taken down: that
/// is the server's time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The first and the longest pause between attempts; each is twice the one before.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How long the host's messages wait for a keeper that was lost, before they are refused: as long
/// as the keeper itself would let them wait for a server that has died.
const HOLD: Duration = Duration::from_secs(2);

/// The exit code of what can't be run (EX_OSERR of sysexits.h).
pub(crate) const FAILED: u8 = 71;

/// Variables that are named when they differ. Another host may have dozens of its own.
const NAMES_SHOWN: usize = 8;

/// How long a front waits before it goes on without.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// For the host's first line.
    pub first_line: Duration,
    /// To have a keeper.
    pub keeper: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            first_line: Duration::from_secs(1),
            keeper: Duration::from_secs(2),
        }
    }
}

/// What a front has found out and read before it asks for a backend.
pub(crate) struct Begun<'a> {
    pub(crate) options: Options,
    pub(crate) claim: ClaimRequest,
    pub(crate) program: &'a Program,
    pub(crate) waits: Waits,
    pub(crate) mask: GivenMask,
    pub(crate) leaver: &'a Leaver,
    pub(crate) input: &'a mut File,
    pub(crate) lines: &'a mut LineBuffer,
}

/// How a front gets to its backend.
pub(crate) enum Way<'a> {
    /// Through what is made of the host's first line and of the way to a server of its own.
    Through(Box<dyn FnOnce(Bytes, Door, GivenMask) -> Box<dyn Attaching> + 'a>),
    /// By something that ends the process, or says why the server can't be kept; then it has taken
    /// nothing from the lines but what it has answered.
    Instead(fn(Begun<'_>, &mut Door) -> io::Result<Result<Infallible, NoBackend>>),
}

/// Speaks MCP to the host, on standard input and output, until the host closes its end or is gone.
#[must_use]
pub fn run(options: Options, claim: ClaimRequest, program: &Program, waits: Waits) -> ExitCode {
    let way = Way::Through(Box::new(|_, door, _| Box::new(door)));
    run_by(options, claim, program, Surroundings::default(), waits, way)
}

/// The variables that a server has in addition to those of its front, and where it runs instead.
pub(crate) type Surroundings = (Vec<(OsString, OsString)>, Option<PathBuf>);

/// The same by another way to the server.
pub(crate) fn run_by(
    options: Options,
    claim: ClaimRequest,
    program: &Program,
    surroundings: Surroundings,
    waits: Waits,
    way: Way<'_>,
) -> ExitCode {
    let mask = GivenMask::block(&ENDING);
    match speak(options, claim, program, surroundings, waits, &mask, way) {
        Ok(code) => code,
        Err(error) => {
            say(&error);
            ExitCode::from(FAILED)
        }
    }
}

fn speak(
    options: Options,
    mut claim: ClaimRequest,
    program: &Program,
    (environment, home): Surroundings,
    waits: Waits,
    mask: &GivenMask,
    way: Way<'_>,
) -> io::Result<ExitCode> {
    let carrier = Arc::new(Carrier::new(
        io::stdout().as_fd().try_clone_to_owned()?.into(),
    ));
    let leaver = Leaver::listen(&carrier)?;
    let mut input: File = io::stdin().as_fd().try_clone_to_owned()?.into();
    let mut lines = LineBuffer::default();
    match first::read(&mut input, &mut lines, waits.first_line) {
        First::Nothing => return Ok(ExitCode::SUCCESS),
        First::Said(client) => claim.client = client,
    }
    if lines.is_empty() && input.is_terminal() && io::stderr().is_terminal() {
        say(&format_args!(
            "{} is started, and waits for the messages of a host on this terminal; `mcp-sessiond setup` has a host start it",
            program.shown()
        ));
    }
    claim.program = Some(program.shown());
    let plain = |why: &dyn std::fmt::Display, lines: &LineBuffer, input: File| {
        say(&format_args!(
            "{why}; {} is run without being kept: it will not survive a reconnect",
            program.shown()
        ));
        match Plain::start(program, &environment, home.as_deref(), mask) {
            Ok(plain) => {
                note(program.shown(), why);
                leaver.hand_on_to(plain.pid());
                plain.carry(lines, input)
            }
            Err(error) => {
                let (code, sentence) = program.not_run(&error);
                say(&sentence);
                ExitCode::from(code)
            }
        }
    };
    let opened = Door::new(
        options.clone(),
        claim.clone(),
        program.clone(),
        *mask,
        waits.keeper,
    );
    let mut door = match opened {
        Ok(door) => door.with(environment.clone(), home.clone()),
        Err(error) => return Ok(plain(&error, &lines, input)),
    };
    let releaser = door.releaser();
    let (mut way, first): (Box<dyn Attaching>, _) = match way {
        Way::Through(way) => {
            let first = lines.whole_line().unwrap_or(lines.so_far());
            let mut way = way(Bytes::copy_from_slice(first), door, *mask);
            let first = first_time(&mut *way, waits);
            (way, first)
        }
        Way::Instead(instead) => {
            let (lines, input, leaver) = (&mut lines, &mut input, &leaver);
            let begun = Begun {
                options,
                claim,
                program,
                waits,
                mask: *mask,
                leaver,
                input,
                lines,
            };
            match instead(begun, &mut door)? {
                Ok(never) => match never {},
                Err(why) => (Box::new(door), Err(why)),
            }
        }
    };
    let attachment = match first {
        Ok(attachment) => Some(attachment),
        // Somebody else has what the user has named. It is waited for.
        Err(NoBackend::Taken(_)) => None,
        Err(NoBackend::NoProgram { code, sentence }) => {
            say(&sentence);
            return Ok(ExitCode::from(code));
        }
        Err(why) => return Ok(plain(&why, &lines, input)),
    };
    // Not before the session was claimed: the daemon reads our environment then, and never again.
    keeper::keep_to_ourselves();
    leaver.tells_keeper();
    let listening = carrier.clone();
    std::thread::Builder::new()
        .name("from-host".into())
        .spawn(move || listening.from_host(input, lines, releaser))?;
    stay(&mut *way, &carrier, attachment)
}

/// Attaches for the first time. What can pass is tried again, within the time that a host waits for
/// us.
pub(crate) fn first_time(door: &mut dyn Attaching, waits: Waits) -> Result<Attachment, NoBackend> {
    let began = Instant::now();
    let mut until = began + waits.keeper;
    let mut pause = PAUSE;
    loop {
        let why = match door.attach(None, until) {
            Err(why @ NoBackend::Ending(_)) => {
                // So far it was the former server's time.
                until = (Instant::now() + waits.keeper).min(began + PATIENCE);
                why
            }
            Err(why @ NoBackend::Passing(_)) => why,
            attached => return attached,
        };
        if Instant::now() + pause >= until {
            return Err(why);
        }
        std::thread::sleep(pause);
        // Many attempts fit into the time that there is.
        pause = (pause * 2).min(waits.keeper / 8);
    }
}

/// Notes that the command runs unkept, where `status` finds it.
pub(crate) fn note(program: String, why: &dyn std::fmt::Display) {
    if let (Ok(directory), Ok(own)) = (paths::directory(), Pinned::own()) {
        unkept::note(&directory, &Unkept::now(&own, program, why));
    }
}

/// What the host's user should know of how this server came to be.
fn tell(voice: &Voice, attachment: &Attachment) {
    if tell_of_claim(voice, attachment.because, attachment.outcome) {
        // That says why it is a fresh one.
    } else if attachment.attached.exited {
        tell_of_claim(voice, Some(Loss::Exited), attachment.outcome);
    } else if attachment.attached.resumed {
        voice.say(&format_args!(
            "resumed the server that has been running for {}; `mcp-sessiond restart` gives a fresh one",
            span(attachment.attached.age_ms)
        ));
    }
    if let Some(names) = listed(&attachment.differing) {
        voice.say(&format_args!(
            "the server has the environment of its first start, in which these variables differ: {names}; `--fresh` gives one with \
             yours"
        ));
    }
    match attachment.attached.lost {
        0 => {}
        1 => {
            voice.say(&"a message was on its way when the former connection ended, and may not have arrived");
        }
        lost => voice.say(&format_args!(
            "{lost} messages were on their way when the former connection ended, and may not have arrived"
        )),
    }
}

/// What the host's user should know of how the session was got. False: nothing.
pub(crate) fn tell_of_claim(voice: &Voice, because: Option<Loss>, outcome: Outcome) -> bool {
    match (because, outcome) {
        (Some(loss), _) => voice.say(&format_args!(
            "this server begins afresh: {}",
            loss.sentence()
        )),
        (None, Outcome::FreshDoubtful) => voice.say(
            &"this server will not survive a reconnect: what it was started with can't be read; \
              `mcp-sessiond doctor` says which part, and `--instance NAME` may help",
        ),
        (None, _) => return false,
    }
    true
}

/// Names for people: the first of them. None where there are none.
fn listed(names: &[String]) -> Option<String> {
    let shown = names.get(..NAMES_SHOWN).unwrap_or(names).join(", ");
    match names.len() {
        0 => None,
        all if all <= NAMES_SHOWN => Some(shown),
        all => Some(format!("{shown} and {} more", all - NAMES_SHOWN)),
    }
}

/// A time for people: its largest unit.
pub(crate) fn span(ms: u64) -> String {
    let units = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "min"),
        (1_000, "s"),
    ];
    let unit = units.into_iter().find(|(of, _)| ms >= *of);
    unit.map_or_else(
        || format!("{ms} ms"),
        |(of, name)| format!("{} {name}", ms / of),
    )
}

/// Carries lines, and attaches again whenever the keeper is lost and the host has something to say.
fn stay(
    door: &mut dyn Attaching,
    carrier: &Arc<Carrier>,
    first: Option<Attachment>,
) -> io::Result<ExitCode> {
    let voice = Voice::new()?;
    let first = first.or_else(|| again(door, carrier, &voice, false));
    let Some(mut attachment) = first else {
        return Ok(ExitCode::SUCCESS);
    };
    loop {
        if let Some(news) = door.news() {
            voice.say(&news);
        }
        tell(&voice, &attachment);
        if let Some(beside) = &attachment.beside {
            voice.repeat(beside)?;
        }
        let beside = attachment
            .beside
            .as_ref()
            .map(std::os::unix::net::UnixStream::try_clone)
            .transpose()?;
        if carrier
            .attached(attachment.reader.try_clone()?, beside)
            .is_ok()
        {
            carrier.from_keeper(attachment);
        }
        carrier.lost();
        carrier.wait_until_wanted();
        attachment = match again(door, carrier, &voice, true) {
            Some(attachment) => attachment,
            None => return Ok(ExitCode::SUCCESS),
        };
        voice.say(&door.back());
    }
}

/// Attaches again, however long it takes. When it takes too long, what the host asks for is refused
/// meanwhile. None: the host is gone. A front that `had` it does not take it back from whoever has
/// taken it.
fn again(
    door: &mut dyn Attaching,
    carrier: &Carrier,
    voice: &Voice,
    had: bool,
) -> Option<Attachment> {
    let began = Instant::now();
    let mut pause = PAUSE;
    let mut said = String::new();
    loop {
        let why = match door.attach(carrier.initialized(), Instant::now() + PATIENCE) {
            Ok(attachment) => return Some(attachment),
            Err(NoBackend::NoSession(Some(Error::NoVerifiedHost { .. }), _)) => return None,
            Err(NoBackend::Taken(why)) => {
                let why = if had { format!("taken: {why}") } else { why };
                carrier.refuse(&why);
                if said != why {
                    voice.say(&why);
                    said = why;
                }
                if had {
                    // The host's end ends this process.
                    loop {
                        std::thread::park();
                    }
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
                continue;
            }
            Err(why) => why.to_string(),
        };
        if began.elapsed() >= HOLD {
            carrier.refuse(&why);
            if said != why {
                voice.say(&format_args!(
                    "the server can't be started again: {why}; trying on"
                ));
                said = why;
            }
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Says something to whoever reads our standard error, before there is anything that could be kept
/// waiting.
pub(crate) fn say(what: &dyn std::fmt::Display) {
    let _ = io::stderr().write_all(sentence(what).as_bytes());
}
