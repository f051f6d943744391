//! When the daemon's records are lost, each keeper gives back its copy of its session's record.
//!
//! Other records stay lost: leases that no keeper has heard of, and whether a host was seen with a
//! crowd of servers. So no claim finds such a session by its key. A host's server stays for the
//! front that is attached, if the kernel confirms the host, and ends with that front. Sessions that
//! the user has named are found by their names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use mcp_sessiond_process::{
    self as process, Key, PinnedProcess, ProcessId, SelfDescription, StartTime,
};
use mcp_sessiond_proto::backends::{
    KeeperName, KeeperReply, KeeperRequest, ProcessRef, Remembered,
};
use mcp_sessiond_proto::types::ClientName;
use mcp_sessiond_proto::{BackendName, Epoch, Label, ServiceName, SessionId, Siblings};
use mcp_sessiond_registry::{
    BackendOf, KeeperRecord, OwnerRecord, ProgramDir, Rule, ServiceRecord, ServiceSession,
    SessionRecord, Snapshot, TokenFile,
};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::keepers::Listener;

/// How many keepers are asked at a time, each by a thread of its own.
const AT_ONCE: usize = 16;

/// The copy of a session's record that a keeper holds. Only daemons write and read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordCopy {
    session: SessionId,
    /// None: the user.
    host: Option<ProcessRef>,
    host_name: String,
    host_rule: Option<Siblings>,
    /// Whether two conversations of the host were seen at once, when the keeper registered.
    #[serde(default)]
    conversations_at_once: bool,
    /// The key of the name, if the session is the user's.
    key: Option<Vec<u8>>,
    program: String,
    /// The name of the backend that the keeper holds.
    #[serde(default)]
    backend: Option<BackendName>,
    label: Option<Label>,
    entry: Option<Label>,
    client: Option<ClientName>,
    program_dir: Option<ProgramDir>,
    asked: Option<Siblings>,
    /// See [`Rule::to_text`].
    rule: String,
    opened_ms: u64,
    file: u32,
}

impl RecordCopy {
    /// The copy of a session. None: the session has an id that its owner chose; such a session has
    /// no backend.
    pub(super) fn of(
        session: &SessionRecord,
        owner: &OwnerRecord,
        backend: Option<BackendName>,
    ) -> Option<String> {
        session.name.is_none().then_some(())?;
        let is_users = session.owner == ProcessId::USER;
        let SessionRecord {
            id,
            description,
            program_dir,
            asked,
            rule,
            opened_ms,
            file,
            program,
            ..
        } = session.clone();
        let copy = Self {
            session: id,
            host: (!is_users).then(|| reference(session.owner)),
            host_name: owner.name.clone(),
            host_rule: owner.host_rule,
            conversations_at_once: owner.conversations_at_once,
            key: session.key.filter(|_| is_users).map(|key| key.to_bytes()),
            program,
            backend,
            label: description.label,
            entry: description.entry,
            client: description.client,
            program_dir,
            asked,
            rule: rule.to_text(),
            opened_ms,
            file: file.number,
        };
        serde_json::to_string(&copy).ok()
    }

    /// The records that this is a copy of, with defaults for all that the copy does not have.
    fn records(
        self,
        keeper: KeeperRecord,
        epoch: Epoch,
        holder: Option<ProcessId>,
    ) -> Option<Adopted> {
        let host = self.host.map_or(ProcessId::USER, process_id);
        let owner = OwnerRecord {
            host,
            name: self.host_name,
            host_rule: self.host_rule,
            multiplexed_keys: BTreeSet::new(),
            conversations_at_once: self.conversations_at_once,
            ambiguous: BTreeSet::new(),
            losses: Vec::new(),
            rules: BTreeMap::new(),
            names: BTreeSet::new(),
        };
        let session = SessionRecord {
            id: self.session,
            owner: host,
            key: self
                .key
                .map(|key| Key::from_bytes(&key).ok_or(()))
                .transpose()
                .ok()?,
            name: None,
            made_by: None,
            program: self.program,
            description: SelfDescription {
                label: self.label,
                entry: self.entry,
                client: self.client,
            },
            program_dir: self.program_dir,
            asked: self.asked,
            rule: Rule::from_text(&self.rule)?,
            opened: 0,
            freed: 0,
            opened_ms: self.opened_ms,
            epoch,
            holder,
            closed_ms: None,
            file: TokenFile {
                host,
                number: self.file,
            },
            digest: None,
            former: None,
            offered: false,
        };
        Some(Adopted {
            owner,
            session,
            keeper,
        })
    }
}

