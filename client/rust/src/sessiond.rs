//! Version 1's three calls. They carry out what a server means, and swallow what it must not have
//! to handle.

use std::fmt;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use mcp_sessiond_proto::types::{LeaseRef, Outcome, StoreRequest, TokenStatus};
use mcp_sessiond_proto::{ClaimRequest, Claimed, Epoch, Error, Loss, SessionId, Token};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::connections::Connections;
use crate::deadline::Deadline;
use crate::error::{Reason, SessionError};
use crate::log;
use crate::options::Options;
use crate::retrying_client::{Failure, NumberedConnection, RetryingClient};
use crate::runtime::driven;

/// How long a daemon that could not be reached is left alone, so that a server is not slowed by
/// each of its calls.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How long such a later attempt may take.
const RETRY_TIMEOUT: Duration = Duration::from_secs(1);

/// Those of this process that claim a session for it, so that a handler finds that session.
#[cfg(feature = "rmcp")]
static INSTANCES: StdMutex<Vec<std::sync::Weak<Inner>>> = StdMutex::new(Vec::new());

/// A server's session with the daemon. Clones are the same session.
///
/// Calls from several tasks are carried out one after the other.
#[derive(Debug, Clone)]
pub struct Sessiond(Arc<Inner>);

/// Whether resume works for this instance.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Status {
    /// Nothing was asked yet, or the lease was released.
    Unclaimed,
    /// The instance holds a session.
    Active {
        /// The session.
        session: SessionId,
        /// The number of the lease.
        epoch: Epoch,
        /// How it came to this session.
        outcome: Outcome,
    },
    /// It does not work. Unless the reason [is final](Reason::is_final), a later call tries again.
    Disabled {
        /// Why.
        reason: Arc<Reason>,
    },
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclaimed => formatter.write_str("no session is claimed"),
            Self::Active {
                session,
                epoch,
                outcome,
            } => {
                let how = if outcome.is_fresh() {
                    "begun afresh"
                } else {
                    "resumed"
                };
                write!(
                    formatter,
                    "session {session} is held (epoch {epoch}), {how}"
                )
            }
            Self::Disabled { reason } => write!(formatter, "session resume is disabled: {reason}"),
        }
    }
}

#[derive(Debug)]
struct Inner {
    connections: Arc<Connections>,
    state: Mutex<State>,
    /// A copy, for who asks while a call is under way.
    status: StdMutex<Status>,
}

#[derive(Debug, Default)]
struct State {
    lease: Option<Lease>,
    /// A token was loaded, and since then neither stored nor rejected.
    offered: bool,
    disabled: Option<Disabled>,
    /// The one line about disabled resume was logged.
    announced: bool,
}

#[derive(Debug, Clone)]
struct Lease {
    session: SessionId,
    epoch: Epoch,
    outcome: Outcome,
    /// The number of the connection that it was claimed on: on another one it is claimed again
    /// before it is used.
    connection: u64,
}

/// Connections are counted from 1.
const NO_CONNECTION: u64 = 0;

#[derive(Debug)]
struct Disabled {
    reason: Arc<Reason>,
    since: Instant,
}

impl Sessiond {
    /// Takes the options. Nothing is read, opened or sent before the first call.
    #[must_use]
    pub fn init(options: Options) -> Self {
        let status = StdMutex::new(Status::Unclaimed);
        let inner = Arc::new(Inner {
            connections: Connections::new(options),
            state: Mutex::default(),
            status,
        });
        #[cfg(feature = "rmcp")]
        if inner.connections.options.claim.instance.is_none() {
            let mut instances = INSTANCES.lock().unwrap_or_else(PoisonError::into_inner);
            instances.retain(|instance| instance.strong_count() > 0);
            instances.push(Arc::downgrade(&inner));
        }
        Self(inner)
    }

    /// Those of this process that hold a session for it now, and the session.
    #[cfg(feature = "rmcp")]
    pub(crate) fn holding() -> Vec<(Self, SessionId)> {
        let instances = INSTANCES.lock().unwrap_or_else(PoisonError::into_inner);
        let held = instances.iter().filter_map(|instance| {
            let sessiond = Self(instance.upgrade()?);
            // While a call is under way, what it was before.
            let session = match (sessiond.0.state.try_lock(), sessiond.status()) {
                (Ok(state), _) => state.lease.as_ref().map(|lease| lease.session.clone()),
                (Err(_), Status::Active { session, .. }) => Some(session),
                (Err(_), Status::Unclaimed | Status::Disabled { .. }) => None,
            };
            session.map(|session| (sessiond.clone(), session))
        });
        held.collect()
    }

