//! Services: one process at a time holds the lease on a service's name. The backends of the
//! service's sessions belong to the service, not to a host.
//!
//! The registry knows only who holds the lease, and which keeper holds which session's backend.
//! What the sessions contain is in the storage.

use alloc::vec::Vec;

use mcp_sessiond_identity::ProcessId;
use mcp_sessiond_proto::backends::KeeperName;
use mcp_sessiond_proto::{
    BackendName, Epoch, Error, Loss, LossId, LossRecord, ServiceName, SessionId,
};

use super::keepers::other_keeper;
use super::leases::check_lease;
use super::{Effect, KeeperRecord, Registry, ServiceRecord, ServiceSession};

/// Losses of all services' sessions that are remembered until they are told. Where more servers die at
/// once, the clients of the oldest are told without a reason.
const SERVICE_LOSSES_MAX: usize = 4096;

impl Registry {
    /// Leases a name to a process. Repeating the call for the same process has no further effect.
    ///
    /// # Errors
    /// [`Error::ServiceTaken`] while another process holds the lease.
    pub fn lease_service(
        &mut self,
        name: &ServiceName,
        process: ProcessId,
        since_ms: u64,
    ) -> Result<&ServiceRecord, Error> {
        let fresh = ServiceRecord {
            name: name.clone(),
            epoch: Epoch(0),
            holder: None,
            since_ms,
        };
        let service = self.services.entry(name.clone()).or_insert(fresh);
        match service.holder {
            Some(holder) if holder == process => {}
            Some(holder) => {
                return Err(Error::ServiceTaken {
                    pid: holder.pid,
                    since_ms: service.since_ms,
                });
            }
            None => {
                service.epoch = Epoch(service.epoch.0 + 1);
                service.holder = Some(process);
                service.since_ms = since_ms;
                self.effects.push(Effect::SaveService(service.clone()));
            }
        }
        Ok(service)
    }

    /// Ends a process's lease on a name. The backends of the service's sessions go on.
    ///
    /// # Errors
    /// Those of a lease that is not the newest, or another process's.
    pub fn release_service(
        &mut self,
        name: &ServiceName,
        epoch: Epoch,
        process: ProcessId,
    ) -> Result<(), Error> {
        self.serves(name, epoch, process)?;
        self.vacate_services(&[process], Some(name));
        Ok(())
    }

    /// Checks that this process holds the lease on the name under this epoch.
    ///
    /// # Errors
    /// Those of a lease that is not the newest, or another process's.
    pub fn serves(
        &self,
        name: &ServiceName,
        epoch: Epoch,
        process: ProcessId,
    ) -> Result<(), Error> {
        let service = self.served_under(name, epoch)?;
        match service.holder {
            Some(holder) if holder == process => Ok(()),
            Some(holder) => Err(Error::ServiceTaken {
                pid: holder.pid,
                since_ms: service.since_ms,
            }),
            None => Err(Error::LeaseEnded),
        }
    }

    /// The service, if `epoch` is its newest and a process holds the lease.
    ///
    /// # Errors
    /// [`Error::StaleEpoch`] and [`Error::LeaseEnded`].
    pub fn served_under(&self, name: &ServiceName, epoch: Epoch) -> Result<&ServiceRecord, Error> {
        let service = self.services.get(name).ok_or(Error::LeaseEnded)?;
        check_lease(epoch, service.epoch, service.holder)?;
        Ok(service)
    }

