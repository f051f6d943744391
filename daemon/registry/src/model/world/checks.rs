//! What must hold after every step.

use super::*;

impl World {
    pub(in crate::model) fn check(&self, cast: &Cast) {
        check(&self.registry);
        self.keepers.check(&self.registry, &self.recorded);

        let waiting: BTreeSet<Ticket> = self.claims.keys().copied().collect();
        assert_eq!(
            waiting,
            self.book.waiting(),
            "claims that are neither answered nor waiting"
        );
        assert_eq!(self.registry.waiting(), waiting.len());

        // What is on record is what is so. A former digest is left on record until the next start.
        let mut records = self.recorded.clone();
        for (id, record) in &mut records.sessions {
            record.former = record.former.filter(|_| {
                self.registry
                    .sessions
                    .get(id)
                    .is_some_and(|now| now.former.is_some())
            });
        }
        let sessions = self.registry.sessions.values().cloned();
        assert!(
            records.sessions.into_values().eq(sessions),
            "sessions on record"
        );
        let claimants: BTreeMap<_, _> = self
            .registry
            .claimants
            .iter()
            .map(|(process, claimant)| (*process, claimant.clone()))
            .collect();
        assert_eq!(records.claimants, claimants, "claimants on record");
        let owners: BTreeMap<_, _> = self
            .registry
            .owners
            .iter()
            .map(|(host, owner)| (*host, owner.record(*host)))
            .collect();
        assert_eq!(records.owners, owners, "owners on record");

        // The book has the same sessions, and the same holders.
        let mut entries: Vec<_> = self.book.entries.values().collect();
        entries.sort_by_key(|entry| entry.id.clone());
        let entries = entries
            .iter()
            .map(|entry| (entry.id.as_ref(), entry.epoch, entry.holder));
        let sessions = self
            .registry
            .sessions()
            .map(|record| (Some(&record.id), record.epoch.0, record.holder));
        assert!(
            sessions.eq(entries),
            "the sessions are not those of the book"
        );

        assert_eq!(
            self.book.unreachable(),
            Vec::<u64>::new(),
            "sessions are kept that nobody can resume"
        );

        for (id, known) in &self.known {
            self.check_known(cast, id, known);
        }
        for process in self.registry.processes() {
            let seen = self.watched.contains(&process) || self.exits.contains(&process);
            assert!(seen, "nobody will tell when {process:?} exits");
        }
        for file in self.files.keys() {
            let of = |record: &SessionRecord| record.file.to_string() == *file;
            assert!(self.registry.sessions().any(of), "{file} belongs to nobody");
        }
    }

    /// What somebody was told stays true.
    fn check_known(&self, cast: &Cast, id: &SessionId, known: &Known) {
        let record = self.registry.session(id);
        if let Some(record) = record {
            assert!(record.epoch >= known.epoch, "an epoch was forgotten");
            let holds = self.files.get(&record.file.to_string()).copied();
            let offered = holds.filter(|_| holds == record.digest);
            let busy = self.writing.contains_key(id);
            assert!(busy || known.tokens.contains(&offered), "a token was lost");
        }
        if cast.is_alive(&known.holder) && cast.is_alive(&known.owner) && !known.released {
            let record = record.expect("a live lease's session");
            assert_eq!(
                (record.holder, record.epoch),
                (Some(known.holder), known.epoch),
                "a live lease"
            );
        }
    }

    /// Everybody has exited: nothing is left.
    pub(in crate::model) fn check_over(&self) {
        assert!(self.registry.is_idle(), "not idle");
        assert_eq!(
            self.recorded,
            Records::default(),
            "something is left on record"
        );
        assert!(self.registry.sessions.is_empty() && self.registry.claimants.is_empty());
        assert!(self.files.is_empty(), "token files are left");
        assert!(
            self.registry.served.is_empty() && self.registry.left.is_empty(),
            "something is left in memory"
        );
        assert!(self.registry.touched.is_empty() && self.registry.last_words.is_empty());
        assert!(self.registry.faulty.is_empty());
        assert!(self.watched.is_empty(), "processes are still watched");
    }
}
