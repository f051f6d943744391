//! `mcp-sessiond serve`: an MCP server over HTTP, whose clients can resume everything.

mod access;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser};
use mcp_sessiond_client::{Label, Start};
use mcp_sessiond_daemon::config::{self, Config, Prefer};
use mcp_sessiond_process::{digest, executable};
use mcp_sessiond_serve::passed_headers::PassedHeaders;
use mcp_sessiond_serve::run::{StartError, check_listen, run as serve};
use mcp_sessiond_serve::settings::{Listen, Proof, Servers, Settings, Target};
use mcp_sessiond_serve::upstream::server_at;
use mcp_sessiond_upstream::Remote;

use mcp_sessiond_proxy::front::bundle::{Filter, Glob};
use mcp_sessiond_proxy::signals::GivenMask;

use self::access::AccessArgs;
use super::wrap;
use crate::config::relay_up_to_its_limit;
use crate::exit_code::{DATA_ERROR, SOFTWARE, TEMPORARY, USAGE};
use crate::runtime::block_on;
use crate::servers::{self, ServersError, bundle};
use crate::ui::output::warn;

/// Why `--unkept` is refused, which served without a daemon.
const UNKEPT: &str = "--unkept is no longer supported: set `storage.url = \"memory:\"` in the configuration, which keeps sessions \
    in the daemon's memory and writes no contents to disk";

/// Bytes of the digest that stands for a name.
const DIGEST_LEN: usize = 6;

#[derive(Debug, Args)]
#[command(after_help = "\
Serves MCP's Streamable HTTP at /mcp. `serve` starts a server for the session of each client, in its own environment and \
directory. The daemon stores the sessions, with their streams and messages: a client that has lost its connection comes back with \
`Last-Event-ID` and gets the rest, also after `serve` was killed and started again.

With `--upstream` there is no command: `serve` stands in front of a server that speaks Streamable HTTP itself. When that server \
restarts and has forgotten everything, `serve` sends it the recorded handshake, and the client keeps its session.

Servers that `serve` has started survive it. When `serve` is started again under the same name, open calls go on, and each client gets the \
rest of its calls once. If nobody serves the name for ten minutes (`http.linger_ms`), the servers end. The sessions stay: when their \
clients come back, `serve` starts new servers and sends them the recorded handshake.

`serve NAME…` and `serve --all` serve servers of servers.json: all of them as one at /mcp, and each for itself at /servers/NAME. `serve` takes the \
words behind it for names if the first one is in servers.json; `--` makes them a command.

SIGTERM ends `serve`, and the sessions stay. SIGINT (Ctrl-C) ends the sessions, too, unless `--keep` is given. A session that no client reads or calls for \
half an hour (`http.idle_ms`) ends.

With `--identity-header`, sessions belong to the user whom a proxy names; with `--jwt-issuer`, to whom a verified token names. A client that has \
signed in again keeps its session.

With `--inspect` there is a page for a browser at /inspect. It shows sessions, streams, servers and events, and never a message; it has \
buttons that end a session and restart its server, and a client that calls tools.

Exit codes: 0 after SIGTERM or SIGINT; 64 bad usage or configuration; 65 servers.json can't be read; 66 there is none, or no such server in it; 70 `serve` has failed; 75 no daemon, or another process serves \
the name or listens there; 127 there is no such command.

`mcp-sessiond install --serve NAME` makes it a service.

Examples:
  mcp-sessiond serve --listen 127.0.0.1:8000 -- npx @playwright/mcp
  mcp-sessiond serve --upstream http://127.0.0.1:3000/mcp
  mcp-sessiond serve --listen 127.0.0.1:8000 files browser")]
