//! Who may see which session, and who may change it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mcp_sessiond_process::{self as process, PinnedProcess, ProcessId, StartTime};
use mcp_sessiond_proto::sessions::SessionRef;
use mcp_sessiond_proto::{Epoch, Error, Label, SessionId};
use mcp_sessiond_registry::Claimant;

use super::Engine;
use super::claim::{Verified, exhausted, failed, verify};
use crate::contents::{Access, Lease, OwnerStatus, Writer};
use crate::storage::RecordId;

/// A lease as the registry knows it, whenever it is asked.
struct Leased {
    engine: Arc<Engine>,
    session: SessionId,
    epoch: Option<Epoch>,
}

impl Lease for Leased {
    fn check(&self, keeps: bool) -> Result<(), Error> {
        let epoch = self.epoch.ok_or_else(|| Error::InvalidArgument {
            sentence: "a host's session is changed under a lease: `epoch` says under which".into(),
        })?;
        self.engine.tell(|registry| {
            registry.check(&self.session, epoch)?;
            if keeps {
                registry.touch(&self.session);
            }
            Ok(())
        })
    }

    fn is_held(&self) -> bool {
        self.engine.look(|registry| {
            registry
                .session(&self.session)
                .is_some_and(|session| session.holder.is_some())
        })
    }

    fn is_there(&self) -> bool {
        self.engine
            .look(|registry| registry.session(&self.session).is_some())
    }
}

/// Instances that somebody speaks for: itself, and the ancestors that it has claimed for.
pub type Instances = BTreeMap<ProcessId, Arc<Claimant>>;

impl Engine {
    /// A process as it claims, or would: its host is verified, and its traits are read, where they
    /// are not known yet.
    ///
    /// # Errors
    /// [`Error::NoVerifiedHost`], [`Error::Unavailable`].
    pub async fn claimant(&self, peer: &PinnedProcess) -> Result<Claimant, Error> {
        if let Some(known) = self.look(|registry| registry.claimant(&peer.id()).cloned()) {
            return Ok(known);
        }
        let (peer, settings) = (peer.clone(), self.settings());
        // Reading another process can block on its memory.
        let reading = tokio::task::spawn_blocking(move || {
            verify(&peer, &settings, None).map(Verified::claimant)
        });
        reading.await.map_err(|error| failed(&error))?
    }

    /// A host's session, for who speaks for these instances. What is not for them is as if it were
    /// not there.
    pub fn access(self: &Arc<Self>, instances: &Instances, of: &SessionRef) -> Access {
        let found = self.find(instances, &of.session);
        let lease = |session| Leased {
            engine: self.clone(),
            session,
            epoch: of.epoch,
        };
        let claimed = found.is_some();
        let (owner, writer) = match found {
            Some((owner, session)) => (Some(owner), Writer::Holder(Arc::new(lease(session)))),
            // There can be a tombstone: most speak for one host only, and of the others the first
            // one's is told.
            None => (
                instances.values().next().map(|claimant| claimant.host),
                Writer::Nobody,
            ),
        };
        Access {
            place: self.place(owner, &of.session),
            caller: of.caller.clone(),
            writer,
            claimed,
            keeps: true,
        }
    }

    /// A session of one of these instances, by the id that its host knows: whose it is, and its own
    /// id.
    pub fn find(&self, instances: &Instances, told: &SessionId) -> Option<(ProcessId, SessionId)> {
        self.peek(|registry| {
            let found = instances
                .iter()
                .find_map(|(process, claimant)| registry.find_for(*process, claimant, told));
            found.map(|session| (session.owner, session.id.clone()))
        })
    }

    /// What the server is called that one of these instances' sessions was made for, and its label.
    pub fn made_for(
        &self,
        instances: &Instances,
        told: &SessionId,
    ) -> Option<(String, Option<Label>)> {
        self.peek(|registry| {
            let found = instances
                .iter()
                .find_map(|(process, claimant)| registry.find_for(*process, claimant, told));
            found.map(|session| (session.program.clone(), session.description.label.clone()))
        })
    }

    /// Whether a session that the host knows under this id is none that these instances may know
    /// of.
    pub fn is_hidden(&self, host: ProcessId, instances: &Instances, told: &SessionId) -> bool {
        self.look(|registry| {
            let session = registry.find(host, told);
            session.is_some_and(|session| {
                !instances
                    .iter()
                    .any(|(process, claimant)| session.is_for(*process, claimant))
            })
        })
    }

