//! The connections to the daemon that the sessions of one owner share: one for calls that are
//! answered at once, and others for calls that wait for something to happen.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedSemaphorePermit;

use crate::deadline::Deadline;
use crate::error::Reason;
use crate::options::Options;
use crate::retrying_client::RetryingClient;

/// Connections for calls that wait. Together with the first one, and with those of other owners in
/// this process, they are fewer than a daemon lets a process have.
const WAITING_MAX: usize = 40;

/// What all sessions of one owner share.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) options: Options,
    pub(crate) client: Arc<RetryingClient>,
    /// For calls that wait, in the order in which they are filled, so that there are no more than
    /// are needed.
    waiting: Mutex<Vec<Arc<RetryingClient>>>,
}

impl Connections {
    pub(crate) fn new(options: Options) -> Arc<Self> {
        Arc::new(Self {
            options,
            client: Arc::default(),
            waiting: Mutex::default(),
        })
    }

    /// By when a call that begins now has to be answered.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::new(self.options.timeout)
    }

    /// A connection with room for a call that waits. Where there are too many, the call queues.
    pub(crate) async fn for_waiting_call(
        &self,
        deadline: Deadline,
    ) -> Result<(Arc<RetryingClient>, OwnedSemaphorePermit), Reason> {
        let client = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let free = |client: &Arc<RetryingClient>| {
                client.try_permit().map(|permit| (client.clone(), permit))
            };
            if let Some(found) = waiting.iter().find_map(free) {
                return Ok(found);
            }
            if waiting.len() < WAITING_MAX {
                waiting.push(Arc::new(self.client.sibling()));
            } else {
                // In turn, so that all queues are about as long.
                waiting.rotate_left(1);
            }
            waiting.last().cloned().unwrap_or_default()
        };
        let permit = client.permit(deadline).await?;
        Ok((client, permit))
    }
}
