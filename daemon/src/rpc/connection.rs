//! One connection: who is at its other end, which instances it has been found to speak for, and
//! whom it has attached.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use mcp_sessiond_process::{PinnedProcess, ProcessId};
use mcp_sessiond_proto::Lock as _;
use mcp_sessiond_proto::backends::{
    Backend, CountedRequest, EndingRequest, FrontLease, FrontRequest, KeepRequest, Kept,
    LeftRequest, StopRequest,
};
use mcp_sessiond_proto::debug::{InspectRequest, Inspected, PAGE_MAX};
use mcp_sessiond_proto::services::{FindRequest, SecretRequest, ServiceSecret};
use mcp_sessiond_proto::sessions::{
    CreateRequest, OpenHandleRequest, OwnSessions, ResetRequest, Session, SessionRef, UpdateRequest,
};
use mcp_sessiond_proto::state::{StateEntry, WriteStateRequest};
use mcp_sessiond_proto::streams::{AppendRequest, Appended, OpenStreamRequest, Stream, StreamRef};
use mcp_sessiond_proto::tasks::{CreateTaskRequest, Task, UpdateTaskRequest};
use mcp_sessiond_proto::types::{LeaseRef, LossToldRequest, Outcome, StoreRequest, Stored};
use mcp_sessiond_proto::{ClaimRequest, Claimed, Error, Json, SessionId};
use mcp_sessiond_registry::{BackendOf, Wants};

use super::Daemon;
use crate::awaited::Awaited;
use crate::contents::{Access, Of};
use crate::engine::Instances;
use crate::parts::Teller;
use crate::storage::RecordId;

/// A connection, as far as the service is concerned.
pub(super) struct Connection {
    /// What all share.
    pub(super) daemon: Arc<Daemon>,
    /// The process that connected.
    pub(super) peer: PinnedProcess,
    /// The version of the protocol that it speaks.
    version: u16,
    /// The instances that it speaks for: itself, once its host was verified, and the ancestors that
    /// it has claimed for.
    instances: Mutex<Instances>,
    /// The sessions of the clients that it has attached and not detached.
    attached: Mutex<Vec<RecordId>>,
    /// Who it is to whoever remembers the parts of sessions that it has told.
    teller: OnceLock<Teller>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Connection({:?})", self.peer.id())
    }
}

/// Clients that one connection may have attached: a server's whole clientele, and yet no memory to
/// speak of.
const ATTACHED_MAX: usize = 4_096;

/// The pause before a session is asked for again that somebody holds.
const HELD_PAUSE: Duration = Duration::from_millis(20);

fn hosts_of(instances: &Instances) -> BTreeSet<ProcessId> {
    instances.values().map(|claimant| claimant.host).collect()
}

impl Connection {
    /// One that has just begun.
    pub(super) fn new(daemon: Arc<Daemon>, peer: PinnedProcess, version: u16) -> Self {
        Self {
            daemon,
            peer,
            version,
            instances: Mutex::default(),
            attached: Mutex::default(),
            teller: OnceLock::new(),
        }
    }

    /// The instances that this peer speaks for: at least itself.
    async fn instances(&self) -> Result<Instances, Error> {
        let known = self.instances.locked().clone();
        if !known.is_empty() {
            return Ok(known);
        }
        let claimant = Arc::new(self.daemon.engine.claimant(&self.peer).await?);
        self.instances
            .locked()
            .insert(self.peer.id(), claimant.clone());
        Ok([(self.peer.id(), claimant)].into())
    }

    /// What the peer may do with a session.
    pub(super) async fn access(&self, of: &SessionRef) -> Result<Access, Error> {
        match &of.service {
            Some(_) if of.epoch.is_some() => {
                let sentence = "a service's session has no lease, and so no `epoch`".into();
                Err(Error::InvalidArgument { sentence })
            }
            Some(service) => Ok(Access::service(service, &of.session, of.caller.clone())),
            None => {
                let access = self.daemon.engine.access(&self.instances().await?, of);
                self.daemon.contents.fenced(&access.place).await;
                Ok(access)
            }
        }
    }

