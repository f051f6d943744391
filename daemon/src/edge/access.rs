//! Who may see which session, and who may change it.

use std::collections::BTreeSet;
use std::sync::Arc;

use mcp_sessiond_proto::sessions::SessionRef;
use mcp_sessiond_proto::{Epoch, Error, SessionId};

use super::Edge;
use super::claim::{failed, verify};
use crate::contents::{Access, Lease, Standing, Writer};
use crate::process::{Pinned, ProcessId, StartTime};
use crate::storage::Place;

/// A lease as the registry knows it, whenever it is asked.
struct Leased {
    edge: Arc<Edge>,
    session: SessionId,
    epoch: Option<Epoch>,
}

impl Lease for Leased {
    fn check(&self) -> Result<(), Error> {
        let epoch = self.epoch.ok_or_else(|| Error::InvalidArgument {
            sentence: "a host's session is changed under a lease: `epoch` says under which".into(),
        })?;
        self.edge.tell(|registry| registry.check(&self.session, epoch))
    }

    fn is_held(&self) -> bool {
        self.edge
            .look(|registry| registry.session(&self.session).is_some_and(|session| session.holder.is_some()))
    }
}

impl Edge {
    /// The host of a process, which is verified where it is not known yet.
    ///
    /// # Errors
    /// [`Error::NoVerifiedHost`].
    pub async fn host_of(&self, peer: &Pinned) -> Result<ProcessId, Error> {
        let known = self.look(|registry| registry.claimant(&peer.id()).map(|claimant| claimant.host));
        if let Some(host) = known {
            return Ok(host);
        }
        let (peer, settings) = (peer.clone(), self.settings());
        // Reading another process can block on its memory.
        let reading =
            tokio::task::spawn_blocking(move || verify(&peer, &settings).map(|found| found.host.id()));
        reading.await.map_err(|error| failed(&error))?
    }

    /// A host's session, for who speaks for one of these hosts. What belongs to another is as if it were not there.
    #[must_use]
    pub fn access(self: &Arc<Self>, hosts: &BTreeSet<ProcessId>, of: &SessionRef) -> Access {
        let owner = self.peek(|registry| registry.session(&of.session).map(|session| session.owner));
        let owner = owner.filter(|owner| hosts.contains(owner));
        let lease = || Leased { edge: self.clone(), session: of.session.clone(), epoch: of.epoch };
        Access {
            // Without a session there can be a tombstone, of whichever host: they are asked in their order.
            place: self.place(owner.or_else(|| hosts.first().copied()), &of.session),
            caller: of.caller.clone(),
            writer: if owner.is_some() { Writer::Holder(Arc::new(lease())) } else { Writer::Nobody },
            claimed: owner.is_some(),
        }
    }

    /// The host that owns a session.
    #[must_use]
    pub fn host_of_session(&self, session: &SessionId) -> Option<ProcessId> {
        self.peek(|registry| registry.session(session).map(|session| session.owner))
    }

    /// Whether the session is one of these hosts'.
    #[must_use]
    pub fn is_of(&self, hosts: &BTreeSet<ProcessId>, session: &SessionId) -> bool {
        self.peek(|registry| registry.session(session).is_some_and(|session| hosts.contains(&session.owner)))
    }

    /// Where the contents of a host's session are.
    #[must_use]
    pub fn place(&self, host: Option<ProcessId>, session: &SessionId) -> Place {
        let owner = host.map_or_else(|| "host".to_owned(), |host| self.owner(host));
        Place { owner, name: session.to_string() }
    }

    /// A host as the storage knows it: among all that ever ran, on whatever machine.
    #[must_use]
    pub fn owner(&self, host: ProcessId) -> String {
        let ProcessId { pid, start, inode } = host;
        let inode = inode.map_or_else(String::new, |inode| format!(" {inode}"));
        format!("host {} {pid} {}{inode}", self.boot, start.0)
    }

    /// What is known of the owner of a record.
    #[must_use]
    pub fn standing(&self, place: &Place) -> Standing {
        let Some(host) = place.owner.strip_prefix("host ") else { return Standing::Service };
        let mut parts = host.split(' ');
        if parts.next() != Some(self.boot.as_str()) {
            return Standing::Elsewhere;
        }
        let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok());
        let (pid, start, inode) = (number(), number(), number());
        let pid = pid.and_then(|pid| u32::try_from(pid).ok());
        let Some((pid, start)) = pid.zip(start) else { return Standing::Gone };
        let host = ProcessId { pid, start: StartTime(start), inode };
        self.look(|registry| {
            let session = place.name.parse::<SessionId>().ok();
            let session =
                session.and_then(|id| registry.session(&id)).filter(|session| session.owner == host);
            match session {
                Some(session) if session.holder.is_some() => Standing::Held,
                Some(_) => Standing::Free,
                None if registry.depends_on(&host) => Standing::Free,
                None => Standing::Gone,
            }
        })
    }

    /// The ids of a host's sessions after `after`, in order, at most `most`.
    #[must_use]
    pub fn sessions_of(&self, host: ProcessId, after: Option<&SessionId>, most: usize) -> Vec<SessionId> {
        self.look(|registry| {
            let sessions = registry.sessions_after(after).filter(|session| session.owner == host);
            sessions.take(most).map(|session| session.id.clone()).collect()
        })
    }

    /// A session has ended in the storage: nobody is led to it any more. Its token goes with it.
    pub fn forget(&self, place: &Place) {
        if let Ok(session) = place.name.parse::<SessionId>() {
            self.tell(|registry| {
                let is_it =
                    registry.session(&session).is_some_and(|known| self.owner(known.owner) == place.owner);
                if is_it {
                    registry.end(&session);
                }
            });
        }
    }
}
