//! What nobody can resume, and ends at once; and what is told of it.

use mcp_sessiond_proto::backends::KeeperName;

use super::*;

impl Bench {
    pub(super) fn left(&mut self, lease: &Lease, keeper: u32, orderly: bool, used: bool) {
        let left = Departure {
            epoch: lease.epoch,
            orderly,
            at_ms: None,
            used,
        };
        let told =
            self.registry
                .front_left(&lease.session, KeeperName(keeper), process(keeper), left);
        told.expect("its keeper");
    }

    /// A server of this key, and its keeper.
    pub(super) fn kept(&mut self, pid: u32, keeper: u32, what: Key) -> Lease {
        let claim = Claim {
            key: Some(what),
            deadline: 0,
            ..self.claim_of(HOST, pid)
        };
        self.kept_by(claim, keeper)
    }

    pub(super) fn kept_by(&mut self, claim: Claim, keeper: u32) -> Lease {
        let lease = granted(self.tell(claim));
        let (process, name) = (process(keeper), KeeperName(keeper));
        let record = KeeperRecord::new(process, name, "server".into());
        self.registry
            .keep_backend(&(&lease.session).into(), lease.epoch, record)
            .expect("the newest lease");
        lease
    }

    pub(super) fn has(&self, lease: &Lease) -> bool {
        self.registry.session(&lease.session).is_some()
    }
}

#[test]
fn an_unused_twin_that_goes_costs_the_other_nothing() {
    let mut bench = Bench::new();
    let used = bench.kept(1, 50, KEY);
    let twin = bench.kept(2, 51, KEY);
    bench.exit(&[2]);
    assert!(
        bench.has(&twin),
        "its keeper has not said yet that it was not used"
    );
    bench.left(&twin, 51, false, false);
    assert!(!bench.has(&twin));
    bench.exit(&[1]);
    bench.left(&used, 50, false, true);
    let next = bench.claim(3);
    assert_eq!((next.session, next.because), (used.session, None));
}

/// A server of two backends, and its keepers, the second of which holds `web`.
pub(super) fn of_two(bench: &mut Bench, pid: u32, keepers: [u32; 2]) -> Lease {
    let claim = Claim {
        key: Some(KEY),
        deadline: 0,
        ..bench.claim_of(HOST, pid)
    };
    of_two_by(bench, claim, keepers)
}

pub(super) fn of_two_by(bench: &mut Bench, claim: Claim, keepers: [u32; 2]) -> Lease {
    let lease = granted(bench.tell(claim));
    for (keeper, name) in keepers.into_iter().zip(["files", "web"]) {
        let record = KeeperRecord::new(process(keeper), KeeperName(keeper), "server".into());
        let record = KeeperRecord {
            of: Some(name.parse().expect("a name")),
            ..record
        };
        bench
            .registry
            .keep_backend(&(&lease.session).into(), lease.epoch, record)
            .expect("the newest lease");
    }
    lease
}

#[test]
fn a_session_of_several_backends_is_unused_once_every_keeper_has_said_so() {
    let mut bench = Bench::new();
    bench.kept(1, 50, KEY);
    let twin = of_two(&mut bench, 2, [51, 52]);
    bench.exit(&[2]);
    bench.left(&twin, 51, false, false);
    assert!(bench.has(&twin), "the other keeper has not said yet");
    bench.left(&twin, 52, false, false);
    assert!(!bench.has(&twin));
}

#[test]
fn a_late_word_of_one_keeper_does_not_undo_what_another_has_said_since() {
    let mut bench = Bench::new();
    let first = of_two(&mut bench, 1, [51, 52]);
    bench.exit(&[1]);
    bench.left(&first, 52, true, true);
    let second = bench.claim(2);
    assert_eq!(second.session, first.session);
    bench.kept(3, 50, KEY);
    bench.exit(&[2]);
    bench.left(&second, 52, false, false);
    bench.left(&first, 51, true, true);
    bench.left(&second, 51, false, false);
    assert!(!bench.has(&second), "nobody has used it");
}

#[test]
fn the_keeper_s_word_may_come_before_the_exit_of_its_front() {
    let mut bench = Bench::new();
    bench.kept(1, 50, KEY);
    let twin = bench.kept(2, 51, KEY);
    bench.left(&twin, 51, true, false);
    assert!(bench.has(&twin), "it is held");
    bench.exit(&[2]);
    assert!(!bench.has(&twin));
}

