//! A timer for a loop whose next deadline is another one in each turn.

use std::pin::Pin;

use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that is set anew only where it would ring too late: each message has deadlines of its own,
/// and most of them never come.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Waits for this time, or for ever where there is none. Cancel-safe.
    pub(crate) async fn ring(&mut self, time: Option<Instant>) {
        let Some(time) = time else {
            return std::future::pending().await;
        };
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The clock is paused, and goes on only to the next time that anybody waits for.
    #[tokio::test(start_paused = true)]
    async fn it_rings_at_the_time_that_was_asked_for_last() {
        let began = Instant::now();
        let at = |seconds| Some(began + Duration::from_secs(seconds));
        let mut alarm = Alarm::default();
        // Dropped before it rings, as a loop does at each event, for one that is later and one that
        // is earlier.
        for (dropped, rings) in [(10, 20), (40, 30), (31, 32)] {
            tokio::select! {
                biased;
                () = alarm.ring(at(dropped)) => panic!("it is not {dropped} s yet"),
                () = std::future::ready(()) => {}
            }
            alarm.ring(at(rings)).await;
            assert_eq!(began.elapsed().as_secs(), rings, "{dropped}");
        }
    }
}
