//! The standalone stream: what a server says that belongs to no call.

use std::time::Duration;

use tokio::time::sleep;

use crate::calls::{Stream, is_passing};
use crate::http::{HttpRequest, Reply};
use crate::ledger::StreamCursor;
use crate::link::Link;
use crate::messages::StreamHint;
use crate::news::News;

/// The pause after a server could not be reached, at first and at most.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

impl Link {
    /// Listens for as long as this is polled, from this place on where another process has listened
    /// before.
    pub(super) async fn listen(&self, found: Option<StreamCursor>) {
        let mut stream = match &found {
            Some(place) => Stream::found(place, self.stamp()),
            None => Stream::new(self.standalone(), StreamHint::Standalone),
        };
        if let Some(place) = &found {
            self.redeliver(place).await;
        }
        let mut losses = self.losses.subscribe();
        let (mut pause, mut of) = (PAUSE, self.stamp().1);
        let mut has_told = false;
        loop {
            losses.borrow_and_update();
            let (stamp, session) = self.stamp();
            (stream.stamp, stream.session) = (stamp, session);
            if std::mem::replace(&mut of, session) != session {
                stream.begin_again();
            }
            let reply = self
                .wire
                .try_once(&HttpRequest::Get(stream.event.clone()), &stream.stamp)
                .await;
            match reply.map(|replied| replied.reply) {
                Some(Reply::Events(mut events)) => {
                    let is_over = tokio::select! {
                        biased;
                        // Its sender lives as long as this does.
                        _ = losses.changed() => true,
                        () = self.is_renewed(session) => true,
                        _ = self.listen_to(&mut stream, &mut events) => false,
                    };
                    if events.is_too_large && !is_over {
                        // It would be as large if it was asked for again.
                        stream.skip(events.too_large());
                        if !std::mem::replace(&mut has_told, true) {
                            self.tell(News::TooLarge).await;
                        }
                        sleep(pause).await;
                        pause = (pause * 2).min(PAUSE_MAX);
                        continue;
                    }
                    pause = PAUSE;
                    if is_over {
                        drop(events);
                        // Whoever has found it lost is beginning the next one.
                        drop(self.initializing.lock().await);
                        continue;
                    }
                    sleep(stream.pause().min(PAUSE_MAX)).await;
                    continue;
                }
                // It was started again, or has ended the session.
                Some(Reply::Lost(loss, _)) => {
                    let renewed = self.renew(session, loss).await;
                    if renewed.is_ok() {
                        pause = PAUSE;
                        continue;
                    }
                }
                Some(Reply::Refused(status, _)) if is_passing(status) => {}
                Some(_) if stream.event.take().is_some() => continue,
                // There is none here.
                Some(_) => {
                    self.is_renewed(session).await;
                    continue;
                }
                None => {}
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}
