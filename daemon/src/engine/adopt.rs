//! When the daemon's records are lost, each keeper gives back its copy of its session's records.
//!
//! Other records stay lost: leases that no keeper has heard of, and whether a host was seen with a
//! crowd of servers. So no claim finds such a session by its key. A host's server stays for the
//! front that is attached, if the kernel confirms the host, and ends with that front. Sessions that
//! the user has named are found by their names.

use std::path::Path;

use mcp_sessiond_process::{self as process, PinnedProcess, ProcessId, StartTime};
use mcp_sessiond_proto::backends::{
    KeeperName, KeeperReply, KeeperRequest, ProcessRef, Remembered,
};
use mcp_sessiond_proto::{Epoch, SessionId};
use mcp_sessiond_registry::{
    BackendOf, KeeperRecord, OwnerRecord, Record, Records, Registry, ServiceRecord, ServiceSession,
    SessionRecord,
};

use crate::config::Config;
use crate::keepers::Listener;

/// How many keepers are asked at a time, each by a thread of its own.
const AT_ONCE: usize = 16;

/// The copy that a keeper holds of the records of its session. Only daemons write and read it.
pub(super) fn copy_of(registry: &Registry, of: &BackendOf, keeper: KeeperRecord) -> Option<String> {
    let mut records = vec![Record::Keeper(Some(of.clone()), keeper)];
    match of {
        BackendOf::Session(id) => {
            let session = registry.session(id)?;
            records.push(Record::Owner(registry.owner_record(session.owner)?));
            records.push(session.clone().into());
        }
        BackendOf::Service((name, _)) => {
            let service = registry.services().find(|known| known.name == *name)?;
            records.push(Record::Service(service.clone()));
        }
    }
    serde_json::to_string(&records).ok()
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

/// Asks the keepers that are not on record, and puts what they give back on record. Returns the
/// sessions, and whether any of the keepers was on record before.
pub(super) fn adopt(
    directory: &Path,
    keepers: &[KeeperName],
    config: &Config,
    records: &mut Records,
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
            Given::Served(service, of, keeper) => adopt_served(records, service, of, keeper),
        }
    }
    (take_in(given, records), was_on_record)
}

/// Puts what keepers have given back on record. Returns the sessions.
fn take_in(mut given: Vec<Adopted>, records: &mut Records) -> Vec<SessionId> {
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
        if let Some(known) = records.owners.get_mut(&owner.host) {
            known.conversations_at_once |= owner.conversations_at_once;
        }
        // Another backend of the same session. Its front has one lease for all of them.
        let known = records.sessions.get_mut(&session.id);
        let known =
            known.filter(|known| adopted.contains(&known.id) && known.owner == session.owner);
        if let Some(known) = known {
            known.epoch = known.epoch.max(session.epoch);
            put_first(records, of, keeper);
            continue;
        }
        let is_taken = |known: &SessionRecord| {
            let same_name =
                session.key.is_some() && known.key == session.key && known.owner == session.owner;
            known.id == session.id || same_name
        };
        if records.sessions.values().any(is_taken) {
            continue;
        }
        let newest = records
            .sessions
            .values()
            .map(|session| session.opened.max(session.freed))
            .max();
        session.opened = newest.unwrap_or(0) + 1;
        adopted.push(session.id.clone());
        records.owners.entry(owner.host).or_insert(owner);
        records.save(session.into());
        put_first(records, of, keeper);
    }
    adopted
}

/// Puts a keeper on record, unless another one holds its backend. Says whether it did.
fn put_first(records: &mut Records, of: BackendOf, keeper: KeeperRecord) -> bool {
    let mut others = records.keepers.values();
    let is_first = !others.any(|(other, kept)| other.as_ref() == Some(&of) && kept.of == keeper.of);
    if is_first {
        records.save(Record::Keeper(Some(of), keeper));
    }
    is_first
}

