//! The front of a server that all hosts share.

use std::process::ExitCode;

use mcp_sessiond_client::{ClaimRequest, Options};

use super::first_line::FOR_EVER;
use super::probe::ProbePolicy;
use super::{Way, run_with};
use crate::front_settings::FrontSettings;
use crate::server::connector::Connector;
use crate::server::keeper_connector::KeeperConnector;
use crate::server::shared::connector::SharedConnector;
use crate::server::shared::{Looking, Shared};

/// Speaks MCP to the host with a shared server, on standard input and output, until the host closes
/// its end or is gone.
pub fn run(
    options: Options,
    claim: ClaimRequest,
    shared: Shared,
    looking: Looking,
    settings: FrontSettings,
) -> ExitCode {
    // It says whether the host can share.
    let settings = FrontSettings {
        first_line_wait: FOR_EVER,
        ..settings
    };
    let (program, launch_env) = (shared.program(), shared.launch_env());
    // A server of the host's own belongs to the entry as it is written: one that was edited is
    // another server.
    let own = shared.own_name();
    let way = move |own_server: KeeperConnector, mask| {
        let own_server = own_server.named(own.clone());
        let way = SharedConnector::new(shared.clone(), looking.clone(), mask, own_server);
        Box::new(way) as Box<dyn Connector>
    };
    let way = Way::Through(Box::new(way));
    let probes = ProbePolicy::Refused;
    run_with(options, claim, &program, launch_env, settings, probes, &way)
}