    /// What the registry calls a session. Another host's, or another key's, is as if it were not
    /// there.
    pub(super) async fn own(&self, told: &SessionId) -> Result<SessionId, Error> {
        // An unverified peer sees nothing, and learns nothing from that.
        let instances = match self.instances().await {
            Err(error @ Error::Unavailable { .. }) => return Err(error),
            known => known.unwrap_or_default(),
        };
        self.daemon
            .engine
            .find(&instances, told)
            .map(|(_, session)| session)
            .ok_or(Error::UnknownSession)
    }

    pub(super) async fn ping(&self) {}

    pub(super) async fn store_token(&self, request: StoreRequest) -> Result<Stored, Error> {
        let session = self.own(&request.session).await?;
        let request = StoreRequest { session, ..request };
        self.daemon.engine.store_token(request).await
    }

    pub(super) async fn reject_token(&self, request: LeaseRef) -> Result<(), Error> {
        let session = self.own(&request.session).await?;
        let request = LeaseRef { session, ..request };
        self.daemon.engine.reject_token(request).await
    }

    pub(super) async fn loss_told(&self, request: LossToldRequest) -> Result<(), Error> {
        let engine = &self.daemon.engine;
        let LossToldRequest {
            session,
            epoch,
            service,
            losses,
        } = request;
        if let Some(service) = service {
            let of = (service, session);
            return engine
                .service_loss_told(self.peer.id(), &of, epoch, &losses)
                .await;
        }
        let session = self.own(&session).await?;
        engine.loss_told(&session, epoch, &losses).await
    }

    pub(super) async fn release(&self, request: LeaseRef) -> Result<(), Error> {
        let session = self.own(&request.session).await?;
        let request = LeaseRef { session, ..request };
        self.daemon.engine.release(request).await
    }

    pub(super) async fn touch_session(&self, of: SessionRef) -> Result<(), Error> {
        self.daemon.contents.touch(&self.access(&of).await?).await
    }

    pub(super) async fn reset_session(&self, request: ResetRequest) -> Result<Session, Error> {
        let repeated = request.request.clone();
        let access = self.access(&request.of()).await?;
        self.daemon.contents.reset(&access, repeated.as_ref()).await
    }

    pub(super) async fn terminate_session(&self, of: SessionRef) -> Result<(), Error> {
        let access = self.access(&of).await?;
        self.daemon.contents.terminate(&access).await?;
        // Its token and its lease have gone with it, and that is to be kept as well.
        self.daemon.engine.recorded().await
    }

    pub(super) async fn write_state(
        &self,
        request: WriteStateRequest,
    ) -> Result<Vec<StateEntry>, Error> {
        let values = request
            .writes
            .iter()
            .filter_map(|write| write.value.as_ref());
        let bytes: usize = values.map(Json::len).sum();
        let histograms = &self.daemon.meters.histograms;
        histograms.write_state_bytes.record(bytes as u64);
        let access = self.access(&request.of).await?;
        self.daemon.contents.write_state(&access, &request).await
    }

    pub(super) async fn claim(
        &self,
        request: ClaimRequest,
        awaited: &Awaited,
    ) -> Result<Claimed, Error> {
        let wants = if request.fresh {
            Wants::Fresh
        } else {
            Wants::Keyed
        };
        self.claim_that(request, wants, awaited).await
    }

    async fn claim_that(
        &self,
        request: ClaimRequest,
        wants: Wants,
        awaited: &Awaited,
    ) -> Result<Claimed, Error> {
        let Daemon {
            engine, contents, ..
        } = &*self.daemon;
        let instance = request.instance;
        let mut claimed = engine.claim(&self.peer, request, wants, awaited).await?;
        if self.version < 2 && claimed.outcome == Outcome::FreshNever {
            // Version 1 has no word for it. This one says the same: nobody will resume it.
            claimed.outcome = Outcome::FreshPlural;
        }
        if let Some((process, claimant)) = engine.instance_of(&self.peer, instance)? {
            let host = claimant.host;
            self.instances.locked().insert(process, Arc::new(claimant));
            if claimed.outcome == Outcome::Resumed {
                contents.fence(&engine.place(Some(host), &claimed.session));
            }
        }
        Ok(claimed)
    }

