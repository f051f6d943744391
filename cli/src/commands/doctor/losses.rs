//! What has happened: what was lost, what runs unkept, and what the daemon advises.

use mcp_sessiond_client::{Connection, Directory};
use mcp_sessiond_proxy::unkept::{self, Unkept};

use super::{Finding, Findings};
use crate::calls::ANSWER_TIMEOUT;
use crate::inventory;
use crate::inventory::listing::TRIED_AGAIN;

pub(super) async fn check(connection: &Connection, findings: &mut Findings) {
    // That it answers was found before.
    if let Ok(about) = connection.about(ANSWER_TIMEOUT).await {
        for hint in about.advice {
            let check = if hint.what == "records" {
                "records"
            } else {
                "hint"
            };
            findings.add(Finding::note(check, hint.finding, hint.advice));
        }
    }
    for lost in inventory::losses(connection).await.unwrap_or_default() {
        let fix = "nothing: that host gets a fresh server, which says so";
        findings.add(Finding::note("lost", lost.sentence(), fix));
    }
}

/// Servers that run without being kept, or could not be started.
pub(super) fn unkept(directory: &Directory, findings: &mut Findings) {
    for Unkept {
        process,
        program,
        why,
        service,
        has_failed,
        ..
    } in unkept::list(directory.path())
    {
        let pid = process.pid;
        if has_failed {
            let what = format!("{program} (pid {pid}) can't be used: {why}");
            findings.add(Finding::note("kept", what, TRIED_AGAIN));
            continue;
        }
        // What `serve --upstream` serves is kept by the daemon.
        if service.is_none() {
            findings.add(Finding::note(
                "unkept",
                format!("{program} (pid {pid}) runs without being kept: {why}"),
                "once nothing above is a problem, restart that server in its host",
            ));
        }
    }
}
