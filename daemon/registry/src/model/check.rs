//! The registry's own bookkeeping, gone over.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use mcp_sessiond_identity::{Key, ProcessId};
use mcp_sessiond_proto::SessionId;

use crate::{Registry, SessionRecord};

/// Every index agrees with the sessions, and what can't be is not.
pub(super) fn check(registry: &Registry) {
    let mut in_order: Vec<&SessionRecord> = registry.sessions.values().collect();
    in_order.sort_by_key(|session| session.opened);
    let mut by_key: BTreeMap<(ProcessId, Key), [Vec<SessionId>; 2]> = BTreeMap::new();
    let mut held_by: BTreeMap<ProcessId, BTreeSet<SessionId>> = BTreeMap::new();
    let mut of_owner: BTreeMap<ProcessId, BTreeSet<SessionId>> = BTreeMap::new();
    let mut names = BTreeMap::new();
    let mut kept_by = BTreeMap::new();
    let mut made = BTreeMap::new();
    let mut files = HashSet::new();
    for session in in_order {
        let id = || session.id.clone();
        of_owner.entry(session.owner).or_default().insert(id());
        if let Some(key) = session.leading_key() {
            by_key.entry((session.owner, key)).or_default()[usize::from(session.holder.is_some())]
                .push(id());
        }
        if let Some(holder) = session.holder {
            held_by.entry(holder).or_default().insert(id());
            if let Some(request) = session.made_by.clone() {
                assert_eq!(
                    made.insert((holder, request), id()),
                    None,
                    "two sessions made by one request"
                );
            }
        }
        if *session.public_id() != session.id {
            let former = names.insert((session.owner, session.public_id().clone()), id());
            assert_eq!(former, None, "two sessions that their owner calls alike");
        }
        for keeper in registry.keepers_of(&(&session.id).into()).iter() {
            assert_eq!(
                kept_by.insert(keeper.process, (&id()).into()),
                None,
                "a keeper of two sessions"
            );
        }
        assert!(
            session.key.is_some() || session.holder.is_some(),
            "a doubtful session that nobody holds"
        );
        assert!(
            files.insert(session.file.to_string()),
            "two sessions with the file {}",
            session.file
        );
    }
    let kept = registry.by_key.iter().map(|(key, sessions)| {
        (
            *key,
            [
                sessions.free().cloned().collect::<Vec<_>>(),
                sessions.held().cloned().collect(),
            ],
        )
    });
    assert_eq!(kept.collect::<BTreeMap<_, _>>(), by_key, "by_key");
    assert_eq!(registry.held_by, held_by, "held_by");
    assert_eq!(registry.names, names, "names");
    assert_eq!(registry.made, made, "made");
    assert_eq!(registry.kept_by, kept_by, "kept_by");
    for (host, owner) in &registry.owners {
        assert_eq!(
            owner.sessions,
            of_owner.remove(host).unwrap_or_default(),
            "the sessions of {host:?}"
        );
    }
    assert_eq!(of_owner, BTreeMap::new(), "sessions without an owner");
    for [_, held] in by_key.values() {
        let holders: Vec<ProcessId> = held
            .iter()
            .filter_map(|id| registry.sessions[id].holder)
            .collect();
        let distinct: HashSet<&ProcessId> = holders.iter().collect();
        assert_eq!(
            holders.len(),
            distinct.len(),
            "a process holds two sessions of one key"
        );
    }
    for claimant in registry.claimants.values() {
        let is_watched =
            claimant.host == ProcessId::USER || registry.owners.contains_key(&claimant.host);
        assert!(is_watched, "a claimant whose host nobody watches");
    }
}
