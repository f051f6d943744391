//! Which keepers have yet to be told that the host has left. The front exits after that: a keeper
//! that was told nothing takes its front for one that was cut off, and keeps the server for longer
//! (`backends.linger_ms` instead of `closed_linger_ms`).

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// How long the front waits for that before it exits. A keeper that is just being started has to be
/// told, too; and hosts lose patience after two seconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// Counts the keepers that are to be told.
#[derive(Debug, Clone, Default)]
pub(crate) struct Farewells(watch::Sender<usize>);

impl Farewells {
    /// One more is to be told, until this is dropped.
    pub(crate) fn owed(&self) -> Owed {
        self.0.send_modify(|owed| *owed += 1);
        Owed(self.clone())
    }

    /// Waits until all were told.
    pub(crate) async fn said(&self) {
        // Its sender is this object's.
        let said = async { drop(self.0.subscribe().wait_for(|owed| *owed == 0).await) };
        drop(timeout(PATIENCE, said).await);
    }
}

/// Somebody who is to be told.
#[derive(Debug)]
pub(crate) struct Owed(Farewells);

impl Drop for Owed {
    fn drop(&mut self) {
        self.0.0.send_modify(|owed| *owed -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_all_who_are_to_be_told_and_no_longer_than_a_host_does() {
        let farewells = Farewells::default();
        farewells.said().await;
        let began = tokio::time::Instant::now();
        let (one, other) = (farewells.owed(), farewells.owed());
        drop(one);
        let (clone, at) = (farewells.clone(), PATIENCE / 2);
        let said = tokio::spawn(async move { clone.said().await });
        tokio::time::sleep(at).await;
        assert!(!said.is_finished());
        drop(other);
        said.await.expect("a task");
        assert_eq!(began.elapsed(), at);
        let _never = farewells.owed();
        farewells.said().await;
        assert_eq!(began.elapsed(), at + PATIENCE);
    }
}
