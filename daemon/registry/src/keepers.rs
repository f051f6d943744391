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
use super::{
    BackendOf, Effect, KeeperRecord, Keepers, Record, RecordKey, Registry, ServiceSession,
    SessionRecord,
};

/// When a client asks again for a backend whose keeper lives, in ms.
const OTHER_KEEPER_RETRY_MS: u32 = 20;

/// What a keeper has served: what takes its place is not to meet what its backend still holds, such
/// as a port, or the lock on a profile.
#[derive(Debug, Clone)]
pub(super) struct Served {
    session: SessionId,
    place: Place,
    backend: Option<BackendName>,
}

/// Where a backend was: what comes there next takes its place.
#[derive(Debug, Clone)]
enum Place {
    OfHost {
        owner: ProcessId,
        key: Option<Key>,
        program_dir: Option<ProgramDir>,
    },
    OfService(ServiceSession),
}

impl Place {
    fn of(session: &SessionRecord) -> Self {
        Self::OfHost {
            owner: session.owner,
            key: session.key,
            program_dir: None,
        }
    }

    /// The same, where what the session's entry has become may have another key.
    fn of_any_key(session: &SessionRecord) -> Self {
        Self::OfHost {
            owner: session.owner,
            key: session.key,
            program_dir: session.program_dir,
        }
    }

    fn is_taken_by(&self, next: &Self) -> bool {
        match (self, next) {
            (Self::OfService(one), Self::OfService(other)) => one == other,
            (
                Self::OfHost {
                    owner,
                    key,
                    program_dir,
                },
                Self::OfHost {
                    owner: of_next,
                    key: next_key,
                    program_dir: next_dir,
                },
            ) => {
                let same_program = key
                    .zip(*next_key)
                    .is_some_and(|(one, other)| one.what == other.what);
                let same_place = program_dir.is_some() && program_dir == next_dir;
                owner == of_next && (same_program || same_place)
            }
            _ => false,
        }
    }
}

impl Served {
    /// By a keeper of a session that has ended.
    pub(super) fn of_ended(session: &SessionRecord, keeper: &KeeperRecord) -> Self {
        Self {
            session: session.public_id().clone(),
            place: Place::of_any_key(session),
            backend: keeper.of.clone(),
        }
    }

    /// By a keeper of a service's session.
    pub(super) fn of_service(of: &ServiceSession, keeper: &KeeperRecord) -> Self {
        Self {
            session: of.1.clone(),
            place: Place::OfService(of.clone()),
            backend: keeper.of.clone(),
        }
    }
}

impl Registry {
    /// The session and the host of a keeper that has exited, and is not swept yet. None: it was of no
    /// host.
    pub fn was_kept_for(&self, keeper: &ProcessId) -> Option<(&SessionId, u32)> {
        let served = self.served.get(keeper)?;
        match &served.place {
            Place::OfHost { owner, .. } => Some((&served.session, owner.pid)),
            Place::OfService(_) => None,
        }
    }

    /// The keepers of a session's backends.
    pub fn keepers_of(&self, of: &BackendOf) -> &Keepers {
        self.kept.get(of).unwrap_or(Keepers::NONE)
    }

    /// Whether a host's session has no backend.
    pub(super) fn is_bare(&self, id: &SessionId) -> bool {
        self.keepers_of(&id.into()).is_empty()
    }

    /// The id by which the session's owner knows it.
    pub fn told_of<'a>(&'a self, of: &'a BackendOf) -> Option<&'a SessionId> {
        match of {
            BackendOf::Session(id) => self.sessions.get(id).map(SessionRecord::public_id),
            BackendOf::Service((_, session)) => Some(session),
        }
    }

    /// The process that holds the lease under this epoch.
    ///
    /// # Errors
    /// Those of a lease that is not the newest.
    pub fn holder_of(&mut self, of: &BackendOf, epoch: Epoch) -> Result<ProcessId, Error> {
        let holder = match of {
            BackendOf::Session(id) => self.leased(id, epoch)?.holder,
            BackendOf::Service((service, _)) => self.served_under(service, epoch)?.holder,
        };
        holder.ok_or(Error::LeaseEnded)
    }