    /// The instance that a peer has just claimed for.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub fn instance_of(
        &self,
        peer: &PinnedProcess,
        instance: Option<u32>,
    ) -> Result<Option<(ProcessId, Claimant)>, Error> {
        let instance = match instance.filter(|pid| *pid != peer.id().pid) {
            None => Some(peer.id()),
            Some(pid) => process::ancestor(peer, pid)
                .map_err(exhausted)?
                .map(|found| found.id()),
        };
        Ok(instance.and_then(|instance| {
            self.peek(|registry| {
                registry
                    .claimant(&instance)
                    .map(|claimant| (instance, claimant.clone()))
            })
        }))
    }

    /// Where the contents of a host's session are.
    pub fn place(&self, host: Option<ProcessId>, session: &SessionId) -> RecordId {
        let owner = host.map_or_else(|| "host".to_owned(), |host| self.owner(host));
        RecordId {
            owner,
            name: session.to_string(),
        }
    }

    /// A host as the storage knows it: among all that ever ran, on whatever machine.
    pub fn owner(&self, host: ProcessId) -> String {
        let ProcessId { pid, start, inode } = host;
        let inode = inode.map_or_else(String::new, |inode| format!(" {inode}"));
        format!("host {} {pid} {}{inode}", self.home, start.0)
    }

    /// The process that [`Engine::owner`] has written so. None: it belongs to another machine, boot
    /// or runtime directory.
    pub fn process_of(&self, owner: &str) -> Option<ProcessId> {
        host_of(at_home(owner.strip_prefix("host ")?, &self.home)?)
    }

    /// By what this daemon is known to the others that share its storage.
    pub fn home(&self) -> &str {
        &self.home
    }

    /// What is known of the owner of a record.
    pub fn owner_status(&self, place: &RecordId) -> OwnerStatus {
        let Some(host) = place.owner.strip_prefix("host ") else {
            return OwnerStatus::Service;
        };
        let Some(host) = at_home(host, &self.home) else {
            return OwnerStatus::Elsewhere;
        };
        let Some(host) = host_of(host) else {
            return OwnerStatus::Gone;
        };
        self.look(|registry| {
            let session = place.name.parse::<SessionId>().ok();
            match session.and_then(|told| registry.find(host, &told)) {
                Some(session) if session.holder.is_some() => OwnerStatus::Held,
                Some(_) => OwnerStatus::Free,
                None if registry.depends_on(&host) => OwnerStatus::Left,
                None => OwnerStatus::Gone,
            }
        })
    }

    /// The ids of the sessions of a host, and of those of them that are for these instances, after
    /// `after` and in order, at most `most`.
    pub fn sessions_of(
        &self,
        host: ProcessId,
        instances: &Instances,
        after: Option<&SessionId>,
        most: usize,
    ) -> Vec<SessionId> {
        self.look(|registry| {
            let of_host = registry.sessions().filter(|session| session.owner == host);
            let of_host = of_host.filter(|session| {
                instances
                    .iter()
                    .any(|(process, claimant)| session.is_for(*process, claimant))
            });
            let told = of_host
                .map(|session| session.public_id())
                .filter(|told| after.is_none_or(|after| *told > after));
            let told: BTreeSet<&SessionId> = told.collect();
            told.into_iter().take(most).cloned().collect()
        })
    }

    /// A session has ended in the storage: nobody is led to it any more. Its token goes with it.
    pub fn forget(&self, place: &RecordId) {
        self.end_service_session(place);
        let host = place
            .owner
            .strip_prefix("host ")
            .and_then(|host| at_home(host, &self.home));
        let Some((host, told)) = host
            .and_then(host_of)
            .zip(place.name.parse::<SessionId>().ok())
        else {
            return;
        };
        self.tell(|registry| {
            if let Some(id) = registry.find(host, &told).map(|session| session.id.clone()) {
                registry.end(&id);
            }
        });
    }
}

/// The home of the daemon of which [`Engine::owner`] has written this.
pub fn home_of(owner: &str) -> Option<&str> {
    owner.strip_prefix("host ")?.split(' ').next()
}

/// What [`Engine::owner`] writes behind the home, if that is this daemon's: another's may begin
/// with the same digits.
fn at_home<'a>(host: &'a str, home: &str) -> Option<&'a str> {
    host.strip_prefix(home)?.strip_prefix(' ')
}

/// What [`Engine::owner`] writes behind the daemon's home.
fn host_of(text: &str) -> Option<ProcessId> {
    let mut parts = text.split(' ').map(|part| part.parse::<u64>().ok());
    let pid = u32::try_from(parts.next()??).ok()?;
    Some(ProcessId {
        pid,
        start: StartTime(parts.next()??),
        inode: parts.next().flatten(),
    })
}
