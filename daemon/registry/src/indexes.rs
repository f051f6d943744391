//! Sessions, and everything that leads to them: kept as one.

use mcp_sessiond_identity::{Key, ProcessId};
use mcp_sessiond_proto::SessionId;

use super::keepers::Served;
use super::{Effect, Registry, SessionRecord};

impl Registry {
    /// Takes a session in.
    pub(super) fn insert(&mut self, session: SessionRecord) {
        if let Some(owner) = self.owners.get_mut(&session.owner) {
            owner.sessions.insert(session.id.clone());
            owner.files = owner.files.max(session.file.number);
        }
        if let Some(key) = session.leading_key() {
            self.by_key.entry((session.owner, key)).or_default().push(session.id.clone());
        }
        if *session.told() != session.id {
            self.names.insert((session.owner, session.told().clone()), session.id.clone());
        }
        if let Some(holder) = session.holder {
            self.held_by.entry(holder).or_default().insert(session.id.clone());
        }
        if let Some(keeper) = &session.keeper {
            self.kept_by.insert(keeper.process, session.id.clone());
        }
        self.sessions.insert(session.id.clone(), session);
    }

    /// A session that the former recipe's key led to is led to by this one from now on.
    pub(super) fn rekey(&mut self, id: &SessionId, key: Key) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let (owner, opened) = (session.owner, session.opened);
        let Some(former) = session.leading_key().filter(|former| *former != key) else { return };
        session.key = Some(key);
        self.drop_from_key(owner, former, id);
        let ids = self.by_key.entry((owner, key)).or_default();
        let is_earlier =
            |other: &SessionId| self.sessions.get(other).is_some_and(|other| other.opened < opened);
        let at = ids.partition_point(is_earlier);
        ids.insert(at, id.clone());
    }

    fn drop_from_key(&mut self, owner: ProcessId, key: Key, id: &SessionId) {
        if let Some(ids) = self.by_key.get_mut(&(owner, key)) {
            ids.retain(|other| other != id);
            if ids.is_empty() {
                self.by_key.remove(&(owner, key));
            }
        }
    }

    /// Takes a session out, and its token and its backend with it. Its owner's own list is the caller's to keep.
    pub(super) fn remove(&mut self, id: &SessionId) {
        let Some(session) = self.sessions.remove(id) else { return };
        self.left.remove(id);
        self.touched.remove(id);
        if let Some(key) = session.leading_key() {
            self.drop_from_key(session.owner, key, id);
        }
        if let Some(holder) = session.holder
            && let Some(ids) = self.held_by.get_mut(&holder)
        {
            ids.remove(id);
            if ids.is_empty() {
                self.held_by.remove(&holder);
            }
        }
        self.names.remove(&(session.owner, session.told().clone()));
        // On record before the session is off it: a keeper is never forgotten.
        if let Some(keeper) = session.keeper.clone() {
            self.let_go(*keeper, Served::of_ended(&session));
        }
        self.effects.push(Effect::EndContents(session.owner, session.told().clone()));
        self.effects.push(Effect::DropSession(session.id));
        self.effects.push(Effect::DeleteToken(session.file));
    }
}
