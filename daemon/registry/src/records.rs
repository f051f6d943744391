//! What is on record, and survives the daemon.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use mcp_sessiond_identity::{Key, ProcessId, SelfDescription, StartTime, Traits};
use mcp_sessiond_proto::backends::KeeperName;
use mcp_sessiond_proto::facts::{Discover, ServerDigest};
use mcp_sessiond_proto::{
    BackendName, Epoch, Error, Loss, LossId, LossRecord, RequestId, Resume, ServiceName, SessionId,
    Siblings,
};
use serde::{Deserialize, Serialize};

use super::Millis;

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// Stands in the place of a former digest where there was no token. No token has this digest.
pub const NO_TOKEN: Digest = [0; 32];

/// A host as it is on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRecord {
    /// The host's process.
    pub host: ProcessId,
    /// The name of its executable.
    pub name: String,
    /// What the table of hosts says of it.
    pub host_rule: Option<Siblings>,
    /// The keys without a label of which it was seen with three leases at once.
    pub multiplexed_keys: BTreeSet<Key>,
    /// Whether it was seen with two conversations at once, whose keys are otherwise equal: it does
    /// not leave one for the other.
    pub conversations_at_once: bool,
    /// Programs with their directories of which it has held sessions of two keys at once, or one
    /// whose key was doubtful.
    pub ambiguous: BTreeSet<ProgramDir>,
    /// What was lost and was not told yet, each with the key that led to it; the newest last.
    pub losses: Vec<(Key, LossRecord)>,
    /// The keys whose used server has ended because of the host's rule: which rule the next claim
    /// is told, or None where it was told.
    #[serde(with = "pairs")]
    pub rules: BTreeMap<Key, Option<Loss>>,
    /// The names of sessions, by their keys, that instances of the host have held: a server of the
    /// host's own beside one of these ends with its front.
    pub names: BTreeSet<Key>,
}

impl OwnerRecord {
    /// One of which nothing was seen yet.
    pub fn new(host: ProcessId, name: String, host_rule: Option<Siblings>) -> Self {
        Self {
            host,
            name,
            host_rule,
            multiplexed_keys: BTreeSet::new(),
            conversations_at_once: false,
            ambiguous: BTreeSet::new(),
            losses: Vec::new(),
            rules: BTreeMap::new(),
            names: BTreeSet::new(),
        }
    }
}

/// What is known of a host about a resume of its wrapped servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRule {
    /// Whether they are resumed.
    pub resume: Resume,
    /// The configuration says so, and not the built-in table.
    pub is_users: bool,
}

impl Default for HostRule {
    /// That of a host of which nothing is known.
    fn default() -> Self {
        Self {
            resume: Resume::Unknown,
            is_users: false,
        }
    }
}

/// Whether a session is resumed, and who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rule {
    /// Whether it is resumed.
    pub resume: Resume,
    /// Who says so.
    pub source: RuleSource,
}

/// Who says whether a session is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum RuleSource {
    /// The author of a server with the client library, who has opted in; or the session is the
    /// user's.
    #[default]
    Library,
    /// The table of hosts.
    Table,
    /// The claim itself: a flag, or the entry of the server.
    Asked,
}

impl Rule {
    /// What is told of a used server that has ended by this rule, or by that of a claim.
    pub(super) fn loss(self) -> Loss {
        self.resume.loss().unwrap_or(Loss::Closed)
    }
}

/// Digest of the name that people know a program by, and of its directory.
pub type ProgramDir = [u8; 32];

/// Keys that are remembered of one claimant: each stands for a label, an entry and a client, of
/// which a server has one.
pub const CLAIMED_KEYS_MAX: usize = 16;

/// What was read of a process at its first claim. It is not read again: processes rewrite their own
/// command lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claimant {
    /// Its host.
    pub host: ProcessId,
    /// What is known of its host.
    pub rule: HostRule,
    /// When its host started it, or the outermost launcher before it, where that is known: in ms of
    /// the clock that start times are read from, the latest that it can have been.
    pub started_ms: Option<Millis>,
    /// What its keys are made of.
    pub traits: Traits,
    /// The keys that it has claimed with, the latest last.
    pub keys: Vec<Key>,
}

