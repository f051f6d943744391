//! `debug sweep` and `debug prune`: what the daemon does by itself in time, by hand.

use std::time::Duration;

use clap::Args;
use mcp_sessiond_client::{Connection, Error, SessionId};
use mcp_sessiond_proto::debug::{Ended, InspectRequest, SweepRequest};
use mcp_sessiond_proto::sessions::SessionRef;
use mcp_sessiond_proto::streams::{PruneRequest, Pruned};
use mcp_sessiond_proto::{ServiceName, StreamId};

use crate::calls::{ANSWER_TIMEOUT, Failure};
use crate::ui::table::listing_or;
use crate::ui::time::{as_ms, parse_duration};

#[derive(Debug, Args)]
#[command(after_help = "\
Without options: what has outlived its time. With both: only the sessions of this service that nobody uses now, \
or has used for that time.

Example: mcp-sessiond debug sweep --service web --older-than 2h")]
pub(super) struct Sweep {
    /// The service whose sessions are meant
    #[arg(long, value_name = "NAME", requires = "older_than")]
    service: Option<ServiceName>,
    /// Only those that nobody has used for this long: a number with ms, s, m, h or d
    #[arg(long, value_name = "TIME", requires = "service", value_parser = parse_duration)]
    older_than: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The oldest events are deleted first. A client that asks for them later gets a gap. Events that were appended together stay or \
go together. Only its own server can prune a host's session, or one that is bound to a caller.

Example: mcp-sessiond debug prune s1 --service web --keep 100")]
pub(super) struct Prune {
    /// The session's id
    session: SessionId,
    /// The service that owns it
    #[arg(long, value_name = "NAME")]
    service: ServiceName,
    /// Prune only this stream
    #[arg(long, value_name = "STREAM")]
    stream: Option<StreamId>,
    /// Keep this many events, the newest
    #[arg(long, value_name = "N", required_unless_present = "older_than")]
    keep: Option<u64>,
    /// Delete only events that are older: a number with ms, s, m, h or d
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    older_than: Option<Duration>,
}

pub(super) async fn sweep(connection: &Connection, asked: &Sweep) -> Result<Vec<Ended>, Failure> {
    let request = SweepRequest {
        service: asked.service.clone(),
        older_than_ms: asked.older_than.map(as_ms),
    };
    Ok(connection.sweep(ANSWER_TIMEOUT, request).await??)
}

pub(super) fn sweep_text(ended: &[Ended]) -> String {
    let row = |one: &Ended| vec![one.session.to_string(), one.owner.clone(), one.why.clone()];
    listing_or(
        &["session", "owner", "why"],
        ended.iter().map(row),
        "Nothing was ended.",
    )
}

pub(super) async fn prune(connection: &Connection, asked: &Prune) -> Result<Pruned, Failure> {
    let Prune {
        session,
        service,
        stream,
        keep,
        older_than,
    } = asked;
    let look = InspectRequest {
        session: session.clone(),
        owner: Some(format!("service {service}")),
    };
    let found = connection.inspect_session(ANSWER_TIMEOUT, look).await??;
    // Whoever comes without being the one may end it.
    if found
        .iter()
        .filter_map(|found| found.content.as_ref())
        .any(|content| content.bound)
    {
        return Err(Error::BindingMismatch.into());
    }
    let of = SessionRef {
        session: session.clone(),
        service: Some(service.clone()),
        epoch: None,
        caller: None,
    };
    let (stream, older_than_ms) = (stream.clone(), older_than.map(as_ms));
    let request = PruneRequest {
        of,
        stream,
        keep: *keep,
        older_than_ms,
    };
    Ok(connection.prune_events(ANSWER_TIMEOUT, request).await??)
}

pub(super) fn prune_text(pruned: &Pruned) -> String {
    format!("{} events, {} bytes.\n", pruned.events, pruned.bytes)
}