    /// The token that a former instance stored, to be offered to the broker. None: start afresh.
    ///
    /// ```no_run
    /// # async fn example(sessiond: mcp_sessiond_client::Sessiond) {
    /// if let Some(token) = sessiond.load().await {
    ///     println!("offer these {} bytes to the broker", token.expose().len());
    /// }
    /// # }
    /// ```
    pub async fn load(&self) -> Option<Token> {
        self.driven(self.load_here()).await.flatten()
    }

    async fn load_here(&self) -> Option<Token> {
        let mut state = self.0.state.lock().await;
        let deadline = self.deadline(&state)?;
        let request = self.0.connections.options.claim.clone();
        let claimed = match self.claim(&mut state, request, deadline).await {
            Ok((claimed, _)) => claimed,
            Err(reason) => {
                self.disable(&mut state, reason);
                return None;
            }
        };
        if claimed.token_status == TokenStatus::Absent {
            match (claimed.because, claimed.outcome) {
                (Some(loss), _) => log::lost(loss),
                (None, Outcome::FreshHeld | Outcome::FreshPlural) => log::lost(Loss::Sibling),
                (None, Outcome::FreshNever) => log::never(),
                (None, Outcome::FreshDoubtful) => log::doubtful(),
                (None, Outcome::FreshFirst | Outcome::Resumed | Outcome::Held) => log::absent(),
            }
        }
        state.offered = claimed.token.is_some();
        claimed.token
    }

    /// Keeps a token that the broker issued, in place of the former one. True once the daemon has
    /// it for good.
    ///
    /// May be repeated: the same token twice is the same as once. If the daemon has lost the lease
    /// meanwhile, the session is claimed again and the token goes into the same session, or into a
    /// fresh one. It never goes into a session that has another history.
    ///
    /// ```no_run
    /// # async fn example(sessiond: mcp_sessiond_client::Sessiond) {
    /// if !sessiond.store(b"the broker's token").await {
    ///     println!("the next instance begins afresh: {}", sessiond.status());
    /// }
    /// # }
    /// ```
    pub async fn store(&self, token: &[u8]) -> bool {
        self.driven(self.store_here(token)).await.unwrap_or(false)
    }

    async fn store_here(&self, token: &[u8]) -> bool {
        let token = match Token::new(token) {
            Ok(token) => token,
            Err(error) => {
                log::not_kept(&error);
                return false;
            }
        };
        let mut state = self.0.state.lock().await;
        let Some(deadline) = self.deadline(&state) else {
            return false;
        };
        match self.store_leased(&mut state, token, deadline).await {
            Ok(resumed) => {
                // Only what this very process was offered can have been accepted; for an ancestor,
                // another command may have been offered it.
                let offered = state.offered || self.0.connections.options.claim.instance.is_some();
                if resumed && offered {
                    log::resumed();
                }
                state.offered = false;
                true
            }
            Err(NotStored::Disabled(reason)) => {
                // The daemon is there, and could not: its disk is full, as a rule. One line is
                // enough.
                if let Reason::Refused(Error::Unavailable { sentence, .. }) = &reason {
                    log::write_failed(&Error::WriteFailed {
                        sentence: sentence.clone(),
                    });
                    state.announced = true;
                }
                self.disable(&mut state, reason);
                false
            }
            Err(NotStored::Refused(error)) => {
                match error {
                    Error::WriteFailed { .. } => log::write_failed(&error),
                    error => log::not_kept(&error),
                }
                false
            }
        }
    }

    /// The broker refused the token: it is deleted. The session stays. Without a session nothing
    /// happens. True once no later load gives that token.
    ///
    /// ```no_run
    /// # async fn example(sessiond: mcp_sessiond_client::Sessiond) {
    /// // The broker has answered that it does not know the token.
    /// sessiond.reject().await;
    /// # }
    /// ```
    pub async fn reject(&self) -> bool {
        self.driven(self.reject_here()).await.unwrap_or(false)
    }

    async fn reject_here(&self) -> bool {
        let mut state = self.0.state.lock().await;
        let Some(deadline) = self.deadline(&state) else {
            return false;
        };
        let refused = match state.lease.clone() {
            Some(lease) => lease,
            // For an ancestor, another command has loaded the token, and the lease is the same.
            None if self.0.connections.options.claim.instance.is_some() => {
                match self.claim_again(&mut state, deadline).await {
                    Ok((lease, _)) => lease,
                    Err(reason) => {
                        self.disable(&mut state, reason);
                        return false;
                    }
                }
            }
            None => return true,
        };
        state.offered = false;
        log::rejected();
        loop {
            let (lease, link) = match self.lease(&mut state, deadline).await {
                Ok(leased) => leased,
                Err(reason) => {
                    self.disable(&mut state, reason);
                    return false;
                }
            };
            // Under a lease that is not the one that the token came with, there may be a token that
            // nobody refused.
            if (&lease.session, lease.epoch) != (&refused.session, refused.epoch) {
                return true;
            }
            let request = LeaseRef {
                session: lease.session,
                epoch: lease.epoch,
            };
            match self
                .0
                .connections
                .client
                .reject(&link, request, deadline)
                .await
            {
                Ok(()) => return true,
                Err(Failure::Disconnected) => {}
                Err(Failure::Refused(
                    Error::StaleEpoch { .. } | Error::LeaseEnded | Error::UnknownSession,
                )) => {
                    // For the same reason. The next store claims again.
                    state.lease = Some(Lease {
                        connection: NO_CONNECTION,
                        ..refused
                    });
                    return true;
                }
                Err(Failure::Refused(error)) => {
                    log::not_deleted(&error);
                    return false;
                }
                Err(Failure::Gone(reason)) => {
                    self.disable(&mut state, reason);
                    return false;
                }
            }
        }
    }