/// Puts a service's session on record. The service goes on under an epoch that no keeper has given
/// out, leased to the process that was attached, if it lives.
fn adopt_served(
    records: &mut Records,
    service: ServiceRecord,
    of: ServiceSession,
    keeper: KeeperRecord,
) {
    if !put_first(records, BackendOf::Service(of), keeper) {
        return;
    }
    match records.services.get_mut(&service.name) {
        Some(known) => {
            known.epoch = known.epoch.max(service.epoch);
            known.holder = known.holder.or(service.holder);
        }
        None => records.save(Record::Service(service)),
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

/// What the copy of its records gives back, if the kernel confirms it.
fn given_by(
    process: &PinnedProcess,
    name: KeeperName,
    config: &Config,
    copy: &str,
    (epoch, front, backend): (Epoch, Option<ProcessRef>, Option<u32>),
) -> Option<Given> {
    let lives = |process: ProcessId| PinnedProcess::reopen(&process).ok().flatten();
    let front = front.map(process_id);
    let backend = backend
        .and_then(|pid| process::child_of(process, pid).ok().flatten())
        .map(|backend| backend.id());
    let copy: Records = serde_json::from_str::<Vec<Record>>(copy)
        .ok()?
        .into_iter()
        .collect();
    let (of, keeper) = copy.keepers.into_values().next()?;
    let keeper = KeeperRecord {
        process: process.id(),
        name,
        backend,
        ..keeper
    };
    let is_there = |front: &ProcessId| lives(*front).is_some();
    match of? {
        BackendOf::Service(of) => {
            let service = ServiceRecord {
                epoch,
                holder: front.filter(is_there),
                ..copy.services.into_values().next()?
            };
            Some(Given::Served(service, of, keeper))
        }
        BackendOf::Session(_) => {
            let session = copy.sessions.into_values().next()?;
            let holder = match session.owner {
                ProcessId::USER => front.filter(is_there),
                // Without a front the host can't be verified.
                host => {
                    let found = process::find_host(&lives(front?)?, &config.table());
                    let found = found.host.ok()?;
                    Some(front.filter(|_| found.id() == host)?)
                }
            };
            let owner = copy.owners.into_values().next()?;
            let adopted = Adopted::of(owner, session, keeper, (epoch, holder))?;
            Some(Given::Session(Box::new(adopted)))
        }
    }
}

impl Adopted {
    /// What counts of the copies of these records. None: the session has an id that its owner chose;
    /// such a session has no backend.
    fn of(
        owner: OwnerRecord,
        session: SessionRecord,
        keeper: KeeperRecord,
        (epoch, holder): (Epoch, Option<ProcessId>),
    ) -> Option<Self> {
        session.name.is_none().then_some(())?;
        Some(Self {
            owner: OwnerRecord {
                conversations_at_once: owner.conversations_at_once,
                ..OwnerRecord::new(owner.host, owner.name, owner.host_rule)
            },
            session: SessionRecord {
                key: session.key.filter(|_| session.owner == ProcessId::USER),
                opened: 0,
                freed: 0,
                epoch,
                holder,
                closed_ms: None,
                digest: None,
                former: None,
                offered: false,
                ..session
            },
            keeper,
        })
    }
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
    use mcp_sessiond_process::SelfDescription;
    use mcp_sessiond_proto::{BackendName, ServiceName};
    use mcp_sessiond_registry::{Rule, TokenFile};

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

    /// What the keeper of a backend gives back.
    fn given(id: &str, backend: &str, pid: u32, epoch: u64, front: Option<u32>) -> Adopted {
        let host = process(9);
        let owner = OwnerRecord::new(host, "host".into(), None);
        let session = SessionRecord {
            id: id.parse().expect("an id"),
            owner: host,
            key: None,
            name: None,
            made_by: None,
            program: "server".into(),
            description: SelfDescription::default(),
            program_dir: None,
            asked: None,
            rule: Rule::default(),
            opened: 7,
            freed: 7,
            opened_ms: 1,
            epoch: Epoch(1),
            closed_ms: None,
            holder: None,
            file: TokenFile { host, number: 1 },
            digest: Some([1; 32]),
            former: None,
            offered: true,
        };
        let keeper = KeeperRecord::new(process(pid), KeeperName(pid), "server".into());
        let keeper = KeeperRecord {
            of: name(backend),
            ..keeper
        };
        let attached = (Epoch(epoch), front.map(process));
        Adopted::of(owner, session, keeper, attached).expect("it has no chosen id")
    }

    #[test]
    fn the_backends_of_one_session_are_adopted_into_one_session() {
        let mut records = Records::default();
        let mut given = vec![
            given("s1", "web", 51, 3, None),
            given("s1", "files", 50, 2, Some(1)),
            given("s2", "web", 60, 1, None),
            given("s1", "web", 52, 2, None),
        ];
        // It has registered when the host had two conversations.
        given[2].owner.conversations_at_once = true;
        let adopted = take_in(given, &mut records);
        assert_eq!(
            adopted.iter().map(SessionId::as_str).collect::<Vec<_>>(),
            ["s1", "s2"]
        );
        let sessions: Vec<&SessionRecord> = records.sessions.values().collect();
        let [first, second] = sessions[..] else {
            panic!("{sessions:?}")
        };
        assert_eq!(
            (first.holder, first.epoch),
            (Some(process(1)), Epoch(3)),
            "above all that any keeper has seen"
        );
        let keeper = |of: &SessionRecord, backend| {
            let of = BackendOf::Session(of.id.clone());
            let mut kept = records.keepers.values();
            let found = kept
                .find(|(other, keeper)| other.as_ref() == Some(&of) && keeper.of == name(backend));
            found.map(|(_, keeper)| keeper.process.pid)
        };
        // Of two that hold one backend, the one with the latest front.
        assert_eq!(
            (keeper(first, "files"), keeper(first, "web")),
            (Some(50), Some(51))
        );
        assert_eq!((keeper(second, "web"), records.owners.len()), (Some(60), 1));
        assert!(records.owners[&process(9)].conversations_at_once);
    }

    #[test]
    fn a_session_on_record_is_left_as_it_is() {
        let mut records = Records::default();
        take_in(vec![given("s1", "files", 50, 1, Some(1))], &mut records);
        let before = records.sessions.clone();
        assert!(take_in(vec![given("s1", "web", 51, 9, Some(2))], &mut records).is_empty());
        assert_eq!(records.sessions, before);
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
        let mut records = Records::default();
        let id: SessionId = "s1".parse().expect("an id");
        for (backend, pid) in [("files", 50), ("web", 51), ("web", 52)] {
            adopt_served(
                &mut records,
                served(None),
                (service.clone(), id.clone()),
                keeper(backend, pid),
            );
        }
        let kept: Vec<u32> = records.keepers.keys().map(|keeper| keeper.pid).collect();
        assert_eq!((kept, records.services.len()), (vec![50, 51], 1));
    }
}
