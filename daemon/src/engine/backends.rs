//! Keepers and their backends, of hosts' sessions and of services'. `services` has what services alone
//! have.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use mcp_sessiond_process::{self as process, PinnedProcess, ProcessId};
use mcp_sessiond_proto::Lock as _;
use mcp_sessiond_proto::backends::{
    Backend, CountedRequest, EndingRequest, FrontLease, FrontRequest, KeepRequest, Kept,
    LeftRequest, StartedRequest, StopReason, StopRequest,
};
use mcp_sessiond_proto::debug::PAGE_MAX;
use mcp_sessiond_proto::end_note::EndNote;
use mcp_sessiond_proto::{BackendName, Epoch, Error, Loss, Resume, SessionId, paths};
use mcp_sessiond_registry::{BackendOf, Departure, KeeperRecord, Registry};

use super::adopt::{copy_of, reference};
use super::claim::{exhausted, failed, is_of_call};
use super::{Engine, State};
use crate::counters::count;

/// The most bytes of a backend's name: as many as a file's name may have.
const PROGRAM_MAX: usize = 255;

/// Characters of a reason that are logged.
const WHY_MAX: usize = 300;

/// When a client asks again for a backend while the former one is being ended, in ms.
const ENDING_RETRY_MS: u32 = 5;

/// How long the backend of a session that no claim can resume stays without a front, in ms: enough
/// for its own front to attach again.
const UNRESUMABLE_LINGER_MS: u64 = 2_000;

/// A slow task for a keeper.
#[derive(Debug)]
pub enum Charge {
    /// End it, and with it its backend.
    End {
        /// The keeper.
        keeper: PinnedProcess,
        /// What people know its server by.
        server: String,
        /// What becomes of its backend by that.
        because: Loss,
        /// Why, for the log.
        why: &'static str,
        /// Whether it is killed at once: it does not answer, so it would not end by itself.
        kills: bool,
    },
    /// It has exited: kill what is left of its backend, then call [`Engine::swept`].
    Sweep {
        /// The keeper.
        keeper: KeeperRecord,
        /// Whether the daemon saw its exit. If not, the keeper was gone when the daemon started.
        is_seen: bool,
        /// Why it has ended, as it or whoever has ended it has noted.
        why: Option<String>,
        /// The id of its session, and the pid of its host.
        of: Option<(SessionId, u32)>,
    },
}

impl Engine {
    /// Registers `peer` as a keeper. It must be the process that holds the session, or a descendant
    /// of it.
    ///
    /// # Errors
    /// When it is not, the lease is not the newest, or the records can't be written.
    pub async fn keep_backend(
        &self,
        peer: &PinnedProcess,
        request: KeepRequest,
    ) -> Result<Kept, Error> {
        if request.program.len() > PROGRAM_MAX {
            return Err(refused(format!(
                "`program` has at most {PROGRAM_MAX} bytes"
            )));
        }
        if !process::leads_session(peer).map_err(exhausted)? {
            return Err(refused(
                "a keeper leads a session of processes of its own (setsid)".into(),
            ));
        }
        let KeepRequest {
            session,
            epoch,
            keeper: name,
            program,
            service,
            backend,
            server,
        } = request;
        let (of, holder) = match service {
            Some(service) => self.served_above(peer, (service, session), epoch)?,
            None => {
                let held = self.held_above(peer, &session, epoch)?;
                self.await_former(peer.id(), server.as_ref()).await;
                held
            }
        };
        let keeper = KeeperRecord {
            of: backend,
            ..KeeperRecord::new(peer.id(), name, program)
        };
        let (kept, on_record) = {
            let mut state = self.lock();
            state.ledger.check()?;
            state
                .exits
                .add(peer.clone())
                .map_err(|error| failed(&error))?;
            state.take_in_exits(self.now());
            let is_new = !state.registry.is_keeper(&peer.id());
            // One epoch has one holder, but the lease may have changed since that was looked at. The keeper
            // is watched by now, so that no exit is missed.
            let registry = &mut state.registry;
            let registered = registry.holder_of(&of, epoch).and_then(|now| {
                let is_there = now == holder && peer.is_alive();
                is_there.then_some(()).ok_or(Error::LeaseEnded)?;
                registry.keep_backend(&of, epoch, keeper.clone())
            });
            self.apply(&mut state);
            state.unwatch(&peer.id());
            registered?;
            if is_new {
                count(&self.meters.counters.backends_kept_total);
            }
            let copy = copy_of(&state.registry, &of, keeper);
            let kept = match &of {
                BackendOf::Session(id) => self.kept_of_host(&state.registry, id, copy),
                BackendOf::Service(_) => self.kept_of_service(copy),
            };
            (kept, state.ledger.waiter())
        };
        on_record.kept().await?;
        Ok(Kept {
            discover: self.discover(server.as_ref()),
            ..kept
        })
    }

