//! The rules of keepers once more: one list of them, and where each of them stands.

use std::collections::{BTreeMap, BTreeSet};

use mcp_sessiond_identity::ProcessId;
use mcp_sessiond_proto::BackendName;

use crate::{BackendOf, Records, Registry};

/// What a keeper is to the registry.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Standing {
    /// It holds a backend of this.
    Of(BackendOf),
    /// The same, and it has to end.
    Stopped(BackendOf),
    /// It belongs to no session any more, and has to end.
    Ending,
    /// It has exited, and what it left is being swept.
    Exited,
}

/// Which backend of its session a process keeps, if it is a keeper: one of three.
pub(super) fn backend_of(keeper: &ProcessId) -> Option<BackendName> {
    match keeper.inode.unwrap_or(0) % 3 {
        0 => None,
        number => Some(backend_name(number)),
    }
}

pub(super) fn backend_name(number: u64) -> BackendName {
    format!("backend-{number}").parse().expect("a name")
}

/// The keepers.
#[derive(Debug, Default)]
pub(super) struct KeeperModel {
    keepers: BTreeMap<ProcessId, Standing>,
    /// Those that this daemon has asked to end, and those whose backends it sweeps.
    pub(super) asked: BTreeSet<ProcessId>,
    pub(super) sweeping: BTreeSet<ProcessId>,
    /// Those that were told that they are registered, until they are swept: they are never
    /// forgotten.
    answered: BTreeSet<ProcessId>,
}

impl KeeperModel {
    /// Begins with what is on record.
    pub(super) fn restart(&mut self, records: &Records) {
        let is_known = |of: &BackendOf| match of {
            BackendOf::Session(id) => records.sessions.contains_key(id),
            BackendOf::Service((service, _)) => records.services.contains_key(service),
        };
        let standing = |of: &Option<BackendOf>, ending| match of {
            Some(of) if !is_known(of) => Standing::Ending,
            Some(of) if ending => Standing::Stopped(of.clone()),
            Some(of) => Standing::Of(of.clone()),
            None => Standing::Ending,
        };
        let kept = records.keepers.iter();
        self.keepers = kept
            .map(|(process, (session, keeper))| (*process, standing(session, keeper.ending)))
            .collect();
        self.asked.clear();
        self.sweeping.clear();
    }

    /// The code with which a keeper must be refused that registers under a lease which is good.
    pub(super) fn refusal(&self, keeper: ProcessId, of: &BackendOf) -> Option<&'static str> {
        let Some(standing) = self.keepers.get(&keeper) else {
            let held = |standing: &Standing| matches!(standing, Standing::Of(session) | Standing::Stopped(session) if session == of);
            let mut others = self.keepers.iter().filter(|(_, standing)| held(standing));
            let is_mixed = others
                .any(|(other, _)| backend_of(other).is_some() != backend_of(&keeper).is_some());
            if is_mixed {
                return Some("invalid_argument");
            }
            // A living keeper keeps its place.
            let is_kept = self.keepers.iter().any(|(other, standing)| {
                held(standing) && backend_of(other) == backend_of(&keeper)
            });
            return is_kept.then_some("unavailable");
        };
        match standing {
            Standing::Of(session) if session == of => None,
            Standing::Stopped(session) if session == of => Some("unknown_backend"),
            Standing::Of(_) | Standing::Stopped(_) => Some("invalid_argument"),
            Standing::Ending | Standing::Exited => Some("unknown_backend"),
        }
    }

    pub(super) fn register(&mut self, keeper: ProcessId, of: BackendOf) {
        self.keepers.insert(keeper, Standing::Of(of));
    }

    /// A keeper is told that it is registered, unless it is gone by now.
    pub(super) fn answer(&mut self, keeper: ProcessId) {
        if self.keepers.contains_key(&keeper) {
            self.answered.insert(keeper);
        }
    }

    /// Whether there is one to be stopped. Without a name all are.
    pub(super) fn stop(&mut self, of: &BackendOf, backend: Option<&BackendName>) -> bool {
        let mut is_there = false;
        for (process, standing) in &mut self.keepers {
            let is_held = matches!(standing, Standing::Of(session) | Standing::Stopped(session) if session == of);
            if is_held
                && backend.is_none_or(|backend| backend_of(process).as_ref() == Some(backend))
            {
                *standing = Standing::Stopped(of.clone());
                is_there = true;
            }
        }
        is_there
    }

    pub(super) fn exited(&mut self, dead: &[ProcessId]) {
        for (_, standing) in self
            .keepers
            .iter_mut()
            .filter(|(process, _)| dead.contains(process))
        {
            *standing = Standing::Exited;
        }
    }

    /// The next whose backend is being swept, which now has been.
    pub(super) fn sweep(&mut self) -> Option<ProcessId> {
        let swept = self.sweeping.pop_first()?;
        self.keepers.remove(&swept);
        self.answered.remove(&swept);
        Some(swept)
    }

    /// Sessions that have ended let their keepers go.
    pub(super) fn settle(&mut self, registry: &Registry) {
        for standing in self.keepers.values_mut() {
            if let Standing::Of(of) | Standing::Stopped(of) = standing
                && registry.told_of(of).is_none()
            {
                *standing = Standing::Ending;
            }
        }
    }

    pub(super) fn check(&self, registry: &Registry, recorded: &Records) {
        let mut known: BTreeMap<ProcessId, Standing> = BTreeMap::new();
        for (of, keeper) in registry.backends() {
            let standing = if keeper.ending {
                Standing::Stopped(of.clone())
            } else {
                Standing::Of(of.clone())
            };
            known.insert(keeper.process, standing);
        }
        let indexed: BTreeSet<&ProcessId> = registry.kept_by.keys().collect();
        let held: BTreeSet<&ProcessId> = known.keys().collect();
        assert_eq!(indexed, held, "a keeper is not in the index");
        known.extend(
            registry
                .ending
                .keys()
                .map(|process| (*process, Standing::Ending)),
        );
        known.extend(
            registry
                .exited_keepers
                .keys()
                .map(|process| (*process, Standing::Exited)),
        );
        assert_eq!(known, self.keepers, "keepers");

        for (process, standing) in &self.keepers {
            let (session, record) = recorded
                .keepers
                .get(process)
                .expect("a keeper that is not on record");
            match standing {
                Standing::Of(of) => {
                    assert_eq!((session.as_ref(), record.ending), (Some(of), false));
                }
                Standing::Stopped(of) => {
                    assert_eq!((session.as_ref(), record.ending), (Some(of), true));
                }
                Standing::Ending | Standing::Exited => {
                    assert_eq!((session, record.ending), (&None, true));
                }
            }
            let has_to_end = matches!(standing, Standing::Stopped(_) | Standing::Ending);
            assert!(
                !has_to_end || self.asked.contains(process),
                "{process:?} was not asked to end"
            );
            let goes_on = matches!(standing, Standing::Of(_));
            assert!(
                !goes_on || !self.asked.contains(process),
                "{process:?} was asked to end"
            );
            let is_swept = *standing == Standing::Exited;
            assert_eq!(
                self.sweeping.contains(process),
                is_swept,
                "whether {process:?} is swept"
            );
        }
        assert_eq!(
            recorded.keepers.len(),
            self.keepers.len(),
            "keepers on record"
        );
        for process in &self.answered {
            assert!(
                self.keepers.contains_key(process),
                "{process:?} was forgotten"
            );
        }
    }
}
