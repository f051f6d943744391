//! A session that a former process has served.

use std::collections::HashSet;
use std::sync::Arc;

use mcp_sessiond_client::{
    Caller, Cursor, EventId, RequestId, SessionError, SessionId, SessionStatus, StreamId,
    StreamView,
};
use mcp_sessiond_jsonrpc::id::normal;

use super::calls::{calls_of, is_for};
use super::handshake::within_hold;
use super::{InheritedStream, LAST_DELIVERED, Live, Shared};
use crate::backend::Backend;
use crate::messages::{Id, addressed, answered_id, not_started, outcome_unknown};
use crate::record::Record;
use crate::refusal::Refusal;

/// What a caller is told of a session of somebody else.
fn bound(refusal: Refusal) -> Refusal {
    if refusal.status == 403 {
        crate::admission::bound_to_another()
    } else {
        refusal
    }
}

impl Live {
    /// Takes up a session.
    ///
    /// # Errors
    /// When there is no such session, it was made for another caller, or there is no daemon.
    pub async fn restore(
        shared: &Arc<Shared>,
        caller: Caller,
        id: &SessionId,
    ) -> Result<Arc<Self>, Refusal> {
        let sessions = shared.sessions.on_behalf_of(caller.clone());
        let (session, view, streams, record) = within_hold(shared.settings.hold, async {
            let session = sessions.open(id).await?;
            let view = session.view().await?;
            let streams = session.streams().await?;
            let record = Record::of(&session, &view).await?;
            Ok((session, view, streams, record))
        })
        .await
        .map_err(bound)?;
        // A session without a handshake on record was never answered.
        let Some(record) = record.filter(|_| matches!(view.status, SessionStatus::Ready { .. }))
        else {
            return Err(Refusal::unknown_session());
        };
        // Nothing is said in it as long as another machine serves it.
        shared.backends.claim(&session).await?;
        let live = Self::new(shared.clone(), session, caller, record);
        let mut left = Vec::new();
        for stream in streams {
            if stream.stream.as_str() != StreamId::STANDALONE && !stream.closed {
                left.push(within_hold(shared.settings.hold, live.unanswered(&stream)).await?);
            }
        }
        if let Ok(key) = LAST_DELIVERED.parse() {
            let last = within_hold(
                shared.settings.hold,
                live.session.get_as::<(u64, String)>(&key),
            )
            .await?;
            live.state().last_delivered = last.map(|(position, id)| (position, EventId(id)));
        }
        if left.is_empty() {
            return Ok(live);
        }
        {
            let mut state = live.state();
            // Something may come there, until the server has said which of these calls it knows.
            state
                .finishing
                .extend(left.iter().map(|left| left.stream.clone()));
            state.inherited = left;
        }
        tokio::spawn({
            let live = live.clone();
            async move {
                if live.server().await.is_err() {
                    live.give_up_inherited().await;
                }
            }
        });
        Ok(live)
    }

    /// Checks that there is such a session.
    ///
    /// # Errors
    /// As [`Self::restore`].
    pub async fn exists(
        shared: &Arc<Shared>,
        caller: &Caller,
        id: &SessionId,
    ) -> Result<(), Refusal> {
        let sessions = shared.sessions.on_behalf_of(caller.clone());
        let seen = within_hold(shared.settings.hold, async {
            sessions.open(id).await?.view().await
        });
        seen.await.map(drop).map_err(bound)
    }

    /// The outcome of the calls that a former process has left open is unknown.
    async fn give_up_inherited(&self) {
        let left = std::mem::take(&mut self.state().inherited);
        let left = left
            .into_iter()
            .map(|left| (left.stream, left.calls))
            .collect();
        self.give_up(left, outcome_unknown).await;
    }

    /// The server was gone again before anything was heard of it: the outcome of all open calls is
    /// unknown.
    pub(super) fn give_up_open(self: &Arc<Self>) {
        let open = {
            let mut state = self.state();
            let open = state.router.clear();
            state
                .finishing
                .extend(open.iter().map(|(stream, _)| stream.clone()));
            open
        };
        let live = self.clone();
        tokio::spawn(async move { live.give_up(open, outcome_unknown).await });
    }

    /// Goes on with the calls that this server has taken from a former process. Each other call is
    /// answered here. If it was meant for this server, the server has never got it; if for one that
    /// is gone, its outcome is unknown.
    pub(super) async fn settle_inherited(self: &Arc<Self>, backend: &dyn Backend) {
        if self.state().inherited.is_empty() {
            return;
        }
        let (known, is_gone) = match backend.open_calls().await {
            Ok(known) => (known, false),
            Err(_) => (Vec::new(), true),
        };
        let known: HashSet<Id> = known.into_iter().map(|id| normal(&id)).collect();
        let error = |left: &InheritedStream| {
            let is_certain = !is_gone
                && backend.knows_all()
                && left.is_whole
                && is_for(&left.stream, backend.incarnation());
            if is_certain {
                not_started
            } else {
                outcome_unknown
            }
        };
        let mut lost = Vec::new();
        let left = std::mem::take(&mut self.state().inherited);
        for left in left {
            let error = error(&left);
            let InheritedStream { stream, calls, .. } = left;
            let (open, others): (Vec<_>, Vec<_>) = calls
                .into_iter()
                .partition(|id| known.contains(&normal(&addressed(&stream, id))));
            if open.is_empty() {
                lost.push((error, (stream, others)));
                continue;
            }
            // These come before the last answer, which ends the stream.
            for id in others {
                self.store(&stream, RequestId::mint(), error(&id)).await;
            }
            let mut state = self.state();
            state.finishing.remove(&stream);
            state.router.reopen(stream, open);
        }
        let live = self.clone();
        tokio::spawn(async move {
            for (error, lost) in lost {
                live.give_up(vec![lost], error).await;
            }
        });
    }

    /// The calls of an open stream that were not answered on it.
    async fn unanswered(&self, stream: &StreamView) -> Result<InheritedStream, SessionError> {
        let stored = self
            .session
            .replay_all(&Cursor::Stream(stream.stream.clone()))
            .await?;
        let answered: HashSet<Id> = stored
            .events
            .iter()
            .filter_map(|event| answered_id(&event.message))
            .collect();
        let calls = stream
            .opened_by
            .as_ref()
            .map(|origin| calls_of(&stream.stream, origin));
        let calls = calls
            .unwrap_or_default()
            .into_iter()
            .filter(|id| !answered.contains(id))
            .collect();
        Ok(InheritedStream {
            stream: stream.stream.clone(),
            calls,
            is_whole: stored.gaps.is_empty(),
        })
    }
}