    /// What the daemon tells the keeper of a host's session.
    fn kept_of_host(&self, registry: &Registry, id: &SessionId, copy: Option<String>) -> Kept {
        let session = registry.session(id);
        let is_of_call = session.is_some_and(is_of_call);
        let resume = match registry.is_resumable(id) {
            true => registry.resume_of(id),
            false => Resume::Never,
        };
        let config = &self.settings().loaded.config.backends;
        let owner = session.map(|session| session.owner);
        let host = owner.filter(|owner| *owner != ProcessId::USER);
        let is_users = host.is_none();
        let linger = |of_host: u64, is_resumed: bool| match (is_users, is_resumed) {
            // `mcp-sessiond call` has made it, for calls that follow each other.
            (true, _) if is_of_call => config.linger_ms,
            (true, _) => config.named_linger_ms,
            (false, true) => of_host,
            // The daemon ends it when its front goes. This is for the case that the daemon is gone,
            // too.
            (false, false) => UNRESUMABLE_LINGER_MS.min(of_host),
        };
        let lingers = (
            linger(config.linger_ms, resume != Resume::Never),
            match resume {
                Resume::Conversation if !is_users => config.closed_again_linger_ms(),
                resume => linger(config.closed_linger_ms, resume == Resume::Always),
            },
        );
        let kept = self.kept(host, lingers, copy);
        Kept {
            // What is the user's own is closed after each `mcp-sessiond call`.
            closes: if is_users { u32::MAX } else { kept.closes },
            ..kept
        }
    }

    /// What the daemon tells a registered keeper: its owner's process; how long it stays without a
    /// front, after a cut and after an orderly close; and a copy of its session's record.
    pub(super) fn kept(
        &self,
        owner: Option<ProcessId>,
        (linger_ms, closed_linger_ms): (u64, u64),
        record: Option<String>,
    ) -> Kept {
        let config = &self.settings().loaded.config.backends;
        Kept {
            owner: owner.map(reference),
            linger_ms,
            closed_linger_ms,
            ping_wait_ms: config.ping_wait_ms,
            closes: config.closes,
            closes_ms: config.closes_ms,
            ask_wait_ms: config.ask_wait_ms,
            stop_wait_ms: config.stop_wait_ms,
            queue_messages: config.queue_messages,
            queue_bytes: config.queue_bytes,
            stderr_bytes: config.stderr_bytes,
            record,
            discover: None,
        }
    }

    /// The session with this id that `peer` or an ancestor of it holds, and who does.
    fn held_above(
        &self,
        peer: &PinnedProcess,
        told: &SessionId,
        epoch: Epoch,
    ) -> Result<(BackendOf, ProcessId), Error> {
        // Several owners may have chosen the same id for a session.
        let called_so: Vec<(ProcessId, SessionId, Option<ProcessId>)> = self.look(|registry| {
            let found = registry
                .owners()
                .filter_map(|(host, ..)| registry.find(host, told));
            found
                .map(|session| (session.owner, session.id.clone(), session.holder))
                .collect()
        });
        let held = called_so
            .iter()
            .filter_map(|(_, id, holder)| Some((id.clone(), (*holder)?)));
        for (id, holder) in held {
            if holder == peer.id() || is_above(holder, peer)? {
                return Ok((BackendOf::Session(id), holder));
            }
        }
        // A descendant of an instance of the session may learn that the session exists, and that
        // another process has its lease.
        let instances = |id: &SessionId| {
            self.look(|registry| registry.instances_of(id).collect::<Vec<ProcessId>>())
        };
        for (_, id, holder) in called_so {
            for process in instances(&id) {
                if is_above(process, peer)? {
                    self.tell(|registry| registry.check(&id, epoch))?;
                    return Err(Error::NotAnAncestor {
                        pid: holder.map_or(0, |holder| holder.pid),
                    });
                }
            }
        }
        Err(Error::UnknownSession)
    }

