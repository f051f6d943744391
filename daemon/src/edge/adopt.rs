//! Keepers whose records are lost: each has a copy of its session's, and gives it back.
//!
//! What a copy says counts as far as the kernel confirms it: the host lives, and a front that is attached was started by it. The
//! records of tokens, and of sessions without a backend, are lost.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use mcp_sessiond_process::{self as process, Key, Pinned, ProcessId, Said, StartTime};
use mcp_sessiond_proto::backends::{KeeperName, KeeperReply, KeeperRequest, ProcessRef, Remembered};
use mcp_sessiond_proto::types::ClientName;
use mcp_sessiond_proto::{Epoch, Label, SessionId, Siblings};
use mcp_sessiond_registry::{KeeperRecord, OwnerRecord, SessionRecord, Snapshot, Spot, TokenFile};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::keepers::Listener;

/// Epochs that are left out where no front is attached: the former daemon may have given leases of which the keeper has not heard.
const EPOCHS_LEFT_OUT: u64 = 1_000;

/// What a keeper has to give back. Its own text: no other program reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordCopy {
    session: SessionId,
    /// None: the user.
    host: Option<ProcessRef>,
    host_name: String,
    row: Option<Siblings>,
    key: Vec<u8>,
    program: String,
    label: Option<Label>,
    entry: Option<Label>,
    client: Option<ClientName>,
    spot: Option<Spot>,
    asked: Option<Siblings>,
    opened_ms: u64,
    file: u32,
}

impl RecordCopy {
    /// The copy of a session that others can resume. None: nobody can, so there is nothing to give back.
    pub(super) fn of(session: &SessionRecord, owner: &OwnerRecord) -> Option<String> {
        session.name.is_none().then_some(())?;
        let SessionRecord { id, said, spot, asked, opened_ms, file, program, .. } = session.clone();
        let copy = Self {
            session: id,
            host: (session.owner != ProcessId::USER).then(|| reference(session.owner)),
            host_name: owner.name.clone(),
            row: owner.row,
            key: session.key?.to_bytes(),
            program,
            label: said.label,
            entry: said.entry,
            client: said.client,
            spot,
            asked,
            opened_ms,
            file: file.number,
        };
        serde_json::to_string(&copy).ok()
    }

    /// The records that it was a copy of, and nothing else of them than what is known.
    fn records(self, keeper: KeeperRecord, epoch: Epoch, holder: Option<ProcessId>) -> Option<Adopted> {
        let host = self.host.map_or(ProcessId::USER, process_id);
        let owner = OwnerRecord {
            host,
            name: self.host_name,
            row: self.row,
            crowded: false,
            doubles: BTreeSet::new(),
            losses: BTreeMap::new(),
        };
        let session = SessionRecord {
            id: self.session,
            owner: host,
            key: Some(Key::from_bytes(&self.key)?),
            name: None,
            made_by: None,
            program: self.program,
            said: Said { label: self.label, entry: self.entry, client: self.client },
            spot: self.spot,
            asked: self.asked,
            opened: 0,
            freed: 0,
            opened_ms: self.opened_ms,
            epoch: holder.map_or(Epoch(epoch.0.saturating_add(EPOCHS_LEFT_OUT)), |_| epoch),
            holder,
            file: TokenFile { host, number: self.file },
            digest: None,
            former: None,
            offered: false,
            keeper: Some(Box::new(keeper)),
        };
        Some(Adopted { owner, session })
    }
}

/// A session that a keeper has given back.
#[derive(Debug)]
struct Adopted {
    owner: OwnerRecord,
    session: SessionRecord,
}

/// Asks the keepers that are not on record, and puts what they give back into the snapshot. Returns the sessions.
pub(super) fn adopt(
    sockets: Vec<(KeeperName, PathBuf)>,
    config: &Config,
    snapshot: &mut Snapshot,
) -> Vec<SessionId> {
    let asked: Vec<_> = std::thread::scope(|scope| {
        let asking: Vec<_> = sockets
            .into_iter()
            .map(|(name, socket)| scope.spawn(move || given_back(name, &socket, config)))
            .collect();
        asking.into_iter().filter_map(|one| one.join().ok().flatten()).collect()
    });
    let mut known: HashSet<SessionId> = snapshot.sessions.iter().map(|session| session.id.clone()).collect();
    let newest = snapshot.sessions.iter().map(|session| session.opened.max(session.freed)).max();
    let mut given: Vec<Adopted> =
        asked.into_iter().filter(|adopted| known.insert(adopted.session.id.clone())).collect();
    // Ids of sessions grow with time.
    given.sort_by(|one, other| one.session.id.cmp(&other.session.id));
    let mut adopted = Vec::new();
    for (Adopted { owner, mut session }, opened) in given.into_iter().zip(newest.unwrap_or(0) + 1..) {
        session.opened = opened;
        adopted.push(session.id.clone());
        if !snapshot.owners.iter().any(|known| known.host == owner.host) {
            snapshot.owners.push(owner);
        }
        snapshot.sessions.push(session);
    }
    adopted
}

/// What this keeper gives back, if the kernel confirms it.
fn given_back(name: KeeperName, socket: &Path, config: &Config) -> Option<Adopted> {
    let listener = Listener::find(socket).ok()??;
    let keeper = listener.process.clone();
    let Some(KeeperReply::Remembered(said)) = listener.ask(&KeeperRequest::Remember {}) else { return None };
    let Remembered { record, epoch, front, backend, ending } = said;
    let copy: RecordCopy = serde_json::from_str(&record.filter(|_| !ending)?).ok()?;
    let host = copy.host.map(process_id);
    let lives = |process: &ProcessId| Pinned::reopen(process).ok().flatten();
    if let Some(host) = &host {
        lives(host)?;
    }
    let holder = match front.map(process_id) {
        None => None,
        Some(front) => {
            let walk = process::find_host(&lives(&front)?, &config.table());
            let found = walk.host.ok().map(|found| found.id());
            // One that the user has named needs no host.
            (host.is_none() || found == host).then_some(())?;
            Some(front)
        }
    };
    let backend =
        backend.and_then(|pid| process::child_of(&keeper, pid).ok().flatten()).map(|backend| backend.id());
    let record =
        KeeperRecord { process: keeper.id(), name, program: copy.program.clone(), backend, ending: false };
    copy.records(record, epoch, holder)
}

pub(super) fn reference(process: ProcessId) -> ProcessRef {
    ProcessRef { pid: process.pid, start: process.start.0, inode: process.inode }
}

fn process_id(process: ProcessRef) -> ProcessId {
    let ProcessRef { pid, start, inode } = process;
    ProcessId { pid, start: StartTime(start), inode }
}
