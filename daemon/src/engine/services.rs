//! Leases on the names of services, and the backends of their sessions.

use std::collections::BTreeSet;

use mcp_sessiond_process::{self as process, PinnedProcess, ProcessId};
use mcp_sessiond_proto::backends::Kept;
use mcp_sessiond_proto::services::{
    NoteLossRequest, ServeRequest, Served, ServiceLease, ServiceLoss, ServiceLossesRequest,
};
use mcp_sessiond_proto::time::now_ms;
use mcp_sessiond_proto::{Epoch, Error, LossId, LossRecord, SessionId};
use mcp_sessiond_registry::{BackendOf, ServiceSession};

use super::Engine;
use super::backends::is_above;
use super::claim::failed;
use crate::storage::RecordId;

impl Engine {
    /// Leases a name to the peer, until it exits or releases the lease.
    ///
    /// # Errors
    /// [`Error::ServiceTaken`] while another process holds the lease; [`Error::LeaseEnded`] if the
    /// peer has exited or its deadline has passed; or when the records can't be written.
    pub async fn lease_service(
        &self,
        peer: &PinnedProcess,
        request: ServeRequest,
    ) -> Result<Served, Error> {
        let since_ms = now_ms();
        let (epoch, kept) = {
            let mut state = self.lock();
            state.ledger.check()?;
            state
                .exits
                .add(peer.clone())
                .map_err(|error| failed(&error))?;
            state.take_in_exits(self.now());
            let is_late = request
                .until_ms
                .is_some_and(|until| until < process::monotonic_ms());
            let leased = if !peer.is_alive() || is_late {
                Err(Error::LeaseEnded)
            } else {
                let leased = state
                    .registry
                    .lease_service(&request.service, peer.id(), since_ms);
                leased.map(|service| service.epoch)
            };
            self.apply(&mut state);
            state.unwatch(&peer.id());
            (leased?, state.ledger.waiter())
        };
        kept.kept().await?;
        Ok(Served { epoch })
    }

    /// The peer releases its lease on a name.
    ///
    /// # Errors
    /// Those of a lease that is not the newest, or another process's.
    pub async fn release_service(
        &self,
        peer: &PinnedProcess,
        request: ServiceLease,
    ) -> Result<(), Error> {
        let ServiceLease { service, epoch } = request;
        self.tell_and_keep(|registry| registry.release_service(&service, epoch, peer.id()))
            .await?;
        self.lock().unwatch(&peer.id());
        Ok(())
    }

    /// The session of a service that a process above `peer` has leased under this epoch, and which
    /// process that is.
    pub(super) fn served_above(
        &self,
        peer: &PinnedProcess,
        of: ServiceSession,
        epoch: Epoch,
    ) -> Result<(BackendOf, ProcessId), Error> {
        let holder = self.look(|registry| Ok(registry.served_under(&of.0, epoch)?.holder))?;
        let holder = holder.ok_or(Error::LeaseEnded)?;
        if !is_above(holder, peer)? {
            return Err(Error::NotAnAncestor { pid: holder.pid });
        }
        Ok((BackendOf::Service(of), holder))
    }

    /// What the daemon tells the keeper of a service's session.
    pub(super) fn kept_of_service(&self, copy: Option<String>) -> Kept {
        let linger_ms = self.settings().loaded.config.http.linger_ms;
        self.kept(None, (linger_ms, linger_ms), copy)
    }

    /// What sessions of services have lost, and their clients were not told of.
    pub fn service_losses(&self, request: &ServiceLossesRequest) -> Vec<ServiceLoss> {
        let ServiceLossesRequest { service, session } = request;
        self.look(|registry| {
            let is_meant = |(of, _): &&(ServiceSession, LossRecord)| {
                service.as_ref().is_none_or(|service| of.0 == *service)
                    && session.as_ref().is_none_or(|session| of.1 == *session)
            };
            let meant = registry.service_losses().filter(is_meant).cloned();
            meant
                .map(|((service, session), loss)| ServiceLoss {
                    service,
                    session,
                    loss,
                })
                .collect()
        })
    }

    /// Puts on record what the holder of a service's lease has found to be lost.
    ///
    /// # Errors
    /// Those of a lease that is not the newest, or another process's; or when the records can't be
    /// written.
    pub async fn note_loss(
        &self,
        peer: &PinnedProcess,
        request: NoteLossRequest,
    ) -> Result<LossRecord, Error> {
        let NoteLossRequest {
            service,
            epoch,
            session,
            of,
            because,
        } = request;
        let whose = (service, session);
        self.tell_and_keep(|registry| registry.note_loss_of(&whose, epoch, peer.id(), of, because))
            .await
    }

    /// The client of a service's session was told of what that has lost.
    ///
    /// # Errors
    /// Those of a lease that is not the newest, or another process's; or when the records can't be
    /// written.
    pub async fn service_loss_told(
        &self,
        peer: ProcessId,
        of: &ServiceSession,
        epoch: Epoch,
        losses: &[LossId],
    ) -> Result<(), Error> {
        self.tell_and_keep(|registry| registry.service_loss_told(of, epoch, peer, losses))
            .await
    }

    /// A session has ended in the storage. If it is a service's, ends its backend.
    pub(super) fn end_service_session(&self, place: &RecordId) {
        let service = place
            .owner
            .strip_prefix("service ")
            .and_then(|name| name.parse().ok());
        if let Some(of) = service.zip(place.name.parse::<SessionId>().ok()) {
            self.tell(|registry| registry.end_service_session(&of));
        }
    }

    /// The sessions of services that have a backend.
    pub fn served_sessions(&self) -> Vec<ServiceSession> {
        self.look(|registry| {
            let all = registry.backends().filter_map(|(of, _)| of.service());
            let all: BTreeSet<&ServiceSession> = all.collect();
            all.into_iter().cloned().collect()
        })
    }

    /// The sessions of services that have lost something of which their clients were not told.
    pub fn losing_sessions(&self) -> BTreeSet<ServiceSession> {
        self.look(|registry| {
            let losses = registry.service_losses();
            losses.map(|(of, _)| of.clone()).collect()
        })
    }

    /// Whether a process has leased a service, or a service's session has a backend.
    pub fn serves(&self) -> bool {
        self.look(|registry| registry.services().next().is_some())
    }

    /// Ends the backend of a service's session that has ended.
    pub fn end_served(&self, of: &ServiceSession) {
        self.tell(|registry| registry.end_service_session(of));
    }
}
