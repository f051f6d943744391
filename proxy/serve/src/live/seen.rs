//! A session as `--inspect` shows it, and its server as that restarts it.

use std::pin::pin;
use std::time::Duration;

use mcp_sessiond_client::{Caller, StreamId};
use tokio::time::timeout;

use super::{Live, same};
use crate::refusal::Refusal;

/// How long it may take until what a server said last is stored.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How a session is at the moment.
#[derive(Debug)]
pub struct Now {
    /// The streams that have open calls, and how many.
    pub calls: Vec<(StreamId, usize)>,
    /// The streams that a client reads.
    pub readers: Vec<StreamId>,
}

impl Live {
    /// Whether the session was made for this caller. That does not count as use.
    #[must_use]
    pub fn is_of(&self, caller: &Caller) -> bool {
        same(&self.caller, caller)
    }

    /// How it is at the moment.
    #[must_use]
    pub fn now(&self) -> Now {
        let mut state = self.state();
        state.sweep();
        Now {
            calls: state.which.open_calls().collect(),
            readers: state.readers.keys().cloned().collect(),
        }
    }

    /// How often its server was started again since this process serves it.
    #[must_use]
    pub fn restarts(&self) -> u32 {
        self.state().restarts
    }

    /// Ends the server. Its open calls get an error: their outcome is unknown. The next request
    /// starts a fresh server, and sends it the recorded handshake. False: this process has no
    /// server for the session.
    ///
    /// # Errors
    /// When the server does not end.
    pub async fn restart(&self) -> Result<bool, Refusal> {
        // A request that comes now waits for the fresh server.
        let mut slot = self.backend.lock().await;
        let Some(backend) = slot.clone() else {
            return Ok(false);
        };
        backend.end().await;
        // What it has said is stored before a fresh one says anything.
        let gone = async {
            loop {
                let mut gone = pin!(self.gone.notified());
                gone.as_mut().enable();
                if self.state().running.as_deref() != Some(backend.incarnation()) {
                    return;
                }
                gone.await;
            }
        };
        if timeout(LAST_WORDS, gone).await.is_err() {
            return Err(Refusal::for_now(
                "the server was told to end, and has not ended yet",
            ));
        }
        *slot = None;
        drop(timeout(LAST_WORDS, backend.gone()).await);
        Ok(true)
    }
}
