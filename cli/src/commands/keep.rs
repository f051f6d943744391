//! `mcp-sessiond keep`: the keeper of one backend. `wrap` and `serve` start it.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use mcp_sessiond_client::{Label, SessionId};
use mcp_sessiond_process::descriptors;
use mcp_sessiond_proto::facts::ServerDigest;
use mcp_sessiond_proto::{BackendName, Epoch, ServiceName};
use mcp_sessiond_proxy::keeper::launch::{self, BackendOf};
use mcp_sessiond_proxy::keeper::{self, Errand};
use mcp_sessiond_proxy::program::Program;

use super::wrap::program;
use crate::USAGE;
use crate::config::load_or_default;

#[derive(Debug, Args)]
#[command(after_help = "\
Internal: `mcp-sessiond wrap` and `serve` start it under a lease, or for a server of servers.json with `\"shared\": true`, whose \
session it claims itself. It reports on standard output, in one line of JSON. It ends with the session's host, on SIGTERM, or when no \
wrapper has been attached for `backends.linger_ms` (of `serve`: `http.linger_ms`; of a shared server: `backends.closed_linger_ms`).

Example: mcp-sessiond keep --session 0199… --epoch 1 -- npx @playwright/mcp")]
pub(crate) struct Arguments {
    /// The session that the server belongs to
    #[arg(
        long,
        allow_hyphen_values = true,
        required_unless_present = "shared",
        requires = "epoch"
    )]
    session: Option<SessionId>,
    /// The service that the session belongs to
    #[arg(long, allow_hyphen_values = true)]
    service: Option<ServiceName>,
    /// The name of the backend, where the session has several
    #[arg(long, allow_hyphen_values = true)]
    backend: Option<BackendName>,
    /// A digest of what the server is started with, for what is known of it
    #[arg(long)]
    server_digest: Option<ServerDigest>,
    /// The epoch of the lease on the session, or on its service
    #[arg(long, requires = "session")]
    epoch: Option<u64>,
    /// Hosts share the server, which this key tells from every other one
    #[arg(long, value_name = "KEY", conflicts_with_all = ["session", "epoch", "service", "backend"])]
    shared: Option<String>,
    /// How long a shared server stays when no host has it, in ms
    #[arg(long, requires = "shared", default_value_t = 30_000)]
    linger_ms: u64,
    /// How long to wait for the first front, in ms
    #[arg(long, default_value_t = 5_000)]
    wait_ms: u64,
    /// The name that the user has given the session
    #[arg(long)]
    name: Option<Label>,
    /// The most descriptors that the server may have; by default as many as whoever starts it
    #[arg(long)]
    descriptors: Option<u64>,
    /// Take the server for the same whatever has changed of what its script imports
    #[arg(long)]
    no_sources: bool,
    /// Start no daemon
    #[arg(long)]
    no_start: bool,
    /// The process behind it
    #[arg(long, hide = true)]
    detached: bool,
    /// The server's command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(crate) fn run(arguments: Arguments) -> ExitCode {
    let Arguments {
        session,
        service,
        backend,
        server_digest,
        epoch,
        shared,
        linger_ms,
        wait_ms,
        name,
        descriptors: most,
        no_sources,
        no_start,
        detached,
        command,
    } = arguments;
    if let Some(most) = most {
        descriptors::restore(most);
    }
    let of = match (session, epoch, shared) {
        (Some(session), Some(epoch), _) => BackendOf::Session {
            session,
            service,
            backend,
            server: server_digest,
            epoch: Epoch(epoch),
        },
        (_, _, Some(key)) => BackendOf::Hosts { key, linger_ms },
        // The parser has seen to it.
        _ => return ExitCode::from(USAGE),
    };
    if detached {
        load_or_default();
        let program = Program {
            title: name,
            has_sources: !no_sources,
            ..program(command)
        };
        let wait = Duration::from_millis(wait_ms);
        return keeper::run(Errand {
            of,
            program,
            wait,
            starts_daemon: !no_start,
        });
    }
    let options = of.options().into_iter().map(OsString::from);
    let wait = ["--wait-ms".into(), wait_ms.to_string().into()];
    let title = name
        .into_iter()
        .flat_map(|name| ["--name".into(), name.as_str().into()]);
    let flags = [
        (no_sources, launch::NO_SOURCES),
        (no_start, launch::NO_START),
    ];
    let flags = flags
        .into_iter()
        .filter(|(is_set, _)| *is_set)
        .map(|(_, flag)| flag.into());
    launch::launch(
        options
            .chain(wait)
            .chain(title)
            .chain(flags)
            .chain(["--".into()])
            .chain(command)
            .collect(),
    )
}
