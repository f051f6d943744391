//! The servers that are kept, as their keepers say.

use super::super::kept::Kept;
use super::{Finding, Findings};

pub(super) async fn look(findings: &mut Findings) {
    // What is wrong with the directory was found before.
    let Ok(kept) = Kept::look().await else { return };
    let troubles = kept.servers.iter().filter_map(|server| {
        let (what, mend) = server.trouble(kept.connection.is_some())?;
        // One that has ended is started again by itself.
        let is_silent = server.failure.is_some();
        Some(if is_silent {
            Finding::problem("kept", what, mend)
        } else {
            Finding::note("kept", what, mend)
        })
    });
    let before = findings.0.len();
    troubles.for_each(|finding| findings.add(finding));
    if findings.0.len() == before {
        let servers = match kept.servers.len() {
            0 => return,
            1 => "1 server is".to_owned(),
            servers => format!("{servers} servers are"),
        };
        findings.add(Finding::ok(
            "kept",
            format!("{servers} kept; `mcp-sessiond status` shows them"),
        ));
    }
}
