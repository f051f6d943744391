//! The front of a server that all hosts share.

use std::process::ExitCode;
use std::time::Duration;

use mcp_sessiond_client::{ClaimRequest, Options};

use super::probe::ProbePolicy;
use super::{Way, run_with};
use crate::server::attach::Attaching;
use crate::server::kept::Door;
use crate::server::shared::place::Place;
use crate::server::shared::{Looking, Shared};
use crate::waits::Waits;

/// How long the first line of a host is waited for, which says whether it can share: it comes, or
/// the host goes.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Speaks MCP to the host with a shared server, on standard input and output, until the host closes
/// its end or is gone.
pub fn run(
    options: Options,
    claim: ClaimRequest,
    shared: Shared,
    looking: Looking,
    waits: Waits,
) -> ExitCode {
    let waits = Waits {
        first_line: FOR_EVER,
        ..waits
    };
    let (program, launch_env) = (shared.program(), shared.launch_env());
    // A server of the host's own belongs to the entry as it is written: one that was edited is
    // another server.
    let own = shared.own_name();
    let way = |first, door: Door, mask| {
        Box::new(Place::new(shared, looking, first, mask, door.named(own))) as Box<dyn Attaching>
    };
    let way = Way::Through(Box::new(way));
    let probes = ProbePolicy::Refused;
    run_with(options, claim, &program, launch_env, waits, probes, way)
}