    /// Whether nothing is left of the backends whose place this session's next one of this name
    /// takes. What a list's server was before its entry was edited, while nobody was there to end it, ends
    /// now.
    pub fn free_backend(&mut self, of: &BackendOf, backend: Option<&BackendName>) -> bool {
        if self.end_edited(of, backend) {
            return false;
        }
        let next = match of {
            BackendOf::Service(of) => Place::OfService(of.clone()),
            BackendOf::Session(id) => match self.sessions.get(id) {
                Some(session) => Place::of_any_key(session),
                None => return true,
            },
        };
        let in_list = backend.map(BackendName::in_list);
        !self.served.values().any(|served| {
            let same_name = served.backend.as_ref().map(BackendName::in_list) == in_list;
            same_name && served.place.is_taken_by(&next)
        })
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
        of: &BackendOf,
        epoch: Epoch,
        keeper: KeeperRecord,
    ) -> Result<(), Error> {
        self.holder_of(of, epoch)?;
        let process = keeper.process;
        let known = self.keepers_of(of).by(&process);
        let holds_it = known.is_some_and(|known| known.of == keeper.of);
        let is_its = self
            .kept_by
            .get(&process)
            .map(|other| other == of && holds_it);
        if !self.is_new_keeper(&keeper, is_its)? {
            return self.kept(process, keeper.name).map(drop);
        }
        let others = self.keepers_of(of);
        others.check_room(keeper.of.as_ref())?;
        if others.of(keeper.of.as_ref()).is_some() {
            return Err(other_keeper());
        }
        self.kept.entry(of.clone()).or_default().put(keeper.clone());
        self.kept_by.insert(process, of.clone());
        self.save_keeper(of, keeper);
        Ok(())
    }

    fn save_keeper(&mut self, of: &BackendOf, keeper: KeeperRecord) {
        self.effects
            .push(Effect::Save(Record::Keeper(Some(of.clone()), keeper)));
    }

    /// Whether a keeper registers for the first time. `is_its`: whether the backend that it already
    /// holds belongs to the session that it registers for.
    ///
    /// # Errors
    /// [`Error::UnknownBackend`] if the keeper has to end; [`Error::InvalidArgument`] if it holds
    /// another session's backend, or another keeper has its name.
    fn is_new_keeper(&self, keeper: &KeeperRecord, is_its: Option<bool>) -> Result<bool, Error> {
        if self.ending.contains_key(&keeper.process)
            || self.exited_keepers.contains_key(&keeper.process)
        {
            return Err(Error::UnknownBackend);
        }
        match is_its {
            Some(true) => Ok(false),
            Some(false) => Err(refused("this keeper holds another backend")),
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
            self.effects
                .push(Effect::Save(Record::Keeper(None, record.clone())));
            return Err(Error::UnknownBackend);
        }
        let of = self.kept_by.get(&keeper).ok_or(Error::UnknownBackend)?;
        let of = Some(of.clone()).filter(|of| self.told_of(of) == Some(told));
        let of = of.ok_or(Error::UnknownBackend)?;
        let keepers = self.kept.get_mut(&of);
        let record = keepers.and_then(|keepers| keepers.by_mut(&keeper));
        let record = record
            .filter(|record| record.name == name)
            .ok_or(Error::UnknownBackend)?;
        record.backend = Some(backend);
        let record = record.clone();
        let is_ending = record.ending;
        self.save_keeper(&of, record);
        if is_ending {
            Err(Error::UnknownBackend)
        } else {
            Ok(())
        }
    }

