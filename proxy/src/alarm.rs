//! A timer for a loop whose next deadline is another one in each turn.

use std::pin::Pin;

use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that is set anew only where it would ring too late: each message has deadlines of its own,
/// and most of them never come.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Waits for this time. Cancel-safe.
    pub(crate) async fn ring(&mut self, time: Instant) {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(time)));
        if sleep.is_elapsed() || sleep.deadline() > time {
            sleep.as_mut().reset(time);
        }
        sleep.as_mut().await;
        if sleep.deadline() < time {
            sleep.as_mut().reset(time);
            sleep.as_mut().await;
        }
    }
}
