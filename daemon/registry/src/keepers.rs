//! Keepers: which of them holds a session's backend, and what becomes of those that hold none any
//! more.
//!
//! A keeper is on record from the moment in which it is answered until it has exited *and* what was
//! left of its backend is gone, whatever becomes of its session meanwhile.

use alloc::vec::Vec;

use mcp_sessiond_identity::{Key, ProcessId};
use mcp_sessiond_proto::backends::KeeperName;
use mcp_sessiond_proto::{BackendName, Epoch, Error, Loss, SessionId};

use super::records::ProgramDir;
use super::{Effect, KeeperRecord, Registry, SessionRecord};

/// When a client asks again for a backend whose keeper lives, in ms.
const OTHER_KEEPER_RETRY_MS: u32 = 20;

/// What a keeper has served: what takes its place is not to meet what its backend still holds, such
/// as a port, or the lock on a profile.
#[derive(Debug, Clone)]
pub(super) struct Served {
    session: SessionId,
    owner: ProcessId,
    key: Option<Key>,
    program_dir: Option<ProgramDir>,
    backend: Option<BackendName>,
}

impl Served {
    pub(super) fn of(session: &SessionRecord, keeper: &KeeperRecord) -> Self {
        Self {
            session: session.public_id().clone(),
            owner: session.owner,
            key: session.key,
            program_dir: None,
            backend: keeper.of.clone(),
        }
    }

    /// The same, where the session has ended: what its entry has become may have another key.
    pub(super) fn of_ended(session: &SessionRecord, keeper: &KeeperRecord) -> Self {
        Self {
            program_dir: session.program_dir,
            ..Self::of(session, keeper)
        }
    }

    fn is_in_the_way_of(&self, session: &SessionRecord, backend: Option<&BackendName>) -> bool {
        let same_program = self
            .key
            .zip(session.key)
            .is_some_and(|(one, other)| one.what == other.what);
        let same_place =
            same_program || (self.program_dir.is_some() && self.program_dir == session.program_dir);
        let in_list = self.backend.as_ref().map(BackendName::in_list);
        self.owner == session.owner && same_place && in_list == backend.map(BackendName::in_list)
    }
}

impl Registry {
    /// The session and the host of a keeper that has exited, and is not swept yet.
    pub fn was_kept_for(&self, keeper: &ProcessId) -> Option<(&SessionId, u32)> {
        let served = self.served.get(keeper)?;
        Some((&served.session, served.owner.pid))
    }

    /// Whether nothing is left of the backends whose place this session's next one of this name
    /// takes. What a list's server was before its entry was edited, while no front was there to end it,
    /// ends now.
    pub fn free_backend(&mut self, id: &SessionId, backend: Option<&BackendName>) -> bool {
        let edited = self.end_edited(id, backend);
        let Some(session) = self.sessions.get(id).filter(|_| !edited) else {
            return !edited;
        };
        !self
            .served
            .values()
            .any(|served| served.is_in_the_way_of(session, backend))
    }

    /// Registers a keeper for a session. Repeating the call has no further effect.
    ///
    /// # Errors
    /// Those of a lease that is not the newest; [`Error::Unavailable`] while another keeper of the
    /// same backend lives, which goes away when it exits or is [ended](Self::stop_backend) and in no
    /// other way; [`Error::UnknownBackend`] for one that has to end;
    /// [`Error::InvalidArgument`] for one that holds another backend, or has another one's name;
    /// and [`Error::QuotaExceeded`] for one more than a session may have.
    pub fn keep_backend(
        &mut self,
        id: &SessionId,
        epoch: Epoch,
        keeper: KeeperRecord,
    ) -> Result<(), Error> {
        self.leased(id, epoch)?;
        let process = keeper.process;
        let of_service = self.service_kept_by.contains_key(&process);
        let is_its = self
            .kept_by
            .get(&process)
            .map(|of| of == id && self.keeps(id, &keeper));
        if !self.is_new_keeper(&keeper, is_its.or(of_service.then_some(false)))? {
            return self.kept(process, keeper.name).map(drop);
        }
        let session = self.leased(id, epoch)?;
        session.keepers.check_room(keeper.of.as_ref())?;
        if session.keepers.of(keeper.of.as_ref()).is_some() {
            return Err(other_keeper());
        }
        session.keepers.put(keeper.clone());
        self.kept_by.insert(process, id.clone());
        self.effects
            .push(Effect::SaveKeeper(Some(id.clone()), keeper));
        Ok(())
    }