    pub(super) async fn create_session(
        &self,
        request: CreateRequest,
        awaited: &Awaited,
    ) -> Result<Session, Error> {
        let Daemon {
            engine, contents, ..
        } = &*self.daemon;
        // Whoever repeats the request is whom the session was bound to by it.
        let caller = request
            .binding
            .as_ref()
            .map(|binding| binding.caller.clone());
        if let Some(service) = &request.service {
            let minted = SessionId::mint();
            let access =
                Access::service(service, request.session.as_ref().unwrap_or(&minted), caller);
            return contents.create(&access, &request).await;
        }
        let wants = Wants::New(request.session.clone(), request.request.clone());
        let claimed = self
            .claim_that(ClaimRequest::default(), wants, awaited)
            .await?;
        let of = SessionRef {
            session: claimed.session.clone(),
            service: None,
            epoch: Some(claimed.epoch),
            caller,
        };
        let access = self.access(&of).await?;
        match contents
            .create_claimed(&access, &request, claimed.outcome.is_fresh())
            .await
        {
            Ok(session) => Ok(self.described(Session {
                epoch: Some(claimed.epoch),
                ..session
            })),
            Err(error) => {
                if claimed.outcome.is_fresh() {
                    engine.forget(&access.place);
                }
                Err(error)
            }
        }
    }

    pub(super) async fn open_session(
        &self,
        of: SessionRef,
        awaited: &Awaited,
    ) -> Result<Session, Error> {
        let contents = &self.daemon.contents;
        if of.service.is_some() {
            return contents.open(&self.access(&of).await?).await;
        }
        // To whom it is bound is looked at before it is taken.
        contents.open(&self.access(&of).await?).await?;
        let claimed = self.take(&of.session, awaited).await?;
        // And what it holds after that: who had it before can change nothing more.
        let seen = contents.open(&self.access(&of).await?).await?;
        Ok(self.described(Session {
            epoch: Some(claimed.epoch),
            ..seen
        }))
    }

    /// A session as it is.
    pub(super) async fn get_session(&self, of: SessionRef) -> Result<Session, Error> {
        let found = self.daemon.contents.get(&self.access(&of).await?).await?;
        Ok(self.described(found))
    }

    /// The same session, with what only the registry knows of it.
    fn described(&self, session: Session) -> Session {
        if session.service.is_some() {
            return session;
        }
        let instances = self.instances.locked().clone();
        match self.daemon.engine.made_for(&instances, &session.session) {
            Some((program, label)) => Session {
                program: Some(program),
                label,
                ..session
            },
            None => session,
        }
    }

    /// Takes a session by its id. Its holder may be about to go: hosts start the new server before
    /// the old one has died.
    async fn take(&self, session: &SessionId, awaited: &Awaited) -> Result<Claimed, Error> {
        let wait_ms = self.daemon.engine.settings().loaded.config.claim_wait_ms;
        let deadline = Instant::now() + Duration::from_millis(wait_ms);
        loop {
            let taken = self
                .claim_that(
                    ClaimRequest::default(),
                    Wants::Named(session.clone()),
                    awaited,
                )
                .await;
            match taken {
                Err(Error::SessionHeld) if Instant::now() < deadline => {
                    tokio::time::sleep(HELD_PAUSE).await;
                }
                taken => return taken,
            }
        }
    }

