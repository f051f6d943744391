//! The stream of a request: opened with a will before the server gets the request, closed with the
//! answer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mcp_sessiond_http_session::origin::origin;
use mcp_sessiond_http_session::substitute::outcome_unknown;
use mcp_sessiond_proto::StreamId;
use tokio::sync::mpsc::{UnboundedSender, channel, unbounded_channel};

use super::events::NewStream;
use super::prune::with_room;
use super::recorder::{LiveReader, Outgoing, Recorder, StoreFailures};
use super::tail::Tail;
use crate::error::SessionError;
use crate::session::{Session, Stream};

/// Messages that wait for a client that reads them slowly.
const WAITING: usize = 64;

/// Opens the stream of a request with this id. If this process ends before the answer, the daemon
/// answers it, "the outcome is unknown". `primes`: whether the client takes an id before there is a
/// message.
pub(super) async fn open(
    session: Session,
    name: StreamId,
    id: &str,
    primes: bool,
    failures: Arc<StoreFailures>,
) -> Result<(UnboundedSender<Outgoing>, NewStream), SessionError> {
    let will = outcome_unknown(id);
    // An id that is too long stands in the will alone.
    let opened_by = origin(&[id.into()], false);
    let open = || session.open_stream_with_will(&name, opened_by.clone(), will.clone());
    let stream = with_room(&session, open).await?;
    let primed = match primes {
        false => None,
        true => match with_room(&session, || stream.prime()).await {
            Ok(primed) => Some(primed),
            Err(error) => {
                close(&stream).await;
                return Err(error);
            }
        },
    };
    let (sender, deliveries) = channel(WAITING);
    let (outgoing, receiver) = unbounded_channel();
    let is_behind = Arc::<AtomicBool>::default();
    let reader = Some(LiveReader {
        deliveries: sender,
        is_behind: is_behind.clone(),
    });
    tokio::spawn(async move {
        let mut recorder = Recorder {
            stream: || stream.clone(),
            failures,
            reader,
        };
        // Before the recorder goes: who has read all then finds that it is all.
        if !recorder.run(receiver).await {
            close(&stream).await;
        }
    });
    let tail = Tail::fresh(session, name, primed);
    Ok((
        outgoing,
        NewStream {
            tail,
            deliveries,
            is_behind,
        },
    ))
}

/// Closes a stream. Where that fails, the daemon does it when this process has ended.
async fn close(stream: &Stream) {
    let _ = stream.close().await;
}
