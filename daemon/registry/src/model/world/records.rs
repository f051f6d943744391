//! What the ledger keeps, and how a new daemon starts from it.

use super::*;

impl World {
    /// The ledger keeps this many more items.
    pub(super) fn keep(&mut self, cast: &Cast, items: usize) {
        for item in self
            .queue
            .drain(..items.min(self.queue.len()))
            .collect::<Vec<_>>()
        {
            match item {
                Item::Record(effect) => self.kept.apply(effect),
                Item::Answer(claim, lease) => self.hand_over(cast, &claim, lease),
                Item::Begun(id) => {
                    if let Some(writing) = self.writing.get_mut(&id) {
                        writing.ready = true;
                    }
                }
                Item::Registered(process) => self.keepers.answer(process),
                Item::Rejected(id, file) => {
                    self.writing.remove(&id);
                    if self.registry.session(&id).is_some() {
                        self.files.remove(&file.to_string());
                        self.known.get_mut(&id).expect("somebody rejected").tokens = vec![None];
                    }
                }
            }
        }
    }

    /// The claimer gets its lease, unless the lease has ended already.
    fn hand_over(&mut self, cast: &Cast, claim: &Claim, lease: Lease) {
        let Lease {
            session: id,
            epoch,
            outcome,
            ..
        } = lease;
        let current = |record: &SessionRecord| record.epoch == epoch && record.holder.is_some();
        if !cast.is_alive(&claim.process) || !self.registry.session(&id).is_some_and(current) {
            return;
        }
        let holder = *self
            .leases
            .entry((id.clone(), epoch))
            .or_insert(claim.process);
        assert_eq!(holder, claim.process, "one lease, two holders");
        match self.known.get_mut(&id) {
            None => {
                assert!(
                    outcome.is_fresh() || outcome == Outcome::Held || epoch.0 > 1,
                    "{outcome:?} {epoch}"
                );
                self.told.push(id.clone());
                let known = Known {
                    owner: claim.host,
                    epoch,
                    holder,
                    released: false,
                    tokens: vec![None],
                };
                self.known.insert(id, known);
            }
            Some(known) => {
                assert!(
                    epoch >= known.epoch,
                    "the epoch went from {} to {epoch}",
                    known.epoch
                );
                known.released &= epoch == known.epoch;
                (known.epoch, known.holder) = (epoch, holder);
            }
        }
    }

    pub(super) fn restart(&mut self, cast: &Cast, crash: bool, renamed: bool) {
        if !crash {
            self.take_in_exits(cast);
            self.keep(cast, usize::MAX);
            assert_eq!(self.kept, self.recorded);
        }
        for (id, writing) in std::mem::take(&mut self.writing) {
            // The deletion of a rejected token, and of one whose session has ended, comes after its
            // record.
            let lives = self.registry.session(&id).is_some();
            if let (true, true, true, Some(digest)) =
                (writing.ready, renamed, lives, writing.digest)
            {
                self.files.insert(writing.file.to_string(), digest);
            }
        }
        self.queue.clear();
        self.claims.clear();
        self.facts.clear();
        self.exits.clear();
        self.recorded = self.kept.clone();
        self.registry = Registry::restore(self.policy, self.kept.clone());
        self.registry.at(self.now);
        // A resumption that was lost in the crash has given no session a name: nobody had the answer
        // yet, which waits for the record.
        for record in self.registry.sessions() {
            if let (None, Some(about)) =
                (&record.description.entry, self.openers.get_mut(&record.id))
            {
                about.description.entry = None;
            }
        }
        self.book = Book::new(self.policy, self.now, &self.kept);
        self.book.tokens = self.tokens_on_record();
        self.keepers.restart(&self.kept);
        let (alive, dead): (Vec<_>, Vec<_>) = self
            .registry
            .processes()
            .into_iter()
            .partition(|process| cast.is_alive(process));
        self.watched = alive.into_iter().collect();
        self.registry.exited(&dead);
        self.book.exited(&dead);
        self.keepers.exited(&dead);
        self.apply(cast);
        let unsettled: Vec<SessionId> = self
            .registry
            .sessions()
            .filter(|record| record.former.is_some())
            .map(|record| record.id.clone())
            .collect();
        for id in unsettled {
            self.settle(&id);
        }
        let keep: HashSet<String> = self
            .registry
            .sessions()
            .filter(|record| record.digest.is_some())
            .map(|record| record.file.to_string())
            .collect();
        self.files.retain(|file, _| keep.contains(file));
    }
}
