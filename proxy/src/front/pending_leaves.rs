//! Which keepers have yet to be told that the host has left. The front exits after that: a keeper
//! that was told nothing takes its front for one that was cut off, and keeps the server for longer
//! (`backends.linger_ms` instead of `closed_linger_ms`).

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// How long the front waits for that before it exits. A keeper that is just being started has to be
/// told, too; and hosts lose patience after two seconds.
const LEAVE_WAIT: Duration = Duration::from_secs(1);

/// Counts the keepers that are to be told.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingLeaves(watch::Sender<usize>);

impl PendingLeaves {
    /// One more is to be told, until this is dropped.
    pub(crate) fn add(&self) -> PendingLeave {
        self.0.send_modify(|count| *count += 1);
        PendingLeave(self.clone())
    }

    /// Waits until all were told.
    pub(crate) async fn wait(&self) {
        // Its sender is this object's.
        let said = async { drop(self.0.subscribe().wait_for(|count| *count == 0).await) };
        drop(timeout(LEAVE_WAIT, said).await);
    }
}

/// Somebody who is to be told.
#[derive(Debug)]
pub(crate) struct PendingLeave(PendingLeaves);

impl Drop for PendingLeave {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_all_who_are_to_be_told_and_no_longer_than_a_host_does() {
        let pending_leaves = PendingLeaves::default();
        pending_leaves.wait().await;
        let began = tokio::time::Instant::now();
        let (one, other) = (pending_leaves.add(), pending_leaves.add());
        drop(one);
        let (clone, at) = (pending_leaves.clone(), LEAVE_WAIT / 2);
        let said = tokio::spawn(async move { clone.wait().await });
        tokio::time::sleep(at).await;
        assert!(!said.is_finished());
        drop(other);
        said.await.expect("a task");
        assert_eq!(began.elapsed(), at);
        let _never = pending_leaves.add();
        pending_leaves.wait().await;
        assert_eq!(began.elapsed(), at + LEAVE_WAIT);
    }
}