/// A service's keeper holds this copy, and gives it back to a daemon that has lost its records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ServiceCopy {
    pub(super) service: ServiceName,
    pub(super) session: SessionId,
    #[serde(default)]
    pub(super) backend: Option<BackendName>,
    pub(super) program: String,
    pub(super) since_ms: u64,
}

impl ServiceCopy {
    /// The copy as text.
    pub(super) fn text(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }
}

/// What a keeper has given back.
#[derive(Debug)]
enum Given {
    /// It has a record of which nothing can be taken over.
    Nothing,
    Session(Box<Adopted>),
    Served(ServiceRecord, ServiceSession, KeeperRecord),
}

/// A session that a keeper has given back.
#[derive(Debug)]
struct Adopted {
    owner: OwnerRecord,
    session: SessionRecord,
    keeper: KeeperRecord,
}

/// Asks the keepers that are not on record, and puts what they give back into the snapshot. Returns
/// the sessions, and whether any of the keepers was on record before.
pub(super) fn adopt(
    directory: &Path,
    keepers: &[KeeperName],
    config: &Config,
    snapshot: &mut Snapshot,
) -> (Vec<SessionId>, bool) {
    let (mut given, mut was_on_record) = (Vec::new(), false);
    for one in keepers
        .chunks(AT_ONCE)
        .flat_map(|some| asked(directory, some, config))
    {
        was_on_record = true;
        match one {
            Given::Nothing => {}
            Given::Session(adopted) => given.push(*adopted),
            Given::Served(service, of, keeper) => adopt_served(snapshot, service, of, keeper),
        }
    }
    (take_in(given, snapshot), was_on_record)
}

/// Puts what keepers have given back into the snapshot. Returns the sessions.
fn take_in(mut given: Vec<Adopted>, snapshot: &mut Snapshot) -> Vec<SessionId> {
    // If several keepers claim one backend, the one with the latest front is its keeper.
    given.sort_by_key(|adopted| {
        (
            adopted.session.holder.is_none(),
            std::cmp::Reverse(adopted.session.epoch),
        )
    });
    let mut adopted: Vec<SessionId> = Vec::new();
    for Adopted {
        owner,
        mut session,
        keeper,
    } in given
    {
        let of = BackendOf::Session(session.id.clone());
        // Some keepers have registered before that was seen.
        let is_same = |known: &&mut OwnerRecord| known.host == owner.host;
        if let Some(known) = snapshot.owners.iter_mut().find(is_same) {
            known.conversations_at_once |= owner.conversations_at_once;
        }
        // Another backend of the same session. Its front has one lease for all of them.
        let known = snapshot
            .sessions
            .iter_mut()
            .find(|known| known.id == session.id);
        let known =
            known.filter(|known| adopted.contains(&known.id) && known.owner == session.owner);
        if let Some(known) = known {
            known.epoch = known.epoch.max(session.epoch);
            put_first(snapshot, of, keeper);
            continue;
        }
        let is_taken = |known: &SessionRecord| {
            let same_name =
                session.key.is_some() && known.key == session.key && known.owner == session.owner;
            known.id == session.id || same_name
        };
        if snapshot.sessions.iter().any(is_taken) {
            continue;
        }
        let newest = snapshot
            .sessions
            .iter()
            .map(|session| session.opened.max(session.freed))
            .max();
        session.opened = newest.unwrap_or(0) + 1;
        adopted.push(session.id.clone());
        if !snapshot.owners.iter().any(|known| known.host == owner.host) {
            snapshot.owners.push(owner);
        }
        snapshot.sessions.push(session);
        put_first(snapshot, of, keeper);
    }
    adopted
}

/// Puts a keeper into the snapshot, unless another one holds its backend. Says whether it did.
fn put_first(snapshot: &mut Snapshot, of: BackendOf, keeper: KeeperRecord) -> bool {
    let mut others = snapshot.kept.iter();
    let is_first = !others.any(|(other, kept)| *other == of && kept.of == keeper.of);
    if is_first {
        snapshot.kept.push((of, keeper));
    }
    is_first
}