    /// A keeper, which is `peer` itself, has started its backend.
    ///
    /// # Errors
    /// When it is not registered so, the pid is no child of it, or the records can't be written.
    pub async fn backend_started(
        &self,
        peer: &PinnedProcess,
        request: StartedRequest,
    ) -> Result<(), Error> {
        let StartedRequest {
            session,
            keeper,
            pid,
            why,
        } = request;
        let child = process::child_of(peer, pid)
            .map_err(exhausted)?
            .ok_or_else(|| {
                refused(format!(
                    "process {pid} is not a child of the keeper, or has exited"
                ))
            })?;
        let known = self.tell_and_keep(|registry| {
            let known = registry.keepers().find(|known| known.process == peer.id());
            let known = known.map(|known| (known.program.clone(), known.backend.is_some()));
            let of = registry
                .sessions_with_backend()
                .find(|(_, known)| known.process == peer.id());
            let host = of.map(|(session, _)| session.owner.pid);
            let known = known.map(|(program, is_again)| (program, is_again, host));
            registry.backend_started(&session, keeper, peer.id(), child.id())?;
            Ok(known)
        });
        // Where it has no reason, its launcher has left it behind.
        match (known.await?, why) {
            (Some((server, true, host)), Some(why)) => {
                count(&self.meters.counters.wrap_restarts_total);
                let letters = why.chars().filter(|letter| !letter.is_control());
                let why: String = letters.take(WHY_MAX).collect();
                tracing::info!(server, %session, host, pid, keeper = peer.id().pid, why, "a server was started again");
            }
            (Some((server, _, host)), _) => {
                tracing::info!(server, %session, host, pid, keeper = peer.id().pid, "a server was started");
            }
            (None, _) => {}
        }
        Ok(())
    }

    /// The process that a keeper, which is `peer` itself, lets attach under this epoch.
    ///
    /// # Errors
    /// When it is not registered so, or the lease is not the newest.
    pub fn check_front(
        &self,
        peer: &PinnedProcess,
        request: &FrontRequest,
    ) -> Result<FrontLease, Error> {
        let FrontRequest {
            session,
            keeper,
            epoch,
        } = request;
        let (front, resume, started_ms) = self.tell(|registry| {
            let front = registry.front(session, *keeper, peer.id(), *epoch)?;
            let started_ms = registry.claimant(&front).and_then(|front| front.started_ms);
            Ok((front, registry.resume_kept_by(&peer.id()), started_ms))
        })?;
        let former = self.lock().fronts.insert(peer.id(), *epoch);
        if former.is_some_and(|former| former != *epoch) {
            count(&self.meters.counters.wrap_reconnects_total);
        }
        Ok(FrontLease {
            process: reference(front),
            resume,
            started_ms: started_ms.unwrap_or(0),
            closed_again_ms: self.settings().loaded.config.backends.closed_again_ms,
        })
    }

    /// A keeper, which is `peer` itself, tells its totals. The daemon adds what it has not yet
    /// counted.
    ///
    /// # Errors
    /// When it is not registered so.
    pub fn backend_counted(
        &self,
        peer: &PinnedProcess,
        request: &CountedRequest,
    ) -> Result<(), Error> {
        let CountedRequest {
            session,
            keeper,
            counted,
            told,
        } = request;
        let is_its = |registry: &Registry| {
            registry.backends().any(|(of, known)| {
                let is_it = known.name == *keeper && known.process == peer.id();
                is_it && registry.told_of(of) == Some(session)
            })
        };
        if !self.look(is_its) {
            return Err(Error::UnknownBackend);
        }
        let before = {
            let mut state = self.lock();
            let known = state.counts.entry(peer.id()).or_insert(*told);
            // An older message may arrive later, if the keeper has repeated it.
            let before = *known;
            known.lost = known.lost.max(counted.lost);
            known.parked = known.parked.max(counted.parked);
            before
        };
        let counters = &self.meters.counters;
        counters
            .wrap_lost_total
            .fetch_add(counted.lost.saturating_sub(before.lost), Ordering::Relaxed);
        counters.wrap_undelivered_total.fetch_add(
            counted.parked.saturating_sub(before.parked),
            Ordering::Relaxed,
        );
        Ok(())
    }

