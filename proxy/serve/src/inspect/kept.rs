//! Streams as the daemon knows them, and servers as their keepers do.

use std::collections::HashMap;

use mcp_sessiond_client::{CallError, Connection, Directory, SessionId};
use mcp_sessiond_proto::backends::{
    Backend, BackendState, BackendStatus, KeeperReply, KeeperRequest,
};
use mcp_sessiond_proto::debug::{InspectRequest, PAGE_MAX, Page};
use mcp_sessiond_proto::paths;
use mcp_sessiond_proxy::keeper::dial::dial;

use super::Inspector;
use super::seen::{Call, Server, Stream, short};
use crate::live::Now;
use crate::refusal::Refusal;
use crate::settings::Behind;

impl Inspector {
    /// The servers of this service's sessions, as the daemon knows them.
    pub(super) async fn backends(&self) -> Result<HashMap<SessionId, Backend>, Refusal> {
        if let Behind::Upstream(_) = self.settings().behind {
            return Ok(HashMap::new());
        }
        let mut all: Vec<Backend> = Vec::new();
        loop {
            let after = all.last().map(|last| last.session.clone());
            let page = self.control.call(|connection: Connection, context| {
                let page = Page { after: after.clone() };
                async move { Ok::<_, CallError>(Ok(connection.list_backends(context, page).await?)) }
            });
            let page = self.daemons(page).await?;
            let more = page.len() >= PAGE_MAX;
            all.extend(page);
            if !more {
                let ours = all
                    .into_iter()
                    .filter(|backend| backend.service.as_ref() == Some(self.service()));
                return Ok(ours
                    .map(|backend| (backend.session.clone(), backend))
                    .collect());
            }
        }
    }

    /// The streams of a session.
    pub(super) async fn streams(
        &self,
        id: &SessionId,
        now: Option<&Now>,
    ) -> Result<Vec<Stream>, Refusal> {
        let owner = Some(format!("service {}", self.service()));
        let inspected = self.control.call(|connection, context| {
            let request = InspectRequest {
                session: id.clone(),
                owner: owner.clone(),
            };
            async move { connection.inspect_session(context, request).await }
        });
        let inspected = self.daemons(inspected).await?;
        let streams = inspected.into_iter().flat_map(|one| one.streams);
        Ok(streams.map(|stream| Stream::new(stream, now)).collect())
    }

    /// The server of a session. None: none runs.
    pub(super) async fn server(
        &self,
        backend: Option<Backend>,
        restarts: Option<u32>,
    ) -> Option<Server> {
        if let Behind::Upstream(url) = &self.settings().behind {
            return Some(Server {
                server: url.to_string(),
                ..Server::default()
            });
        }
        let Backend {
            keeper,
            keeper_pid,
            program,
            pid,
            ..
        } = backend?;
        let asked = tokio::task::spawn_blocking(move || {
            let directory = Directory::of_user().ok()?;
            dial(
                &paths::keeper_socket(directory.path(), keeper),
                &KeeperRequest::Status {},
            )
            .ok()
        });
        let keeper_pid = Some(keeper_pid);
        let silent = Server {
            server: program,
            pid,
            keeper_pid,
            restarts,
            state: Some("silent"),
            ..Server::default()
        };
        Some(
            match asked.await.ok().flatten().map(|dialled| dialled.reply) {
                Some(KeeperReply::Status(status)) => told(silent, *status),
                _ => silent,
            },
        )
    }
}

/// What its keeper says.
fn told(server: Server, status: BackendStatus) -> Server {
    let state = match status.state {
        BackendState::Stopping => "stopping",
        BackendState::Restarting | BackendState::Initializing => "starting",
        BackendState::Started | BackendState::Ready if status.front.is_some() => "in use",
        BackendState::Started | BackendState::Ready => "waiting",
    };
    let calls = status.calls.into_iter();
    Server {
        pid: status.pid,
        state: Some(state),
        age_ms: status.pid.map(|_| status.age_ms),
        restarts: server.restarts.map(|restarts| restarts + status.restarts),
        memory: Some(status.backend_bytes).filter(|bytes| *bytes > 0),
        last_error: status.last_error,
        calls: calls
            .map(|call| Call {
                method: short(call.method),
                age_ms: call.age_ms,
            })
            .collect(),
        ..server
    }
}