/// Puts a service's session into the snapshot. The service goes on under an epoch that no keeper
/// has given out, leased to the process that was attached, if it lives.
fn adopt_served(
    snapshot: &mut Snapshot,
    service: ServiceRecord,
    of: ServiceSession,
    keeper: KeeperRecord,
) {
    if !put_first(snapshot, BackendOf::Service(of), keeper) {
        return;
    }
    match snapshot
        .services
        .iter_mut()
        .find(|known| known.name == service.name)
    {
        Some(known) => {
            known.epoch = known.epoch.max(service.epoch);
            known.holder = known.holder.or(service.holder);
        }
        None => snapshot.services.push(service),
    }
}

/// Asks each keeper in a thread, and returns what they give back. Keepers for which no thread could
/// be started are left out.
fn asked(directory: &Path, keepers: &[KeeperName], config: &Config) -> Vec<Given> {
    std::thread::scope(|scope| {
        let asking: Vec<_> = keepers
            .iter()
            .filter_map(|name| {
                let ask = move || given_back(directory, *name, config);
                std::thread::Builder::new().spawn_scoped(scope, ask).ok()
            })
            .collect();
        asking
            .into_iter()
            .filter_map(|one| one.join().ok().flatten())
            .collect()
    })
}

/// Asks a keeper, and returns what it gives back, if the kernel confirms it.
fn given_back(directory: &Path, name: KeeperName, config: &Config) -> Option<Given> {
    let listener = Listener::find(directory, name).ok()??;
    let keeper = listener.process.clone();
    let Some(KeeperReply::Remembered(said)) = listener.ask(&KeeperRequest::Remember {}) else {
        return None;
    };
    let Remembered {
        record,
        epoch,
        front,
        backend,
        ending,
    } = said;
    let record = record.filter(|_| !ending)?;
    // From here on it is one that was on record.
    let given = given_by(&keeper, name, config, &record, (epoch, front, backend));
    Some(given.unwrap_or(Given::Nothing))
}

/// What the copy of a record gives back, if the kernel confirms it.
fn given_by(
    keeper: &PinnedProcess,
    name: KeeperName,
    config: &Config,
    record: &str,
    (epoch, front, backend): (Epoch, Option<ProcessRef>, Option<u32>),
) -> Option<Given> {
    let lives = |process: ProcessId| PinnedProcess::reopen(&process).ok().flatten();
    let front = front.map(process_id);
    let backend = backend
        .and_then(|pid| process::child_of(keeper, pid).ok().flatten())
        .map(|backend| backend.id());
    let process = keeper.id();
    let of = |program| KeeperRecord {
        backend,
        ..KeeperRecord::new(process, name, program)
    };
    if let Ok(copy) = serde_json::from_str::<ServiceCopy>(record) {
        let holder = front.filter(|front| lives(*front).is_some());
        let ServiceCopy {
            service,
            session,
            backend,
            program,
            since_ms,
        } = copy;
        let keeper = KeeperRecord {
            of: backend,
            ..of(program)
        };
        let record = ServiceRecord {
            name: service.clone(),
            epoch,
            holder,
            since_ms,
        };
        return Some(Given::Served(record, (service, session), keeper));
    }
    let copy: RecordCopy = serde_json::from_str(record).ok()?;
    let host = copy.host.map(process_id);
    let holder = match host {
        None => front.filter(|front| lives(*front).is_some()),
        // Without a front the host can't be verified.
        Some(host) => {
            let found = process::find_host(&lives(front?)?, &config.table())
                .host
                .ok()?;
            front.filter(|_| found.id() == host).map(Some)?
        }
    };
    let record = KeeperRecord {
        of: copy.backend.clone(),
        ..of(copy.program.clone())
    };
    copy.records(record, epoch, holder)
        .map(|adopted| Given::Session(Box::new(adopted)))
}

pub(super) fn reference(process: ProcessId) -> ProcessRef {
    ProcessRef {
        pid: process.pid,
        start: process.start.0,
        inode: process.inode,
    }
}

