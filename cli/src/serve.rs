//! `mcp-sessiond serve`: an MCP server over HTTP, whose clients can resume everything.

mod who;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser};
use mcp_sessiond_client::{Label, Start};
use mcp_sessiond_daemon::config::{self, Config};
use mcp_sessiond_process::{digest, executable};
use mcp_sessiond_serve::run::{NotServed, run as serve};
use mcp_sessiond_serve::settings::{Behind, Listen, Settings};
use mcp_sessiond_serve::upstream::url::Url;

use mcp_sessiond_wrap::signals::GivenMask;

use self::who::Who;
use super::{FAILED, USAGE, block_on, complain, wrap};

/// Try again later (EX_TEMPFAIL of sysexits.h).
const NOT_NOW: u8 = 75;

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

With `--unkept`, `serve` also serves where no daemon runs and none can be started. It keeps nothing then, says so on standard error, and \
does not look for a daemon later.

SIGTERM ends `serve`, and the sessions stay. SIGINT (Ctrl-C) ends the sessions, too, unless `--keep` is given. A session that no client reads or calls for \
half an hour (`http.idle_ms`) ends.

With `--identity-header`, sessions belong to the user whom a proxy names; with `--jwt-issuer`, to whom a verified token names. A client that has \
signed in again keeps its session.

With `--inspect` there is a page for a browser at /inspect. It shows sessions, streams, servers and events, and never a message; it has \
buttons that end a session and restart its server, and a client that calls tools.

Exit codes: 0 after SIGTERM or SIGINT; 64 bad usage or configuration; 70 `serve` has failed; 75 no daemon (without `--unkept`), or another process serves \
the name or listens there.

`mcp-sessiond install --serve NAME` makes it a service. `mcp-sessiond demo http` shows what it does.

Examples:
  mcp-sessiond serve --listen 127.0.0.1:8000 --name browser -- npx @playwright/mcp
  mcp-sessiond serve --listen 127.0.0.1:8000 --upstream http://127.0.0.1:3000/mcp
  curl -H 'Accept: application/json, text/event-stream' -H 'Content-Type: application/json' localhost:8000/mcp -d '{…}'")]
pub(super) struct Arguments {
    /// Where to listen: an address and a port (0: a free one, which is printed), or `unix:PATH`
    #[arg(long, value_name = "WHERE", default_value = "127.0.0.1:8000")]
    listen: At,
    /// The name under which sessions are found again; by default a digest of command or URL, and directory
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
    who: Who,
    /// Serve a page at /inspect: sessions, streams and servers, with buttons to end and restart them, and a client for trying tools
    #[arg(long)]
    inspect: bool,
    /// Keep the sessions when SIGINT (Ctrl-C) ends `serve`, as SIGTERM does
    #[arg(long)]
    keep: bool,
    /// Do not start a daemon where none runs
    #[arg(long)]
    no_start: bool,
    /// Where no daemon can be had, serve all the same, and keep nothing: no stream can be resumed, and sessions end with `serve`
    #[arg(long)]
    unkept: bool,
    /// In place of a command: the http:// URL of a server that speaks Streamable HTTP itself
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    upstream: Option<Url>,
    /// The server's command and its arguments; `--` before it may be left out
    #[arg(trailing_var_arg = true, required_unless_present = "upstream", value_name = "CMD")]
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
        let address = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        let address = address.as_deref().unwrap_or(text).parse::<SocketAddr>();
        address.map(|address| Self(Listen::Tcp(address))).map_err(|_| "ADDRESS:PORT, or unix:PATH".into())
    }
}

/// Arguments of `serve` by themselves.
#[derive(Debug, Parser)]
#[command(name = "mcp-sessiond serve", no_binary_name = true)]
struct Alone {
    #[command(flatten)]
    arguments: Arguments,
}

