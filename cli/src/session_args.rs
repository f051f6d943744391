//! Which session a command is about: that of a server that a host has started, or one of a service.

use std::io::{self, Read as _};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use mcp_sessiond_client::{
    ClientName, CreateOptions, Error, Json, Options, Reason, ServiceName, Session, SessionError,
    SessionId, SessionStatus, Sessiond, Sessions, Status,
};
use mcp_sessiond_process as process;

use crate::claim_args::ClaimArgs;
use crate::exit_code::{DATA_ERROR, NO_INPUT, RESUME_DISABLED};
use crate::runtime::block_on;
use crate::ui::client_log;
use crate::ui::output::warn;

#[derive(Debug, Args)]
pub(crate) struct CallerArgs {
    /// The instance: this command's caller, or a launcher or shell script above that. By default
    /// the caller
    #[arg(long = "for", value_name = "PID")]
    instance: Option<u32>,
    /// What the host calls itself: `clientInfo.name` of its first message
    #[arg(long, value_name = "NAME")]
    client: Option<ClientName>,
    #[command(flatten)]
    claiming: ClaimArgs,
}

impl CallerArgs {
    /// The same for the client library.
    pub(crate) fn options(self) -> Options {
        let caller = nix::unistd::getppid().as_raw().unsigned_abs();
        let shell = process::name_of(caller);
        if self.instance.is_none() && process::programs::is_shell(&shell) {
            warn(format_args!(
                "the caller is a shell ({shell}); say `--for $$`, since inside $( ) it is a subshell that is about to die"
            ));
        }
        let options = self
            .claiming
            .options()
            .instance(self.instance.unwrap_or(caller));
        self.client.into_iter().fold(options, Options::client)
    }
}

/// Bytes that are read from standard input at most: more than any value or message may have.
const INPUT_MAX: u64 = 4 * 1024 * 1024;

#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// A session of this service, instead of the caller's own
    #[arg(
        long,
        value_name = "NAME",
        requires = "session",
        conflicts_with = "instance"
    )]
    service: Option<ServiceName>,
    /// The id of the service's session
    #[arg(
        long,
        value_name = "ID",
        requires = "service",
        allow_hyphen_values = true
    )]
    session: Option<SessionId>,
    #[command(flatten)]
    who: CallerArgs,
}

/// What becomes of a service's session that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfMissing {
    /// It is made.
    Create,
    /// That is an error.
    Refuse,
}

impl SessionArgs {
    /// The session. Where there is none, that was said, and this is the exit code.
    pub(crate) async fn session(self, missing: IfMissing) -> Result<Session, u8> {
        let Self {
            service,
            session,
            who,
        } = self;
        let (Some(service), Some(id)) = (service, session) else {
            let sessiond = Sessiond::init(who.options());
            let session = sessiond.session().await;
            return session.ok_or_else(|| {
                disabled(&sessiond).map_or(RESUME_DISABLED, |reason| warn_disabled(&reason))
            });
        };
        let sessions = Sessions::of_service(service, who.claiming.options());
        let opened = match sessions.open(&id).await {
            Err(error)
                if missing == IfMissing::Create
                    && error.refusal() == Some(&Error::UnknownSession) =>
            {
                let options = CreateOptions::default()
                    .id(id.clone())
                    .status(SessionStatus::ready());
                match sessions.create(options).await {
                    // Another process has made it just now.
                    Err(error) if error.refusal() == Some(&Error::AlreadyExists) => {
                        sessions.open(&id).await
                    }
                    made => made,
                }
            }
            opened => opened,
        };
        opened.map_err(|error| report(&error))
    }
}

/// Carries out a command that speaks for a server, whose contents never reach a core file. Where
/// something is wrong, that was said, and is the exit code.
pub(crate) fn run_for_server(work: impl Future<Output = Result<ExitCode, u8>>) -> ExitCode {
    client_log::to_stderr();
    process::core_files::never_dump();
    match block_on(work) {
        Ok(Ok(done)) => done,
        Ok(Err(code)) => ExitCode::from(code),
        Err(error) => {
            warn(error);
            ExitCode::from(RESUME_DISABLED)
        }
    }
}

/// Says why a call came to nothing, and returns the exit code.
pub(crate) fn report(error: &SessionError) -> u8 {
    warn(error);
    match error.refusal() {
        Some(
            Error::UnknownSession
            | Error::SessionTerminated
            | Error::UnknownStream
            | Error::UnknownCursor
            | Error::UnknownTask,
        ) => NO_INPUT,
        Some(_) => DATA_ERROR,
        None => RESUME_DISABLED,
    }
}

/// Takes a text for JSON. Where it is none, that was said, and this is the exit code.
pub(crate) fn parse_json(text: &str) -> Result<Json, u8> {
    Json::new(text.trim()).map_err(|error| {
        warn(format_args!(
            "{error}. A text is written with quotes: '\"text\"'"
        ));
        DATA_ERROR
    })
}

/// Reads all of standard input. Where that fails, it was said, and this is the exit code.
pub(crate) fn read_stdin() -> Result<String, u8> {
    let mut text = String::new();
    let read = io::stdin()
        .lock()
        .take(INPUT_MAX + 1)
        .read_to_string(&mut text);
    match read {
        Ok(bytes) if bytes as u64 > INPUT_MAX => {
            warn(format_args!(
                "standard input has more than {INPUT_MAX} bytes"
            ));
        }
        Ok(_) => return Ok(text),
        Err(error) => warn(format_args!("standard input: {error}")),
    }
    Err(DATA_ERROR)
}

/// Why resume is disabled, if it is.
pub(crate) fn disabled(sessiond: &Sessiond) -> Option<Arc<Reason>> {
    match sessiond.status() {
        Status::Disabled { reason } => Some(reason),
        _ => None,
    }
}

/// Adds what only a user of the command line can do about it.
pub(crate) fn warn_disabled(reason: &Reason) -> u8 {
    match reason {
        Reason::Refused(Error::NoVerifiedHost { sentence }) => warn(format_args!(
            "{sentence}; `mcp-sessiond doctor` shows the way up to the host, and in a shell script `--for $$` is needed"
        )),
        Reason::Refused(Error::NamesHost { .. }) => {
            warn("that is the host; say `--for $$`, the pid of the script itself");
        }
        Reason::Refused(Error::NotAnAncestor { .. }) => {
            warn("--for takes the pid of this command's caller, or of an ancestor of it");
        }
        _ => {}
    }
    RESUME_DISABLED
}
