//! What a host's rule ends, and what is told of it.

use mcp_sessiond_proto::backends::KeeperName;
use mcp_sessiond_proto::{LossId, Resume};

use super::unreachable::of_two_by;
use super::*;

/// A claim of a wrapped server whose host has this rule.
fn ruled(bench: &mut Bench, pid: u32, resume: Resume) -> Claim {
    let source = RuleSource::Table;
    Claim {
        deadline: 0,
        rule: Rule { resume, source },
        ..bench.claim_of(HOST, pid)
    }
}

/// A used server of such a host, whose front was killed.
fn cut(bench: &mut Bench, resume: Resume) -> Lease {
    let claim = ruled(bench, 1, resume);
    let lease = bench.kept_by(claim, 50);
    bench.exit(&[1]);
    bench.left(&lease, 50, false, true);
    lease
}

#[test]
fn where_only_a_cut_is_resumed_a_close_ends_the_session_and_is_told_once() {
    let mut bench = Bench::new();
    for (nth, because) in [(0, Some(Loss::Closed)), (1, None)] {
        let pid = 10 * nth;
        let claim = ruled(&mut bench, pid + 1, Resume::Cut);
        let cut = bench.kept_by(claim, pid + 51);
        bench.exit(&[pid + 1]);
        bench.left(&cut, pid + 51, false, true);
        let claim = ruled(&mut bench, pid + 2, Resume::Cut);
        let closed = granted(bench.tell(claim));
        assert_eq!((&closed.session, closed.because), (&cut.session, None));
        // The daemon may hear of both in either order.
        if nth == 0 {
            bench.exit(&[pid + 2]);
            bench.left(&closed, pid + 51, true, true);
        } else {
            bench.left(&closed, pid + 51, true, true);
            bench.exit(&[pid + 2]);
        }
        assert!(!bench.has(&closed));
        let claim = ruled(&mut bench, pid + 3, Resume::Cut);
        let fresh = granted(bench.tell(claim));
        assert_eq!(
            (fresh.outcome, fresh.because),
            (Outcome::FreshFirst, because)
        );
        bench.registry.end(&fresh.session);
    }
}

/// The host may end a conversation by a kill.
#[test]
fn of_an_unknown_host_only_what_was_not_used_goes_on_after_a_cut() {
    for (orderly, used, goes_on, because) in [
        (false, false, true, None),
        (false, true, false, Some(Loss::UnknownHost)),
        (true, true, false, Some(Loss::UnknownHost)),
        (true, false, false, None),
    ] {
        let mut bench = Bench::new();
        let claim = ruled(&mut bench, 1, Resume::Unknown);
        let lease = bench.kept_by(claim, 50);
        bench.exit(&[1]);
        assert!(bench.has(&lease), "its keeper has not said yet");
        bench.left(&lease, 50, orderly, used);
        assert_eq!(bench.has(&lease), goes_on, "{orderly} {used}");
        for (pid, because) in [(2, because), (3, None)] {
            let claim = ruled(&mut bench, pid, Resume::Unknown);
            let next = granted(bench.tell(claim));
            assert_eq!(next.because, because, "{orderly} {used} {pid}");
            bench.registry.end(&next.session);
        }
    }
}

/// A subagent's server is closed at its end, and the next subagent has the same key. Start times are
/// the kernel's.
#[test]
fn after_a_close_only_a_front_that_was_started_at_once_has_the_server_of_a_conversation() {
    const LEFT: Millis = 50_000;
    let started = |bench: &mut Bench, pid: u32, started_ms: Option<Millis>| Claim {
        started_ms,
        ..ruled(bench, pid, Resume::Conversation)
    };
    for (started_ms, resumed) in [
        (Some(LEFT), true),
        (Some(LEFT + AGAIN), true),
        (Some(LEFT + AGAIN + 1), false),
        // Two at once: it does not follow the other one.
        (Some(LEFT - 1), false),
        (None, false),
    ] {
        // With a keeper that says it, and without one; the daemon may end in between. The claim may
        // have waited for the former front's exit.
        for (has_keeper, restarts, waits) in [
            (true, false, false),
            (true, true, false),
            (true, false, true),
            (false, false, false),
            (false, true, false),
            (false, false, true),
        ] {
            let what = format!("{started_ms:?} {has_keeper} {restarts} {waits}");
            let mut bench = Bench::new();
            let claim = started(&mut bench, 1, None);
            let lease = match has_keeper {
                true => bench.kept_by(claim, 50),
                false => granted(bench.tell(claim)),
            };
            bench.registry.touch(&lease.session);
            if has_keeper {
                let left = Departure {
                    epoch: lease.epoch,
                    orderly: true,
                    at_ms: Some(LEFT),
                    used: true,
                };
                let told =
                    bench
                        .registry
                        .front_left(&lease.session, KeeperName(50), process(50), left);
                told.expect("its keeper");
            } else {
                bench
                    .registry
                    .front_closed(&lease.session, lease.epoch, Some(LEFT));
            }
            let claim = Claim {
                deadline: WAIT,
                ..started(&mut bench, 2, started_ms)
            };
            let next = if waits {
                assert_eq!(bench.tell(claim), [], "{what}");
                granted(bench.exit(&[1]))
            } else {
                bench.exit(&[1]);
                if restarts {
                    bench = bench.restart();
                }
                assert!(bench.has(&lease), "{what}: its host may reconnect");
                let answers = bench.tell(claim);
                if has_keeper && restarts && !resumed {
                    // The next daemon does not know whether it was used.
                    assert_eq!(answers, [], "{what}");
                    granted(bench.exit(&[50]))
                } else {
                    granted(answers)
                }
            };
            assert_eq!(next.session == lease.session, resumed, "{what}");
            let because = (!resumed).then_some(Loss::ClosedEarlier);
            assert_eq!(next.because, because, "{what}");
        }
    }
}

