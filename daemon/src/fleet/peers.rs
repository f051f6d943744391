//! For how long each other daemon has given no sign of life, as far as this one has seen.

use std::collections::HashMap;
use std::time::Duration;

use crate::contents::Heartbeat;
use crate::storage::Version;

/// What was seen of other daemons, by their homes.
#[derive(Debug, Default)]
pub(super) struct Peers(HashMap<String, Latest>);

#[derive(Debug, Clone, Copy)]
struct Latest {
    /// None: it has no sign on record.
    version: Option<Version>,
    silent: Duration,
}

impl Peers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// There is a daemon of this home, whether it has given a sign or not.
    pub(super) fn know(&mut self, home: String) {
        self.0.entry(home).or_insert(Latest {
            version: None,
            silent: Duration::ZERO,
        });
    }

    /// These are the signs on record, and so much time has passed since the last look.
    pub(super) fn look(&mut self, signs: &[Heartbeat], passed: Duration) {
        let versions: HashMap<&str, Version> = signs
            .iter()
            .map(|sign| (sign.home.as_str(), sign.version))
            .collect();
        // One that has removed its sign has nothing that anybody would have to carry out.
        self.0
            .retain(|home, heard| heard.version.is_none() || versions.contains_key(home.as_str()));
        for heard in self.0.values_mut() {
            heard.silent += passed;
        }
        for sign in signs {
            self.hear(&sign.home, sign.version);
        }
    }

    /// This version of a daemon's sign is on record. Returns for how long it has been, as far as
    /// was seen.
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

    /// Those that have given no sign for so long, with the sign that they gave last.
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

    fn sign(home: &str, version: u64) -> Heartbeat {
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
        // However long ago the last look was: nobody knows for how long the sign had been there.
        seen.look(&[sign("a", 1), sign("b", 1)], 100 * SECOND);
        assert_eq!(silent(&seen), []);
        seen.look(&[sign("a", 1), sign("b", 1)], 2 * SECOND);
        assert_eq!(silent(&seen), []);
        seen.look(&[sign("a", 1), sign("b", 2)], SECOND);
        assert_eq!(silent(&seen), [("a".into(), Some(Version(1)))]);
        seen.look(&[sign("a", 2), sign("b", 2)], 3 * SECOND);
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
        seen.look(&[sign("b", 1), sign("c", 1)], 2 * SECOND);
        seen.look(&[sign("c", 1)], 2 * SECOND);
        assert_eq!(silent(&seen), [("a".into(), None)]);
        seen.forget("a");
        seen.look(&[], 2 * SECOND);
        assert!(seen.is_empty());
    }
}