    /// Registers a keeper for a session of a service. Repeating the call has no further effect.
    ///
    /// # Errors
    /// Those of a lease that is not the newest; [`Error::Unavailable`] while another keeper of the
    /// same backend lives; [`Error::UnknownBackend`] if the keeper has to end;
    /// [`Error::InvalidArgument`] if it holds another backend, or another keeper has its name; and
    /// [`Error::QuotaExceeded`] for one more than a session may have.
    pub fn keep_service_backend(
        &mut self,
        of: &ServiceSession,
        epoch: Epoch,
        keeper: KeeperRecord,
    ) -> Result<(), Error> {
        self.served_under(&of.0, epoch)?;
        let process = keeper.process;
        let of_host = self.kept_by.contains_key(&process);
        let kept = self
            .service_keepers
            .get(of)
            .and_then(|keepers| keepers.by(&process));
        let is_its =
            |other: &ServiceSession| other == of && kept.is_some_and(|kept| kept.of == keeper.of);
        let is_its = self
            .service_kept_by
            .get(&process)
            .map(is_its)
            .or(of_host.then_some(false));
        if !self.is_new_keeper(&keeper, is_its)? {
            return self.service_kept(process, keeper.name).map(drop);
        }
        let keeper = KeeperRecord {
            service: Some(of.0.clone()),
            ..keeper
        };
        let keepers = self.service_keepers.entry(of.clone()).or_default();
        keepers.check_room(keeper.of.as_ref())?;
        if keepers.of(keeper.of.as_ref()).is_some() {
            return Err(other_keeper());
        }
        keepers.put(keeper.clone());
        self.service_kept_by.insert(process, of.clone());
        self.effects
            .push(Effect::SaveKeeper(Some(of.1.clone()), keeper));
        Ok(())
    }

    /// The keeper of the backend of this name, of a session of a service.
    pub fn service_backend(
        &self,
        of: &ServiceSession,
        backend: Option<&BackendName>,
    ) -> Option<&KeeperRecord> {
        self.service_keepers.get(of)?.of(backend)
    }

    /// The backends of the services' sessions, and whose each of them is.
    pub fn service_backends(&self) -> impl Iterator<Item = (&ServiceSession, &KeeperRecord)> {
        self.service_keepers
            .iter()
            .flat_map(|(of, keepers)| keepers.iter().map(move |keeper| (of, keeper)))
    }

    /// The services that a process has leased, or whose sessions have backends.
    pub fn services(&self) -> impl Iterator<Item = &ServiceRecord> {
        self.services.values()
    }

    /// Whether nothing is left of this session's former backend of this name: a new one may start. What a
    /// list's server was before its entry was edited, while no `serve` was there to end it, ends now.
    pub fn free_service_backend(
        &mut self,
        of: &ServiceSession,
        backend: Option<&BackendName>,
    ) -> bool {
        let keepers = self.service_keepers.get(of).zip(backend);
        let former: Vec<BackendName> = keepers
            .into_iter()
            .flat_map(|(keepers, backend)| keepers.edited(backend))
            .filter_map(|keeper| keeper.of.clone())
            .collect();
        for former in &former {
            let now = backend.cloned();
            let keeper = self.service_backend(of, Some(former));
            let keeper = keeper.map(|keeper| (keeper.process, now));
            self.edited.extend(keeper);
            let told = self.stop_service_backend(of, Some(former));
            debug_assert!(told.is_ok(), "it was found just now");
        }
        let in_list = backend.map(BackendName::in_list);
        let mut served = self.service_served.values();
        former.is_empty()
            && !served.any(|(served, name)| {
                served == of && name.as_ref().map(BackendName::in_list) == in_list
            })
    }

    /// A backend of a service's session is to end, or all of them where no name is given. Each
    /// keeper stays on record until it has exited.
    ///
    /// # Errors
    /// [`Error::UnknownBackend`] when the session has none.
    pub fn stop_service_backend(
        &mut self,
        of: &ServiceSession,
        backend: Option<&BackendName>,
    ) -> Result<(), Error> {
        for keeper in self
            .service_keepers
            .get_mut(of)
            .ok_or(Error::UnknownBackend)?
            .stop(backend)?
        {
            let process = keeper.process;
            self.effects
                .push(Effect::SaveKeeper(Some(of.1.clone()), keeper));
            self.effects.push(Effect::EndKeeper(process));
        }
        Ok(())
    }