impl Claimant {
    /// One that has not claimed yet.
    pub fn new(host: ProcessId, traits: Traits) -> Self {
        Self {
            host,
            rule: HostRule::default(),
            started_ms: None,
            traits,
            keys: Vec::new(),
        }
    }

    /// Whether this key is one of its own: one that it has claimed with, or the one that it has
    /// without a word of its own.
    pub fn has(&self, key: &Key) -> bool {
        self.keys.contains(key) || self.traits.key(&SelfDescription::default()) == Ok(*key)
    }
}

/// A session as it is on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Its id.
    pub id: SessionId,
    /// The host that it belongs to.
    pub owner: ProcessId,
    /// The key of whom it was made for. None: that was doubtful, and nobody resumes this session.
    pub key: Option<Key>,
    /// The id that its owner finds it by, where that is what it is found by: its own, or one that
    /// the owner chose. Then no claim is led to it by its key.
    pub name: Option<SessionId>,
    /// The request that made it, where that may be repeated.
    pub made_by: Option<RequestId>,
    /// The name of the executable that it was made for.
    pub program: String,
    /// What its instance said of itself.
    pub description: SelfDescription,
    /// Program and directory, where that is known.
    pub program_dir: Option<ProgramDir>,
    /// What its instance asked for about siblings.
    pub asked: Option<Siblings>,
    /// Whether it is resumed.
    pub rule: Rule,
    /// Its place in the order of opening.
    pub opened: u64,
    /// Its place in the same order when it came free last; 0 before.
    pub freed: u64,
    /// When it was opened, in ms since the Unix epoch. For people; nothing depends on it.
    pub opened_ms: u64,
    /// The newest epoch.
    pub epoch: Epoch,
    /// When the front of this epoch has said that it leaves, in ms of the clock that start times are
    /// read from; 0 where that is not known. None: it has not said so.
    pub closed_ms: Option<Millis>,
    /// The process that holds it.
    pub holder: Option<ProcessId>,
    /// The file that its token goes to.
    pub file: TokenFile,
    /// The digest of the token that it was given last.
    pub digest: Option<Digest>,
    /// The digest of the one before ([`NO_TOKEN`] where there was none), while the file may still
    /// hold that.
    pub former: Option<Digest>,
    /// Whether the token was offered to the broker under this lease, whose answer is not known yet.
    pub offered: bool,
}

/// A keeper as it is on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeeperRecord {
    /// The keeper's process, which leads a session of processes, in the sense of setsid(2):
    /// everything in that is the backend's.
    pub process: ProcessId,
    /// Its name, which is that of its socket.
    pub name: KeeperName,
    /// The name of the backend that it holds. None: it is the only one of its session.
    pub of: Option<BackendName>,
    /// The name of the backend's executable, for people.
    pub program: String,
    /// The backend that it has started last.
    pub backend: Option<ProcessId>,
    /// Whether it has to end. No front is led to it any more.
    pub ending: bool,
}

impl KeeperRecord {
    /// A keeper that has not started its backend yet.
    pub fn new(process: ProcessId, name: KeeperName, program: String) -> Self {
        Self {
            process,
            name,
            of: None,
            program,
            backend: None,
            ending: false,
        }
    }
}

/// Backends that a session may have at most: each is a process with a keeper beside it.
pub(super) const BACKENDS_PER_SESSION: usize = 256;

/// The keepers of a session, one for each of its backends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keepers(Vec<KeeperRecord>);

impl Keepers {
    /// Those of a session that has none.
    pub const NONE: &'static Self = &Self(Vec::new());

    /// That of the backend with this name. None as a name: of the only backend, which has none.
    pub fn of(&self, backend: Option<&BackendName>) -> Option<&KeeperRecord> {
        self.0.iter().find(|keeper| keeper.of.as_ref() == backend)
    }

