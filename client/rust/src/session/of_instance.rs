//! The session that an instance has claimed.

use mcp_sessiond_proto::SessionId;

use super::{Hold, Session};
use crate::sessiond::Sessiond;

impl Sessiond {
    /// The session of this instance, with what it contains: claimed, unless it is held already. Its
    /// calls fail where the session is released, or another one is begun. None: resume does not
    /// work for this instance.
    pub async fn session(&self) -> Option<Session> {
        Some(self.session_of(self.claimed().await?))
    }

    /// Begins anew, as a server on stdio does when it is told to `initialize`: the session that
    /// this instance holds, or would resume, ends with its token and all that it contains, and this
    /// instance holds a fresh one. None: resume does not work for this instance.
    pub async fn begin_anew(&self) -> Option<Session> {
        Some(self.session_of(self.claimed_anew().await?))
    }

    /// The one session that this process holds as the instance of a server. None: it holds none, or
    /// several.
    #[cfg(feature = "rmcp")]
    pub(crate) fn held() -> Option<Session> {
        let mut held = Self::holding().into_iter();
        let (sessiond, id) = held.next()?;
        held.all(|(_, other)| other == id)
            .then(|| sessiond.session_of(id))
    }

    fn session_of(&self, id: SessionId) -> Session {
        Session::new(
            self.connections().clone(),
            id,
            Hold::Claimed(self.clone()),
            None,
        )
    }
}
