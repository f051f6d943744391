//! The effects, carried out on what stands for the world.

use super::*;

impl World {
    pub(super) fn apply(&mut self, cast: &Cast) {
        self.note_taken();
        for effect in self.registry.take_effects() {
            self.carry_out_one(cast, effect);
        }
        self.keepers.settle(&self.registry);
        assert!(
            self.book.expected.is_empty(),
            "not answered: {:?}",
            self.book.expected
        );
        self.book.gone.clear();
    }

    fn carry_out_one(&mut self, cast: &Cast, effect: Effect) {
        match effect {
            Effect::Answer(ticket, answer) => self.compare(ticket, answer),
            Effect::EndKeeper(keeper) => drop(self.keepers.asked.insert(keeper)),
            Effect::SweepBackend(keeper) => {
                let is_new = self.keepers.sweeping.insert(keeper.process);
                assert!(is_new, "{keeper:?} is swept twice");
            }
            Effect::DeleteToken(file) => {
                let of_nobody = self.registry.sessions().all(|record| record.file != file);
                assert!(of_nobody, "the token of a session that goes on");
                self.files.remove(&file.to_string());
            }
            Effect::Unreachable { session: id, .. } => {
                let holder = self
                    .registry
                    .session(&id)
                    .and_then(|session| session.holder);
                assert_eq!(
                    holder, None,
                    "somebody holds a session that is said to be unreachable"
                );
            }
            recorded => {
                if let Effect::Drop(RecordKey::Session(id)) = &recorded {
                    let session = &self.recorded.sessions[id];
                    let lives = |process: &ProcessId| cast.is_alive(process);
                    let released = self.known.get(id).is_some_and(|known| known.released)
                        || self.taken.contains(id);
                    assert!(
                        session.holder.filter(lives).is_none()
                            || released
                            || !lives(&session.owner),
                        "a session that is held ends"
                    );
                }
                if let Effect::Drop(RecordKey::Claimant(process)) = &recorded
                    && !self.registry.depends_on(process)
                {
                    self.watched.remove(process);
                }
                if let Effect::Drop(RecordKey::Session(id)) = &recorded
                    && let Some(known) = self.known.get_mut(id)
                {
                    // The file goes at once; a crash may bring the session back.
                    known.tokens.push(None);
                }
                self.recorded.apply(recorded.clone());
                self.queue.push_back(Item::Record(recorded));
            }
        }
    }

    /// An answer must be the one that the book expects, once.
    fn compare(&mut self, ticket: Ticket, answer: Result<Lease, Error>) {
        let claim = self
            .claims
            .remove(&ticket)
            .expect("an answer to a claim that waits for one");
        let expected = self
            .book
            .expected
            .remove(&ticket)
            .expect("an answer that the book expects");
        let (lease, number) = match (answer, expected) {
            (Ok(lease), Ok((number, outcome, told))) => {
                let lost = lease.lost.iter();
                let members = lost
                    .filter_map(|lost| Some((lost.of.clone()?, lost.because)))
                    .collect();
                let is_told = (lease.because, members);
                assert_eq!((lease.outcome, is_told), (outcome, told));
                (lease, number)
            }
            (Err(error), Err(code)) => return assert_eq!(error.code(), code),
            (answer, expected) => panic!("{answer:?} instead of {expected:?}"),
        };
        let of = self.registry.session(&lease.session);
        // A later claim of the same process has begun afresh in its place.
        let is_gone = self.book.gone.contains_key(&number);
        assert_eq!(of.is_none(), is_gone, "whether the session goes on");
        let of = of.map_or(lease.file.host, |session| session.owner);
        if is_gone {
            self.taken.insert(lease.session.clone());
        }
        let entries = if is_gone {
            &mut self.book.gone
        } else {
            &mut self.book.entries
        };
        let entry = entries
            .get_mut(&number)
            .expect("an entry that was answered");
        let (named, own) = (self.facts.remove(&ticket), self.own_facts.remove(&ticket));
        let (claim, about) = match claim.own {
            Some(own_claim) if of == own_claim.claim.host => (own_claim.claim, own),
            _ => (claim, named),
        };
        let opener = about.expect("what the claim was about");
        if lease.outcome.is_fresh() {
            assert_eq!(lease.epoch, Epoch(1));
            let former = self.openers.insert(lease.session.clone(), opener.clone());
            assert_eq!(former, None, "an id that was had before");
            entry.id = Some(lease.session.clone());
        }
        assert_eq!(
            entry.id.as_ref(),
            Some(&lease.session),
            "{:?}",
            lease.outcome
        );
        // One that is taken up by its id keeps its key.
        let record = self.registry.session(&lease.session);
        let is_led = record.is_some_and(|record| record.leading_key() == claim.key);
        // The name of an entry alone makes no other server: whoever resumes it with a name gives it
        // that name, and its own process has it still, with a name or without.
        let gets_name = |about: &About| {
            about.description.entry.is_none()
                && matches!(lease.outcome, Outcome::Resumed | Outcome::Held)
        };
        if lease.outcome == Outcome::Resumed
            && is_led
            && let Some(about) = self.openers.get_mut(&lease.session)
            && gets_name(about)
        {
            about
                .description
                .entry
                .clone_from(&opener.description.entry);
        }
        let mut about = self.openers.get(&lease.session).cloned();
        if let Some(about) = about.as_mut().filter(|about| gets_name(about)) {
            about
                .description
                .entry
                .clone_from(&opener.description.entry);
        }
        assert_eq!(about.as_ref(), Some(&opener), "somebody else's session");
        assert!(
            lease.outcome != Outcome::Resumed || claim.key.is_some(),
            "a doubtful session was resumed"
        );
        assert_eq!(lease.file.host, claim.host);
        let offered = self
            .registry
            .session(&lease.session)
            .map(|record| record.offered == record.digest.is_some());
        assert!(
            lease.outcome != Outcome::Resumed || is_gone || offered == Some(true),
            "whether its token is offered"
        );
        self.queue.push_back(Item::Answer(Box::new(claim), lease));
    }
}
