//! The line to the daemon: one connection for calls that are answered at once, and others for those
//! that wait.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedSemaphorePermit;

use crate::calls::Calls;
use crate::error::Reason;
use crate::options::Options;
use crate::patience::Patience;

/// Connections for calls that wait. Together with the first one, and with somebody else's in this
/// process, they are fewer than a daemon lets a process have.
const LANES_MAX: usize = 40;

/// What all sessions of one owner share.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) options: Options,
    pub(crate) calls: Arc<Calls>,
    /// In the order in which they are filled, so that there are no more than are needed.
    lanes: Mutex<Vec<Arc<Calls>>>,
}

impl Line {
    pub(crate) fn new(options: Options) -> Arc<Self> {
        Arc::new(Self {
            options,
            calls: Arc::default(),
            lanes: Mutex::default(),
        })
    }

    pub(crate) fn patience(&self) -> Patience {
        Patience::new(self.options.timeout)
    }

    /// A connection with a place for a call that waits. Where there are too many it waits its turn.
    pub(crate) async fn lane(
        &self,
        patience: Patience,
    ) -> Result<(Arc<Calls>, OwnedSemaphorePermit), Reason> {
        let lane = {
            let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            let free = |lane: &Arc<Calls>| lane.try_place().map(|place| (lane.clone(), place));
            if let Some(found) = lanes.iter().find_map(free) {
                return Ok(found);
            }
            if lanes.len() < LANES_MAX {
                lanes.push(Arc::new(self.calls.beside()));
            } else {
                // In turn, so that all queues are about as long.
                lanes.rotate_left(1);
            }
            lanes.last().cloned().unwrap_or_default()
        };
        let place = lane.place(patience).await?;
        Ok((lane, place))
    }
}