    /// A session of a service has ended: its backends end, too.
    pub fn end_service_session(&mut self, of: &ServiceSession) {
        self.forget_service_losses(|other, _| other == of);
        let Some(keepers) = self.service_keepers.remove(of) else {
            return;
        };
        for keeper in keepers.iter() {
            self.release_service_keeper(of, keeper.clone());
        }
        self.drop_idle_service(&of.0);
    }

    /// The service's session whose backend this keeper holds, unless the keeper has to end.
    pub(super) fn service_kept(
        &self,
        keeper: ProcessId,
        name: KeeperName,
    ) -> Result<&ServiceSession, Error> {
        let of = self
            .service_kept_by
            .get(&keeper)
            .ok_or(Error::UnknownBackend)?;
        let held = self
            .service_keepers
            .get(of)
            .and_then(|keepers| keepers.by(&keeper));
        held.filter(|held| held.name == name && !held.ending)
            .map(|_| of)
            .ok_or(Error::UnknownBackend)
    }

    /// The process that a service's keeper lets attach. None: the keeper is no service's.
    pub(super) fn service_front(
        &self,
        told: &SessionId,
        name: KeeperName,
        keeper: ProcessId,
        epoch: Epoch,
    ) -> Option<Result<ProcessId, Error>> {
        self.service_kept_by.get(&keeper)?;
        Some(
            self.service_kept(keeper, name)
                .and_then(|(service, session)| {
                    if session != told {
                        return Err(Error::UnknownBackend);
                    }
                    self.served_under(service, epoch)?
                        .holder
                        .ok_or(Error::LeaseEnded)
                }),
        )
    }

    /// A service's keeper has started its backend. None: the keeper is no service's.
    pub(super) fn service_backend_started(
        &mut self,
        told: &SessionId,
        name: KeeperName,
        keeper: ProcessId,
        backend: ProcessId,
    ) -> Option<Result<(), Error>> {
        let of = self.service_kept_by.get(&keeper)?;
        let record = self
            .service_keepers
            .get_mut(of)
            .and_then(|keepers| keepers.by_mut(&keeper));
        let record = record.filter(|held| held.name == name && of.1 == *told);
        let Some(record) = record else {
            return Some(Err(Error::UnknownBackend));
        };
        record.backend = Some(backend);
        self.effects
            .push(Effect::SaveKeeper(Some(of.1.clone()), record.clone()));
        Some(if record.ending {
            Err(Error::UnknownBackend)
        } else {
            Ok(())
        })
    }

    /// A process has exited. Returns its record if it was a service's keeper.
    /// `why` its server is lost, by whether the keeper was to end; `edited` if its entry was: what
    /// the server is called now.
    pub(super) fn service_keeper_exited(
        &mut self,
        process: &ProcessId,
        why: impl FnOnce(bool) -> Option<Loss>,
        edited: Option<BackendName>,
    ) -> Option<KeeperRecord> {
        let of = self.service_kept_by.remove(process)?;
        let keepers = self.service_keepers.get_mut(&of)?;
        let taken = keepers.take(process)?;
        let why = why(taken.ending);
        let keeper = KeeperRecord {
            ending: true,
            ..taken
        };
        if keepers.is_empty() {
            self.service_keepers.remove(&of);
        }
        // Before the keeper is off the record: a daemon that is killed between the two would find neither.
        match (edited, why) {
            (Some(now), _) => self.note_service_loss(&of, Some(now), Loss::Edited),
            (None, Some(why)) => self.note_service_loss(&of, keeper.of.clone(), why),
            (None, None) => {}
        }
        self.effects.push(Effect::SaveKeeper(None, keeper.clone()));
        self.service_served
            .insert(*process, (of.clone(), keeper.of.clone()));
        self.drop_idle_service(&of.0);
        Some(keeper)
    }

    /// A backend of a service's session is gone. What was lost of it before is told with that.
    fn note_service_loss(
        &mut self,
        of: &ServiceSession,
        backend: Option<BackendName>,
        because: Loss,
    ) {
        self.forget_service_losses(|other, loss| other == of && loss.of == backend);
        if self.service_losses.len() >= SERVICE_LOSSES_MAX
            && let Some((id, _)) = self.service_losses.pop_first()
        {
            self.effects.push(Effect::DropServiceLoss(id));
        }
        let loss = self.next_loss(backend, because);
        self.effects
            .push(Effect::SaveServiceLoss(of.clone(), loss.clone()));
        self.service_losses.insert(loss.id, (of.clone(), loss));
    }