    pub(super) async fn list_own_sessions(
        &self,
        request: OwnSessions,
    ) -> Result<Vec<Session>, Error> {
        let Daemon {
            engine, contents, ..
        } = &*self.daemon;
        let after = request.after.as_ref();
        if let Some(service) = &request.service {
            let place = Access::service(service, &SessionId::mint(), None).place;
            return contents.list(&place.owner, after, |_| true).await;
        }
        let instances = self.instances().await?;
        let mut sessions = Vec::new();
        for host in hosts_of(&instances) {
            // Of some the storage has nothing yet, and of some nothing but a tombstone is left.
            let shown = |session: &SessionId| !engine.is_hidden(host, &instances, session);
            let stored = contents.list(&engine.owner(host), after, shown).await?;
            let known = engine.sessions_of(host, &instances, after, PAGE_MAX);
            for session in known
                .into_iter()
                .filter(|id| stored.iter().all(|one| one.session != *id))
            {
                let of = SessionRef {
                    session,
                    service: None,
                    epoch: None,
                    caller: None,
                };
                sessions.extend(contents.listed(&engine.access(&instances, &of)).await?);
            }
            sessions.extend(stored);
        }
        sessions.sort_by(|one, other| one.session.cmp(&other.session));
        sessions.truncate(PAGE_MAX);
        Ok(sessions
            .into_iter()
            .map(|session| self.described(session))
            .collect())
    }

    /// Registers a keeper. A service's session must exist. If it ends from now on, the daemon ends
    /// its keeper.
    pub(super) async fn keep_backend(&self, request: KeepRequest) -> Result<Kept, Error> {
        let Daemon {
            engine, contents, ..
        } = &*self.daemon;
        let of = request
            .service
            .clone()
            .map(|service| (service, request.session.clone()));
        // If the storage can't be reached, the next sweep finds out.
        let has_ended = async || match &of {
            Some(of) => contents.lives(&Access::service(&of.0, &of.1, None)).await == Ok(false),
            None => false,
        };
        if has_ended().await {
            return Err(Error::UnknownSession);
        }
        let kept = engine.keep_backend(&self.peer, request).await?;
        if has_ended().await {
            of.iter().for_each(|of| engine.end_served(of));
            return Err(Error::UnknownSession);
        }
        Ok(kept)
    }

    pub(super) async fn update_session(&self, request: UpdateRequest) -> Result<Session, Error> {
        let access = self.access(&request.of).await?;
        let Daemon {
            contents, parts, ..
        } = &*self.daemon;
        let updated = contents.update_session(&access, &request).await;
        if let Some(status) = &request.status {
            let teller = self.teller.get_or_init(|| parts.teller());
            match &updated {
                Ok(_) if !status.parts().is_empty() => {
                    parts.told(*teller, access.place, status.parts());
                }
                // It may have ended; and whoever knows of no parts says nothing of those that another has told.
                _ => parts.withdraw(*teller, &access.place),
            }
        }
        updated
    }

    pub(super) async fn attach_session(&self, of: SessionRef) -> Result<(), Error> {
        let access = self.access(&of).await?;
        if self.attached.locked().len() >= ATTACHED_MAX {
            let what = "the number of clients that are attached through this connection".into();
            return Err(Error::QuotaExceeded {
                what,
                limit: ATTACHED_MAX as u64,
            });
        }
        self.daemon.contents.attach(&access).await?;
        self.attached.locked().push(access.place);
        Ok(())
    }

    pub(super) async fn detach_session(&self, of: SessionRef) -> Result<(), Error> {
        let access = self.access(&of).await?;
        let attached = {
            let mut attached = self.attached.locked();
            let at = attached.iter().position(|one| *one == access.place);
            at.map(|at| attached.swap_remove(at))
        };
        match attached {
            Some(_) => self.daemon.contents.detach(&access).await,
            None => Err(Error::InvalidArgument {
                sentence: "no client was attached to this session on this connection".into(),
            }),
        }
    }