pub(crate) struct Arguments {
    /// Where to listen: an address and a port (0: a free one, which is printed), or `unix:PATH`
    #[arg(long, value_name = "WHERE", default_value = "127.0.0.1:8000")]
    listen: At,
    /// The name under which sessions are found again; by default a digest of command or URL, and
    /// directory
    #[arg(long, value_name = "NAME")]
    name: Option<Label>,
    /// A name of this machine that clients may use, beside localhost, 127.0.0.1 and [::1]
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    /// An origin whose pages may connect, such as https://app.example
    #[arg(long = "origin", value_name = "ORIGIN")]
    origins: Vec<String>,
    /// Give the session id to browsers as a cookie, too, and take it from there
    #[arg(long)]
    cookie: bool,
    #[command(flatten)]
    access: AccessArgs,
    /// Serve a page at /inspect: sessions, streams and servers, with buttons to end and restart
    /// them, and a client for trying tools
    #[arg(long)]
    inspect: bool,
    /// Keep the sessions when SIGINT (Ctrl-C) ends `serve`, as SIGTERM does
    #[arg(long)]
    keep: bool,
    /// Do not start a daemon where none runs
    #[arg(long)]
    no_start: bool,
    /// Refused: see [`UNKEPT`]
    #[arg(long, hide = true)]
    unkept: bool,
    /// Instead of a command: the http:// URL of a server that speaks Streamable HTTP itself
    #[arg(long, value_name = "URL", conflicts_with = "command", value_parser = server_at)]
    upstream: Option<Remote>,
    /// With `--upstream`: a header of each request to the server, such as
    /// `Authorization=Bearer ${file:PATH}`; `${env:NAME}` and `${file:PATH}` keep a secret off the
    /// command line. Repeatable
    #[arg(long, value_name = "NAME=VALUE", requires = "upstream", value_parser = header)]
    upstream_header: Vec<(String, String)>,
    /// With `--upstream`: a header of a client's that the server gets, such as X-Api-Key. A session belongs to the value with
    /// which it was begun. Repeatable
    #[arg(long = "pass-header", value_name = "NAME", requires = "upstream")]
    passed: Vec<String>,
    /// All servers of servers.json, as one at /mcp, and each at /servers/NAME
    #[arg(long, conflicts_with_all = ["command", "upstream"])]
    all: bool,
    /// Of several servers: let through only what is listed by such a name; `*` stands for any text,
    /// `?` for one character. Repeatable
    #[arg(long, value_name = "GLOB", conflicts_with = "upstream")]
    only: Vec<Glob>,
    /// Of several servers: let through nothing that is listed by such a name. Repeatable
    #[arg(long, value_name = "GLOB", conflicts_with = "upstream")]
    without: Vec<Glob>,
    /// Names of servers of servers.json; or the command of one server and its arguments, with `--`
    /// before it where it is such a name
    #[arg(trailing_var_arg = true, required_unless_present_any = ["upstream", "all", "unkept"], value_name = "NAME|CMD")]
    command: Vec<OsString>,
}

/// Where to listen.
#[derive(Debug, Clone)]
struct At(Listen);

impl FromStr for At {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self(Listen::Unix(PathBuf::from(path))));
        }
        let address = text
            .strip_prefix("localhost:")
            .map(|port| format!("127.0.0.1:{port}"));
        let address = address.as_deref().unwrap_or(text).parse::<SocketAddr>();
        address
            .map(|address| Self(Listen::Tcp(address)))
            .map_err(|_| "ADDRESS:PORT, or unix:PATH".into())
    }
}

/// Arguments of `serve` by themselves.
#[derive(Debug, Parser)]
#[command(name = "mcp-sessiond serve", no_binary_name = true)]
struct Alone {
    #[command(flatten)]
    arguments: Arguments,
}

/// Words that `serve` takes.
pub(crate) struct Checked {
    listen: Listen,
    /// A server's command; empty where there is none.
    command: Vec<OsString>,
}

/// Whether `serve` takes these words.
pub(crate) fn check(words: &[OsString]) -> Result<Checked, String> {
    let parsed = Alone::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        text.strip_prefix("error: ")
            .unwrap_or(&text)
            .trim_end()
            .to_owned()
    })?;
    let Arguments {
        listen: At(listen),
        mut command,
        unkept,
        ..
    } = parsed.arguments;
    if unkept {
        return Err(UNKEPT.to_owned());
    }
    let names = servers::names_in(&command, before(words.to_vec(), &command));
    if names.map_err(|error| error.to_string())?.is_some() {
        command.clear();
    }
    Ok(Checked { listen, command })
}

impl Checked {
    /// How many of the words are a server's command.
    pub(crate) fn command_len(&self) -> usize {
        self.command.len()
    }

