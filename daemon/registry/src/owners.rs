//! Hosts: what was seen of each, and what counts for its claims because of that.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use mcp_sessiond_identity::{Key, ProcessId};
use mcp_sessiond_proto::{Loss, LossRecord, Resume, SessionId, Siblings};

use super::records::ProgramDir;
use super::{BackendOf, Effect, OwnerRecord, Record, Registry, Rule, RuleSource, SessionRecord};

/// Leases of one key at once from which on the host is taken for one that serves several clients by
/// this key from one process. Two are a host that starts the next server before the former one has
/// died.
const MULTIPLEXED: usize = 3;

/// A host, and what belongs to it.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) name: String,
    pub(super) sessions: BTreeSet<SessionId>,
    /// What the table of hosts says of it.
    pub(super) host_rule: Option<Siblings>,
    /// The keys of which it was seen with a [`MULTIPLEXED`] of leases at once. What has a label is not
    /// among them: its user has said which server it is.
    pub(super) multiplexed_keys: BTreeSet<Key>,
    /// See [`OwnerRecord::conversations_at_once`].
    pub(super) conversations_at_once: bool,
    /// Programs with their directories of which it has held sessions of two keys at once, or one
    /// whose key was doubtful.
    pub(super) ambiguous: BTreeSet<ProgramDir>,
    /// See [`OwnerRecord::losses`].
    pub(super) losses: Vec<(Key, LossRecord)>,
    /// See [`OwnerRecord::rules`].
    pub(super) rules: BTreeMap<Key, Option<Loss>>,
    /// See [`OwnerRecord::names`].
    pub(super) names: BTreeSet<Key>,
    /// The number of the last token file given to one of its sessions.
    pub(super) files: u32,
}

impl Owner {
    pub(super) fn restore(record: OwnerRecord) -> (ProcessId, Self) {
        let OwnerRecord {
            host,
            name,
            host_rule,
            multiplexed_keys,
            conversations_at_once,
            ambiguous,
            losses,
            rules,
            names,
        } = record;
        (
            host,
            Self {
                name,
                sessions: BTreeSet::new(),
                host_rule,
                multiplexed_keys,
                conversations_at_once,
                ambiguous,
                losses,
                rules,
                names,
                files: 0,
            },
        )
    }

    pub(super) fn record(&self, host: ProcessId) -> OwnerRecord {
        OwnerRecord {
            host,
            name: self.name.clone(),
            host_rule: self.host_rule,
            multiplexed_keys: self.multiplexed_keys.clone(),
            conversations_at_once: self.conversations_at_once,
            ambiguous: self.ambiguous.clone(),
            losses: self.losses.clone(),
            rules: self.rules.clone(),
            names: self.names.clone(),
        }
    }
}

impl Registry {
    /// What counts for a session, for claims by its key.
    pub(super) fn siblings_of(&self, session: &SessionRecord) -> Siblings {
        self.siblings(session.owner, session.key, session.asked, session.rule)
    }

    /// What counts for claims of this host's instances: what they ask for, else what the table of
    /// hosts says, else the policy. By a key of which the host was seen with a crowd nothing is
    /// resumed, unless they ask for it; nor where the rule says so.
    pub(super) fn siblings(
        &self,
        owner: ProcessId,
        key: Option<Key>,
        asked: Option<Siblings>,
        rule: Rule,
    ) -> Siblings {
        if owner == ProcessId::USER {
            // There is one of each name.
            return Siblings::Oldest;
        }
        if rule.resume == Resume::Never {
            return Siblings::Never;
        }
        let owner = self.owners.get(&owner);
        let host_rule = owner.and_then(|owner| owner.host_rule);
        // Whoever asks for a resume has more to say than the table.
        let says_resume = rule.source == RuleSource::Asked;
        let general = host_rule
            .filter(|siblings| !says_resume || *siblings != Siblings::Never)
            .or(Some(self.policy.siblings))
            .filter(|siblings| !says_resume || *siblings != Siblings::Never);
        match asked.or(general).unwrap_or_default() {
            Siblings::Fresh | Siblings::Successor
                if asked.is_none()
                    && !says_resume
                    && owner
                        .zip(key)
                        .is_some_and(|(owner, key)| owner.multiplexed_keys.contains(&key)) =>
            {
                Siblings::Never
            }
            siblings => siblings,
        }
    }

    /// Whether the backend of this session may be had as its former front has left it.
    pub fn resume_of(&self, id: &SessionId) -> Resume {
        let Some(session) = self.sessions.get(id) else {
            return Resume::Always;
        };
        match self.siblings_of(session) {
            _ if session.owner == ProcessId::USER => Resume::Always,
            Siblings::Never => Resume::Never,
            _ => session.rule.resume,
        }
    }