    /// Whether a keeper registers for the first time. `is_its`: whether the backend that it already
    /// holds belongs to the session that it registers for.
    ///
    /// # Errors
    /// [`Error::UnknownBackend`] if the keeper has to end; [`Error::InvalidArgument`] if it holds
    /// another session's backend, or another keeper has its name.
    pub(super) fn is_new_keeper(
        &self,
        keeper: &KeeperRecord,
        is_its: Option<bool>,
    ) -> Result<bool, Error> {
        if self.ending.contains_key(&keeper.process)
            || self.exited_keepers.contains_key(&keeper.process)
        {
            return Err(Error::UnknownBackend);
        }
        match is_its {
            Some(true) => Ok(false),
            Some(false) => Err(Self::keeps_another()),
            None => self.check_name(keeper.name).map(|()| true),
        }
    }

    /// A keeper has started its backend, or started it again. That of a keeper which has to end is
    /// recorded as well, so that it is found if the keeper does not take it down.
    ///
    /// # Errors
    /// [`Error::UnknownBackend`] when that keeper does not hold the session's backend, or has to
    /// end.
    pub fn backend_started(
        &mut self,
        told: &SessionId,
        name: KeeperName,
        keeper: ProcessId,
        backend: ProcessId,
    ) -> Result<(), Error> {
        if let Some(record) = self.ending.get_mut(&keeper) {
            record.backend = Some(backend);
            self.effects.push(Effect::SaveKeeper(None, record.clone()));
            return Err(Error::UnknownBackend);
        }
        if let Some(started) = self.service_backend_started(told, name, keeper, backend) {
            return started;
        }
        let id = self.kept_by.get(&keeper).ok_or(Error::UnknownBackend)?;
        let session = self
            .sessions
            .get_mut(id)
            .filter(|session| session.public_id() == told);
        let record = session.and_then(|session| session.keepers.by_mut(&keeper));
        let record = record
            .filter(|record| record.name == name)
            .ok_or(Error::UnknownBackend)?;
        record.backend = Some(backend);
        self.effects.push(Effect::SaveKeeper(
            Some(id.clone()),
            KeeperRecord::clone(record),
        ));
        if record.ending {
            Err(Error::UnknownBackend)
        } else {
            Ok(())
        }
    }

    /// The process that a keeper lets attach: the one that holds the session under this epoch.
    ///
    /// # Errors
    /// Those of a lease that is not the newest; [`Error::UnknownBackend`] when that keeper does not
    /// hold the session's backend, or has to end.
    pub fn front(
        &mut self,
        told: &SessionId,
        name: KeeperName,
        keeper: ProcessId,
        epoch: Epoch,
    ) -> Result<ProcessId, Error> {
        if let Some(front) = self.service_front(told, name, keeper, epoch) {
            return front;
        }
        let session = self.kept(keeper, name)?;
        if session.public_id() != told {
            return Err(Error::UnknownBackend);
        }
        let id = session.id.clone();
        self.leased(&id, epoch)?.holder.ok_or(Error::LeaseEnded)
    }

    /// A session's backend of this name is to end, or all of them where no name is given. The
    /// session stays, and each keeper is on record until it has exited.
    ///
    /// # Errors
    /// [`Error::UnknownBackend`] when there is none.
    pub fn stop_backend(
        &mut self,
        id: &SessionId,
        backend: Option<&BackendName>,
    ) -> Result<(), Error> {
        let session = self.sessions.get_mut(id).ok_or(Error::UnknownBackend)?;
        for keeper in session.keepers.stop(backend)? {
            let process = keeper.process;
            self.effects
                .push(Effect::SaveKeeper(Some(id.clone()), keeper));
            self.effects.push(Effect::EndKeeper(process));
        }
        Ok(())
    }