    /// What a list's server of this name was before its entry was edited, and is still.
    pub(super) fn edited<'a>(
        &'a self,
        backend: &'a BackendName,
    ) -> impl Iterator<Item = &'a KeeperRecord> {
        let is_edited = move |of: &BackendName| of != backend && of.in_list() == backend.in_list();
        let has_name = move |keeper: &&KeeperRecord| keeper.of.as_ref().is_some_and(is_edited);
        self.0.iter().filter(has_name)
    }

    /// All of them.
    pub fn iter(&self) -> core::slice::Iter<'_, KeeperRecord> {
        self.0.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes one in. Returns the one whose backend it has from now on.
    pub fn put(&mut self, keeper: KeeperRecord) -> Option<KeeperRecord> {
        let former = self.0.iter_mut().find(|former| former.of == keeper.of);
        match former {
            Some(former) => Some(core::mem::replace(former, keeper)),
            None => {
                self.0.push(keeper);
                None
            }
        }
    }

    /// Whether one for the backend with this name may be taken in.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`], and [`Error::InvalidArgument`] where a backend without a name
    /// would not be the only one.
    pub(super) fn check_room(&self, backend: Option<&BackendName>) -> Result<(), Error> {
        if self
            .0
            .iter()
            .any(|kept| kept.of.is_some() != backend.is_some())
        {
            let sentence = "each backend of a session that has several has a name".into();
            return Err(Error::InvalidArgument { sentence });
        }
        if self.0.len() < BACKENDS_PER_SESSION || self.of(backend).is_some() {
            return Ok(());
        }
        let what = "the number of backends of this session".into();
        Err(Error::QuotaExceeded {
            what,
            limit: BACKENDS_PER_SESSION as u64,
        })
    }

    pub(super) fn by(&self, process: &ProcessId) -> Option<&KeeperRecord> {
        self.0.iter().find(|keeper| keeper.process == *process)
    }

    pub(super) fn by_mut(&mut self, process: &ProcessId) -> Option<&mut KeeperRecord> {
        self.0.iter_mut().find(|keeper| keeper.process == *process)
    }

    pub(super) fn take(&mut self, process: &ProcessId) -> Option<KeeperRecord> {
        let at = self
            .0
            .iter()
            .position(|keeper| keeper.process == *process)?;
        Some(self.0.swap_remove(at))
    }

    /// The backend of this name is to end, or all of them where no name is given. Returns the
    /// keepers that did not know.
    ///
    /// # Errors
    /// [`Error::UnknownBackend`] when there is none.
    pub(super) fn stop(
        &mut self,
        backend: Option<&BackendName>,
    ) -> Result<Vec<KeeperRecord>, Error> {
        let meant = |keeper: &&mut KeeperRecord| backend.is_none() || keeper.of.as_ref() == backend;
        let mut meant = self.0.iter_mut().filter(meant).peekable();
        meant.peek().ok_or(Error::UnknownBackend)?;
        let going_on = meant.filter(|keeper| !keeper.ending);
        Ok(going_on
            .map(|keeper| {
                keeper.ending = true;
                keeper.clone()
            })
            .collect())
    }
}

impl IntoIterator for Keepers {
    type Item = KeeperRecord;
    type IntoIter = alloc::vec::IntoIter<KeeperRecord>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<KeeperRecord> for Keepers {
    fn from_iter<T: IntoIterator<Item = KeeperRecord>>(keepers: T) -> Self {
        let mut all = Self::default();
        keepers.into_iter().for_each(|keeper| drop(all.put(keeper)));
        all
    }
}

/// A session of a service.
pub type ServiceSession = (ServiceName, SessionId);

/// The session that a backend belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BackendOf {
    /// A host's, or the user's.
    Session(SessionId),
    /// A service's.
    Service(ServiceSession),
}

impl From<&SessionId> for BackendOf {
    fn from(id: &SessionId) -> Self {
        Self::Session(id.clone())
    }
}

impl From<&ServiceSession> for BackendOf {
    fn from(of: &ServiceSession) -> Self {
        Self::Service(of.clone())
    }
}

impl BackendOf {
    /// The service's session, if it is one.
    pub fn service(&self) -> Option<&ServiceSession> {
        match self {
            Self::Session(_) => None,
            Self::Service(of) => Some(of),
        }
    }
}

/// A service that a process has leased, or whose keepers still run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceRecord {
    /// Its name.
    pub name: ServiceName,
    /// The newest epoch.
    pub epoch: Epoch,
    /// The process that holds the lease.
    pub holder: Option<ProcessId>,
    /// When it got the lease, in ms since the Unix epoch. For people; nothing depends on it.
    pub since_ms: u64,
}