    pub(super) async fn open_handle(&self, request: OpenHandleRequest) -> Result<Session, Error> {
        let Daemon {
            engine, contents, ..
        } = &*self.daemon;
        let instances = match &request.service {
            Some(_) => Instances::new(),
            None => self.instances().await?,
        };
        let owners: Vec<(Option<ProcessId>, String)> = match &request.service {
            Some(service) => vec![(
                None,
                Access::service(service, &SessionId::mint(), None)
                    .place
                    .owner,
            )],
            None => hosts_of(&instances)
                .into_iter()
                .map(|host| (Some(host), engine.owner(host)))
                .collect(),
        };
        let mut refusal = Error::UnknownHandle;
        for (host, owner) in owners {
            match contents.session_of(&owner, &request.handle).await {
                Ok(session)
                    if host.is_some_and(|host| engine.is_hidden(host, &instances, &session)) => {}
                Ok(session) => {
                    let OpenHandleRequest {
                        service, caller, ..
                    } = request;
                    let of = SessionRef {
                        session,
                        service,
                        epoch: None,
                        caller,
                    };
                    return contents.open(&self.access(&of).await?).await;
                }
                // An expired one is somebody's; and who could not be asked may have it.
                Err(error) if refusal == Error::UnknownHandle => refusal = error,
                Err(_) => {}
            }
        }
        Err(refusal)
    }

    /// The backend of a session that the peer holds, or of a session of a service that it has
    /// leased.
    pub(super) async fn find_backend(
        &self,
        request: FindRequest,
    ) -> Result<Option<Backend>, Error> {
        let FindRequest {
            session,
            epoch,
            service,
            backend,
        } = request;
        let (of, access) = match service {
            Some(service) => {
                let access = Access::service(&service, &session, None);
                (BackendOf::Service((service, session)), Some(access))
            }
            None => (BackendOf::Session(self.own(&session).await?), None),
        };
        let Daemon { engine, fleet, .. } = &*self.daemon;
        let found = engine.find_backend(self.peer.id(), &of, epoch, backend.as_ref())?;
        if let (None, Some(access)) = (&found, access) {
            // On another machine, perhaps.
            fleet.keep_here(&access).await?;
        }
        Ok(found)
    }

    pub(super) async fn inspect_session(
        &self,
        request: InspectRequest,
    ) -> Result<Vec<Inspected>, Error> {
        let Daemon {
            engine, contents, ..
        } = &*self.daemon;
        let InspectRequest { session, owner } = &request;
        if let Some(owner) = owner {
            let place = RecordId {
                owner: owner.clone(),
                name: session.to_string(),
            };
            return Ok(vec![
                contents
                    .inspect(&place)
                    .await?
                    .ok_or(Error::UnknownSession)?,
            ]);
        }
        let mut known = engine.sessions_named(session);
        let mut found = Vec::new();
        let mut after: Option<RecordId> = None;
        loop {
            let page = contents.inventory(after.as_ref(), PAGE_MAX).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            for (place, _) in page
                .into_iter()
                .filter(|(place, _)| place.name == session.as_str())
            {
                if let Some(inspected) = contents.inspect(&place).await? {
                    let at = known.iter().position(|(owner, _)| *owner == place.owner);
                    let session = at.map(|at| known.swap_remove(at).1);
                    found.push(Inspected {
                        session,
                        ..inspected
                    });
                }
            }
        }
        for (_, info) in known {
            let session = Some(info);
            found.push(Inspected {
                session,
                content: None,
                streams: Vec::new(),
                tasks: Vec::new(),
            });
        }
        if found.is_empty() {
            Err(Error::UnknownSession)
        } else {
            Ok(found)
        }
    }

    pub(super) async fn service_secret(
        &self,
        request: SecretRequest,
    ) -> Result<ServiceSecret, Error> {
        self.daemon.contents.service_secret(&request).await
    }

    pub(super) async fn front_left(&self, request: LeftRequest) -> Result<(), Error> {
        self.daemon.engine.front_left(&self.peer, &request)
    }

    pub(super) async fn backend_ending(&self, request: EndingRequest) -> Result<(), Error> {
        self.daemon.engine.backend_ending(&self.peer, &request)
    }