    /// The process that a keeper lets attach: the one that holds the session, or serves its service,
    /// under this epoch.
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
        let of = self.kept_as(told, name, keeper)?;
        self.holder_of(&of, epoch)
    }

    /// A session's backend of this name is to end, or all of them where no name is given. The
    /// session stays, and each keeper is on record until it has exited.
    ///
    /// # Errors
    /// [`Error::UnknownBackend`] when there is none.
    pub fn stop_backend(
        &mut self,
        of: &BackendOf,
        backend: Option<&BackendName>,
    ) -> Result<(), Error> {
        let keepers = self.kept.get_mut(of).ok_or(Error::UnknownBackend)?;
        for keeper in keepers.stop(backend)? {
            let process = keeper.process;
            self.save_keeper(of, keeper);
            self.effects.push(Effect::EndKeeper(process));
        }
        Ok(())
    }

    /// Ends what a list's server of this name was before its entry was edited. False: there is nothing of
    /// it.
    fn end_edited(&mut self, of: &BackendOf, backend: Option<&BackendName>) -> bool {
        let Some(backend) = backend else {
            return false;
        };
        let former: Vec<KeeperRecord> = self.keepers_of(of).edited(backend).cloned().collect();
        for keeper in &former {
            let left = match of {
                BackendOf::Session(id) => self.departure(id, &keeper.process),
                BackendOf::Service(_) => None,
            };
            let is_told = left.is_none_or(|left| left.used);
            self.edited
                .insert(keeper.process, is_told.then(|| backend.clone()));
            let told = self.stop_backend(of, keeper.of.as_ref());
            debug_assert!(told.is_ok(), "it was found just now");
        }
        !former.is_empty()
    }

    /// A keeper is to end, since it does not answer or can't be reached; its backend counts as lost.
    /// `kills`: it would not end by itself.
    ///
    /// # Errors
    /// [`Error::UnknownBackend`] when a session of this id has no such keeper.
    pub fn end_faulty(
        &mut self,
        told: &SessionId,
        name: KeeperName,
        kills: bool,
    ) -> Result<(), Error> {
        let (of, keeper) = self.keeper_of(told, name)?;
        self.faulty.insert(keeper.process, kills);
        self.stop_backend(&of, keeper.of.as_ref())
    }

    /// A keeper of a session is to end to which no front has attached: nothing is lost with it.
    ///
    /// # Errors
    /// [`Error::UnknownBackend`] when a session of this id has no such keeper.
    pub fn end_unattached(&mut self, told: &SessionId, name: KeeperName) -> Result<(), Error> {
        let (of, keeper) = self.keeper_of(told, name)?;
        self.last_words.insert(keeper.process, None);
        self.stop_backend(&of, keeper.of.as_ref())
    }

    fn keeper_of(
        &self,
        told: &SessionId,
        name: KeeperName,
    ) -> Result<(BackendOf, KeeperRecord), Error> {
        let found = self
            .backends()
            .find(|(of, keeper)| keeper.name == name && self.told_of(of) == Some(told));
        let found = found.map(|(of, keeper)| (of.clone(), keeper.clone()));
        found.ok_or(Error::UnknownBackend)
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
        self.kept_as(told, name, keeper)?;
        self.last_words.insert(keeper, why);
        Ok(())
    }

    /// Why a keeper has ended, as it, or whoever has ended it, has left behind. What it has told counts
    /// more.
    pub fn note_end(&mut self, keeper: ProcessId, why: Option<Loss>) {
        if self.kept_by.contains_key(&keeper) {
            self.last_words.entry(keeper).or_insert(why);
        }
    }

    /// What was left of the backend of a keeper that has exited is gone.
    pub fn swept(&mut self, keeper: &ProcessId) {
        self.served.remove(keeper);
        if self.exited_keepers.remove(keeper).is_some() {
            self.effects.push(Effect::Drop(RecordKey::Keeper(*keeper)));
        }
    }

    /// The backends, and whose each of them is.
    pub fn backends(&self) -> impl Iterator<Item = (&BackendOf, &KeeperRecord)> {
        self.kept
            .iter()
            .flat_map(|(of, keepers)| keepers.iter().map(move |keeper| (of, keeper)))
    }

    /// The backends of hosts' sessions, and whose each of them is.
    pub fn sessions_with_backend(&self) -> impl Iterator<Item = (&SessionRecord, &KeeperRecord)> {
        self.backends().filter_map(|(of, keeper)| match of {
            BackendOf::Session(id) => Some((self.sessions.get(id)?, keeper)),
            BackendOf::Service(_) => None,
        })
    }

    /// The keepers that have not exited, whether they hold a session's backend or have to end.
    pub fn keepers(&self) -> impl Iterator<Item = &KeeperRecord> {
        self.backends()
            .map(|(_, keeper)| keeper)
            .chain(self.ending.values())
    }

    /// A session has ended: these are its keepers, which have to end.
    pub(super) fn let_go(&mut self, of: &BackendOf, served: impl Fn(&KeeperRecord) -> Served) {
        for keeper in self.kept.remove(of).into_iter().flatten() {
            self.served.insert(keeper.process, served(&keeper));
            self.kept_by.remove(&keeper.process);
            self.last_words.remove(&keeper.process);
            let (process, knows) = (keeper.process, keeper.ending);
            let keeper = KeeperRecord {
                ending: true,
                ..keeper
            };
            self.effects
                .push(Effect::Save(Record::Keeper(None, keeper.clone())));
            self.ending.insert(process, keeper);
            if !knows {
                self.effects.push(Effect::EndKeeper(process));
            }
        }
    }

    /// A process has exited that may be a keeper, and these with it. Returns the host's session that has
    /// lost its backend by that, and whether that was by its host's rule.
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
        let why = |is_ending: bool| match words {
            _ if is_faulty => Some(Loss::Hung),
            // Nobody has ever had its backend.
            Some(None) => None,
            _ if is_ending => Some(Loss::Stopped),
            None => Some(Loss::Killed),
            Some(words) => words,
        };
        let Some(of) = self.kept_by.remove(process) else {
            let keeper = self.ending.remove(process)?;
            self.sweep(keeper);
            return None;
        };
        let keepers = self.kept.get_mut(&of)?;
        let keeper = keepers.take(process)?;
        if keepers.is_empty() {
            self.kept.remove(&of);
        }
        let why = why(keeper.ending);
        // With the session's next keeper it must not come back.
        let keeper = KeeperRecord {
            ending: true,
            ..keeper
        };
        // Before the keeper is off the record: a daemon that is killed between the two would find neither.
        let changed = match of {
            BackendOf::Service(of) => {
                self.served
                    .insert(*process, Served::of_service(&of, &keeper));
                match edited {
                    Some(now) => {
                        self.note_service_loss(&of, Some(now), Loss::Edited);
                    }
                    None => why.into_iter().for_each(|why| {
                        self.note_service_loss(&of, keeper.of.clone(), why);
                    }),
                }
                self.effects
                    .push(Effect::Save(Record::Keeper(None, keeper.clone())));
                self.drop_idle_service(&of.0);
                None
            }
            BackendOf::Session(id) => {
                if let Some(session) = self.sessions.get(&id) {
                    let served = Served {
                        place: Place::of(session),
                        ..Served::of_ended(session, &keeper)
                    };
                    self.served.insert(*process, served);
                }
                let by_rule = self.note_gone(&id, &keeper, why, edited, exits);
                self.effects
                    .push(Effect::Save(Record::Keeper(None, keeper.clone())));
                Some((id, by_rule))
            }
        };
        self.sweep(keeper);
        changed
    }

    /// A host's session has lost this keeper. Says whether that was by its host's rule.
    fn note_gone(
        &mut self,
        id: &SessionId,
        keeper: &KeeperRecord,
        why: Option<Loss>,
        edited: Option<BackendName>,
        exits: &[ProcessId],
    ) -> bool {
        match (edited, why) {
            (Some(now), _) => self.note_edited(id, now),
            (None, Some(why)) if why.is_rule() => {
                if let Some(key) = self.sessions.get(id).and_then(SessionRecord::leading_key) {
                    self.note_rule_of(id, key);
                }
                return true;
            }
            (None, Some(why)) if why != Loss::Abandoned || !self.end_abandoned(id, exits) => {
                self.note_lost_keeper(id, keeper.of.as_ref(), why, exits);
            }
            _ => {}
        }
        false
    }

    fn sweep(&mut self, keeper: KeeperRecord) {
        self.effects.push(Effect::SweepBackend(keeper.clone()));
        self.exited_keepers.insert(keeper.process, keeper);
    }

    /// Continues with the keepers on record. Those that have to end are told so again: a former daemon may
    /// have had no time for it.
    pub(super) fn restore_keepers(
        &mut self,
        keepers: impl Iterator<Item = (Option<BackendOf>, KeeperRecord)>,
    ) {
        let mut lost = Vec::new();
        for (of, keeper) in keepers {
            let is_known = |of: &BackendOf| match of {
                BackendOf::Session(id) => self.sessions.contains_key(id),
                BackendOf::Service((service, _)) => self.services.contains_key(service),
            };
            let Some(of) = of.filter(is_known) else {
                lost.push(keeper);
                continue;
            };
            self.kept_by.insert(keeper.process, of.clone());
            // A backend has one keeper.
            if let Some(other) = self.kept.entry(of).or_default().put(keeper) {
                self.kept_by.remove(&other.process);
                lost.push(other);
            }
        }
        let ended = |keeper: KeeperRecord| {
            (
                keeper.process,
                KeeperRecord {
                    ending: true,
                    ..keeper
                },
            )
        };
        self.ending = lost.into_iter().map(ended).collect();
        let ending = self.keepers().filter(|keeper| keeper.ending);
        let told: Vec<Effect> = ending
            .map(|keeper| Effect::EndKeeper(keeper.process))
            .collect();
        self.effects.extend(told);
    }

    /// Whether a process is a keeper that has not exited.
    pub fn is_keeper(&self, process: &ProcessId) -> bool {
        self.kept_by.contains_key(process) || self.ending.contains_key(process)
    }

    /// Whether a keeper belongs to no session any more, and something is left of it or its backend.
    pub fn is_leaving(&self, process: &ProcessId) -> bool {
        self.ending.contains_key(process) || self.exited_keepers.contains_key(process)
    }

    pub(super) fn has_no_keeper(&self) -> bool {
        self.kept_by.is_empty() && self.ending.is_empty() && self.exited_keepers.is_empty()
    }

    fn check_name(&self, name: KeeperName) -> Result<(), Error> {
        match self.keepers().any(|other| other.name == name) {
            true => Err(refused("another keeper has this name; take another one")),
            false => Ok(()),
        }
    }

    /// Whose backend this keeper holds, and goes on holding.
    fn kept(&self, keeper: ProcessId, name: KeeperName) -> Result<&BackendOf, Error> {
        let of = self.kept_by.get(&keeper).filter(|of| {
            let held = self.keepers_of(of).by(&keeper);
            held.is_some_and(|held| held.name == name && !held.ending)
        });
        of.ok_or(Error::UnknownBackend)
    }

    /// The session whose backend a keeper of this name holds, and goes on holding, if its owner knows it by
    /// this id.
    ///
    /// # Errors
    /// [`Error::UnknownBackend`]
    pub(super) fn kept_as(
        &self,
        told: &SessionId,
        name: KeeperName,
        keeper: ProcessId,
    ) -> Result<BackendOf, Error> {
        let of = self.kept(keeper, name)?;
        match self.told_of(of) == Some(told) {
            true => Ok(of.clone()),
            false => Err(Error::UnknownBackend),
        }
    }
}

/// The error for a backend whose keeper lives.
fn other_keeper() -> Error {
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