#[test]
fn of_two_that_go_together_the_used_one_is_kept() {
    let mut bench = Bench::new();
    let used = bench.kept(1, 50, KEY);
    let twin = bench.kept(2, 51, KEY);
    bench.exit(&[1, 2]);
    bench.left(&used, 50, false, true);
    assert!(
        bench.has(&used) && bench.has(&twin),
        "of one it is not known yet"
    );
    bench.left(&twin, 51, false, false);
    assert!(bench.has(&used) && !bench.has(&twin));
}

#[test]
fn what_is_not_known_to_be_unused_counts_as_used() {
    for touched in [false, true] {
        let mut bench = Bench::new();
        bench.kept(1, 50, KEY);
        let twin = bench.kept(2, 51, KEY);
        if touched {
            bench.registry.touch(&twin.session);
        } else {
            bench
                .registry
                .begin_store(&twin.session, twin.epoch, [1; 32])
                .expect("its own");
        }
        bench.exit(&[2]);
        bench.left(&twin, 51, false, false);
        assert!(
            bench.has(&twin),
            "a token, or something else, is kept in it"
        );
    }
    // What an older front had left says nothing.
    let mut bench = Bench::new();
    let first = bench.kept(1, 50, KEY);
    bench.exit(&[1]);
    bench.left(&first, 50, false, false);
    let second = bench.claim(2);
    let claim = Claim {
        deadline: 0,
        ..bench.claim_of(HOST, 3)
    };
    granted(bench.tell(claim));
    bench.exit(&[2]);
    assert!(bench.has(&second));
}

#[test]
fn a_conversation_that_the_host_has_left_takes_its_servers_along() {
    let of = |id: u8| Key {
        conversation: Conversation::Of([id; 32]),
        ..KEY
    };
    let mut bench = Bench::new();
    let first = bench.kept(1, 50, of(1));
    bench.exit(&[1]);
    let none = bench.kept(2, 51, KEY);
    assert!(bench.has(&first), "no conversation is no other one");
    let second = bench.kept(3, 52, of(2));
    assert!(!bench.has(&first) && bench.has(&none));
    // The other order: the next one starts before the former one has gone, which has said that it
    // leaves.
    bench.left(&second, 52, true, true);
    bench.kept(4, 53, of(3));
    assert!(bench.has(&second), "it is held");
    bench.exit(&[3]);
    assert!(!bench.has(&second));
    let claim = Claim {
        key: Some(of(1)),
        ..bench.claim_of(HOST, 5)
    };
    bench.registry.set_policy(Policy {
        siblings: Siblings::Fresh,
        sessions_per_owner: 9,
        closed_again_ms: AGAIN,
    });
    assert_eq!(granted(bench.tell(claim)).because, Some(Loss::Conversation));
}

/// `/clear`, and the host reconnects: it finds a fresh server.
#[test]
fn a_claim_that_ends_a_server_of_another_conversation_is_told_so_if_that_was_used() {
    let of = |id: u8| Key {
        conversation: Conversation::Of([id; 32]),
        ..KEY
    };
    for used in [true, false] {
        let mut bench = Bench::new();
        let first = bench.kept(1, 50, of(1));
        bench.left(&first, 50, false, used);
        bench.exit(&[1]);
        let claim = Claim {
            key: Some(of(2)),
            ..bench.claim_of(HOST, 2)
        };
        let traits = Traits::unknown("server".into(), KeyDoubt::Executable);
        let claimant = Claimant::new(claim.host, traits);
        bench.registry.introduce(claim.process, claimant);
        bench.registry.claim(claim, bench.now);
        let effects = bench.registry.take_effects();
        let ended = effects.iter().find_map(|effect| match effect {
            Effect::Unreachable {
                session,
                host,
                loss,
                ..
            } => Some((session.clone(), *host, *loss)),
            _ => None,
        });
        let why = used.then_some(Loss::Conversation);
        assert_eq!(ended, Some((first.session.clone(), HOST.pid, why)));
        let told = effects.into_iter().find_map(|effect| match effect {
            Effect::Answer(_, lease) => Some(lease.expect("a lease").because),
            _ => None,
        });
        assert_eq!((told, bench.has(&first)), (Some(why), false), "{used}");
    }
}