    /// The same, by the keeper of the backend.
    pub fn resume_kept_by(&self, keeper: &ProcessId) -> Resume {
        match self.kept_by.get(keeper) {
            Some(BackendOf::Session(id)) => self.resume_of(id),
            Some(BackendOf::Service(_)) | None => Resume::Always,
        }
    }

    /// Whether anybody can resume this session by its key, once its holder is gone.
    pub fn is_resumable(&self, id: &SessionId) -> bool {
        let session = self
            .sessions
            .get(id)
            .filter(|session| session.key.is_some());
        session.is_some_and(|session| self.siblings_of(session) != Siblings::Never)
    }

    /// A session has a holder: sees who else there is.
    pub(super) fn note_siblings(&mut self, id: &SessionId) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let (host, program_dir) = (session.owner, session.program_dir);
        if host == ProcessId::USER {
            return;
        }
        let key = session.leading_key();
        let is_crowd = |key: &Key| {
            let of_key = self.by_key.get(&(host, *key));
            of_key.is_some_and(|of_key| of_key.held().len() >= MULTIPLEXED)
        };
        let is_named = session.description.label.is_some() || session.asked.is_some();
        let crowd = key.filter(|key| !is_named && is_crowd(key));
        let at_once = key.is_some_and(|key| self.attends_another_conversation(host, &key));
        let is_double =
            session.name.is_none() && (session.key.is_none() || self.has_sibling(session));
        let double = program_dir.filter(|_| is_double);
        let Some(owner) = self.owners.get_mut(&host) else {
            return;
        };
        let is_new_crowd = crowd.is_some_and(|crowd| owner.multiplexed_keys.insert(crowd));
        let is_new_double = double.is_some_and(|double| owner.ambiguous.insert(double));
        let is_new_pair = at_once && !owner.conversations_at_once;
        owner.conversations_at_once |= at_once;
        if is_new_crowd || is_new_double || is_new_pair {
            self.save_owner(host);
        }
        if let Some(key) = crowd.filter(|_| is_new_crowd) {
            self.end_unreachable(host, key);
        }
    }

    /// Whether a host attends a server of another conversation than that of this key, which is
    /// otherwise the same. A front that has said that it leaves attends nothing.
    fn attends_another_conversation(&self, host: ProcessId, key: &Key) -> bool {
        let others = self
            .keys_of(host)
            .filter(|(other, _)| other.is_another_conversation_of(key));
        let mut held = others
            .flat_map(|(_, sessions)| sessions.held())
            .filter_map(|id| self.sessions.get(id));
        held.any(|session| !self.is_closed(session))
    }

    /// Whether a host may have left a conversation for another one: not where it was seen with two
    /// at once.
    pub(super) fn leaves_conversations(&self, host: ProcessId) -> bool {
        let owner = self.owners.get(&host);
        owner.is_none_or(|owner| !owner.conversations_at_once)
    }

    /// What is on record of a host.
    pub fn owner_record(&self, host: ProcessId) -> Option<OwnerRecord> {
        self.owners.get(&host).map(|owner| owner.record(host))
    }

    /// Whether the session's host runs another server of its program and directory, with another
    /// key.
    pub fn has_sibling(&self, session: &SessionRecord) -> bool {
        let held = self
            .keys_of(session.owner)
            .flat_map(|(_, sessions)| sessions.held());
        held.filter_map(|id| self.sessions.get(id))
            .any(|other| other.program_dir == session.program_dir && other.key != session.key)
    }

    /// Whether this host may have another session, perhaps in the place of a free one.
    pub(super) fn has_room(&self, host: ProcessId) -> bool {
        let Some(owner) = self.owners.get(&host) else {
            return false;
        };
        owner.sessions.len() < self.policy.sessions_per_owner || self.spare(owner).is_some()
    }

    /// Ends the session that is least missed, where the host has as many as it may.
    pub(super) fn make_room(&mut self, host: ProcessId) {
        let Some(owner) = self.owners.get(&host) else {
            return;
        };
        if owner.sessions.len() >= self.policy.sessions_per_owner
            && let Some((longest, key)) = self.spare(owner)
        {
            self.end_session(&longest);
            self.note_loss(host, key, None, Loss::Quota);
        }
    }

    /// The session that is least missed, and its key: the one without a backend that has been free
    /// the longest.
    fn spare(&self, owner: &Owner) -> Option<(SessionId, Key)> {
        let of_owner = owner.sessions.iter().filter_map(|id| self.sessions.get(id));
        let spare = of_owner
            .filter(|session| session.holder.is_none() && self.is_bare(&session.id))
            .filter_map(|session| {
                Some((session.freed, session.id.clone(), session.leading_key()?))
            });
        let (_, longest, key) = spare.min_by_key(|(freed, ..)| *freed)?;
        Some((longest, key))
    }

    pub(super) fn save_owner(&mut self, host: ProcessId) {
        if let Some(owner) = self.owners.get(&host) {
            self.effects
                .push(Effect::Save(Record::Owner(owner.record(host))));
        }
    }
}
