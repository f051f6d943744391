//! Sessions, and everything that leads to them: kept as one.

use alloc::collections::BTreeSet;

use mcp_sessiond_identity::{Key, ProcessId};
use mcp_sessiond_proto::{RequestId, SessionId};

use super::keepers::Served;
use super::{Effect, RecordKey, Registry, SessionRecord};

/// The sessions of an owner that one key leads to, each with its place in the order of opening.
#[derive(Debug, Default)]
pub(super) struct OfKey {
    free: BTreeSet<(u64, SessionId)>,
    held: BTreeSet<(u64, SessionId)>,
}

impl OfKey {
    /// Those that nobody holds, the oldest first.
    pub(super) fn free(&self) -> impl Iterator<Item = &SessionId> {
        self.free.iter().map(|(_, id)| id)
    }

    /// Those that somebody holds, the oldest first.
    pub(super) fn held(&self) -> impl ExactSizeIterator<Item = &SessionId> {
        self.held.iter().map(|(_, id)| id)
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &SessionId> {
        self.free().chain(self.held())
    }

    /// The one that was opened last.
    pub(super) fn newest(&self) -> Option<&SessionId> {
        self.free.last().max(self.held.last()).map(|(_, id)| id)
    }

    fn put(&mut self, session: &SessionRecord) {
        let place = (session.opened, session.id.clone());
        let (to, from) = match session.holder {
            Some(_) => (&mut self.held, &mut self.free),
            None => (&mut self.free, &mut self.held),
        };
        from.remove(&place);
        to.insert(place);
    }

    fn take(&mut self, session: &SessionRecord) {
        let place = (session.opened, session.id.clone());
        let _ = self.free.remove(&place) || self.held.remove(&place);
    }

    fn is_empty(&self) -> bool {
        self.free.is_empty() && self.held.is_empty()
    }
}

impl Registry {
    /// The keys of an owner that lead to sessions, and those sessions.
    pub(super) fn keys_of(&self, owner: ProcessId) -> impl Iterator<Item = (Key, &OfKey)> {
        let of_owner = self
            .by_key
            .range((owner, Key::FIRST)..)
            .take_while(move |((of, _), _)| *of == owner);
        of_owner.map(|((_, key), sessions)| (*key, sessions))
    }

    /// The sessions that claims with this key are led to: those that have it, and those that have
    /// that of the same server without the name of its entry.
    pub(super) fn led_to(
        &self,
        owner: ProcessId,
        key: Key,
        unnamed: Option<Key>,
    ) -> impl Iterator<Item = &OfKey> {
        let keys = core::iter::once(key).chain(unnamed);
        keys.filter_map(move |key| self.by_key.get(&(owner, key)))
    }

    /// A session has this holder from now on, or none.
    pub(super) fn give(&mut self, id: &SessionId, holder: Option<ProcessId>) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let former = core::mem::replace(&mut session.holder, holder);
        if let Some(key) = session.leading_key() {
            self.by_key
                .entry((session.owner, key))
                .or_default()
                .put(session);
        }
        let request = session.made_by.clone();
        if let Some(former) = former {
            self.drop_from_holder(former, id, request.clone());
        }
        if let Some(holder) = holder {
            self.add_to_holder(holder, id, request);
        }
    }

    fn add_to_holder(&mut self, holder: ProcessId, id: &SessionId, made_by: Option<RequestId>) {
        self.held_by.entry(holder).or_default().insert(id.clone());
        if let Some(request) = made_by {
            self.made
                .entry((holder, request))
                .or_insert_with(|| id.clone());
        }
    }

    fn drop_from_holder(&mut self, holder: ProcessId, id: &SessionId, made_by: Option<RequestId>) {
        if let Some(made) = made_by.map(|request| (holder, request))
            && self.made.get(&made) == Some(id)
        {
            self.made.remove(&made);
        }
        if let Some(ids) = self.held_by.get_mut(&holder) {
            ids.remove(id);
            if ids.is_empty() {
                self.held_by.remove(&holder);
            }
        }
    }

    /// Takes a session in.
    pub(super) fn insert(&mut self, session: SessionRecord) {
        if let Some(owner) = self.owners.get_mut(&session.owner) {
            owner.sessions.insert(session.id.clone());
            owner.files = owner.files.max(session.file.number);
        }
        if let Some(key) = session.leading_key() {
            self.by_key
                .entry((session.owner, key))
                .or_default()
                .put(&session);
        }
        if *session.public_id() != session.id {
            self.names.insert(
                (session.owner, session.public_id().clone()),
                session.id.clone(),
            );
        }
        if let Some(holder) = session.holder {
            self.add_to_holder(holder, &session.id, session.made_by.clone());
        }
        self.sessions.insert(session.id.clone(), session);
    }

    /// A session that an earlier key led to is led to by this one from now on.
    pub(super) fn rekey(&mut self, id: &SessionId, key: Key) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let Some(former) = session.leading_key().filter(|former| *former != key) else {
            return;
        };
        session.key = Some(key);
        self.by_key
            .entry((session.owner, key))
            .or_default()
            .put(session);
        let session = session.clone();
        self.drop_from_key(former, &session);
    }

    fn drop_from_key(&mut self, key: Key, session: &SessionRecord) {
        if let Some(of_key) = self.by_key.get_mut(&(session.owner, key)) {
            of_key.take(session);
            if of_key.is_empty() {
                self.by_key.remove(&(session.owner, key));
            }
        }
    }

    /// Takes a session out, and its token and its backend with it. Its owner's own list is the
    /// caller's to keep.
    pub(super) fn remove(&mut self, id: &SessionId) {
        let Some(session) = self.sessions.remove(id) else {
            return;
        };
        self.left.remove(id);
        self.touched.remove(id);
        if let Some(key) = session.leading_key() {
            self.drop_from_key(key, &session);
        }
        if let Some(holder) = session.holder {
            self.drop_from_holder(holder, id, session.made_by.clone());
        }
        self.names
            .remove(&(session.owner, session.public_id().clone()));
        // On record before the session is off it: a keeper is never forgotten.
        self.let_go(&(&session.id).into(), |keeper| {
            Served::of_ended(&session, keeper)
        });
        self.effects.push(Effect::EndContents(
            session.owner,
            session.public_id().clone(),
        ));
        self.effects
            .push(Effect::Drop(RecordKey::Session(session.id)));
        self.effects.push(Effect::DeleteToken(session.file));
    }
}
