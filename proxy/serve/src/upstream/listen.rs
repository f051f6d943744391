//! The standalone stream: what a server says that belongs to no call.

use std::time::Duration;

use tokio::time::sleep;

use super::calls::{Stream, is_passing};
use super::ledger::StreamCursor;
use super::link::Link;
use super::wire::{Reply, Stamp, connect};

/// The pause after a server could not be reached, at first and at most.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A request of `serve` itself.
const PING: &str = r#"{"jsonrpc":"2.0","id":"mcp-sessiond-serve-ping","method":"ping"}"#;

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
        // A server without a standalone stream may answer each GET as if it did not know the
        // session.
        let mut has_one = found.is_some();
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
                    has_one = true;
                    self.listen_to(&mut stream, &mut events).await;
                    pause = PAUSE;
                    sleep(stream.pause().min(PAUSE_MAX)).await;
                    continue;
                }
                // It was started again, has ended the session, or has no such stream.
                Some(Reply::Lost) => match self.is_forgotten(&stream.stamp, has_one).await {
                    Some(true) => {
                        // By now the server may have no standalone stream.
                        has_one = false;
                        if self.renew(generation).await.is_ok() {
                            pause = PAUSE;
                            continue;
                        }
                    }
                    Some(false) => {
                        self.is_renewed(generation).await;
                        continue;
                    }
                    None => {}
                },
                Some(Reply::Refused(why)) if is_passing(why.status) => {}
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

    /// Whether the server has forgotten the session. Where it may be that it only has no standalone
    /// stream, it is asked by a `ping`. None: it does not answer.
    async fn is_forgotten(&self, stamp: &Stamp, has_stream: bool) -> Option<bool> {
        if has_stream {
            return Some(true);
        }
        let connected = connect(&self.url, Duration::ZERO).await.ok()?;
        let replied = connected.post(PING.into(), stamp).await.ok()?;
        Some(matches!(replied.reply, Reply::Lost))
    }
}
