//! How the backend is, for `debug`.

use mcp_sessiond_process as process;
use mcp_sessiond_proto::backends::BackendStatus;
use mcp_sessiond_relay::View;

use super::{Keeper, Sharing};

impl Keeper {
    /// How the backend is. No message is in it.
    pub(super) fn status(&self) -> BackendStatus {
        let View {
            state,
            calls,
            asks,
            parked,
            waiting,
            waiting_bytes,
            lost_messages,
            dropped,
            to_backend,
            from_backend,
            restarts,
            last_error,
        } = self.relay.view(self.now());
        let ms = |since: tokio::time::Instant| {
            u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
        };
        let pid = self
            .backend
            .as_ref()
            .map(|backend| backend.pid.as_raw().unsigned_abs());
        let keeper_pid = std::process::id();
        let directory = std::env::current_dir().ok();
        BackendStatus {
            session: self.context.session.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            program: self.program.display_name(),
            directory: directory
                .and_then(|directory| directory.into_os_string().into_string().ok()),
            host: self.kept.owner.as_ref().map(|owner| owner.pid),
            host_name: self
                .kept
                .owner
                .as_ref()
                .map(|owner| process::name_of(owner.pid)),
            keeper_pid,
            pid,
            state,
            age_ms: self
                .backend
                .as_ref()
                .map_or(0, |backend| ms(backend.started)),
            front: self.front.as_ref().map(|front| front.process.pid),
            shared: self.sharing.as_ref().map(Sharing::usage),
            since_ms: ms(self.since),
            calls,
            asks,
            parked,
            waiting,
            waiting_bytes,
            lost: lost_messages,
            dropped,
            to_backend,
            from_backend,
            restarts,
            last_error,
            keeper_bytes: process::resident_bytes(keeper_pid).unwrap_or(0),
            backend_bytes: backend_bytes(keeper_pid),
            stderr: self.ring.text(),
        }
    }
}

/// What the backend and its descendants use; the keeper adopts their orphans. `status` asks every
/// keeper, so a keeper that looked at all processes would make it quadratic.
fn backend_bytes(keeper: u32) -> u64 {
    let pids = process::started_by(keeper).unwrap_or_default();
    pids.into_iter().filter_map(process::resident_bytes).sum()
}
