//! A session that another process has served, taken up by its id.

use std::collections::HashSet;
use std::sync::Arc;

use mcp_sessiond_client::{
    Caller, Cursor, Json, RequestId, SessionError, SessionId, SessionStatus, StreamId, StreamView,
};

use super::calls::callers;
use super::handshake::held;
use super::{Live, Shared};
use crate::backend::Backend;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::said::{answers, not_started, unknown};
use crate::which::{Call, Id};

impl Live {
    /// Takes up a session.
    ///
    /// # Errors
    /// Where there is none, it is somebody else's, or there is no daemon.
    pub async fn restore(shared: &Arc<Shared>, caller: Caller, id: &SessionId) -> Result<Arc<Self>, Refusal> {
        let sessions = shared.sessions.on_behalf_of(caller.clone());
        let (session, view, streams) = held(shared.settings.hold, async {
            let session = sessions.open(id).await?;
            let view = session.view().await?;
            let streams = session.streams().await?;
            Ok((session, view, streams))
        })
        .await
        .map_err(|refusal| if refusal.status == 403 { crate::who::bound_to_another() } else { refusal })?;
        let record = view.metadata.as_ref().and_then(Record::of);
        // One whose handshake is not on record was never answered.
        let Some(record) = record.filter(|_| view.status == SessionStatus::Ready) else {
            return Err(Refusal::unknown_session());
        };
        let live = Self::new(shared.clone(), session, caller, record);
        let mut left = Vec::new();
        for stream in streams {
            if stream.stream.as_str() == StreamId::STANDALONE {
                live.state().told = stream.cursor.map(|cursor| (stream.last_position, cursor));
            } else if !stream.closed {
                let calls = held(shared.settings.hold, live.unanswered(&stream)).await?;
                left.push((stream.stream, calls));
            }
        }
        if left.is_empty() {
            return Ok(live);
        }
        {
            let mut state = live.state();
            // Until it is known what becomes of them, something may come there.
            state.finishing.extend(left.iter().map(|(stream, _)| stream.clone()));
            state.left = left;
        }
        tokio::spawn({
            let live = live.clone();
            async move {
                if live.server().await.is_err() {
                    let left = std::mem::take(&mut live.state().left);
                    live.give_up(left, unknown).await;
                }
            }
        });
        Ok(live)
    }

    /// Goes on with the calls that this server has taken from another process. Each other one is answered here: a server that was
    /// there and does not know it has never got it; with a server that is gone, nobody knows.
    pub(super) async fn settle_left(self: &Arc<Self>, backend: &dyn Backend) {
        if self.state().left.is_empty() {
            return;
        }
        let (known, words) = match backend.open_calls().await {
            Ok(known) if backend.continues() => (known, not_started as fn(&str) -> Json),
            // It is new, or gone again.
            _ => (Vec::new(), unknown as fn(&str) -> Json),
        };
        let known: HashSet<Id> = known.into_iter().collect();
        let mut lost = Vec::new();
        let left = std::mem::take(&mut self.state().left);
        for (stream, calls) in left {
            let (open, others): (Vec<_>, Vec<_>) =
                calls.into_iter().partition(|call| known.contains(&normal(&call.id)));
            if open.is_empty() {
                lost.push((stream, others));
                continue;
            }
            // The last answer ends the stream: so these come before it.
            for call in others {
                self.say(&stream, RequestId::mint(), words(&call.id)).await;
            }
            let mut state = self.state();
            state.finishing.remove(&stream);
            state.which.goes_on(stream, open);
        }
        let live = self.clone();
        tokio::spawn(async move { live.give_up(lost, words).await });
    }

    /// The calls of an open stream that were not answered on it.
    async fn unanswered(&self, stream: &StreamView) -> Result<Vec<Call>, SessionError> {
        let said = self.session.replay_all(&Cursor::Stream(stream.stream.clone())).await?;
        let answered: HashSet<Id> = said.events.iter().filter_map(|event| answers(&event.message)).collect();
        let calls =
            stream.opened_by.as_ref().map(|by| callers(by, stream.stream.as_str())).unwrap_or_default();
        Ok(calls.into_iter().filter(|call| !answered.contains(&call.id)).collect())
    }
}

/// An id as the keeper writes it.
fn normal(id: &str) -> Id {
    serde_json::from_str::<serde_json::Value>(id).map_or_else(|_| id.into(), |id| id.to_string().into())
}
