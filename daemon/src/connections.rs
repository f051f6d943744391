//! Counts connections, and limits how many each process may have.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mcp_sessiond_process::{PinnedProcess, ProcessId};
use mcp_sessiond_proto::Lock as _;
use mcp_sessiond_proto::frame::Budget;
use tokio::sync::Notify;

use crate::config::Limits;

/// The number of connections, in all and of each process.
#[derive(Debug, Default)]
pub struct Connections {
    open: AtomicUsize,
    pub(crate) turned_away: AtomicUsize,
    /// Notified when the last connection closes.
    pub(crate) closed: Notify,
    by_process: Mutex<HashMap<ProcessId, OfProcess>>,
}

/// One process's part.
#[derive(Debug)]
struct OfProcess {
    open: usize,
    frames: Budget,
    /// The process, pinned for its first connection: one descriptor for all of them.
    peer: PinnedProcess,
}

impl Connections {
    /// Connections open now.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a new connection, if the limits allow it. `peer`: the process at its other end, as
    /// the socket tells. `frames`: the budget of all connections.
    pub(crate) fn enter(
        self: &Arc<Self>,
        peer: PinnedProcess,
        limits: &Limits,
        frames: &Budget,
    ) -> Option<ConnectionSlot> {
        let process = peer.id();
        let mut by_process = self.by_process.locked();
        let own = by_process.get(&process).map_or(0, |own| own.open);
        if self.open() >= limits.connections || own >= limits.connections_per_process {
            return None;
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        let frames = || frames.share(limits.frame_bytes_of_process());
        let own = by_process.entry(process).or_insert_with(|| OfProcess {
            open: 0,
            frames: frames(),
            peer: peer.clone(),
        });
        own.open += 1;
        // Without an inode two processes may look like one.
        let peer = if process.inode.is_some() {
            own.peer.clone()
        } else {
            peer
        };
        Some(ConnectionSlot {
            gauge: self.clone(),
            process,
            peer,
            frames: own.frames.clone(),
        })
    }
}

/// A connection's place in the [`Connections`].
pub(crate) struct ConnectionSlot {
    gauge: Arc<Connections>,
    process: ProcessId,
    pub(crate) peer: PinnedProcess,
    pub(crate) frames: Budget,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if self.gauge.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.gauge.closed.notify_one();
        }
        let mut by_process = self.gauge.by_process.locked();
        if let Some(own) = by_process.get_mut(&self.process) {
            own.open -= 1;
            if own.open == 0 {
                by_process.remove(&self.process);
            }
        }
    }
}
