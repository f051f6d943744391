//! The stream of a request: opened with a will before the server gets the request, closed with the
//! answer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mcp_sessiond_proto::{Json, RequestId, StreamId};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedSender, channel, unbounded_channel};

use super::events::Fresh;
use super::pump::{Failing, Listener, Pump, Said};
use super::record::outcome_unknown;
use super::room::making_room;
use super::tail::Tail;
use crate::error::SessionError;
use crate::session::{Session, Stream};

/// Messages that wait for a client that reads them slowly.
const WAITING: usize = 64;

/// Opens the stream of a request. If this process ends before the answer, the daemon answers it,
/// "the outcome is unknown". `primes`: whether the client takes an id before there is a message.
pub(super) async fn open(
    session: Session,
    id: Value,
    primes: bool,
    failing: Arc<Failing>,
) -> Result<(UnboundedSender<Said>, Fresh), SessionError> {
    #[expect(clippy::expect_used, reason = "it is made of letters and digits")]
    let name: StreamId = format!("post-{}", RequestId::mint())
        .parse()
        .expect("a stream's id");
    let (opened_by, will) = (Json::from(&id), outcome_unknown(&id));
    let open = || session.open_stream_with_will(&name, Some(opened_by.clone()), will.clone());
    let stream = making_room(&session, open).await?;
    let primed = match primes {
        false => None,
        true => match making_room(&session, || stream.prime()).await {
            Ok(primed) => Some(primed.id),
            Err(error) => {
                close(&stream).await;
                return Err(error);
            }
        },
    };
    let (told, telling) = channel(WAITING);
    let (saying, said) = unbounded_channel();
    let is_behind = Arc::<AtomicBool>::default();
    let listener = Some(Listener {
        told,
        is_behind: is_behind.clone(),
    });
    tokio::spawn(async move {
        let mut pump = Pump {
            stream: || stream.clone(),
            failing,
            listener,
        };
        // Before the pump goes: who has read all then finds that it is all.
        if !pump.run(said).await {
            close(&stream).await;
        }
    });
    let tail = Tail::fresh(session, name, primed, id);
    Ok((
        saying,
        Fresh {
            tail,
            told: telling,
            is_behind,
        },
    ))
}

/// Closes a stream. Where that fails, the daemon does it when this process has ended.
async fn close(stream: &Stream) {
    let _ = stream.close().await;
}