impl SessionRecord {
    /// The id that its owner knows it by. Two owners may have chosen the same.
    pub fn public_id(&self) -> &SessionId {
        self.name.as_ref().unwrap_or(&self.id)
    }

    /// Whether an instance may know of this session: its holder, and instances of its owner's with
    /// its key. One with a doubtful key is there for its holder alone.
    pub fn is_for(&self, process: ProcessId, claimant: &Claimant) -> bool {
        let has_key = || self.key.as_ref().is_some_and(|key| claimant.has(key));
        // The holder asks most, and needs no digest.
        self.owner == claimant.host && (self.holder == Some(process) || has_key())
    }

    /// The key by which claims are led to it.
    pub fn leading_key(&self) -> Option<Key> {
        self.key.filter(|_| self.name.is_none())
    }
}

/// The name of a token file: `token-<host pid>-<host start time>`, and `-<number>` behind it from 2
/// on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TokenFile {
    /// The host.
    pub host: ProcessId,
    /// Which of the host's files, from 1.
    pub number: u32,
}

impl fmt::Display for TokenFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "token-{}-{}", self.host.pid, self.host.start)?;
        if self.number > 1 {
            write!(formatter, "-{}", self.number)
        } else {
            Ok(())
        }
    }
}

/// What is on record of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// The server.
    pub server: ServerDigest,
    /// How it takes `server/discover`.
    pub discover: Discover,
    /// The `serverInfo.version` of the one that has shown it, once that is known.
    pub version: Option<String>,
    /// When that was last asked for, in ms since the Unix epoch; up to a day more has passed.
    pub used_ms: u64,
}

/// That the records of an earlier daemon were lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRecords {
    /// When the daemon was started that has found that. Hosts that are older may have had sessions of
    /// which nothing is known.
    pub since: StartTime,
    /// The servers whose claims have carried it.
    pub told: BTreeSet<(ProcessId, Key)>,
}

/// A record as it is kept. Only daemons of one version read what another one has written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// A host.
    Owner(OwnerRecord),
    /// What was read of a process that has claimed.
    Claimant(ProcessId, Claimant),
    /// A session.
    Session(Box<SessionRecord>),
    /// A keeper, and whose backend it holds. Without that it has to end.
    Keeper(Option<BackendOf>, KeeperRecord),
    /// A service.
    Service(ServiceRecord),
    /// What a session of a service has lost, until its client was told.
    ServiceLoss(ServiceSession, LossRecord),
    /// What is known of a server.
    Server(ServerRecord),
    /// That the records of an earlier daemon were lost.
    LostRecords(LostRecords),
}

/// What a record is kept under. Another one of the same key takes its place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordKey {
    /// A host's.
    Owner(ProcessId),
    /// That of a process that has claimed.
    Claimant(ProcessId),
    /// A session's.
    Session(SessionId),
    /// A keeper's.
    Keeper(ProcessId),
    /// A service's.
    Service(ServiceName),
    /// That of a loss of a service's session.
    ServiceLoss(LossId),
    /// A server's.
    Server(ServerDigest),
    /// There is one of these at most.
    LostRecords,
}

impl Record {
    /// What it is kept under.
    pub fn key(&self) -> RecordKey {
        match self {
            Self::Owner(owner) => RecordKey::Owner(owner.host),
            Self::Claimant(process, _) => RecordKey::Claimant(*process),
            Self::Session(session) => RecordKey::Session(session.id.clone()),
            Self::Keeper(_, keeper) => RecordKey::Keeper(keeper.process),
            Self::Service(service) => RecordKey::Service(service.name.clone()),
            Self::ServiceLoss(_, loss) => RecordKey::ServiceLoss(loss.id),
            Self::Server(server) => RecordKey::Server(server.server.clone()),
            Self::LostRecords(_) => RecordKey::LostRecords,
        }
    }
}

impl From<SessionRecord> for Record {
    fn from(session: SessionRecord) -> Self {
        Self::Session(Box::new(session))
    }
}

/// A map as a list of pairs: JSON has only text for keys.
mod pairs {
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(super) fn deserialize<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        let pairs = Vec::<(K, V)>::deserialize(deserializer)?;
        Ok(pairs.into_iter().collect())
    }
}
