//! Servers whose keys don't hold still: each start of the same program in the same directory has
//! another one, so that nothing is ever resumed. The log says which part differs, and what to set.

use std::collections::HashMap;

use mcp_sessiond_process::{ProcessId, Traits};
use mcp_sessiond_registry::ProgramDir;

/// Starts with a key of their own after which it is said.
const STARTS: usize = 3;

/// What was seen of the latest starts of each program and directory of a host.
#[derive(Debug, Default)]
pub(super) struct KeyChurn(HashMap<(ProcessId, ProgramDir), Vec<Parts>>);

/// What a key is made of, in parts that can be told apart.
#[derive(Debug, Clone, PartialEq)]
struct Parts {
    core: Option<[u8; 32]>,
    place: Option<[u8; 32]>,
}

impl KeyChurn {
    /// A claim begins afresh that has a certain key and no label. Returns what to say, at the third
    /// start in a row whose key nobody had before.
    pub(super) fn begins(
        &mut self,
        host: ProcessId,
        program_dir: ProgramDir,
        traits: &Traits,
    ) -> Option<&'static str> {
        let seen = self.0.entry((host, program_dir)).or_default();
        let parts = Parts {
            core: traits.core,
            place: traits.place,
        };
        if seen.len() == STARTS || seen.contains(&parts) {
            return None;
        }
        seen.push(parts);
        if seen.len() < STARTS {
            return None;
        }
        let differ = |part: fn(&Parts) -> Option<[u8; 32]>| {
            let first = seen.first().map(part);
            seen.iter().any(|parts| Some(part(parts)) != first)
        };
        Some(if differ(|parts| parts.core) {
            "its arguments differ at each start; leave out what changes, such as a port or a temporary path"
        } else {
            "its environment, or the path to it, differs at each start; say `--instance NAME`, or name the variable in \
             `ignored_variables`"
        })
    }

    /// One has been found again: what was seen before was no pattern.
    pub(super) fn resumes(&mut self, host: ProcessId, program_dir: ProgramDir) {
        self.0.remove(&(host, program_dir));
    }

    /// A host is gone.
    pub(super) fn forget(&mut self, host: ProcessId) {
        self.0.retain(|(of, _), _| *of != host);
    }
}

#[cfg(test)]
mod tests {
    use mcp_sessiond_process::{KeyDoubt, StartTime};

    use super::*;

    #[test]
    fn it_is_said_once_at_the_third_start_and_only_where_nothing_is_ever_found_again() {
        let host = ProcessId {
            pid: 7,
            start: StartTime(1),
            inode: None,
        };
        let start = |core: u8, place: u8| Traits {
            core: Some([core; 32]),
            place: Some([place; 32]),
            ..Traits::unknown("server".into(), KeyDoubt::Changed)
        };
        let mut key_churn = KeyChurn::default();
        let mut says = |core, place| key_churn.begins(host, [1; 32], &start(core, place));
        assert_eq!((says(1, 1), says(1, 2), says(1, 2)), (None, None, None));
        assert!(says(1, 3).is_some_and(|what| what.contains("environment")));
        assert_eq!(says(1, 4), None);

        key_churn.forget(host);
        let mut says = |core| key_churn.begins(host, [1; 32], &start(core, 1));
        assert_eq!((says(1), says(2)), (None, None));
        assert!(says(3).is_some_and(|what| what.contains("arguments")));

        key_churn.forget(host);
        for core in 0..10 {
            assert_eq!(key_churn.begins(host, [1; 32], &start(core, 1)), None);
            if core % 2 == 1 {
                key_churn.resumes(host, [1; 32]);
            }
        }
    }
}
