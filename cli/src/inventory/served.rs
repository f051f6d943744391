//! What `serve` serves: each `serve` notes it. Of a server that speaks HTTP itself, behind
//! `serve --upstream`, there is no other trace, since no keeper holds it; nor is there of a program
//! while no client has a session.

use mcp_sessiond_client::{Connection, SessionStatus};
use mcp_sessiond_process as process;
use mcp_sessiond_proto::ServiceName;
use mcp_sessiond_proto::debug::PAGE_MAX;
use mcp_sessiond_proto::sessions::OwnSessions;
use mcp_sessiond_proxy::unkept::Unkept;
use serde::Serialize;

use crate::calls::ANSWER_TIMEOUT;
use crate::ui::table::{bytes, duration, printable};

/// What one `serve` serves.
#[derive(Debug, Serialize)]
pub(crate) struct Served {
    /// Where the server is, without a query; or what is run for each session.
    #[serde(rename = "url")]
    what: String,
    /// The service that its sessions belong to.
    pub(super) service: ServiceName,
    /// The pid of `serve`.
    pid: u32,
    /// Since when `serve` runs, in ms since the Unix epoch.
    since_ms: u64,
    /// How many sessions the service has. None: the daemon does not say.
    sessions: Option<usize>,
}

impl Served {
    /// What `serve` has noted, and what the daemon knows of it. None: the note is about another
    /// kind of server.
    pub(crate) async fn of(note: &Unkept, connection: Option<&Connection>) -> Option<Self> {
        let service = note.service.clone()?;
        let sessions = match connection {
            Some(connection) => sessions(connection, &service).await,
            None => None,
        };
        let (what, pid, since_ms) = (note.program.clone(), note.process.pid, note.since_ms);
        Some(Self {
            what,
            service,
            pid,
            since_ms,
            sessions,
        })
    }

    /// Its line in the table.
    pub(crate) fn row(&self, now_ms: u64) -> Vec<String> {
        let none = || "-".to_owned();
        let state = if self.sessions == Some(0) {
            "waiting"
        } else {
            "in use"
        };
        vec![
            printable(&self.what),
            self.service.to_string(),
            state.to_owned(),
            duration(now_ms.saturating_sub(self.since_ms)),
            none(),
            process::resident_bytes(self.pid).map_or_else(none, bytes),
            self.pid.to_string(),
            none(),
            none(),
            none(),
            none(),
            none(),
        ]
    }

    /// Whether it speaks HTTP itself.
    pub(crate) fn is_upstream(&self) -> bool {
        self.what.contains("://")
    }

    /// What has to be said about one that speaks HTTP itself beside its line.
    pub(crate) fn note(&self) -> String {
        let Self {
            what: url,
            service,
            pid,
            ..
        } = self;
        let sessions = match self.sessions {
            Some(1) => "one session".to_owned(),
            Some(count) => format!("{count} sessions"),
            None => "an unknown number of sessions".to_owned(),
        };
        format!("{url} speaks HTTP itself: {service} (`serve`, pid {pid}) has {sessions} with it.")
    }
}

async fn sessions(connection: &Connection, service: &ServiceName) -> Option<usize> {
    let (mut count, mut after) = (0, None);
    loop {
        let request = OwnSessions {
            service: Some(service.clone()),
            after,
        };
        let page = connection
            .list_own_sessions(ANSWER_TIMEOUT, request)
            .await
            .ok()?
            .ok()?;
        count += page
            .iter()
            .filter(|view| view.status != SessionStatus::Terminated)
            .count();
        match page.last() {
            Some(last) if page.len() >= PAGE_MAX => after = Some(last.session.clone()),
            _ => return Some(count),
        }
    }
}
