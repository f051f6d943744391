//! Services: one process at a time holds the lease on a service's name. The backends of the
//! service's sessions belong to the service, not to a host.
//!
//! The registry knows only who holds the lease, and which keeper holds which session's backend.
//! What the sessions contain is in the storage.

use alloc::vec::Vec;

use mcp_sessiond_identity::ProcessId;
use mcp_sessiond_proto::{BackendName, Epoch, Error, Loss, LossId, LossRecord, ServiceName};

use super::keepers::Served;
use super::leases::check_lease;
use super::{BackendOf, Effect, Record, RecordKey, Registry, ServiceRecord, ServiceSession};

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
                self.effects
                    .push(Effect::Save(Record::Service(service.clone())));
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

    /// The services that a process has leased, or whose sessions have backends.
    pub fn services(&self) -> impl Iterator<Item = &ServiceRecord> {
        self.services.values()
    }

    /// A session of a service has ended: its backends end, too.
    pub fn end_service_session(&mut self, of: &ServiceSession) {
        self.forget_service_losses(|other, _| other == of);
        self.let_go(&of.into(), |keeper| Served::of_service(of, keeper));
        self.drop_idle_service(&of.0);
    }

    /// A backend of a service's session is gone. What was lost of it before is told with that.
    pub(super) fn note_service_loss(
        &mut self,
        of: &ServiceSession,
        backend: Option<BackendName>,
        because: Loss,
    ) -> LossRecord {
        self.forget_service_losses(|other, loss| other == of && loss.of == backend);
        if self.service_losses.len() >= SERVICE_LOSSES_MAX
            && let Some((id, _)) = self.service_losses.pop_first()
        {
            self.effects.push(Effect::Drop(RecordKey::ServiceLoss(id)));
        }
        let loss = self.next_loss(backend, because);
        self.effects
            .push(Effect::Save(Record::ServiceLoss(of.clone(), loss.clone())));
        self.service_losses
            .insert(loss.id, (of.clone(), loss.clone()));
        loss
    }

    /// The process that serves this session has found that something of it is lost.
    ///
    /// # Errors
    /// Those of a lease that is not the newest, or another process's.
    pub fn note_loss_of(
        &mut self,
        of: &ServiceSession,
        epoch: Epoch,
        process: ProcessId,
        backend: Option<BackendName>,
        because: Loss,
    ) -> Result<LossRecord, Error> {
        self.serves(&of.0, epoch, process)?;
        Ok(self.note_service_loss(of, backend, because))
    }

    fn forget_service_losses(&mut self, which: impl Fn(&ServiceSession, &LossRecord) -> bool) {
        let gone = self
            .service_losses
            .extract_if(.., |_, (of, loss)| which(of, loss));
        let gone: Vec<LossId> = gone.map(|(id, _)| id).collect();
        let forgotten = |id| Effect::Drop(RecordKey::ServiceLoss(id));
        self.effects.extend(gone.into_iter().map(forgotten));
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
            self.effects
                .push(Effect::Save(Record::Service(service.clone())));
            free.push(service.name.clone());
        }
        for name in free {
            self.drop_idle_service(&name);
        }
    }

    /// Forgets the services that have neither a leaseholder nor a keeper.
    pub(super) fn drop_idle_services(&mut self) {
        for name in self.services.keys().cloned().collect::<Vec<_>>() {
            self.drop_idle_service(&name);
        }
    }

    pub(super) fn drop_idle_service(&mut self, name: &ServiceName) {
        let is_free = self
            .services
            .get(name)
            .is_some_and(|service| service.holder.is_none());
        let has_keeper = |of: &BackendOf| of.service().is_some_and(|(of, _)| of == name);
        if is_free && !self.kept.keys().any(has_keeper) {
            self.services.remove(name);
            self.effects
                .push(Effect::Drop(RecordKey::Service(name.clone())));
        }
    }
}
