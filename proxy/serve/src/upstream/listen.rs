//! The standalone stream: what a server says that belongs to no call.

use std::time::Duration;

use tokio::time::sleep;

use super::calls::{Stream, is_passing};
use super::ledger::StreamCursor;
use super::link::{Judgement, Link};
use super::wire::{Reply, connect};

/// The pause after a server could not be reached, at first and at most.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

impl Link {
    /// Listens for as long as this is polled, from this place on where another process has listened
    /// before.
    pub(super) async fn listen(&self, found: Option<StreamCursor>) {
        let mut stream = match &found {
            Some(place) => Stream::found(place, self.stamp().0),
            None => Stream::new(self.standalone()),
        };
        if let Some(place) = &found {
            self.again(place).await;
        }
        let (mut pause, mut of) = (PAUSE, self.stamp().1);
        loop {
            let (stamp, generation) = self.stamp();
            stream.stamp = stamp;
            if std::mem::replace(&mut of, generation) != generation {
                stream.begin_again();
            }
            let reply = match connect(&self.url, Duration::ZERO).await {
                Ok(connected) => connected
                    .get(stream.event.as_deref(), &stream.stamp)
                    .await
                    .ok(),
                Err(_) => None,
            };
            match reply.map(|replied| replied.reply) {
                Some(Reply::Events(mut events)) => {
                    self.listen_to(&mut stream, &mut events).await;
                    pause = PAUSE;
                    sleep(stream.pause().min(PAUSE_MAX)).await;
                    continue;
                }
                Some(Reply::Refused(why)) if is_passing(why.status) => {}
                // It was started again, has ended the session, or has no such stream.
                Some(Reply::Refused(why)) => match self.judge(&why, None, &stream.stamp).await {
                    Judgement::Gone => {
                        if self.renew(generation).await.is_ok() {
                            pause = PAUSE;
                            continue;
                        }
                    }
                    Judgement::Unclear => {}
                    Judgement::Refused | Judgement::Answer if stream.event.take().is_some() => {
                        continue;
                    }
                    Judgement::Refused | Judgement::Answer => {
                        self.is_renewed(generation).await;
                        continue;
                    }
                },
                Some(_) if stream.event.take().is_some() => continue,
                // There is none here.
                Some(_) => {
                    self.is_renewed(generation).await;
                    continue;
                }
                None => {}
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}