    /// Gives the session up, for the next instance with the same key. The process that exits need
    /// not: its exit is noticed.
    pub async fn release(&self) {
        let _ = self.driven(self.release_here()).await;
    }

    async fn release_here(&self) {
        let mut state = self.0.state.lock().await;
        let Some(lease) = state.lease.take() else {
            return;
        };
        state.offered = false;
        self.publish(Status::Unclaimed);
        let request = LeaseRef {
            session: lease.session,
            epoch: lease.epoch,
        };
        // Where the daemon is gone, so is the lease soon: with this process.
        drop(
            self.0
                .connections
                .client
                .release(request, self.0.connections.options.timeout)
                .await,
        );
    }

    /// The id of the session that this instance holds: claimed, unless it is held already.
    pub(crate) async fn claimed(&self) -> Option<SessionId> {
        self.driven(self.claimed_here()).await.flatten()
    }

    async fn claimed_here(&self) -> Option<SessionId> {
        let mut state = self.0.state.lock().await;
        let deadline = self.deadline(&state)?;
        match self.claim_again(&mut state, deadline).await {
            Ok((lease, _)) => Some(lease.session),
            Err(reason) => {
                self.disable(&mut state, reason);
                None
            }
        }
    }

    /// The id of a fresh session, in the place of the one that this instance holds, or would
    /// resume.
    pub(crate) async fn claimed_anew(&self) -> Option<SessionId> {
        self.driven(self.claimed_anew_here()).await.flatten()
    }

    async fn claimed_anew_here(&self) -> Option<SessionId> {
        let mut state = self.0.state.lock().await;
        let deadline = self.deadline(&state)?;
        let request = ClaimRequest {
            fresh: true,
            ..self.0.connections.options.claim.clone()
        };
        match self.claim(&mut state, request, deadline).await {
            Ok((claimed, _)) => {
                state.offered = false;
                Some(claimed.session)
            }
            Err(reason) => {
                self.disable(&mut state, reason);
                None
            }
        }
    }

