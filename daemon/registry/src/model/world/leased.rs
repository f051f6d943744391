//! What is done under a lease, and what must come of it.

use super::*;

impl World {
    pub(super) fn store(&mut self, cast: &Cast, id: &SessionId, epoch: Epoch) -> Result<(), Error> {
        if let Some(refusal) = self.wait_for_file(id, epoch) {
            return refusal;
        }
        self.tokens += 1;
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&self.tokens.to_be_bytes());
        let offered = self
            .registry
            .session(id)
            .is_some_and(|record| record.offered);
        let (file, accepted) = self.registry.begin_store(id, epoch, digest)?;
        assert_eq!(accepted, offered, "whether the broker accepted");
        self.writing.insert(
            id.clone(),
            Writing {
                digest: Some(digest),
                file,
                ready: false,
            },
        );
        self.may_have(id, Some(digest));
        self.apply(cast);
        self.queue.push_back(Item::Begun(id.clone()));
        Ok(())
    }

    pub(super) fn reject(
        &mut self,
        cast: &Cast,
        id: &SessionId,
        epoch: Epoch,
    ) -> Result<(), Error> {
        if let Some(refusal) = self.wait_for_file(id, epoch) {
            return refusal;
        }
        let file = self.registry.reject(id, epoch)?;
        self.writing.insert(
            id.clone(),
            Writing {
                digest: None,
                file,
                ready: false,
            },
        );
        self.may_have(id, None);
        self.apply(cast);
        self.queue.push_back(Item::Rejected(id.clone(), file));
        Ok(())
    }

    pub(super) fn release(
        &mut self,
        _cast: &Cast,
        id: &SessionId,
        epoch: Epoch,
    ) -> Result<(), Error> {
        self.registry.release(id, epoch)?;
        self.book.release(id);
        let known = self.known.get_mut(id).expect("somebody was told of it");
        if known.epoch == epoch {
            known.released = true;
        }
        Ok(())
    }

    /// The process that asks registers as the keeper of a session's backend, under a name that goes
    /// with its number.
    pub(super) fn register(
        &mut self,
        cast: &Cast,
        id: &SessionId,
        epoch: Epoch,
    ) -> Result<(), Error> {
        let Some(process) = self.registering.take() else {
            return Ok(());
        };
        let name = KeeperName(process.inode.map_or(0, |inode| inode as u32));
        let keeper = KeeperRecord {
            of: backend_of(&process),
            ..KeeperRecord::new(process, name, "server".into())
        };
        let refusal = self.keepers.refusal(process, &id.into());
        match self.registry.keep_backend(&id.into(), epoch, keeper) {
            Ok(()) => assert_eq!(refusal, None, "not refused"),
            // The lease comes first.
            Err(error) if self.book.refusal(id, epoch).is_some() => return Err(error),
            Err(error) => {
                assert_eq!(Some(error.code()), refusal, "refused");
                assert_eq!(
                    self.registry.take_effects(),
                    [],
                    "it was refused and had effects"
                );
                return Ok(());
            }
        }
        self.watched.insert(process);
        self.keepers.register(process, id.into());
        self.book.registered(id, process);
        self.apply(cast);
        self.queue.push_back(Item::Registered(process));
        Ok(())
    }

    /// A keeper tells of its backend. Whatever it is told, the backend is on record as long as the
    /// keeper is.
    pub(super) fn started(&mut self, cast: &Cast, keeper: ProcessId, backend: ProcessId) {
        let of = self
            .registry
            .sessions_with_backend()
            .find(|(_, kept)| kept.process == keeper);
        let told = of.map(|(session, kept)| (session.public_id().clone(), !kept.ending));
        let name = KeeperName(keeper.inode.map_or(0, |inode| inode as u32));
        let (session, is_held) = told.unwrap_or_else(|| (SessionId::mint(), false));
        let told = self
            .registry
            .backend_started(&session, name, keeper, backend);
        assert_eq!(told.is_ok(), is_held, "{told:?}");
        self.apply(cast);
        let is_keeper = self.registry.is_keeper(&keeper);
        let recorded = self
            .recorded
            .keepers
            .get(&keeper)
            .and_then(|(_, keeper)| keeper.backend);
        assert!(
            !is_keeper || recorded == Some(backend),
            "the backend is not on record"
        );
    }

    /// A keeper tells how its front has left, or why it ends: it is believed as long as it holds
    /// the session's backend.
    pub(super) fn keeper_tells(
        &mut self,
        cast: &Cast,
        keeper: ProcessId,
        what: KeeperNews,
        epoch: Given,
    ) {
        let of = self
            .registry
            .sessions_with_backend()
            .find(|(_, kept)| kept.process == keeper);
        let told = of.map(|(session, kept)| (session.id.clone(), session.epoch, !kept.ending));
        let (id, newest, is_held) = told.unwrap_or_else(|| (SessionId::mint(), Epoch(1), false));
        let name = KeeperName(keeper.inode.map_or(0, |inode| inode as u32));
        let answer = match what {
            KeeperNews::Left { orderly, used, ago } => {
                let left = Departure {
                    epoch: Epoch(epoch.of(newest.0)),
                    orderly,
                    at_ms: ago.map(|ago| self.now.saturating_sub(ago)),
                    used,
                };
                self.book.left_late(keeper, left);
                if is_held {
                    self.book.left(&id, keeper, left);
                }
                self.registry.front_left(&id, name, keeper, left)
            }
            KeeperNews::Ends(why) => {
                if is_held {
                    self.book.last_word(keeper, why);
                }
                self.registry.backend_ending(&id, name, keeper, why)
            }
        };
        assert_eq!(answer.is_ok(), is_held, "{answer:?}");
        self.apply(cast);
    }
}
