//! Clients that are attached to a session: while there is one, its grace period does not run.

use mcp_sessiond_proto::Error;

use super::{Access, Admit, Contents};

impl Contents {
    /// A client has attached.
    ///
    /// # Errors
    /// Those of a session that is not there, not the caller's, or terminated.
    pub async fn attach(&self, access: &Access) -> Result<(), Error> {
        // A client that attaches must not revive a session that has ended.
        self.look_quietly(access, Admit::Living, &[], |_| Ok(()))
            .await?;
        // Before the change, so that a sweep that is under way leaves the session alone.
        self.presence.attach(&access.place);
        let attached = self.change(access, Admit::Living, |draft| {
            if !draft.head.attached || draft.head.detached_ms.is_some() {
                (draft.head.attached, draft.head.detached_ms) = (true, None);
                draft.touch();
            }
            Ok(())
        });
        let attached = attached.await;
        if attached.is_err() {
            self.presence.detach(&access.place);
        }
        attached
    }

    /// A client has detached.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; then the sweep finds out.
    pub async fn detach(&self, access: &Access) -> Result<(), Error> {
        if !self.presence.detach(&access.place) {
            return Ok(());
        }
        // No check of the caller: it passed one when it attached, and its credential or lease may
        // have been replaced since.
        let gone = Access {
            writer: super::Writer::Anyone,
            ..access.clone()
        };
        let detached = self.change(&gone, Admit::Unchecked, |draft| {
            if draft.head.attached && self.presence.attached(&access.place) == 0 {
                (draft.head.attached, draft.head.detached_ms) = (false, Some(draft.now_ms));
                draft.touch();
            }
            Ok(())
        });
        match detached.await {
            Err(Error::UnknownSession) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