    /// Ends what a list's server of this name was before its entry was edited. False: there is nothing of
    /// it.
    fn end_edited(&mut self, id: &SessionId, backend: Option<&BackendName>) -> bool {
        let Some((session, backend)) = self.sessions.get(id).zip(backend) else {
            return false;
        };
        let former: Vec<KeeperRecord> = session.keepers.edited(backend).cloned().collect();
        let backend = backend.clone();
        for keeper in &former {
            let left = self.departure(id, &keeper.process);
            let is_told = left.is_none_or(|left| left.used);
            self.edited
                .insert(keeper.process, is_told.then(|| backend.clone()));
            let told = self.stop_backend(id, keeper.of.as_ref());
            debug_assert!(told.is_ok(), "it was found just now");
        }
        !former.is_empty()
    }

    /// A keeper is to end, since it does not answer or can't be reached; its backend counts as lost.
    /// `kills`: it would not end by itself. The keeper may be of a session, or of a service's.
    ///
    /// # Errors
    /// [`Error::UnknownBackend`] when a session of this id has no such keeper.
    pub fn end_faulty(
        &mut self,
        told: &SessionId,
        name: KeeperName,
        kills: bool,
    ) -> Result<(), Error> {
        if let Some((id, keeper)) = self.keeper_of(told, name) {
            self.faulty.insert(keeper.process, kills);
            return self.stop_backend(&id, keeper.of.as_ref());
        }
        let found = self
            .service_backends()
            .find(|(of, keeper)| of.1 == *told && keeper.name == name)
            .map(|(of, keeper)| (of.clone(), keeper.clone()));
        let (of, keeper) = found.ok_or(Error::UnknownBackend)?;
        self.faulty.insert(keeper.process, kills);
        self.stop_service_backend(&of, keeper.of.as_ref())
    }

    /// A keeper of a session is to end to which no front has attached: nothing is lost with it.
    ///
    /// # Errors
    /// [`Error::UnknownBackend`] when a session of this id has no such keeper.
    pub fn end_unattached(&mut self, told: &SessionId, name: KeeperName) -> Result<(), Error> {
        let found = self.keeper_of(told, name);
        let (id, keeper) = found.ok_or(Error::UnknownBackend)?;
        self.last_words.insert(keeper.process, None);
        self.stop_backend(&id, keeper.of.as_ref())
    }

    fn keeper_of(&self, told: &SessionId, name: KeeperName) -> Option<(SessionId, KeeperRecord)> {
        self.sessions_with_backend()
            .find(|(session, keeper)| session.public_id() == told && keeper.name == name)
            .map(|(session, keeper)| (session.id.clone(), keeper.clone()))
    }

    /// Whether a keeper ends because its entry in the list was edited.
    pub fn is_edited(&self, keeper: &ProcessId) -> bool {
        self.edited.contains_key(keeper)
    }

    /// Whether a keeper is to be killed that is at fault. None: it is not.
    pub fn is_faulty(&self, keeper: &ProcessId) -> Option<bool> {
        self.faulty.get(keeper).copied()
    }

    /// A keeper says why it is about to end, and its backend with it. None: it has started none.
    ///
    /// # Errors
    /// [`Error::UnknownBackend`] when that keeper does not hold the session's backend, or has to
    /// end.
    pub fn backend_ending(
        &mut self,
        told: &SessionId,
        name: KeeperName,
        keeper: ProcessId,
        why: Option<Loss>,
    ) -> Result<(), Error> {
        let of = match self.service_kept(keeper, name) {
            Ok((_, session)) => session,
            Err(_) => self.kept(keeper, name)?.public_id(),
        };
        if of != told {
            return Err(Error::UnknownBackend);
        }
        self.last_words.insert(keeper, why);
        Ok(())
    }

