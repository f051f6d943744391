//! A session that another process has served, taken up by its id.

use std::collections::HashSet;
use std::sync::Arc;

use mcp_sessiond_client::{
    Caller, Cursor, Json, SessionError, SessionId, SessionStatus, StreamId, StreamView,
};

use super::calls::BATCH;
use super::handshake::held;
use super::{Live, Shared};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::said::answers;
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
        // The last will of whoever served them: its server is gone, too.
        live.state().finishing.extend(left.iter().map(|(stream, _)| stream.clone()));
        tokio::spawn({
            let live = live.clone();
            async move { live.give_up(left).await }
        });
        Ok(live)
    }

    /// The calls of an open stream that were not answered on it.
    async fn unanswered(&self, stream: &StreamView) -> Result<Vec<Call>, SessionError> {
        let said = self.session.replay_all(&Cursor::Stream(stream.stream.clone())).await?;
        let answered: HashSet<Id> = said.events.iter().filter_map(|event| answers(&event.message)).collect();
        let ids = stream.opened_by.as_ref().map(|by| ids(by, stream.stream.as_str())).unwrap_or_default();
        Ok(ids.into_iter().filter(|id| !answered.contains(id)).map(|id| Call { id, token: None }).collect())
    }
}

/// The calls that have opened a stream.
fn ids(opened_by: &Json, stream: &str) -> Vec<Id> {
    if !stream.starts_with(BATCH) {
        return vec![opened_by.as_str().into()];
    }
    let text = serde_json::from_str::<String>(opened_by.as_str()).unwrap_or_default();
    let ids: Vec<&serde_json::value::RawValue> = serde_json::from_str(&text).unwrap_or_default();
    ids.into_iter().map(|id| id.get().into()).collect()
}