    /// Where it would listen.
    pub(crate) fn at(&self) -> String {
        match &self.listen {
            Listen::Tcp(at) => format!("http://{at}/mcp"),
            Listen::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// Why it would not start here: its exit code, and a sentence. With `is_running` it listens
    /// already, and would be started again.
    pub(crate) fn why_no_start(self, is_running: bool) -> Option<(u8, String)> {
        let is_command = !self.command.is_empty();
        let missing = is_command.then(|| wrap::program(self.command).why_missing());
        missing.flatten().or_else(|| {
            let listens = (!is_running).then(|| check_listen(&self.listen));
            Some((TEMPORARY, listens?.err()?.to_string()))
        })
    }
}

pub(crate) fn run(arguments: Arguments) -> ExitCode {
    let path = config::usual_path();
    let config = match config::load(path.as_deref(), &[]) {
        Ok(loaded) => loaded.config,
        Err(error) => {
            warn(error);
            return ExitCode::from(USAGE);
        }
    };
    relay_up_to_its_limit(&config);
    let _ = GivenMask::unblock(&mcp_sessiond_proxy::signals::ENDING);
    let settings = match settings(arguments, &config) {
        Ok(settings) => settings,
        Err(error) => {
            warn(&error);
            return ExitCode::from(error.code());
        }
    };
    match block_on(serve(settings)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            warn(&error);
            ExitCode::from(match error {
                StartError::NoDaemon(_)
                | StartError::Taken { .. }
                | StartError::NotLeased(_)
                | StartError::NoListener { .. } => TEMPORARY,
                StartError::List(_) => DATA_ERROR,
                StartError::Io(_) => SOFTWARE,
            })
        }
        Err(error) => {
            warn(error);
            ExitCode::from(SOFTWARE)
        }
    }
}

/// Why it can't begin.
#[derive(Debug, thiserror::Error)]
enum NoSettings {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Servers(#[from] ServersError),
    #[error("{sentence}")]
    NoProgram { code: u8, sentence: String },
}

impl From<String> for NoSettings {
    fn from(sentence: String) -> Self {
        Self::Usage(sentence)
    }
}

impl NoSettings {
    fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::Servers(error) => error.code(),
            Self::NoProgram { code, .. } => *code,
        }
    }
}

/// What stands before these words at the end of a command line.
fn before(line: Vec<OsString>, words: &[OsString]) -> Option<OsString> {
    line.into_iter().rev().nth(words.len())
}

/// A header on the command line.
fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("a header is NAME=VALUE, such as `X-Key=${env:KEY}`")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// These headers, with what their values stand for.
fn looked_up(headers: &[(String, String)]) -> Result<Vec<(String, String)>, NoSettings> {
    let base = std::env::current_dir().unwrap_or_default();
    let looked_up = |(name, value): &(String, String)| {
        let value = servers::expanded(value, &base, None);
        let wrong = |why| NoSettings::Usage(format!("the header {name:?} can't be set: {why}"));
        Ok((name.clone(), value.map_err(wrong)?))
    };
    headers.iter().map(looked_up).collect()
}

/// The headers of clients that are passed on.
fn passed(
    arguments: &Arguments,
    proof: &Proof,
    callers: usize,
) -> Result<PassedHeaders, NoSettings> {
    let names = &arguments.passed;
    let refused = |why: String| NoSettings::Usage(format!("--pass-header: {why}"));
    for name in names {
        if name.eq_ignore_ascii_case("Authorization") && !matches!(proof, Proof::Kernel) {
            let why = "`Authorization` has the token for `serve` here, which no server gets";
            return Err(refused(why.to_owned()));
        }
        let mut set = arguments.upstream_header.iter();
        if set.any(|(set, _)| set.eq_ignore_ascii_case(name)) {
            let why = format!("`{name}` is set by --upstream-header: the server would get two");
            return Err(refused(why));
        }
        // With any value.
        let header = [(name.clone(), String::new())];
        let known = server_at("http://localhost/").and_then(|remote| {
            let remote = remote.with_headers(header);
            remote.map_err(|error| error.to_string())
        });
        known.map_err(refused)?;
    }
    PassedHeaders::new(names, callers).map_err(refused)
}