/// The daemon hears nothing of the end of a keeper, but finds what that has left behind.
#[test]
fn what_a_keeper_has_left_behind_counts_unless_it_has_told_more() {
    for (left, expected) in [(Some(Loss::Stopped), Some(Loss::Stopped)), (None, None)] {
        let mut bench = Bench::new();
        bench.kept(1, 50, KEY);
        bench.registry.note_end(process(50), left);
        bench.exit(&[50]);
        bench.exit(&[1]);
        assert_eq!(bench.claim(2).because, expected);
    }
    let mut bench = Bench::new();
    let lease = bench.kept(1, 50, KEY);
    let lingered = Some(Loss::Lingered);
    bench
        .registry
        .backend_ending(&lease.session, KeeperName(50), process(50), lingered)
        .expect("its keeper");
    bench.registry.note_end(process(50), Some(Loss::Stopped));
    bench.exit(&[50]);
    bench.exit(&[1]);
    assert_eq!(bench.claim(2).because, lingered);
}

#[test]
fn a_host_that_has_two_conversations_at_once_leaves_none_for_another() {
    let of = |id: u8| Key {
        conversation: Conversation::Of([id; 32]),
        ..KEY
    };
    let mut bench = Bench::new();
    bench.registry.set_policy(Policy {
        siblings: Siblings::Fresh,
        sessions_per_owner: 9,
        closed_again_ms: AGAIN,
    });
    let mut leases = [1, 2, 3].map(|id| bench.kept(id, 50 + id, of(id as u8)));
    // Whichever is cut off is found again, however many newer ones there are; after a restart, too.
    for (nth, id) in [(10, 1), (20, 2), (30, 1), (40, 3), (50, 1)] {
        let lease = &mut leases[id as usize - 1];
        let holder = bench.registry.sessions[&lease.session].holder;
        bench.exit(&[holder.expect("held").pid]);
        if nth == 20 {
            bench = bench.restart();
        }
        let claim = Claim {
            key: Some(of(id as u8)),
            ..bench.claim_of(HOST, nth + id)
        };
        let again = granted(bench.tell(claim));
        assert_eq!(
            (&again.session, again.outcome, again.because),
            (&lease.session, Outcome::Resumed, None),
            "{nth}"
        );
        *lease = again;
    }
    // Another program, of which it had only one conversation at a time, is of the same host.
    let other = |id: u8| Key {
        what: [8; 32],
        ..of(id)
    };
    let first = bench.kept(60, 70, other(1));
    bench.exit(&[60]);
    bench.kept(61, 71, other(2));
    assert!(bench.has(&first));
}

#[test]
fn an_entry_that_was_edited_ends_what_it_was() {
    let description = |entry: &str| SelfDescription {
        entry: Some(entry.parse().expect("a label")),
        ..SelfDescription::default()
    };
    let mut bench = Bench::new();
    let claim = Claim {
        key: Some(key(1)),
        description: description("a"),
        ..bench.claim_of(HOST, 1)
    };
    let first = bench.kept_by(claim, 50);
    bench.exit(&[1]);
    let other = Claim {
        key: Some(key(2)),
        description: description("b"),
        ..bench.claim_of(HOST, 2)
    };
    granted(bench.tell(other));
    assert!(bench.has(&first), "another entry");
    let edited = Claim {
        key: Some(key(3)),
        description: description("a"),
        ..bench.claim_of(HOST, 3)
    };
    let edited = granted(bench.tell(edited));
    assert_eq!(
        (edited.because, bench.has(&first)),
        (Some(Loss::Edited), false)
    );
}

#[test]
fn what_a_claim_supersedes_that_comes_free_while_it_waits_ends_with_that_wait() {
    let mut bench = Bench::new();
    let of = |bench: &mut Bench, pid, what, entry: Option<&str>| Claim {
        key: Some(key(what)),
        description: SelfDescription {
            entry: entry.map(|entry| entry.parse().expect("a label")),
            ..SelfDescription::default()
        },
        ..bench.claim_of(HOST, pid)
    };
    let edited = of(&mut bench, 1, 1, Some("a"));
    let edited = granted(bench.tell(edited));
    let resumed = of(&mut bench, 1, 2, None);
    let resumed = granted(bench.tell(resumed));
    let waiting = of(&mut bench, 2, 2, Some("a"));
    assert_eq!(bench.tell(waiting), [], "it waits");
    let answer = granted(bench.exit(&[1]));
    assert_eq!(
        (answer.session, answer.outcome),
        (resumed.session, Outcome::Resumed)
    );
    assert!(!bench.has(&edited));
}

