//! What nobody can resume any more, and ends at once: a session that waits in vain would keep its
//! server, with its port, its profile and its memory.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use mcp_sessiond_identity::{Key, ProcessId};
use mcp_sessiond_proto::backends::KeeperName;
use mcp_sessiond_proto::{Epoch, Error, Label, Loss, Resume, SessionId, Siblings};

use super::losses::is_led;
use super::{BackendOf, Claim, Effect, Millis, Registry, RuleSource, SessionRecord};

/// How a front has left, as its keeper tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    /// The epoch of its lease.
    pub epoch: Epoch,
    /// It had said that it was about to leave. Else it was cut off.
    pub orderly: bool,
    /// When it said so, where that is known: see [`SessionRecord::closed_ms`].
    pub at_ms: Option<Millis>,
    /// Some front has had the backend do more than greet and list.
    pub used: bool,
}

impl Registry {
    /// A keeper tells how its front has left. That may be before or after its lease has ended.
    ///
    /// # Errors
    /// [`Error::UnknownBackend`] when that keeper does not hold the session's backend, or has to
    /// end.
    pub fn front_left(
        &mut self,
        told: &SessionId,
        name: KeeperName,
        keeper: ProcessId,
        left: Departure,
    ) -> Result<(), Error> {
        self.note_word(keeper, left.used);
        let BackendOf::Session(id) = self.kept_as(told, name, keeper)? else {
            // Its host is whoever serves it, and has no rule.
            return Ok(());
        };
        let session = self.sessions.get(&id).ok_or(Error::UnknownBackend)?;
        let (id, owner, key) = (session.id.clone(), session.owner, session.leading_key());
        let is_newest = session.epoch == left.epoch;
        let of_session = self.left.entry(id.clone()).or_default();
        // A late word, after that of another keeper on the next front.
        if of_session.values().any(|known| known.epoch > left.epoch) {
            return Ok(());
        }
        of_session.retain(|_, former| former.epoch == left.epoch);
        of_session.insert(keeper, left);
        if left.orderly && is_newest {
            self.note_close(&id, left.at_ms);
        }
        if let Some(key) = key {
            self.end_unreachable(owner, key);
        }
        Ok(())
    }

    /// A keeper whose session has ended by a rule has said, or shown by its end, whether it was used.
    pub(super) fn note_word(&mut self, keeper: ProcessId, used: bool) {
        let Some((host, key, rule)) = self.ended_by_rule.remove(&keeper) else {
            return;
        };
        if used {
            self.note_rule(host, key, rule);
        }
        self.reconsider(host, key);
    }

    /// Whether a keeper is about to say something that this claim has to be told.
    pub(super) fn awaits_word(&self, claim: &Claim, key: Key) -> bool {
        let Some(owner) = self.owners.get(&claim.host) else {
            return false;
        };
        let mut ended = self.ended_by_rule.values();
        ended.any(|(host, of, _)| {
            *host == claim.host && is_led(claim, key, of) && !owner.rules.contains_key(of)
        })
    }

    /// A session's front has said, beside its keepers, that it leaves in an orderly way: its session
    /// may have no keeper that could tell. `at_ms`: when, see [`SessionRecord::closed_ms`].
    pub fn front_closed(&mut self, id: &SessionId, epoch: Epoch, at_ms: Option<Millis>) {
        let Some(session) = self
            .sessions
            .get(id)
            .filter(|session| session.epoch == epoch)
        else {
            return;
        };
        let (owner, key) = (session.owner, session.leading_key());
        let left = Departure {
            epoch,
            orderly: true,
            at_ms,
            used: false,
        };
        let of_session = self.left.entry(id.clone()).or_default();
        of_session.retain(|_, former| former.epoch == epoch);
        // No keeper is called so.
        of_session.insert(ProcessId::USER, left);
        self.note_close(id, at_ms);
        if let Some(key) = key {
            self.end_closed(owner, key);
        }
    }

