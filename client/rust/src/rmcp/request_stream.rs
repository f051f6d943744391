//! The stream of a request: opened with a will before the server gets the request, closed with the
//! answer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mcp_sessiond_proto::{Json, RequestId, StreamId};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedSender, channel, unbounded_channel};

use super::events::NewStream;
use super::handshake::outcome_unknown;
use super::prune::with_room;
use super::recorder::{LiveReader, Outgoing, Recorder, StoreFailures};
use super::tail::Tail;
use crate::error::SessionError;
use crate::session::{Session, Stream};

/// Bytes of an id that the daemon keeps beside a stream. A longer one stands in the will alone.
const OPENED_BY_MAX: usize = 256;
/// Messages that wait for a client that reads them slowly.
const WAITING: usize = 64;

/// Opens the stream of a request. If this process ends before the answer, the daemon answers it,
/// "the outcome is unknown". `primes`: whether the client takes an id before there is a message.
pub(super) async fn open(
    session: Session,
    id: Value,
    primes: bool,
    failures: Arc<StoreFailures>,
) -> Result<(UnboundedSender<Outgoing>, NewStream), SessionError> {
    #[expect(clippy::expect_used, reason = "it is made of letters and digits")]
    let name: StreamId = format!("post-{}", RequestId::mint())
        .parse()
        .expect("a stream's id");
    let will = outcome_unknown(&id);
    let opened_by = Some(Json::from(&id)).filter(|id| id.as_str().len() <= OPENED_BY_MAX);
    let open = || session.open_stream_with_will(&name, opened_by.clone(), will.clone());
    let stream = with_room(&session, open).await?;
    let primed = match primes {
        false => None,
        true => match with_room(&session, || stream.prime()).await {
            Ok(primed) => Some(primed.id),
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
    let tail = Tail::fresh(session, name, primed, id);
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