    /// A keeper, which is `peer` itself, tells how its front has left.
    ///
    /// # Errors
    /// When it is not registered so.
    pub fn front_left(&self, peer: &PinnedProcess, request: &LeftRequest) -> Result<(), Error> {
        let (session, keeper) = (&request.session, request.keeper);
        let left = Departure {
            epoch: request.epoch,
            orderly: request.orderly,
            at_ms: Some(request.at_ms).filter(|at_ms| *at_ms > 0),
            used: request.used,
        };
        self.tell(|registry| registry.front_left(session, keeper, peer.id(), left))
    }

    /// A keeper, which is `peer` itself, tells why it is about to end.
    ///
    /// # Errors
    /// When it is not registered so.
    pub fn backend_ending(
        &self,
        peer: &PinnedProcess,
        request: &EndingRequest,
    ) -> Result<(), Error> {
        let EndingRequest {
            session,
            keeper,
            why,
        } = request;
        self.tell(|registry| registry.backend_ending(session, *keeper, peer.id(), *why))
    }

    /// The backend of this name, of a session that `peer` holds, or whose service it has leased, under
    /// this epoch. None: there is none.
    ///
    /// # Errors
    /// Those of a lease that is not the newest. [`Error::Unavailable`] while a former one is being
    /// ended: it may still hold a port or the lock on a profile.
    pub fn find_backend(
        &self,
        peer: ProcessId,
        of: &BackendOf,
        epoch: Epoch,
        name: Option<&BackendName>,
    ) -> Result<Option<Backend>, Error> {
        self.tell(|registry| {
            match of {
                BackendOf::Session(id) => registry.check(id, epoch)?,
                BackendOf::Service((service, _)) => registry.serves(service, epoch, peer)?,
            }
            let is_free = registry.free_backend(of, name);
            match registry.keepers_of(of).of(name) {
                Some(keeper) if keeper.ending => Err(ending()),
                None if !is_free => Err(ending()),
                keeper => Ok(keeper.and_then(|keeper| backend(registry, of, keeper))),
            }
        })
    }

    /// The backends of sessions whose ids come after `after`, in order of the ids that their owners
    /// know. Those of one id are all in one page.
    pub fn backends(&self, after: Option<&SessionId>) -> Vec<Backend> {
        let mut backends: Vec<Backend> = self.look(|registry| {
            let all = registry
                .backends()
                .filter_map(|(of, keeper)| backend(registry, of, keeper));
            all.filter(|backend| after.is_none_or(|after| backend.session > *after))
                .collect()
        });
        backends.sort_by(|one, other| (&one.session, one.host).cmp(&(&other.session, other.host)));
        if let Some(last) = backends.get(PAGE_MAX - 1).map(|last| last.session.clone()) {
            backends.retain(|backend| backend.session <= last);
        }
        backends
    }

    /// Ends a backend, or all, of the session that its owner, any owner, knows by this id.
    ///
    /// # Errors
    /// [`Error::UnknownBackend`] when there is none, [`Error::InvalidArgument`] when there are
    /// several.
    pub async fn stop_backend(&self, request: &StopRequest) -> Result<(), Error> {
        let StopRequest {
            session: told,
            service,
            backend,
            why,
        } = request;
        self.tell_and_keep(|registry| {
            if let StopReason::KeeperUnattached(keeper) = why {
                return registry.end_unattached(told, *keeper);
            }
            if let Some(keeper) = why.keeper() {
                let kills = matches!(why, StopReason::KeeperHung(_));
                return registry.end_faulty(told, keeper, kills);
            }
            let is_meant = |of: &BackendOf| match (of, service) {
                (BackendOf::Service((of, session)), Some(service)) => {
                    of == service && session == told
                }
                (of, None) => registry.told_of(of) == Some(told),
                (BackendOf::Session(_), Some(_)) => false,
            };
            let all = registry.backends().map(|(of, _)| of);
            let named: BTreeSet<BackendOf> = all.filter(|of| is_meant(of)).cloned().collect();
            let found = named.first().cloned().ok_or(Error::UnknownBackend)?;
            if named.len() > 1 {
                return Err(refused(
                    "several hosts or services have a session of this id, with a backend each"
                        .into(),
                ));
            }
            registry.stop_backend(&found, backend.as_ref())
        })
        .await
    }