/// What is served, and what that is called where it has no name of its own.
fn target(arguments: &mut Arguments, config: &Config) -> Result<(Target, String), NoSettings> {
    let (only, without) = (
        std::mem::take(&mut arguments.only),
        std::mem::take(&mut arguments.without),
    );
    let command = std::mem::take(&mut arguments.command);
    if let Some(remote) = arguments.upstream.take() {
        let hold = Duration::from_millis(config.http.hold_ms);
        let what = remote.to_string();
        let remote = remote.with_headers(looked_up(&arguments.upstream_header)?);
        let remote = remote.map_err(|error| NoSettings::Usage(error.to_string()))?;
        return Ok((Target::Upstream(Box::new(remote.hold(hold))), what));
    }
    let names = if arguments.all {
        None
    } else {
        servers::names_in(&command, before(std::env::args_os().collect(), &command))?
    };
    if names.is_none() && !arguments.all {
        if !only.is_empty() || !without.is_empty() {
            let sentence =
                "--only and --without are for servers of servers.json: name them, or take --all";
            return Err(NoSettings::Usage(sentence.to_owned()));
        }
        let program = wrap::program(command);
        if let Some((code, sentence)) = program.why_missing() {
            return Err(NoSettings::NoProgram { code, sentence });
        }
        let what = program.digest();
        return Ok((Target::Program(program), what));
    }
    let filter = Filter {
        server: None,
        only: (!only.is_empty()).then_some(only),
        without,
    };
    let named = names
        .as_ref()
        .map_or_else(|| "*".to_owned(), |names| names.join("\0"));
    let (path, list) = bundle::listed(names, filter)?;
    let servers = Servers {
        list: Arc::new(list),
        settings: bundle::settings(config),
    };
    Ok((
        Target::Servers(servers),
        format!("{}\0{named}", path.display()),
    ))
}

fn settings(mut arguments: Arguments, config: &Config) -> Result<Settings, NoSettings> {
    if arguments.unkept {
        return Err(NoSettings::Usage(UNKEPT.to_owned()));
    }
    let At(listen) = &arguments.listen;
    let (proof, identity) = (
        arguments.access.proof(listen)?,
        arguments.access.identity(listen)?,
    );
    let passed = passed(&arguments, &proof, config.http.sessions)?;
    let (target, what) = target(&mut arguments, config)?;
    let start = if arguments.no_start {
        Start::Never
    } else {
        Start::Auto {
            binary: executable::own(),
        }
    };
    let Arguments {
        listen: At(listen),
        name,
        mut hosts,
        origins,
        cookie,
        inspect,
        keep,
        ..
    } = arguments;
    if let Listen::Tcp(at) = &listen {
        hosts.extend(host(at));
    }
    if name
        .as_ref()
        .is_some_and(|name| name.as_str().contains('/'))
    {
        let sentence =
            "--name: a name can't have a \"/\": the part after it names a server at /servers/";
        return Err(NoSettings::Usage(sentence.to_owned()));
    }
    let name = name.map_or_else(|| unnamed(&what), |name| name.as_str().to_owned());
    let http = &config.http;
    Ok(Settings {
        service: format!("serve.{name}")
            .parse()
            .map_err(|error| NoSettings::Usage(format!("--name: {error}")))?,
        start,
        // systemd gives a service up that exits with 75.
        waits: std::env::var_os("NOTIFY_SOCKET").is_some(),
        keep,
        target,
        listen,
        hold: Duration::from_millis(http.hold_ms),
        idle: Duration::from_millis(http.idle_ms),
        sessions: http.sessions,
        unused: Duration::from_millis(http.unused_ms),
        retry_ms: http.retry_ms,
        keep_alive: Duration::from_millis(http.keep_alive_ms),
        peer_wait: Duration::from_millis(http.peer_wait_ms),
        redirect: http.redirect,
        prefers_json: http.prefer == Prefer::Json,
        hosts,
        origins,
        cookie,
        inspect,
        proof,
        identity,
        passed: Arc::new(passed),
    })
}

/// The host that clients name when they connect to this address.
fn host(at: &SocketAddr) -> Option<String> {
    let host = if at.is_ipv6() {
        format!("[{}]", at.ip())
    } else {
        at.ip().to_string()
    };
    (!at.ip().is_unspecified()).then_some(host)
}

/// The name of what was not given one: the same command, URL or servers, in the same directory.
fn unnamed(what: &str) -> String {
    let directory = std::env::current_dir().unwrap_or_default();
    let text = format!("{what}\0{}", directory.display());
    let digest = digest("mcp-sessiond serve", text.as_bytes());
    digest
        .iter()
        .take(DIGEST_LEN)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