    fn forget_service_losses(&mut self, which: impl Fn(&ServiceSession, &LossRecord) -> bool) {
        let gone = self
            .service_losses
            .extract_if(.., |_, (of, loss)| which(of, loss));
        let gone: Vec<LossId> = gone.map(|(id, _)| id).collect();
        self.effects
            .extend(gone.into_iter().map(Effect::DropServiceLoss));
    }

    /// What services' sessions have lost, and their clients were not told of; the newest last.
    pub fn service_losses(&self) -> impl Iterator<Item = &(ServiceSession, LossRecord)> {
        self.service_losses.values()
    }

    /// The client of a service's session was told of these losses.
    ///
    /// # Errors
    /// Those of a lease that is not the newest, or another process's.
    pub fn service_loss_told(
        &mut self,
        of: &ServiceSession,
        epoch: Epoch,
        process: ProcessId,
        losses: &[LossId],
    ) -> Result<(), Error> {
        self.serves(&of.0, epoch, process)?;
        self.forget_service_losses(|other, loss| other == of && losses.contains(&loss.id));
        Ok(())
    }

    /// Ends the leases of these processes: the one on `name`, or all of them if there is no `name`.
    pub(super) fn vacate_services(&mut self, processes: &[ProcessId], name: Option<&ServiceName>) {
        let served = self.services.values_mut().filter(|service| {
            let is_theirs = service
                .holder
                .is_some_and(|holder| processes.contains(&holder));
            is_theirs && name.is_none_or(|name| service.name == *name)
        });
        let mut free = Vec::new();
        for service in served {
            service.holder = None;
            self.effects.push(Effect::SaveService(service.clone()));
            free.push(service.name.clone());
        }
        for name in free {
            self.drop_idle_service(&name);
        }
    }

    /// Restores the services on record, and the keepers of their sessions. Returns the keepers that
    /// have no service, or whose place another one has.
    pub(super) fn restore_services(
        &mut self,
        services: Vec<ServiceRecord>,
        serving: Vec<(SessionId, KeeperRecord)>,
    ) -> Vec<KeeperRecord> {
        self.services = services
            .into_iter()
            .map(|service| (service.name.clone(), service))
            .collect();
        let mut lost = Vec::new();
        for (session, keeper) in serving {
            let known = keeper
                .service
                .clone()
                .filter(|name| self.services.contains_key(name));
            let Some(name) = known else {
                lost.push(keeper);
                continue;
            };
            self.service_kept_by
                .insert(keeper.process, (name.clone(), session.clone()));
            if let Some(other) = self
                .service_keepers
                .entry((name, session))
                .or_default()
                .put(keeper)
            {
                self.service_kept_by.remove(&other.process);
                lost.push(other);
            }
        }
        lost
    }

    /// Forgets the services that have neither a leaseholder nor a keeper.
    pub(super) fn drop_idle_services(&mut self) {
        for name in self.services.keys().cloned().collect::<Vec<_>>() {
            self.drop_idle_service(&name);
        }
    }

    fn drop_idle_service(&mut self, name: &ServiceName) {
        let is_free = self
            .services
            .get(name)
            .is_some_and(|service| service.holder.is_none());
        if is_free && !self.service_kept_by.values().any(|(of, _)| of == name) {
            self.services.remove(name);
            self.effects.push(Effect::DropService(name.clone()));
        }
    }

    fn release_service_keeper(&mut self, of: &ServiceSession, keeper: KeeperRecord) {
        self.service_kept_by.remove(&keeper.process);
        self.service_served
            .insert(keeper.process, (of.clone(), keeper.of.clone()));
        self.end_keeper(keeper);
    }
}