    /// Nothing is left of the backend of a keeper that has exited.
    pub fn swept(&self, keeper: &KeeperRecord) {
        self.servers.locked().remove(&keeper.process);
        // Before another keeper of this name may take its place: that of a shared server has the
        // same one each time.
        if self.look(|registry| registry.keepers().all(|other| other.name != keeper.name)) {
            delete_socket(&paths::keeper_socket(self.directory.path(), keeper.name));
        }
        self.tell(|registry| registry.swept(&keeper.process));
        self.swept.notify_waiters();
    }

    /// Deletes the sockets of keepers that are gone.
    pub(super) fn settle_sockets(&self) {
        for keeper in self.unrecorded_keepers() {
            delete_socket(&paths::keeper_socket(self.directory.path(), keeper));
        }
    }

    pub(super) fn end_keeper(&self, state: &State, keeper: &ProcessId) {
        // A keeper that is not watched has exited, and its backend is swept anyway.
        if let Some(keeper) = state.exits.watched(keeper) {
            let is_kept = !state.registry.is_leaving(&keeper.id());
            let is_faulty = state.registry.is_faulty(&keeper.id());
            let (because, why) = if is_faulty.is_some() {
                (Loss::Hung, "its keeper did not answer")
            } else if state.registry.is_edited(&keeper.id()) {
                (Loss::Stopped, "its entry was edited")
            } else if is_kept {
                (Loss::Stopped, EndNote::BY_STOP)
            } else {
                (
                    Loss::Stopped,
                    "its session has ended, or has another server",
                )
            };
            let mut keepers = state.registry.keepers();
            let record = keepers.find(|record| record.process == keeper.id());
            let _ = self.charges.send(Charge::End {
                server: record.map_or_else(String::new, |record| record.program.clone()),
                keeper: keeper.clone(),
                because,
                why,
                kills: is_faulty == Some(true),
            });
        }
    }

    pub(super) fn sweep_backend(&self, state: &mut State, keeper: KeeperRecord) {
        state.fronts.remove(&keeper.process);
        state.counts.remove(&keeper.process);
        count(&self.meters.counters.backends_ended_total);
        let why = state.end_notes.remove(&keeper.process);
        let of = state.registry.was_kept_for(&keeper.process);
        let of = of.map(|(session, host)| (session.clone(), host));
        let _ = self.charges.send(Charge::Sweep {
            keeper,
            is_seen: !state.is_starting,
            why,
            of,
        });
    }
}

/// Whether this very process is an ancestor of the peer's.
pub(super) fn is_above(process: ProcessId, peer: &PinnedProcess) -> Result<bool, Error> {
    if process == peer.id() {
        return Ok(false);
    }
    let found = process::ancestor(peer, process.pid).map_err(exhausted)?;
    Ok(found.is_some_and(|found| found.id() == process))
}

/// The error for a session whose former backend is being ended.
pub(super) fn ending() -> Error {
    Error::Unavailable {
        sentence: "the previous backend, whose place this one takes, is still being ended".into(),
        retry_after_ms: ENDING_RETRY_MS,
    }
}

fn backend(registry: &Registry, of: &BackendOf, keeper: &KeeperRecord) -> Option<Backend> {
    let (session, host) = match of {
        BackendOf::Session(id) => {
            let session = registry.session(id)?;
            (session.public_id(), session.owner)
        }
        BackendOf::Service((_, session)) => (session, ProcessId::USER),
    };
    Some(Backend {
        session: session.clone(),
        keeper: keeper.name,
        keeper_pid: keeper.process.pid,
        host: host.pid,
        service: of.service().map(|(service, _)| service.clone()),
        backend: keeper.of.clone(),
        program: keeper.program.clone(),
        pid: keeper.backend.map(|backend| backend.pid),
    })
}

fn refused(sentence: String) -> Error {
    Error::InvalidArgument { sentence }
}

/// Deletes a keeper's socket, unless a process listens there: a keeper that is about to register.
fn delete_socket(socket: &std::path::Path) {
    if process::socket::is_served(socket) {
        return;
    }
    if let Err(error) = std::fs::remove_file(socket)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(socket = %socket.display(), %error, "could not delete the socket of a keeper that is gone");
    }
}