    /// The front of a session's newest epoch has said that it leaves: its first word counts.
    fn note_close(&mut self, id: &SessionId, at_ms: Option<Millis>) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let at_ms = at_ms.unwrap_or(0);
        let first = session.closed_ms.map_or(at_ms, |known| known.min(at_ms));
        if session.closed_ms != Some(first) {
            session.closed_ms = Some(first);
            self.effects.push(Effect::Save(session.clone().into()));
        }
    }

    /// Whether a process holds sessions.
    pub fn holds(&self, process: &ProcessId) -> bool {
        self.held_by.contains_key(process)
    }

    /// The sessions that a process holds, with their epochs.
    pub fn held_by(&self, process: &ProcessId) -> Vec<(SessionId, Epoch)> {
        let held = self.held_by.get(process).into_iter().flatten();
        held.filter_map(|id| self.sessions.get(id))
            .map(|session| (session.id.clone(), session.epoch))
            .collect()
    }

    /// Whether the last front of a session has said that it leaves.
    pub(super) fn is_closed(&self, session: &SessionRecord) -> bool {
        session.closed_ms.is_some()
    }

    /// Whether a front that was started then follows one that has left then: its host reconnects.
    fn follows_at_once(&self, started_ms: Option<Millis>, closed_ms: Millis) -> bool {
        let until = closed_ms.saturating_add(self.policy.closed_again_ms);
        started_ms.is_some_and(|started_ms| (closed_ms..=until).contains(&started_ms))
    }

    /// Ends the free sessions of this key that their host's rule forbids to resume.
    pub(super) fn end_closed(&mut self, owner: ProcessId, key: Key) {
        self.end_forbidden_by(owner, key, None);
    }

    /// The same by the rule of a claim, which may be another one: the configuration was changed, or
    /// the entry of the server.
    pub(super) fn end_forbidden(&mut self, claim: &Claim, key: Key) {
        for key in [Some(key), claim.unnamed].into_iter().flatten() {
            self.end_forbidden_by(claim.host, key, Some(claim));
        }
    }

    fn end_forbidden_by(&mut self, owner: ProcessId, key: Key, claim: Option<&Claim>) {
        let rule = claim.map(|claim| claim.rule);
        let rule = rule.filter(|rule| rule.source != RuleSource::Library);
        let Some(of_key) = self.by_key.get(&(owner, key)) else {
            return;
        };
        let mut doomed: Vec<(SessionId, Option<bool>)> = Vec::new();
        for session in of_key.free().filter_map(|id| self.sessions.get(id)) {
            let rule = rule.unwrap_or(session.rule);
            let forbids = match rule.resume {
                Resume::Always => false,
                // Before somebody claims, its keeper waits for that.
                Resume::Conversation => claim
                    .zip(session.closed_ms)
                    .is_some_and(|(claim, at)| !self.follows_at_once(claim.started_ms, at)),
                Resume::Cut => self.is_closed(session),
                Resume::Unknown => self.is_closed(session) || self.was_used(session) == Some(true),
                Resume::Never => true,
            };
            if forbids && owner != ProcessId::USER {
                doomed.push((session.id.clone(), self.has_shown_use(session)));
            }
        }
        for (id, used) in doomed {
            match (used, self.sessions.get(&id)) {
                (Some(true), _) => self.note_rule_of(&id, key),
                // They say it when they see that their front is gone.
                (None, Some(session)) if session.rule.source == RuleSource::Table => {
                    let told = (owner, key, session.rule.loss());
                    let has_said = |keeper: &ProcessId| {
                        let left = self.departure(&id, keeper);
                        left.is_some_and(|left| left.epoch == session.epoch)
                    };
                    let keepers = self.keepers_of(&(&id).into()).iter();
                    let keepers = keepers.map(|keeper| keeper.process);
                    let silent: Vec<ProcessId> =
                        keepers.filter(|keeper| !has_said(keeper)).collect();
                    self.ended_by_rule
                        .extend(silent.into_iter().map(|keeper| (keeper, told)));
                }
                _ => {}
            }
            self.tell_unreachable(&id, None);
            self.end_session(&id);
        }
    }

    /// A keeper has ended because of the host's rule while no daemon ran, so the session has, unless a front
    /// has come for it meanwhile, which is told.
    pub(super) fn end_if_free(&mut self, id: &SessionId) {
        let session = self.sessions.get(id);
        if session.is_some_and(|session| session.holder.is_none()) && self.is_bare(id) {
            self.tell_unreachable(id, None);
            self.end_session(id);
        }
    }

    /// A keeper was the last to wait for the host of this session to reconnect, in vain: nobody may
    /// have it any more. False: the session is none of those.
    pub(super) fn end_abandoned(&mut self, id: &SessionId, exits: &[ProcessId]) -> bool {
        let is_over = |session: &&SessionRecord| {
            let is_attended = session
                .holder
                .is_some_and(|holder| !exits.contains(&holder));
            session.rule.resume == Resume::Conversation
                && self.is_closed(session)
                && !is_attended
                && !exits.contains(&session.owner)
        };
        let Some(session) = self.sessions.get(id).filter(is_over) else {
            return false;
        };
        let left = self.left.get(id).into_iter().flat_map(BTreeMap::values);
        let mut left = left.filter(|left| left.epoch == session.epoch).peekable();
        let was_used = session.digest.is_some()
            || self.touched.contains(id)
            || left.peek().is_none()
            || left.any(|left| left.used);
        if let Some(key) = session.leading_key().filter(|_| was_used) {
            self.note_rule_of(id, key);
        }
        self.tell_unreachable(id, None);
        self.end_session(id);
        true
    }

    /// A used server of this session ends because of its host's rule. Whoever has asked for the
    /// rule knows it.
    pub(super) fn note_rule_of(&mut self, id: &SessionId, key: Key) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let (owner, rule) = (session.owner, session.rule);
        if rule.source == RuleSource::Table {
            self.note_rule(owner, key, rule.loss());
        }
    }

    /// Ends the sessions of this key that are free and that nobody can resume.
    pub(super) fn end_unreachable(&mut self, owner: ProcessId, key: Key) {
        self.end_closed(owner, key);
        let Some(of_key) = self.by_key.get(&(owner, key)) else {
            return;
        };
        let is_held = of_key.held().len() > 0;
        let mut doomed: Vec<(SessionId, Option<Loss>)> = Vec::new();
        let mut rest: Vec<&SessionRecord> = Vec::new();
        for session in of_key.free().filter_map(|id| self.sessions.get(id)) {
            let siblings = self.siblings_of(session);
            if siblings == Siblings::Never {
                doomed.push((session.id.clone(), None));
            } else if let Some(why) = self.is_superseded(session) {
                doomed.push((session.id.clone(), Some(why)));
            } else if is_held && self.was_used(session) == Some(false) {
                doomed.push((session.id.clone(), None));
            } else if matches!(siblings, Siblings::Fresh | Siblings::Successor) {
                rest.push(session);
            }
        }
        // Several can't be told apart. Those that nobody has used are no loss, once it is known of
        // all of them.
        let used: Option<Vec<bool>> = rest.iter().map(|session| self.was_used(session)).collect();
        if let (2.., Some(used)) = (rest.len(), used) {
            let number = used.iter().filter(|used| **used).count();
            for (session, used) in rest.iter().zip(used) {
                match (used, number) {
                    (true, 1) => {}
                    (true, _) => doomed.push((session.id.clone(), Some(Loss::Several))),
                    (false, _) => doomed.push((session.id.clone(), None)),
                }
            }
        }
        for (id, loss) in doomed {
            self.tell_unreachable(&id, loss);
            self.end_session(&id);
            if let Some(loss) = loss {
                self.note_loss(owner, key, None, loss);
            }
        }
    }

    /// The same for all keys of a host.
    pub(super) fn end_unreachable_of(&mut self, owner: ProcessId) {
        let keys: Vec<Key> = self.keys_of(owner).map(|(key, _)| key).collect();
        for key in keys {
            self.end_unreachable(owner, key);
        }
    }

    /// The same for what is told of it: a session without a backend may never have had one, or one
    /// that has ended with its front.
    fn has_shown_use(&self, session: &SessionRecord) -> Option<bool> {
        let is_bare = self.is_bare(&session.id) && session.digest.is_none();
        if is_bare && session.rule.source != RuleSource::Library {
            let left = self.left.get(&session.id).into_iter();
            let mut left = left.flat_map(BTreeMap::values);
            let is_used = left.any(|left| left.epoch == session.epoch && left.used);
            return Some(is_used || self.touched.contains(&session.id));
        }
        self.was_used(session)
    }

    /// How the last front has left that this keeper has told of.
    pub(super) fn departure(&self, id: &SessionId, keeper: &ProcessId) -> Option<&Departure> {
        self.left.get(id)?.get(keeper)
    }

    /// Whether the next front of this session is to be told that its only keeper is gone.
    fn has_lost(&self, session: &SessionRecord) -> bool {
        let losses = self.owners.get(&session.owner).map(|owner| &owner.losses);
        let mut losses = losses.into_iter().flatten();
        losses.any(|(of, loss)| Some(*of) == session.leading_key() && loss.of.is_none())
    }

    /// Whether anything of this session would be missed. None: a keeper of it is about to say.
    fn was_used(&self, session: &SessionRecord) -> Option<bool> {
        if self.is_bare(&session.id)
            || session.digest.is_some()
            || self.touched.contains(&session.id)
        {
            return Some(true);
        }
        self.left_by_last(session)
            .map(|left| left.iter().any(|left| left.used))
    }

    /// How the last front of a session has left its backends. None: a keeper of it has not said
    /// yet.
    fn left_by_last(&self, session: &SessionRecord) -> Option<Vec<&Departure>> {
        let said = self.left.get(&session.id)?;
        let under = |left: &&Departure| left.epoch == session.epoch;
        // One whose keeper has exited since has said so before.
        let all = self
            .keepers_of(&(&session.id).into())
            .iter()
            .all(|keeper| said.get(&keeper.process).filter(under).is_some());
        all.then(|| said.values().filter(under).collect())
    }

    /// Why a free session is no longer what its host would ask for: a newer one of the host has
    /// taken its place.
    fn is_superseded(&self, session: &SessionRecord) -> Option<Loss> {
        let key = session.leading_key()?;
        let leaves = self.leaves_conversations(session.owner);
        let newer = self.keys_of(session.owner).filter_map(|(newer, sessions)| {
            let other = self.sessions.get(sessions.newest()?)?;
            (other.opened > session.opened).then_some(())?;
            supersedes(&newer, other.description.entry.as_ref(), session, &key)
                .filter(|loss| *loss != Loss::Conversation || leaves)
        });
        newer.min_by_key(|loss| *loss != Loss::Conversation)
    }

    /// A claim shows that the host has gone on: ends the free sessions whose place it takes.
    /// Returns what it has to be told, where one of them was used: an edit of its own entry before
    /// all others.
    pub(super) fn end_superseded(&mut self, claim: &Claim, key: Key) -> Option<Loss> {
        let leaves = self.leaves_conversations(claim.host);
        let free = self
            .keys_of(claim.host)
            .flat_map(|(old, sessions)| sessions.free().map(move |id| (old, id)));
        let left: Vec<(SessionId, Key, Loss)> = free
            .filter_map(|(old, id)| {
                let loss = supersedes(
                    &key,
                    claim.description.entry.as_ref(),
                    self.sessions.get(id)?,
                    &old,
                )
                .filter(|loss| *loss != Loss::Conversation || leaves)?;
                Some((id.clone(), old, loss))
            })
            .collect();
        let mut told = None;
        for (id, old, loss) in left {
            let is_used = self.sessions.get(&id).is_some_and(|session| {
                self.has_shown_use(session) != Some(false) || self.has_lost(session)
            });
            self.tell_unreachable(&id, Some(loss).filter(|_| is_used));
            self.end_session(&id);
            // Who comes back to that conversation is told, too.
            if loss == Loss::Conversation && is_used {
                self.note_loss(claim.host, old, None, loss);
            }
            if is_used && told != Some(Loss::Edited) {
                told = Some(loss);
            }
        }
        told
    }

    /// Tells people that a session ends which nobody could resume.
    fn tell_unreachable(&mut self, id: &SessionId, loss: Option<Loss>) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        self.effects.push(Effect::Unreachable {
            session: id.clone(),
            server: session.program.clone(),
            host: session.owner.pid,
            loss,
        });
    }

    /// The session that an entry had before it was edited, where no name of an entry says so: the
    /// only free one of the same program and directory that was closed in an orderly way, in a host
    /// that has never run two of those at once.
    pub(super) fn edited_without_entry(&self, claim: &Claim, key: Key) -> Option<SessionId> {
        let may_be = claim.description.entry.is_none() && claim.host != ProcessId::USER;
        let program_dir = claim.program_dir.filter(|_| may_be)?;
        self.owners
            .get(&claim.host)
            .filter(|owner| !owner.ambiguous.contains(&program_dir))?;
        let keyed = self
            .keys_of(claim.host)
            .flat_map(|(_, sessions)| sessions.all());
        let mut of_spot = keyed
            .filter_map(|id| self.sessions.get(id))
            .filter(|session| {
                session.program_dir == Some(program_dir) && session.description.entry.is_none()
            });
        let only = of_spot.next().filter(|_| of_spot.next().is_none())?;
        let left = self.left_by_last(only).unwrap_or_default();
        let is_closed =
            only.holder.is_none() && !left.is_empty() && left.iter().all(|left| left.orderly);
        let is_same = only.key.is_some_and(|old| key.is_another_program_for(&old));
        (is_closed && is_same).then(|| only.id.clone())
    }

    /// Something was kept in this session: it counts as used.
    pub fn touch(&mut self, id: &SessionId) {
        let session = self.sessions.get(id);
        let Some(session) = session.filter(|_| !self.touched.contains(id)) else {
            return;
        };
        let (owner, key) = (session.owner, session.leading_key());
        self.touched.insert(id.clone());
        // What was in doubt before may be clear now.
        if let Some(key) = key {
            self.end_unreachable(owner, key);
        }
    }
}

/// Whether a server of this key and entry has taken the place of this session: in another
/// conversation of the same host, or as what the same entry of the host's file has become.
fn supersedes(
    newer: &Key,
    entry: Option<&Label>,
    session: &SessionRecord,
    key: &Key,
) -> Option<Loss> {
    let same_entry = entry.is_some() && entry == session.description.entry.as_ref();
    if newer.is_another_conversation_of(key) {
        Some(Loss::Conversation)
    } else if same_entry && newer.is_another_program_for(key) {
        Some(Loss::Edited)
    } else {
        None
    }
}
