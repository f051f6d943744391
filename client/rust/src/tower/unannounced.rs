//! A session that was just made, and of which the client does not know yet.

use tokio::runtime::Handle;

use super::SessiondSession;

/// A new session. It ends when this is dropped before the client is told of it, as when the client
/// hangs up.
pub(super) struct UnannouncedSession {
    session: SessiondSession,
    is_settled: bool,
}

impl UnannouncedSession {
    pub(super) fn of(session: SessiondSession) -> Self {
        Self {
            session,
            is_settled: false,
        }
    }

    pub(super) fn session(&self) -> &SessiondSession {
        &self.session
    }

    /// The client is told.
    pub(super) fn announced(mut self) -> SessiondSession {
        self.is_settled = true;
        self.session.clone()
    }

    /// Ends the session. Where that fails, it ends by its lifetime.
    pub(super) async fn end(mut self) {
        let _ = self.session.terminate().await;
        self.is_settled = true;
    }
}

impl Drop for UnannouncedSession {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let session = self.session.clone();
            runtime.spawn(async move {
                let _ = session.terminate().await;
            });
        }
    }
}