#[test]
fn without_the_name_of_an_entry_only_the_one_that_was_closed_in_an_orderly_way_is_taken_for_what_it_was()
 {
    let program_dir = Some([1; 32]);
    for (orderly, twice, ended) in [
        (true, false, true),
        (false, false, false),
        (true, true, false),
    ] {
        let mut bench = Bench::new();
        if twice {
            for (pid, what) in [(8, 8), (9, 9)] {
                let claim = Claim {
                    key: Some(key(what)),
                    program_dir,
                    ..bench.claim_of(HOST, pid)
                };
                let lease = granted(bench.tell(claim));
                bench.registry.take_effects();
                if what == 9 {
                    bench.registry.end(&lease.session);
                }
            }
            bench.exit(&[8, 9]);
            let left: Vec<SessionId> = bench
                .registry
                .sessions()
                .map(|session| session.id.clone())
                .collect();
            left.iter().for_each(|id| bench.registry.end(id));
        }
        let claim = Claim {
            key: Some(key(1)),
            program_dir,
            ..bench.claim_of(HOST, 1)
        };
        let first = bench.kept_by(claim, 50);
        bench.left(&first, 50, orderly, true);
        bench.exit(&[1]);
        let next = Claim {
            key: Some(key(2)),
            program_dir,
            ..bench.claim_of(HOST, 2)
        };
        let next = granted(bench.tell(next));
        assert_eq!(
            (next.because.is_some(), bench.has(&first)),
            (ended, !ended),
            "{orderly} {twice}"
        );
    }
}

#[test]
fn a_backend_that_is_lost_while_nobody_is_attached_is_told_to_the_next_front() {
    for (words, expected) in [(None, Loss::Killed), (Some(Loss::Lingered), Loss::Lingered)] {
        let mut bench = Bench::new();
        let first = bench.kept(1, 50, KEY);
        bench.exit(&[1]);
        if let Some(words) = words {
            let told = bench.registry.backend_ending(
                &first.session,
                KeeperName(50),
                process(50),
                Some(words),
            );
            told.expect("its keeper");
        }
        bench.exit(&[50]);
        let next = bench.claim(2);
        assert_eq!(
            (next.outcome, next.because),
            (Outcome::Resumed, Some(expected))
        );
        bench.exit(&[2]);
        assert_eq!(bench.claim(3).because, None, "it is told once");
    }
    // There was no such program.
    let mut bench = Bench::new();
    let lease = bench.kept(1, 50, KEY);
    let told = bench
        .registry
        .backend_ending(&lease.session, KeeperName(50), process(50), None);
    told.expect("its keeper");
    bench.exit(&[50]);
    bench.exit(&[1]);
    assert_eq!(bench.claim(2).because, None, "nothing was lost");
    // Front and keeper in one moment, or one after the other: the front may not have said it.
    for exits in [&[&[1, 50][..]][..], &[&[50], &[1]], &[&[1], &[50]]] {
        let mut bench = Bench::new();
        bench.kept(1, 50, KEY);
        for exited in exits {
            bench.exit(exited);
        }
        assert_eq!(bench.claim(2).because, Some(Loss::Killed));
    }
    // Somebody has stopped it.
    let mut bench = Bench::new();
    let lease = bench.kept(1, 50, KEY);
    bench.exit(&[1]);
    bench
        .registry
        .stop_backend(&(&lease.session).into(), None)
        .expect("it is there");
    bench.exit(&[50]);
    assert_eq!(bench.claim(2).because, Some(Loss::Stopped));
}

/// Its front has given up before it has attached.
#[test]
fn a_keeper_that_no_front_has_attached_to_is_ended_and_nothing_is_lost() {
    let mut bench = Bench::new();
    let lease = bench.kept(1, 50, KEY);
    let mut end = |keeper| {
        bench
            .registry
            .end_unattached(&lease.session, KeeperName(keeper))
    };
    assert_eq!(end(51), Err(Error::UnknownBackend));
    end(50).expect("it is there");
    bench.exit(&[1]);
    bench.exit(&[50]);
    assert_eq!(bench.claim(2).because, None);
}

#[test]
fn what_takes_the_place_of_another_waits_until_nothing_is_left_of_it() {
    let mut bench = Bench::new();
    bench.kept(1, 50, KEY);
    bench.kept(2, 51, KEY);
    bench.exit(&[1, 2]);
    let next = bench.claim(3);
    let other = Claim {
        key: Some(key(8)),
        ..bench.claim_of(HOST, 4)
    };
    let other = granted(bench.tell(other));
    assert!(
        bench.registry.free_backend(&(&other.session).into(), None),
        "another program"
    );
    for keeper in [50, 51] {
        assert!(!bench.registry.free_backend(&(&next.session).into(), None));
        bench.exit(&[keeper]);
        assert!(
            !bench.registry.free_backend(&(&next.session).into(), None),
            "its backend is being swept"
        );
        bench.registry.swept(&process(keeper));
    }
    assert!(bench.registry.free_backend(&(&next.session).into(), None));
}
