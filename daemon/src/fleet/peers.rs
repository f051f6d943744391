//! For how long each other daemon has sent no heartbeat, as far as this one has seen.

use std::collections::HashMap;
use std::time::Duration;

use crate::contents::Heartbeat;
use crate::storage::Version;

/// What was seen of other daemons, by their homes.
#[derive(Debug, Default)]
pub(super) struct Peers(HashMap<String, Latest>);

#[derive(Debug, Clone, Copy)]
struct Latest {
    /// None: it has no heartbeat on record.
    version: Option<Version>,
    silent: Duration,
}

impl Peers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// There is a daemon of this home, whether it has sent a heartbeat or not.
    pub(super) fn know(&mut self, home: String) {
        self.0.entry(home).or_insert(Latest {
            version: None,
            silent: Duration::ZERO,
        });
    }

    /// These are the heartbeats on record, and so much time has passed since the last look.
    pub(super) fn look(&mut self, heartbeats: &[Heartbeat], passed: Duration) {
        let versions: HashMap<&str, Version> = heartbeats
            .iter()
            .map(|heartbeat| (heartbeat.home.as_str(), heartbeat.version))
            .collect();
        // One that has removed its heartbeat has nothing that anybody would have to carry out.
        self.0
            .retain(|home, heard| heard.version.is_none() || versions.contains_key(home.as_str()));
        for heard in self.0.values_mut() {
            heard.silent += passed;
        }
        for heartbeat in heartbeats {
            self.hear(&heartbeat.home, heartbeat.version);
        }
    }

    /// This version of a daemon's heartbeat is on record. Returns for how long it has been, as far
    /// as was seen.
    pub(super) fn hear(&mut self, home: &str, version: Version) -> Duration {
        let fresh = Latest {
            version: Some(version),
            silent: Duration::ZERO,
        };
        let heard = self.0.entry(home.to_owned()).or_insert(fresh);
        if heard.version != fresh.version {
            *heard = fresh;
        }
        heard.silent
    }

    pub(super) fn forget(&mut self, home: &str) {
        self.0.remove(home);
    }

    /// Those that have sent no heartbeat for so long, with the heartbeat that they sent last.
    pub(super) fn silent(&self, silence: Duration) -> Vec<(String, Option<Version>)> {
        let silent = self.0.iter().filter(|(_, heard)| heard.silent >= silence);
        silent
            .map(|(home, heard)| (home.clone(), heard.version))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn heartbeat(home: &str, version: u64) -> Heartbeat {
        Heartbeat {
            home: home.into(),
            version: Version(version),
        }
    }

    fn silent(peers: &Peers) -> Vec<(String, Option<Version>)> {
        let mut silent = peers.silent(3 * SECOND);
        silent.sort_by(|one, other| one.0.cmp(&other.0));
        silent
    }

    #[test]
    fn a_daemon_is_silent_once_its_sign_has_not_changed_for_so_long() {
        let mut seen = Peers::default();
        // However long ago the last look was: nobody knows for how long the heartbeat had been
        // there.
        seen.look(&[heartbeat("a", 1), heartbeat("b", 1)], 100 * SECOND);
        assert_eq!(silent(&seen), []);
        seen.look(&[heartbeat("a", 1), heartbeat("b", 1)], 2 * SECOND);
        assert_eq!(silent(&seen), []);
        seen.look(&[heartbeat("a", 1), heartbeat("b", 2)], SECOND);
        assert_eq!(silent(&seen), [("a".into(), Some(Version(1)))]);
        seen.look(&[heartbeat("a", 2), heartbeat("b", 2)], 3 * SECOND);
        assert_eq!(silent(&seen), [("b".into(), Some(Version(2)))]);
        assert_eq!(seen.hear("b", Version(2)), 3 * SECOND);
        assert_eq!(seen.hear("b", Version(3)), Duration::ZERO);
        assert_eq!(silent(&seen), []);
    }

    #[test]
    fn a_daemon_without_a_sign_is_silent_from_the_start_and_one_that_has_removed_it_is_forgotten() {
        let mut seen = Peers::default();
        seen.know("a".into());
        seen.know("b".into());
        seen.look(&[heartbeat("b", 1), heartbeat("c", 1)], 2 * SECOND);
        seen.look(&[heartbeat("c", 1)], 2 * SECOND);
        assert_eq!(silent(&seen), [("a".into(), None)]);
        seen.forget("a");
        seen.look(&[], 2 * SECOND);
        assert!(seen.is_empty());
    }
}