    /// Why a keeper has ended, as it, or whoever has ended it, has left behind. What it has told counts
    /// more.
    pub fn note_end(&mut self, keeper: ProcessId, why: Option<Loss>) {
        if self.kept_by.contains_key(&keeper) || self.service_kept_by.contains_key(&keeper) {
            self.last_words.entry(keeper).or_insert(why);
        }
    }

    /// What was left of the backend of a keeper that has exited is gone.
    pub fn swept(&mut self, keeper: &ProcessId) {
        self.served.remove(keeper);
        self.service_served.remove(keeper);
        if self.exited_keepers.remove(keeper).is_some() {
            self.effects.push(Effect::DropKeeper(*keeper));
        }
    }

    /// The sessions' backends, and whose each of them is.
    pub fn sessions_with_backend(&self) -> impl Iterator<Item = (&SessionRecord, &KeeperRecord)> {
        self.kept_by.iter().filter_map(|(process, id)| {
            let session = self.sessions.get(id)?;
            Some((session, session.keepers.by(process)?))
        })
    }

    /// The keepers that have not exited, whether they hold a session's backend or have to end.
    pub fn keepers(&self) -> impl Iterator<Item = &KeeperRecord> {
        self.sessions_with_backend()
            .map(|(_, keeper)| keeper)
            .chain(self.ending.values())
            .chain(self.service_backends().map(|(_, keeper)| keeper))
    }

    /// A session has another keeper, or has ended: this one has to end. The caller has taken it
    /// from its session.
    pub(super) fn let_go(&mut self, keeper: KeeperRecord, served: Served) {
        self.served.insert(keeper.process, served);
        self.kept_by.remove(&keeper.process);
        self.last_words.remove(&keeper.process);
        self.end_keeper(keeper);
    }

    /// Ends a keeper that has no session any more.
    pub(super) fn end_keeper(&mut self, keeper: KeeperRecord) {
        let (process, knows) = (keeper.process, keeper.ending);
        let keeper = KeeperRecord {
            ending: true,
            ..keeper
        };
        self.effects.push(Effect::SaveKeeper(None, keeper.clone()));
        self.ending.insert(process, keeper);
        if !knows {
            self.effects.push(Effect::EndKeeper(process));
        }
    }

    /// A process has exited that may be a keeper, and these with it. Returns the session that has lost
    /// its backend by that, and whether that was by its host's rule.
    pub(super) fn keeper_exited(
        &mut self,
        process: &ProcessId,
        exits: &[ProcessId],
    ) -> Option<(SessionId, bool)> {
        let words = self.last_words.remove(process);
        let is_faulty = self.faulty.remove(process).is_some();
        // A front that has seen the edit has told it.
        let edited = self.edited.remove(process).flatten();
        let edited = edited.filter(|_| words != Some(Some(Loss::Edited)));
        let of = self.kept_by.remove(process);
        let session = of.as_ref().and_then(|id| self.sessions.get_mut(id));
        let kept = session.and_then(|session| {
            let keeper = session.keepers.take(process)?;
            self.served.insert(*process, Served::of(session, &keeper));
            Some(keeper)
        });
        let why = |is_ending: bool| match words {
            _ if is_faulty => Some(Loss::Hung),
            // Nobody has ever had its backend.
            Some(None) => None,
            _ if is_ending => Some(Loss::Stopped),
            None => Some(Loss::Killed),
            Some(words) => words,
        };
        let mut by_rule = false;
        let keeper = match kept {
            Some(keeper) => {
                let why = why(keeper.ending);
                // With the session's next keeper it must not come back.
                let keeper = KeeperRecord {
                    ending: true,
                    ..keeper
                };
                // A daemon that is killed between the two would find neither, if it were the other way
                // round.
                if let Some((session, now)) = of.as_ref().zip(edited) {
                    self.note_edited(session, now);
                } else if let Some((session, why)) = of.as_ref().zip(why)
                    && why.is_rule()
                {
                    by_rule = true;
                    if let Some(key) = self.sessions.get(session).and_then(|of| of.leading_key()) {
                        self.note_rule_of(session, key);
                    }
                } else if let Some((session, why)) = of.as_ref().zip(why)
                    && !(why == Loss::Abandoned && self.end_abandoned(session, exits))
                {
                    self.note_lost_keeper(session, keeper.of.as_ref(), why, exits);
                }
                self.effects.push(Effect::SaveKeeper(None, keeper.clone()));
                keeper
            }
            None => {
                let of_service = self.service_keeper_exited(process, why, edited);
                of_service.or_else(|| self.ending.remove(process))?
            }
        };
        self.effects.push(Effect::SweepBackend(keeper.clone()));
        self.exited_keepers.insert(*process, keeper);
        of.map(|session| (session, by_rule))
    }

