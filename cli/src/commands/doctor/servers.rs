//! The servers that are kept, as their keepers report them.

use super::{Finding, Findings};
use crate::inventory::{Inventory, Unready, alike};

pub(super) async fn check(findings: &mut Findings) {
    // What is wrong with the directory was found before.
    let Ok(inventory) = Inventory::read().await else {
        return;
    };
    let troubles = inventory.servers.iter().filter_map(|server| {
        let (what, fix) = server.fault(inventory.connection.is_some())?;
        // One that has ended is started again by itself.
        let is_silent = server.failure.is_some();
        Some(if is_silent {
            Finding::problem("kept", what, fix)
        } else {
            Finding::note("kept", what, fix)
        })
    });
    let unready = inventory.unready.iter().filter_map(Unready::fault);
    let unready = unready.map(|(what, fix)| Finding::note("kept", what, fix));
    let before = findings.0.len();
    troubles
        .chain(unready)
        .for_each(|finding| findings.add(finding));
    if findings.0.len() == before {
        let servers = match inventory.servers.len() {
            0 => return,
            1 => "1 server is".to_owned(),
            servers => format!("{servers} servers are"),
        };
        findings.add(Finding::ok(
            "kept",
            format!("{servers} kept; `mcp-sessiond status` shows them"),
        ));
    }
    let several = alike::faults(&inventory.servers).into_iter();
    several
        .map(|(what, fix)| Finding::note("kept", what, fix))
        .for_each(|finding| findings.add(finding));
}