#[test]
fn a_cut_of_a_conversation_is_resumed_whenever_the_next_front_was_started() {
    let mut bench = Bench::new();
    let lease = cut(&mut bench, Resume::Conversation);
    let claim = ruled(&mut bench, 2, Resume::Conversation);
    assert_eq!(granted(bench.tell(claim)).session, lease.session);
}

/// Its keeper has waited for that.
#[test]
fn a_server_whose_host_does_not_reconnect_ends_and_is_told_once() {
    for used in [false, true] {
        let mut bench = Bench::new();
        for nth in 0..2 {
            let (front, keeper) = (10 * nth + 1, 10 * nth + 50);
            let claim = ruled(&mut bench, front, Resume::Conversation);
            let lease = bench.kept_by(claim, keeper);
            let because = (used && nth == 1).then_some(Loss::ClosedEarlier);
            assert_eq!(lease.because, because, "{used} {nth}");
            bench.exit(&[front]);
            bench.left(&lease, keeper, true, used);
            let ends = bench.registry.backend_ending(
                &lease.session,
                KeeperName(keeper),
                process(keeper),
                Some(Loss::Abandoned),
            );
            ends.expect("its keeper");
            bench.exit(&[keeper]);
            assert!(!bench.has(&lease));
        }
        let claim = ruled(&mut bench, 31, Resume::Conversation);
        assert_eq!(granted(bench.tell(claim)).because, None, "{used}");
    }
}

/// A server that was to be started at its first call never was.
#[test]
fn a_session_in_which_nothing_was_kept_is_told_to_nobody() {
    for resume in [Resume::Unknown, Resume::Never] {
        for (is_touched, told) in [(false, false), (true, true)] {
            let mut bench = Bench::new();
            let claim = ruled(&mut bench, 1, resume);
            let lease = granted(bench.tell(claim));
            if is_touched {
                bench.registry.touch(&lease.session);
            }
            bench.exit(&[1]);
            assert!(!bench.has(&lease));
            let claim = ruled(&mut bench, 2, resume);
            let because = granted(bench.tell(claim)).because;
            assert_eq!(because.is_some(), told, "{resume:?} {is_touched}");
        }
    }
}

#[test]
fn what_the_keeper_refuses_is_given_up_for_a_fresh_session() {
    let mut bench = Bench::new();
    let claim = ruled(&mut bench, 1, Resume::Cut);
    let former = bench.kept_by(claim, 50);
    bench.exit(&[1]);
    // The keeper's word is still on its way.
    let claim = ruled(&mut bench, 2, Resume::Cut);
    let resumed = granted(bench.tell(claim));
    assert_eq!(resumed.session, former.session);
    let claim = Claim {
        wants: Wants::AfterClose { used: true },
        ..ruled(&mut bench, 2, Resume::Cut)
    };
    let fresh = granted(bench.tell(claim));
    assert!(!bench.has(&former) && bench.has(&fresh));
    assert_eq!(fresh.because, Some(Loss::Closed));
}

#[test]
fn a_front_without_a_keeper_closes_its_session_as_well() {
    let mut bench = Bench::new();
    for resume in [Resume::Cut, Resume::Always] {
        let claim = ruled(&mut bench, 1, resume);
        let lease = granted(bench.tell(claim));
        bench
            .registry
            .front_closed(&lease.session, Epoch(lease.epoch.0 + 1), None);
        bench
            .registry
            .front_closed(&lease.session, lease.epoch, None);
        bench.exit(&[1]);
        assert_eq!(bench.has(&lease), resume == Resume::Always);
    }
}

