//! Room for events, where all sessions of the service together have used up what they may
//! (`limits.owner_bytes`).

use mcp_sessiond_client::SessionStatus;

use super::Live;

/// Events of a session that stay when there is no room for more. If that frees nothing, fewer stay.
const KEPT_WHEN_FULL: [u64; 4] = [64, 16, 4, 1];

impl Live {
    /// Deletes the oldest events of this session, or else of the other sessions of its caller: most
    /// of them were delivered long ago. False: there are none to delete.
    pub(super) async fn make_room(&self) -> bool {
        for keep in KEPT_WHEN_FULL {
            if self
                .session
                .prune(keep)
                .await
                .is_ok_and(|pruned| pruned > 0)
                || self.prune_others(keep).await
            {
                return true;
            }
        }
        false
    }

    async fn prune_others(&self, keep: u64) -> bool {
        let sessions = self.shared.sessions.on_behalf_of(self.caller.clone());
        let listed = sessions.list().await.unwrap_or_default();
        // To open a session is to use it, so those that have nothing to delete are left alone.
        let others = listed.iter().filter(|view| {
            let is_there = view.session != *self.id() && view.status != SessionStatus::Terminated;
            is_there && u64::from(view.events) > keep
        });
        let mut pruned = 0;
        for other in others {
            if let Ok(other) = sessions.open(&other.session).await {
                pruned += other.prune(keep).await.unwrap_or(0);
            }
        }
        pruned > 0
    }
}