    pub(super) async fn backend_counted(&self, request: CountedRequest) -> Result<(), Error> {
        self.daemon.engine.backend_counted(&self.peer, &request)
    }

    pub(super) async fn check_front(&self, request: FrontRequest) -> Result<FrontLease, Error> {
        self.daemon.engine.check_front(&self.peer, &request)
    }

    pub(super) async fn stop_backend(&self, request: StopRequest) -> Result<(), Error> {
        self.daemon.engine.stop_backend(&request).await
    }

    /// Opens a stream. The author of its will is the peer.
    pub(super) async fn open_stream(&self, request: OpenStreamRequest) -> Result<Stream, Error> {
        let access = self.access(&request.of).await?;
        let wills = &self.daemon.wills;
        let author = request.will.as_ref().map(|_| wills.author(&self.peer));
        if author.is_some() {
            self.daemon.fleet.needed().await?;
        }
        let opened = self
            .daemon
            .contents
            .open_stream(&access, &request, author.as_deref())
            .await?;
        if author.is_some() {
            wills.made(self.peer.clone(), access.place, Of::Stream(request.stream))?;
        }
        Ok(opened)
    }

    /// Appends messages, and closes the stream with them if the request says so.
    pub(super) async fn append(&self, request: AppendRequest) -> Result<Vec<Appended>, Error> {
        let bytes: usize = request.messages.iter().flatten().map(Json::len).sum();
        let histograms = &self.daemon.meters.histograms;
        histograms.append_bytes.record(bytes as u64);
        let messages = request.messages.len() as u64;
        histograms.append_messages.record(messages);
        let access = self.access(&request.of).await?;
        let appended = self.daemon.contents.append(&access, &request).await?;
        if request.close {
            self.daemon
                .wills
                .closed(&access.place, &Of::Stream(request.stream));
        }
        Ok(appended)
    }

    pub(super) async fn close_stream(&self, request: StreamRef) -> Result<Stream, Error> {
        let access = self.access(&request.of).await?;
        let closed = self.daemon.contents.close_stream(&access, &request).await?;
        self.daemon
            .wills
            .closed(&access.place, &Of::Stream(request.stream));
        Ok(closed)
    }

    /// Creates a task. Its writer is the peer.
    pub(super) async fn create_task(&self, request: CreateTaskRequest) -> Result<Task, Error> {
        let access = self.access(&request.of).await?;
        let (contents, wills) = (&self.daemon.contents, &self.daemon.wills);
        self.daemon.fleet.needed().await?;
        let (task, is_writer) = contents
            .create_task(&access, &request, &wills.author(&self.peer))
            .await?;
        if is_writer && !task.status.is_final() {
            wills.made(self.peer.clone(), access.place, Of::Task(task.task.clone()))?;
        }
        Ok(task)
    }

    /// Changes or ends a task.
    pub(super) async fn update_task(&self, request: UpdateTaskRequest) -> Result<Task, Error> {
        let access = self.access(&request.of).await?;
        let (contents, wills) = (&self.daemon.contents, &self.daemon.wills);
        if request.take {
            self.daemon.fleet.needed().await?;
        }
        let task = contents
            .update_task(&access, &request, &wills.author(&self.peer))
            .await?;
        let of = Of::Task(request.task);
        if task.status.is_final() {
            wills.closed(&access.place, &of);
        } else if request.take {
            wills.made(self.peer.clone(), access.place, of)?;
        }
        Ok(task)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(teller) = self.teller.get() {
            self.daemon.parts.forget(*teller);
        }
        let attached = std::mem::take(&mut *self.attached.locked());
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        for place in attached {
            let daemon = self.daemon.clone();
            let access = Access::daemon(place);
            runtime.spawn(async move {
                if let Err(error) = daemon.contents.detach(&access).await {
                    tracing::debug!(%error, "could not note that a client has gone");
                }
            });
        }
    }
}