    /// Those that have to end are told so again: a former daemon may have had no time for it.
    pub(super) fn restore_keepers(&mut self, ending: Vec<KeeperRecord>) {
        let ended = |keeper: KeeperRecord| {
            (
                keeper.process,
                KeeperRecord {
                    ending: true,
                    ..keeper
                },
            )
        };
        self.ending = ending.into_iter().map(ended).collect();
        let ending = self.keepers().filter(|keeper| keeper.ending);
        let told: Vec<Effect> = ending
            .map(|keeper| Effect::EndKeeper(keeper.process))
            .collect();
        self.effects.extend(told);
    }

    /// Whether a process is a keeper that has not exited.
    pub fn is_keeper(&self, process: &ProcessId) -> bool {
        self.kept_by.contains_key(process)
            || self.ending.contains_key(process)
            || self.service_kept_by.contains_key(process)
    }

    /// Whether a keeper belongs to no session any more, and something is left of it or its backend.
    pub fn is_leaving(&self, process: &ProcessId) -> bool {
        self.ending.contains_key(process) || self.exited_keepers.contains_key(process)
    }

    pub(super) fn has_no_keeper(&self) -> bool {
        let none_lives =
            self.kept_by.is_empty() && self.ending.is_empty() && self.service_kept_by.is_empty();
        none_lives && self.exited_keepers.is_empty()
    }

    pub(super) fn check_name(&self, name: KeeperName) -> Result<(), Error> {
        match self.keepers().any(|other| other.name == name) {
            true => Err(refused("another keeper has this name; take another one")),
            false => Ok(()),
        }
    }

    /// Whether the backend that this process holds is the one that it registers for.
    fn keeps(&self, id: &SessionId, keeper: &KeeperRecord) -> bool {
        let known = self
            .sessions
            .get(id)
            .and_then(|session| session.keepers.by(&keeper.process));
        known.is_some_and(|known| known.of == keeper.of)
    }

    pub(super) fn keeps_another() -> Error {
        refused("this keeper holds another backend")
    }

    /// The session whose backend this keeper holds, and goes on holding.
    pub(super) fn kept(
        &self,
        keeper: ProcessId,
        name: KeeperName,
    ) -> Result<&SessionRecord, Error> {
        let session = self
            .kept_by
            .get(&keeper)
            .and_then(|id| self.sessions.get(id));
        let is_held = |session: &&SessionRecord| {
            session
                .keepers
                .by(&keeper)
                .is_some_and(|held| held.name == name && !held.ending)
        };
        session.filter(is_held).ok_or(Error::UnknownBackend)
    }
}

/// The error for a backend whose keeper lives.
pub(super) fn other_keeper() -> Error {
    Error::Unavailable {
        sentence: "the process that keeps this server lives, so no second one takes its place"
            .into(),
        retry_after_ms: OTHER_KEEPER_RETRY_MS,
    }
}

fn refused(sentence: &str) -> Error {
    Error::InvalidArgument {
        sentence: sentence.into(),
    }
}