#[test]
fn where_nothing_is_resumed_a_session_ends_with_its_holder_and_a_used_one_is_told() {
    let told = Some(Loss::Conversations);
    // The last keeper is killed before it has said so.
    for (used, because) in [(Some(false), None), (Some(true), told), (None, told)] {
        let mut bench = Bench::new();
        let claim = ruled(&mut bench, 1, Resume::Never);
        let lease = bench.kept_by(claim, 50);
        bench.exit(&[1]);
        assert!(!bench.has(&lease), "even after a cut");
        // Its keeper has still to say whether it was used.
        match used {
            Some(used) => {
                let left = Departure {
                    epoch: lease.epoch,
                    orderly: false,
                    at_ms: None,
                    used,
                };
                let name = KeeperName(50);
                drop(
                    bench
                        .registry
                        .front_left(&lease.session, name, process(50), left),
                );
            }
            None => drop(bench.exit(&[50])),
        }
        let claim = ruled(&mut bench, 2, Resume::Never);
        let next = granted(bench.tell(claim));
        assert_eq!((next.outcome, next.because), (Outcome::FreshNever, because));
    }
}

/// A claim that comes before the keepers of a list's servers have all said whether these were used is
/// answered when one has said so, or when its time is over.
#[test]
fn a_claim_is_told_what_a_keeper_is_about_to_say() {
    for (said, because) in [
        (Some([true, false]), Some(Loss::Closed)),
        (Some([false, true]), Some(Loss::Closed)),
        (Some([false, false]), None),
        (None, None),
    ] {
        let mut bench = Bench::new();
        let claim = ruled(&mut bench, 1, Resume::Cut);
        let lease = of_two_by(&mut bench, claim, [51, 52]);
        bench
            .registry
            .front_closed(&lease.session, lease.epoch, None);
        bench.exit(&[1]);
        let claim = Claim {
            deadline: WAIT,
            ..ruled(&mut bench, 2, Resume::Cut)
        };
        assert_eq!(bench.tell(claim), [], "{said:?}");
        let mut answers = Vec::new();
        for (keeper, used) in [51, 52].into_iter().zip(said.into_iter().flatten()) {
            assert_eq!(answers, [], "{said:?}");
            let left = Departure {
                epoch: lease.epoch,
                orderly: true,
                at_ms: None,
                used,
            };
            // It has to end.
            let name = KeeperName(keeper);
            let _ = bench
                .registry
                .front_left(&lease.session, name, process(keeper), left);
            answers = bench.answers();
            if used {
                break;
            }
        }
        if said.is_none() {
            bench.registry.passed(WAIT);
            answers = bench.answers();
        }
        let next = granted(answers);
        assert_eq!(
            (next.outcome, next.because),
            (Outcome::FreshFirst, because),
            "{said:?}"
        );
    }
}

/// Its host has left while no daemon ran.
#[test]
fn of_a_server_that_has_ended_by_a_rule_its_keeper_leaves_word_which_is_told_once() {
    // How the front has left; whether the next one has the session when the keepers' ends are known.
    for (is_closed, is_late) in [(true, false), (false, false), (false, true)] {
        let mut bench = Bench::new();
        for (pid, because) in [(1, Some(Loss::UnknownHost)), (11, None)] {
            let claim = ruled(&mut bench, pid, Resume::Unknown);
            let [files, web] = [pid + 50, pid + 51];
            let lease = of_two_by(&mut bench, claim, [files, web]);
            if is_closed {
                bench
                    .registry
                    .front_closed(&lease.session, lease.epoch, None);
            }
            for (keeper, word) in [(files, Some(Loss::UnknownHost)), (web, None)] {
                bench.registry.note_end(process(keeper), word);
            }
            let claim = Claim {
                confirms_loss: true,
                ..ruled(&mut bench, pid + 1, Resume::Unknown)
            };
            let next = if is_late {
                bench.exit(&[pid]);
                let early = granted(bench.tell(claim.clone()));
                assert_eq!((&early.session, early.because), (&lease.session, None));
                bench.exit(&[files, web]);
                granted(bench.tell(claim))
            } else {
                bench.exit(&[pid, files, web]);
                assert!(!bench.has(&lease), "{is_closed}");
                granted(bench.tell(claim))
            };
            let why = format!("{is_closed} {is_late}: it is told once for each key");
            assert_eq!(next.because, because, "{why}");
            let told: Vec<LossId> = next.lost.iter().map(|lost| lost.id).collect();
            let confirmed = bench.registry.loss_told(&next.session, next.epoch, &told);
            confirmed.expect("the newest lease");
            bench.registry.end(&next.session);
            bench.exit(&[pid + 1]);
            bench.registry.swept(&process(files));
            bench.registry.swept(&process(web));
        }
    }
}

/// A reason that is told instead does not use the rule up.
#[test]
fn a_rule_is_told_by_the_next_claim_where_another_reason_took_its_place() {
    let mut bench = Bench::new();
    cut(&mut bench, Resume::Unknown);
    let claim = ruled(&mut bench, 2, Resume::Unknown);
    let key = claim.key.expect("it has one");
    bench.registry.note_loss(HOST, key, None, Loss::Hung);
    for (pid, because) in [
        (2, Some(Loss::Hung)),
        (3, Some(Loss::UnknownHost)),
        (4, None),
    ] {
        let claim = ruled(&mut bench, pid, Resume::Unknown);
        let next = granted(bench.tell(claim));
        assert_eq!(next.because, because, "{pid}");
        bench.registry.end(&next.session);
    }
}
