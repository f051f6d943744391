//! What `mcp-sessiond debug` is told.

use std::collections::BTreeSet;

use mcp_sessiond_process::{PinnedProcess, ProcessId};
use mcp_sessiond_proto::debug::{HostInfo, SessionInfo, TokenInfo};
use mcp_sessiond_proto::{SessionId, paths};
use mcp_sessiond_registry::SessionRecord;

use super::Engine;
use crate::tokens::{self, Corruption, Found};

impl Engine {
    /// The hosts, in order of their pids.
    pub fn hosts(&self) -> Vec<HostInfo> {
        self.look(|registry| {
            let host = |(host, name, sessions): (ProcessId, &str, &BTreeSet<SessionId>)| {
                let held = sessions
                    .iter()
                    .filter(|id| registry.session(id).is_some_and(|one| one.holder.is_some()));
                HostInfo {
                    pid: host.pid,
                    start: host.start.to_string(),
                    name: name.into(),
                    sessions: bounded(sessions.len()),
                    held: bounded(held.count()),
                    plural_keys: bounded(registry.plural_keys(host)),
                    losses: registry.losses(host).cloned().collect(),
                }
            };
            let mut hosts: Vec<HostInfo> = registry.owners().map(host).collect();
            hosts.sort_by_key(|host| host.pid);
            hosts
        })
    }

    /// At most `most` sessions whose ids come after `after`.
    pub fn sessions(&self, after: Option<&SessionId>, most: usize) -> Vec<SessionInfo> {
        self.look(|registry| {
            registry
                .sessions_after(after)
                .take(most)
                .map(info)
                .collect()
        })
    }

    /// The sessions of an id, whether that is their own or one that their owners chose; with their
    /// owners.
    pub fn sessions_named(&self, id: &SessionId) -> Vec<(String, SessionInfo)> {
        self.look(|registry| {
            let named = registry
                .sessions()
                .filter(|session| session.id == *id || session.public_id() == id);
            named
                .map(|session| (self.owner(session.owner), info(session)))
                .collect()
        })
    }

    /// The token files of at most `most` sessions whose ids come after `after`. A file that is
    /// being written just now may be told as it was before.
    pub fn token_files(&self, after: Option<&SessionId>, most: usize) -> Vec<TokenInfo> {
        let records = self.look(|registry| {
            let with_token = registry
                .sessions_after(after)
                .filter(|session| session.digest.is_some());
            with_token.take(most).cloned().collect::<Vec<_>>()
        });
        let info = |record: SessionRecord| {
            let (bytes, state) = match self.tokens.read(record.file) {
                Ok(Found::Token(token)) => {
                    let known =
                        [record.digest, record.former].contains(&Some(tokens::digest(&token)));
                    let state = if known {
                        "ok".to_owned()
                    } else {
                        Corruption::Digest.to_string()
                    };
                    (Some(bounded(token.expose().len())), state)
                }
                Ok(Found::Absent) => (None, Corruption::Missing.to_string()),
                Ok(Found::Corrupted(why)) => (None, why.to_string()),
                Err(error) => (None, error.to_string()),
            };
            TokenInfo {
                file: record.file.to_string(),
                session: record.id,
                bytes,
                state,
            }
        };
        records.into_iter().map(info).collect()
    }

    /// What there is now.
    pub fn census(&self) -> Census {
        self.look(|registry| {
            let users = registry
                .sessions()
                .filter(|session| session.owner == ProcessId::USER)
                .count();
            Census {
                hosts: registry.owners().count() as u64,
                of_hosts: (registry.sessions().count() - users) as u64,
                of_users: users as u64,
                held: registry
                    .sessions()
                    .filter(|session| session.holder.is_some())
                    .count() as u64,
                backends: registry.sessions_with_backend().count() as u64,
                waiting: registry.waiting() as u64,
            }
        })
    }

    /// Servers behind `wrap` that run without being kept: each of their fronts has left a note,
    /// named by its process.
    pub fn unkept(&self) -> u64 {
        let notes = std::fs::read_dir(self.directory.path().join(paths::UNKEPT))
            .into_iter()
            .flatten()
            .flatten();
        let runs = |name: &str| {
            let (pid, start) = name.split_once('-')?;
            let found = PinnedProcess::open(pid.parse().ok()?).ok()?;
            (found.id().start.to_string() == start).then_some(())
        };
        notes
            .filter(|note| note.file_name().to_str().and_then(runs).is_some())
            .count() as u64
    }
}

/// How many there are of what the registry knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    /// Hosts, and the user where sessions are named.
    pub hosts: u64,
    /// Sessions of hosts.
    pub of_hosts: u64,
    /// Sessions that the user has named.
    pub of_users: u64,
    /// Sessions that a live process holds.
    pub held: u64,
    /// Keepers.
    pub backends: u64,
    /// Claims that wait.
    pub waiting: u64,
}

fn info(session: &SessionRecord) -> SessionInfo {
    SessionInfo {
        session: session.id.clone(),
        name: session.name.clone().filter(|name| *name != session.id),
        host: session.owner.pid,
        program: session.program.clone(),
        label: session.description.label.clone(),
        key: session.key.map(|key| key.to_string()),
        epoch: session.epoch,
        holder: session.holder.map(|holder| holder.pid),
        token_file: session.digest.map(|_| session.file.to_string()),
        opened_ms: session.opened_ms,
    }
}

/// What is counted here has limits far below.
fn bounded(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
