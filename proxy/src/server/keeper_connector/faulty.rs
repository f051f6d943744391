//! Keepers that hang, refuse their front, or can't be reached: the daemon ends them.

use std::time::Instant;

use mcp_sessiond_client::{Error, SessionError};
use mcp_sessiond_proto::KeeperName;
use mcp_sessiond_proto::backends::{StopReason, StopRequest};
use mcp_sessiond_proto::client::Client;
use mcp_sessiond_proto::debug::Page;
use mcp_sessiond_proto::types::LeaseRef;

use super::{KeeperConnector, lease_of};
use crate::server::connector::NoBackend;

/// How long nobody may listen on a keeper's socket, or the keeper refuse this front, before the
/// daemon is asked to end it, as a part of what a host waits for us. A keeper that has only just
/// registered is about to listen.
pub(super) const REFUSING_PART: (u32, u32) = (3, 4);

impl KeeperConnector {
    /// A keeper was reached.
    pub(crate) fn reached(&mut self) {
        self.refusing = None;
    }

    /// Whether this keeper has refused this front for so long that it will go on to do so.
    pub(crate) fn refuses_for_long(&mut self, keeper: KeeperName) -> bool {
        let patience = self.wait * REFUSING_PART.0 / REFUSING_PART.1;
        match self.refusing {
            Some((refusing, since)) if refusing == keeper => since.elapsed() >= patience,
            _ => {
                self.refusing = Some((keeper, Instant::now()));
                false
            }
        }
    }

    /// Has the daemon end a keeper that is at fault. A fresh one is started once it is gone.
    pub(super) async fn end_keeper(
        &mut self,
        lease: &LeaseRef,
        keeper: KeeperName,
        why: StopReason,
    ) -> NoBackend {
        let request = StopRequest {
            session: lease.session.clone(),
            service: None,
            backend: self.backend.clone(),
            why,
        };
        let ended = self.control.ask(Client::stop_backend, request);
        let ended = ended.await;
        self.control.hang_up();
        let said = match why {
            StopReason::KeeperHung(_) => "hangs",
            _ => "can't be reached",
        };
        match ended {
            Ok(()) | Err(SessionError::Refused(Error::UnknownBackend)) => {
                (self.silence, self.refusing) = (None, None);
                NoBackend::Ending(format!(
                    "the process that keeps this server {said}, and is being ended (keeper {keeper})"
                ))
            }
            Err(error) => NoBackend::Passing(format!(
                "the process that keeps this server {said}, and the daemon has not ended it: {error}"
            )),
        }
    }

    /// The same for a keeper whose session another process has claimed.
    pub(crate) async fn end_keeper_of_others(
        &mut self,
        keeper: KeeperName,
        why: StopReason,
    ) -> NoBackend {
        let mut after = None;
        loop {
            let page = Page { after };
            let found = match self.control.ask(Client::list_backends, page).await {
                Ok(found) => found,
                Err(error) => return NoBackend::Passing(error.to_string()),
            };
            if let Some(backend) = found.iter().find(|backend| backend.keeper == keeper) {
                let lease = lease_of(backend.session.clone());
                return self.end_keeper(&lease, keeper, why).await;
            }
            match found.last() {
                Some(last) => after = Some(last.session.clone()),
                None => {
                    self.control.hang_up();
                    return NoBackend::Passing(format!("the daemon knows no keeper {keeper}"));
                }
            }
        }
    }
}
