//! The lease of an instance: claimed, and claimed again on every new connection.

use std::sync::Arc;

use mcp_sessiond_proto::types::{LeaseRef, Outcome, TokenStatus};
use mcp_sessiond_proto::{ClaimRequest, Claimed, Epoch, Error, SessionId};

use super::{Lease, NO_CONNECTION, Sessiond, State, Status};
use crate::calls::{Calls, Failure, Link};
use crate::error::{Reason, SessionError};
use crate::line::Line;
use crate::log;
use crate::patience::Patience;

impl Sessiond {
    /// The lease, claimed on the connection that there is now.
    pub(super) async fn lease(
        &self,
        state: &mut State,
        patience: Patience,
    ) -> Result<(Lease, Link), Reason> {
        let Line { calls, options, .. } = &*self.0.line;
        let link = calls.connect(options, patience).await?;
        match &state.lease {
            Some(lease) if lease.connection == link.number => Ok((lease.clone(), link)),
            _ => self.claim_again(state, patience).await,
        }
    }

    /// The epoch of a session that this instance has, and the connection that it is claimed on.
    pub(crate) async fn leased(
        &self,
        session: &SessionId,
        patience: Patience,
    ) -> Result<(Epoch, Link), SessionError> {
        let mut state = patience.bound(self.0.state.lock()).await?;
        let is_it = |lease: &Lease| {
            if lease.session == *session {
                Ok(())
            } else {
                Err(Error::UnknownSession)
            }
        };
        is_it(state.lease.as_ref().ok_or(Error::LeaseEnded)?)?;
        let (lease, link) = self.lease(&mut state, patience).await?;
        is_it(&lease)?;
        Ok((lease.epoch, link))
    }

    /// Claims on another connection what this instance has, so that it is known there on whose
    /// behalf calls are.
    pub(crate) async fn vouch(
        &self,
        calls: &Calls,
        link: &Link,
        patience: Patience,
    ) -> Result<(), SessionError> {
        match calls
            .claim_on(link, self.0.line.options.claim.clone(), patience)
            .await
        {
            // The call that it is for finds the connection broken, too.
            Ok(_) | Err(Failure::Disconnected) => Ok(()),
            Err(Failure::Refused(error)) => Err(error.into()),
            Err(Failure::Gone(reason)) => Err(reason.into()),
        }
    }

    pub(crate) fn line(&self) -> &Arc<Line> {
        &self.0.line
    }

    /// Claims what this instance had, or, if it had nothing, what there is. A session that is
    /// neither the former one nor a fresh one is a sibling's, with a token that must not be
    /// overwritten.
    pub(super) async fn claim_again(
        &self,
        state: &mut State,
        patience: Patience,
    ) -> Result<(Lease, Link), Reason> {
        let former = state.lease.clone();
        let request = self.0.line.options.claim.clone();
        let (claimed, link) = self.claim(state, request, patience).await?;
        let lease = state.lease.clone().ok_or(Reason::SessionLost)?;
        match former {
            Some(former) if former.session != claimed.session && has_a_past(&claimed) => {
                let request = LeaseRef {
                    session: lease.session,
                    epoch: lease.epoch,
                };
                // Taken back first: whoever drops this future must not leave the sibling's lease
                // behind.
                state.lease = Some(Lease {
                    connection: NO_CONNECTION,
                    ..former
                });
                drop(
                    self.0
                        .line
                        .calls
                        .release(request, self.0.line.options.timeout)
                        .await,
                );
                Err(Reason::SessionLost)
            }
            _ => Ok((lease, link)),
        }
    }

    /// Claims, and takes down what was got.
    pub(super) async fn claim(
        &self,
        state: &mut State,
        request: ClaimRequest,
        patience: Patience,
    ) -> Result<(Claimed, Link), Reason> {
        let Line { calls, options, .. } = &*self.0.line;
        let (claimed, link) = calls.claim(request, options, patience).await?;
        if claimed.token_status == TokenStatus::Corrupted {
            log::corrupted();
        }
        // How the process came to its session says more than that it still has it.
        let known = state
            .lease
            .take()
            .filter(|lease| lease.session == claimed.session);
        let outcome = match (claimed.outcome, known) {
            (Outcome::Held, Some(lease)) => lease.outcome,
            (outcome, _) => outcome,
        };
        let (session, epoch) = (claimed.session.clone(), claimed.epoch);
        state.lease = Some(Lease {
            session: session.clone(),
            epoch,
            outcome,
            connection: link.number,
        });
        state.disabled = None;
        self.publish(Status::Active {
            session,
            epoch,
            outcome,
        });
        Ok((claimed, link))
    }
}

/// Whether the session was a former instance's. `held` may be the repetition of a claim whose
/// answer was lost.
fn has_a_past(claimed: &Claimed) -> bool {
    match claimed.outcome {
        Outcome::Resumed => true,
        Outcome::Held => claimed.token_status != TokenStatus::Absent,
        _ => false,
    }
}