fn process_id(process: ProcessRef) -> ProcessId {
    let ProcessRef { pid, start, inode } = process;
    ProcessId {
        pid,
        start: StartTime(start),
        inode,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32) -> ProcessId {
        ProcessId {
            pid,
            start: StartTime(1),
            inode: None,
        }
    }

    fn name(backend: &str) -> Option<BackendName> {
        Some(backend.parse().expect("a name"))
    }

    /// What the keeper of a backend gives back, as it stands in its copy.
    fn given(session: &str, backend: &str, pid: u32, epoch: u64, front: Option<u32>) -> Adopted {
        let copy = json(session, backend);
        let copy: RecordCopy = serde_json::from_value(copy).expect("a copy");
        let keeper = KeeperRecord::new(process(pid), KeeperName(pid), "server".into());
        let keeper = KeeperRecord {
            of: copy.backend.clone(),
            ..keeper
        };
        copy.records(keeper, Epoch(epoch), front.map(process))
            .expect("records")
    }

    fn json(session: &str, backend: &str) -> serde_json::Value {
        serde_json::json!({
            "session": session, "host": {"pid": 9, "start": "1"}, "host_name": "host", "program": "server",
            "backend": backend, "rule": "always library", "opened_ms": 1, "file": 1,
        })
    }

    #[test]
    fn the_backends_of_one_session_are_adopted_into_one_session() {
        let mut snapshot = Snapshot::default();
        let mut given = vec![
            given("s1", "web", 51, 3, None),
            given("s1", "files", 50, 2, Some(1)),
            given("s2", "web", 60, 1, None),
            given("s1", "web", 52, 2, None),
        ];
        // It has registered when the host had two conversations.
        given[2].owner.conversations_at_once = true;
        let adopted = take_in(given, &mut snapshot);
        assert_eq!(
            adopted.iter().map(SessionId::as_str).collect::<Vec<_>>(),
            ["s1", "s2"]
        );
        let [first, second] = &snapshot.sessions[..] else {
            panic!("{:?}", snapshot.sessions)
        };
        assert_eq!(
            (first.holder, first.epoch),
            (Some(process(1)), Epoch(3)),
            "above all that any keeper has seen"
        );
        let keeper = |of: &SessionRecord, backend| {
            let of = BackendOf::Session(of.id.clone());
            let mut kept = snapshot.kept.iter();
            let found = kept.find(|(other, keeper)| *other == of && keeper.of == name(backend));
            found.map(|(_, keeper)| keeper.process.pid)
        };
        // Of two that hold one backend, the one with the latest front.
        assert_eq!(
            (keeper(first, "files"), keeper(first, "web")),
            (Some(50), Some(51))
        );
        assert_eq!(
            (keeper(second, "web"), snapshot.owners.len()),
            (Some(60), 1)
        );
        assert!(snapshot.owners[0].conversations_at_once);
    }

    #[test]
    fn a_session_on_record_is_left_as_it_is() {
        let mut snapshot = Snapshot::default();
        take_in(vec![given("s1", "files", 50, 1, Some(1))], &mut snapshot);
        let before = snapshot.sessions.clone();
        assert!(take_in(vec![given("s1", "web", 51, 9, Some(2))], &mut snapshot).is_empty());
        assert_eq!(snapshot.sessions, before);
    }

    #[test]
    fn each_backend_of_a_service_s_session_is_adopted_once() {
        let service: ServiceName = "web".parse().expect("a name");
        let served = |holder| ServiceRecord {
            name: service.clone(),
            epoch: Epoch(1),
            holder,
            since_ms: 1,
        };
        let keeper = |backend, pid| {
            let keeper = KeeperRecord::new(process(pid), KeeperName(pid), "server".into());
            KeeperRecord {
                of: name(backend),
                ..keeper
            }
        };
        let mut snapshot = Snapshot::default();
        let id: SessionId = "s1".parse().expect("an id");
        for (backend, pid) in [("files", 50), ("web", 51), ("web", 52)] {
            adopt_served(
                &mut snapshot,
                served(None),
                (service.clone(), id.clone()),
                keeper(backend, pid),
            );
        }
        let kept: Vec<u32> = snapshot
            .kept
            .iter()
            .map(|(_, keeper)| keeper.process.pid)
            .collect();
        assert_eq!((kept, snapshot.services.len()), (vec![50, 51], 1));
    }
}