    /// Whether resume works for this instance, as of the last call.
    ///
    /// ```no_run
    /// # fn example(sessiond: mcp_sessiond_client::Sessiond) {
    /// use mcp_sessiond_client::Status;
    ///
    /// match sessiond.status() {
    ///     Status::Disabled { reason } if reason.is_final() => println!("never: {reason}"),
    ///     status => println!("{status}"),
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn status(&self) -> Status {
        self.0
            .status
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Why a token was not stored.
enum NotStored {
    /// Nothing can be stored for now.
    Disabled(Reason),
    /// This token was refused.
    Refused(Error),
}

impl From<Reason> for NotStored {
    fn from(reason: Reason) -> Self {
        Self::Disabled(reason)
    }
}

impl Sessiond {
    /// Work that needs a runtime. None: there is none, and resume is disabled.
    async fn driven<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        match driven(async { Ok(work.await) }).await {
            Ok(value) => Some(value),
            Err(reason) => {
                self.disable(&mut *self.0.state.lock().await, reason);
                None
            }
        }
    }

    async fn store_leased(
        &self,
        state: &mut MutexGuard<'_, State>,
        token: Token,
        deadline: Deadline,
    ) -> Result<bool, NotStored> {
        let mut claimed_again = false;
        loop {
            let (lease, link) = self.lease(state, deadline).await?;
            let request = StoreRequest {
                session: lease.session,
                epoch: lease.epoch,
                token: token.clone(),
            };
            match self
                .0
                .connections
                .client
                .store(&link, request, deadline)
                .await
            {
                Ok(stored) => return Ok(stored.resumed),
                Err(Failure::Disconnected) => {}
                Err(Failure::Refused(
                    Error::StaleEpoch { .. } | Error::LeaseEnded | Error::UnknownSession,
                )) if !claimed_again => {
                    claimed_again = true;
                    self.claim_again(state, deadline).await?;
                }
                Err(Failure::Refused(error)) => return Err(NotStored::Refused(error)),
                Err(Failure::Gone(reason)) => return Err(NotStored::Disabled(reason)),
            }
        }
    }

    /// How long the call may take; none where resume is disabled and it is not time to try again.
    fn deadline(&self, state: &State) -> Option<Deadline> {
        let timeout = self.0.connections.options.timeout;
        match &state.disabled {
            None => Some(Deadline::new(timeout)),
            Some(disabled) if disabled.reason.is_final() => None,
            Some(disabled) if disabled.since.elapsed() < RETRY_AFTER => None,
            Some(_) => Some(Deadline::new(timeout.min(RETRY_TIMEOUT))),
        }
    }

    fn disable(&self, state: &mut State, reason: Reason) {
        if let Reason::Refused(Error::NoVerifiedHost { .. }) = &reason {
            log::unverified();
        } else if !state.announced {
            state.announced = true;
            log::disabled(&reason);
        }
        let reason = Arc::new(reason);
        state.offered = false;
        if reason.is_final() {
            state.lease = None;
            self.0.connections.client.hang_up();
        }
        state.disabled = Some(Disabled {
            reason: reason.clone(),
            since: Instant::now(),
        });
        self.publish(Status::Disabled { reason });
    }

    fn publish(&self, status: Status) {
        *self.0.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

/// The lease: claimed, and claimed again on every new connection.
impl Sessiond {
    /// The lease, claimed on the connection that there is now.
    async fn lease(
        &self,
        state: &mut State,
        deadline: Deadline,
    ) -> Result<(Lease, NumberedConnection), Reason> {
        let Connections {
            client, options, ..
        } = &*self.0.connections;
        let link = client.connect(options, deadline).await?;
        match &state.lease {
            Some(lease) if lease.connection == link.number => Ok((lease.clone(), link)),
            _ => self.claim_again(state, deadline).await,
        }
    }

    /// The epoch of a session that this instance has, and the connection that it is claimed on.
    pub(crate) async fn leased(
        &self,
        session: &SessionId,
        deadline: Deadline,
    ) -> Result<(Epoch, NumberedConnection), SessionError> {
        let mut state = deadline.bound(self.0.state.lock()).await?;
        let is_it = |lease: &Lease| {
            if lease.session == *session {
                Ok(())
            } else {
                Err(Error::UnknownSession)
            }
        };
        is_it(state.lease.as_ref().ok_or(Error::LeaseEnded)?)?;
        let (lease, link) = self.lease(&mut state, deadline).await?;
        is_it(&lease)?;
        Ok((lease.epoch, link))
    }

    /// Claims on another connection what this instance has, so that it is known there on whose
    /// behalf calls are.
    pub(crate) async fn claim_on(
        &self,
        client: &RetryingClient,
        link: &NumberedConnection,
        deadline: Deadline,
    ) -> Result<(), SessionError> {
        match client
            .claim_on(link, self.0.connections.options.claim.clone(), deadline)
            .await
        {
            // The call that it is for finds the connection broken, too.
            Ok(_) | Err(Failure::Disconnected) => Ok(()),
            Err(Failure::Refused(error)) => Err(error.into()),
            Err(Failure::Gone(reason)) => Err(reason.into()),
        }
    }

    pub(crate) fn connections(&self) -> &Arc<Connections> {
        &self.0.connections
    }

    /// Claims what this instance had, or, if it had nothing, what there is. A session that is
    /// neither the former one nor a fresh one is a sibling's, with a token that must not be
    /// overwritten.
    async fn claim_again(
        &self,
        state: &mut State,
        deadline: Deadline,
    ) -> Result<(Lease, NumberedConnection), Reason> {
        let former = state.lease.clone();
        let request = self.0.connections.options.claim.clone();
        let (claimed, link) = self.claim(state, request, deadline).await?;
        let lease = state.lease.clone().ok_or(Reason::SessionLost)?;
        match former {
            Some(former) if former.session != claimed.session && is_former(&claimed) => {
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
                        .connections
                        .client
                        .release(request, self.0.connections.options.timeout)
                        .await,
                );
                Err(Reason::SessionLost)
            }
            _ => Ok((lease, link)),
        }
    }

    /// Claims, and takes down what was got.
    async fn claim(
        &self,
        state: &mut State,
        request: ClaimRequest,
        deadline: Deadline,
    ) -> Result<(Claimed, NumberedConnection), Reason> {
        let Connections {
            client, options, ..
        } = &*self.0.connections;
        let (claimed, link) = client.claim(request, options, deadline).await?;
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
fn is_former(claimed: &Claimed) -> bool {
    match claimed.outcome {
        Outcome::Resumed => true,
        Outcome::Held => claimed.token_status != TokenStatus::Absent,
        _ => false,
    }
}
