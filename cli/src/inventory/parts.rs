//! Servers of a list that can't be used, as their wrapper, or `serve`, tells the daemon.

use mcp_sessiond_client::{CallError, Connection, SessionId};
use mcp_sessiond_proto::debug::{ContentPage, PAGE_MAX, SessionParts};
use mcp_sessiond_proto::sessions::{Part, PartState};
use serde::Serialize;

use super::{HostInfo, Server};
use crate::calls::ANSWER_TIMEOUT;
use crate::ui::table::{duration, printable};

/// How a server of a list is that is not ready, and why.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Trouble {
    pub(crate) is: PartState,
    /// What kind of failure it is, in a word.
    pub(crate) code: Option<String>,
    /// Why it can't be used.
    pub(crate) message: Option<String>,
    /// Since when, in ms since the Unix epoch.
    pub(crate) since_ms: Option<u64>,
}

impl Trouble {
    /// In the words of people.
    pub(crate) fn state(&self) -> &'static str {
        match self.is {
            PartState::Failed => "failed",
            PartState::NotTried => "not tried",
            PartState::Initializing | PartState::Ready => "starting",
        }
    }

    /// What is wrong, and what to do, if it has failed. `called`: what people call the server.
    pub(crate) fn fault(&self, called: &str) -> Option<(String, String)> {
        let why = self.message.as_deref().unwrap_or("it did not say why");
        let what = format!("{called} can't be used: {why}");
        (self.is == PartState::Failed)
            .then(|| (what, "mcp-sessiond tries again by itself".to_owned()))
    }
}

/// A server of a list that is not ready, and that no keeper holds.
#[derive(Debug, Serialize)]
pub(crate) struct Unready {
    /// Its name in the list.
    pub(crate) server: String,
    pub(crate) session: SessionId,
    /// The pid of its host; none where the session is a service's.
    pub(crate) host: Option<u32>,
    /// What people call its host, or the service.
    pub(crate) host_name: Option<String>,
    #[serde(flatten)]
    pub(crate) trouble: Trouble,
}

impl Unready {
    /// The first columns of its line in the table, which are all that there is to say.
    pub(crate) fn row(&self, now_ms: u64) -> Vec<String> {
        let none = || "-".to_owned();
        let since = self.trouble.since_ms;
        vec![
            printable(&self.server),
            self.host_text().map_or_else(none, |host| printable(&host)),
            self.trouble.state().to_owned(),
            since.map_or_else(none, |since| duration(now_ms.saturating_sub(since))),
        ]
    }

    fn host_text(&self) -> Option<String> {
        match (&self.host_name, self.host) {
            (Some(name), Some(pid)) => Some(format!("{name} {pid}")),
            (Some(name), None) => Some(name.clone()),
            (None, pid) => pid.map(|pid| pid.to_string()),
        }
    }

    /// What is wrong with it, and what to do, if it has failed.
    pub(crate) fn fault(&self) -> Option<(String, String)> {
        let called = match self.host_text() {
            Some(host) => format!("{} of {host}", self.server),
            None => self.server.clone(),
        };
        self.trouble.fault(&called)
    }
}

/// The sessions that have parts that can't be used.
pub(super) async fn read(connection: &Connection) -> Result<Vec<SessionParts>, CallError> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = connection
            .list_parts(ANSWER_TIMEOUT, ContentPage { after })
            .await?;
        after = page
            .last()
            .filter(|_| page.len() >= PAGE_MAX)
            .map(|last| (last.owner.clone(), last.session.clone()));
        all.extend(page);
        if after.is_none() {
            return Ok(all);
        }
    }
}

/// Notes at each server what is wrong with it, and returns those that no keeper holds.
pub(super) fn assign(
    sessions: Vec<SessionParts>,
    servers: &mut [Server],
    hosts: &[HostInfo],
) -> Vec<Unready> {
    let mut unready = Vec::new();
    for SessionParts {
        owner,
        session,
        parts,
    } in sessions
    {
        for Part {
            part,
            is,
            since_ms,
            code,
            message,
        } in parts
        {
            let trouble = Trouble {
                is,
                code,
                message,
                since_ms,
            };
            let held = servers
                .iter_mut()
                .find(|server| server.session.as_ref() == Some(&session) && server.server == part);
            match held {
                _ if is == PartState::Ready => {}
                // Its keeper says as much.
                Some(_) if is != PartState::Failed => {}
                Some(server) => server.trouble = Some(trouble),
                None => {
                    let host = host_of(&owner);
                    let named = hosts.iter().find(|one| Some(one.pid) == host);
                    let service = owner.strip_prefix("service ").map(str::to_owned);
                    unready.push(Unready {
                        server: part,
                        session: session.clone(),
                        host,
                        host_name: named.map(super::host_title_of).or(service),
                        trouble,
                    });
                }
            }
        }
    }
    unready
}

/// The pid in `host BOOT PID START`.
fn host_of(owner: &str) -> Option<u32> {
    owner.strip_prefix("host ")?.split(' ').nth(1)?.parse().ok()
}
