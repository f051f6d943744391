//! Which keepers this front waits for when its host has left. A keeper that was told nothing takes its
//! front for one that was cut off, and keeps the server for longer (`backends.linger_ms` instead of
//! `closed_linger_ms`). One whose server ends with this front is waited for until the server is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::leave::server_wait;

/// How long the front waits for keepers whose servers stay. One that is just being started has to be
/// told, too; and hosts lose patience after two seconds.
const LEAVE_WAIT: Duration = Duration::from_secs(1);

/// Counts the keepers that are waited for.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingLeaves {
    count: watch::Sender<usize>,
    end_with_front: Arc<AtomicBool>,
}

impl PendingLeaves {
    /// One more is waited for, until this is dropped.
    pub(crate) fn add(&self) -> PendingLeave {
        self.count.send_modify(|count| *count += 1);
        PendingLeave(self.clone())
    }

    /// A server ends with this front.
    pub(crate) fn note_end_with_front(&self) {
        self.end_with_front.store(true, Ordering::Relaxed);
    }

    /// Whether servers end with this front.
    pub(crate) fn end_with_front(&self) -> bool {
        self.end_with_front.load(Ordering::Relaxed)
    }

    /// Waits for all. `stop_wait`: how long a server has to end.
    pub(crate) async fn wait(&self, stop_wait: Duration) {
        let limit = match self.end_with_front() {
            true => server_wait(stop_wait),
            false => LEAVE_WAIT,
        };
        // Its sender is this object's.
        let said = async { drop(self.count.subscribe().wait_for(|count| *count == 0).await) };
        drop(timeout(limit, said).await);
    }
}

/// A keeper that is waited for.
#[derive(Debug)]
pub(crate) struct PendingLeave(PendingLeaves);

impl Drop for PendingLeave {
    fn drop(&mut self) {
        self.0.count.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOP_WAIT: Duration = Duration::from_secs(2);

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_all_keepers_and_no_longer_than_a_host_or_a_server_does() {
        let pending_leaves = PendingLeaves::default();
        pending_leaves.wait(STOP_WAIT).await;
        let began = tokio::time::Instant::now();
        let (one, other) = (pending_leaves.add(), pending_leaves.add());
        drop(one);
        let (clone, at) = (pending_leaves.clone(), LEAVE_WAIT / 2);
        let said = tokio::spawn(async move { clone.wait(STOP_WAIT).await });
        tokio::time::sleep(at).await;
        assert!(!said.is_finished());
        drop(other);
        said.await.expect("a task");
        assert_eq!(began.elapsed(), at);
        let _never = pending_leaves.add();
        pending_leaves.wait(STOP_WAIT).await;
        assert_eq!(began.elapsed(), at + LEAVE_WAIT);
        pending_leaves.note_end_with_front();
        pending_leaves.wait(STOP_WAIT).await;
        let servers = server_wait(STOP_WAIT);
        assert_eq!(began.elapsed(), at + LEAVE_WAIT + servers);
    }
}