/// Whether `serve` takes these words. Returns where it would listen, and how many of the words are the server's command.
pub(super) fn check(words: &[OsString]) -> Result<(String, usize), String> {
    let parsed = Alone::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned()
    })?;
    let Arguments { listen: At(listen), command, .. } = parsed.arguments;
    let at = match listen {
        Listen::Tcp(at) => format!("http://{at}/mcp"),
        Listen::Unix(path) => format!("unix:{}", path.display()),
    };
    Ok((at, command.len()))
}

pub(super) fn run(arguments: Arguments) -> ExitCode {
    let path = config::usual_path();
    let config = match config::load(path.as_deref(), &[]) {
        Ok(loaded) => loaded.config,
        Err(error) => {
            complain(error);
            return ExitCode::from(USAGE);
        }
    };
    let _ = GivenMask::unblock(&mcp_sessiond_wrap::signals::ENDING);
    let settings = match settings(arguments, &config) {
        Ok(settings) => settings,
        Err(sentence) => {
            complain(sentence);
            return ExitCode::from(USAGE);
        }
    };
    match block_on(serve(settings)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            complain(&error);
            ExitCode::from(match error {
                NotServed::NoDaemon(_)
                | NotServed::Taken { .. }
                | NotServed::NotLeased(_)
                | NotServed::NoListener { .. } => NOT_NOW,
                NotServed::Io(_) => FAILED,
            })
        }
        Err(error) => {
            complain(error);
            ExitCode::from(FAILED)
        }
    }
}

fn settings(arguments: Arguments, config: &Config) -> Result<Settings, String> {
    let At(listen) = &arguments.listen;
    let (proof, identity) = (arguments.who.proof(listen)?, arguments.who.identity(listen)?);
    let start = if arguments.no_start { Start::Never } else { Start::Auto { binary: executable::own() } };
    let Arguments {
        listen: At(listen),
        name,
        mut hosts,
        origins,
        cookie,
        inspect,
        keep,
        unkept,
        command,
        upstream,
        ..
    } = arguments;
    if let Listen::Tcp(at) = &listen {
        hosts.extend(host(at));
    }
    let behind = upstream.map_or_else(|| Behind::Program(wrap::program(command)), Behind::Upstream);
    let name = name.map_or_else(|| unnamed(&behind), |name| name.as_str().to_owned());
    let http = &config.http;
    Ok(Settings {
        service: format!("serve.{name}").parse().map_err(|error| format!("--name: {error}"))?,
        start,
        unkept,
        // systemd gives a service up that exits with 75.
        waits: std::env::var_os("NOTIFY_SOCKET").is_some(),
        keep,
        behind,
        listen,
        hold: Duration::from_millis(http.hold_ms),
        idle: Duration::from_millis(http.idle_ms),
        sessions: http.sessions,
        unused: Duration::from_millis(http.unused_ms),
        retry_ms: http.retry_ms,
        keep_alive: Duration::from_millis(http.keep_alive_ms),
        peer_wait: Duration::from_millis(http.peer_wait_ms),
        redirect: http.redirect,
        hosts,
        origins,
        cookie,
        inspect,
        proof,
        identity,
    })
}

/// The host that clients name when they connect to this address.
fn host(at: &SocketAddr) -> Option<String> {
    let host = if at.is_ipv6() { format!("[{}]", at.ip()) } else { at.ip().to_string() };
    (!at.ip().is_unspecified()).then_some(host)
}

/// The name of what was not given one: the same command, or URL, in the same directory.
fn unnamed(behind: &Behind) -> String {
    let directory = std::env::current_dir().unwrap_or_default();
    let what = match behind {
        Behind::Program(program) => program.digest(),
        Behind::Upstream(url) => url.to_string(),
    };
    let text = format!("{what}\0{}", directory.display());
    let digest = digest("mcp-sessiond serve", text.as_bytes());
    digest.iter().take(DIGEST_LEN).map(|byte| format!("{byte:02x}")).collect()
}
