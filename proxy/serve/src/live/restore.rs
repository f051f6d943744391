//! A session that a former process has served.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use mcp_sessiond_client::{
    Caller, Cursor, EventId, SessionError, SessionId, SessionStatus, StreamId, StreamView,
};
use mcp_sessiond_http_session::messages::{Id, answered_id};
use mcp_sessiond_http_session::origin::calls_of;
use mcp_sessiond_http_session::session::Inherited;
use tokio::time::{Instant, sleep};

use super::handshake::within_hold;
use super::{LAST_DELIVERED, Live, Shared};
use crate::backend::Backend;
use crate::record;
use crate::refusal::{Refusal, elsewhere};

/// The pause before it is asked again whether another machine still serves a session.
const ELSEWHERE_PAUSE: Duration = Duration::from_millis(500);

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
        let (session, view, streams, handshake) = within_hold(shared.settings.hold, async {
            let session = sessions.open(id).await?;
            let view = session.view().await?;
            let streams = session.streams().await?;
            let handshake = record::of(&session, &view).await?;
            Ok((session, view, streams, handshake))
        })
        .await
        .map_err(bound)?;
        // A session without a handshake on record was never answered.
        let is_ready = matches!(view.status, SessionStatus::Ready { .. });
        let Some(handshake) = handshake.filter(|_| is_ready) else {
            return Err(Refusal::unknown_session());
        };
        // Nothing is said in it as long as another machine serves it.
        let until = Instant::now() + shared.settings.hold;
        while !shared.backends.claim(&session).await? {
            if Instant::now() + ELSEWHERE_PAUSE >= until {
                return Err(elsewhere());
            }
            sleep(ELSEWHERE_PAUSE).await;
        }
        let live = Self::new(shared.clone(), session, caller, handshake);
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
            if let Some((position, id)) = last {
                live.state().session.delivered(position, &EventId(id));
            }
        }
        if left.is_empty() {
            return Ok(live);
        }
        live.state().session.inherit(left);
        tokio::spawn({
            let live = live.clone();
            async move {
                if live.server().await.is_err() {
                    let left = live.state().session.give_up_inherited();
                    live.carry_out(left).await;
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

    /// The server was gone again before anything was heard of it: the outcome of all open calls is
    /// unknown.
    pub(super) fn give_up_open(self: &Arc<Self>) {
        let open = self.state().session.give_up();
        let live = self.clone();
        tokio::spawn(async move { live.carry_out(open).await });
    }

    /// Goes on with the calls that this server has taken from a former process, and answers the
    /// others.
    pub(super) async fn settle_inherited(self: &Arc<Self>, backend: &dyn Backend) {
        if !self.state().session.has_inherited() {
            return;
        }
        let open = backend.open_calls().await.ok();
        let (first, rest) = {
            let mut state = self.state();
            let (incarnation, knows_all) = (backend.incarnation(), backend.knows_all());
            state
                .session
                .settle(open.as_deref(), incarnation, knows_all)
        };
        self.carry_out(first).await;
        let live = self.clone();
        tokio::spawn(async move { live.carry_out(rest).await });
    }

    /// The calls of an open stream that were not answered on it.
    async fn unanswered(&self, stream: &StreamView) -> Result<Inherited, SessionError> {
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
        Ok(Inherited {
            stream: stream.stream.clone(),
            calls,
            is_whole: stored.gaps.is_empty(),
        })
    }
}
