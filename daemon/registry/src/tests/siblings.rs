//! Several servers of one key: who gets what under each policy.

use super::*;

impl Bench {
    fn asking(&mut self, pid: u32, siblings: Siblings) -> Vec<(Ticket, Result<Lease, Error>)> {
        let claim = Claim {
            siblings: Some(siblings),
            ..self.claim_of(HOST, pid)
        };
        self.tell(claim)
    }

    fn granted_asking(&mut self, pid: u32, siblings: Siblings) -> Lease {
        granted(self.asking(pid, siblings))
    }

    /// A claim that does not wait for another holder to be gone.
    fn claim_at_once(&mut self, pid: u32) -> Lease {
        let claim = Claim {
            deadline: 0,
            ..self.claim_of(HOST, pid)
        };
        granted(self.tell(claim))
    }

    fn is_there(&self, lease: &Lease) -> bool {
        self.registry.session(&lease.session).is_some()
    }
}

#[test]
fn a_holder_that_stays_is_a_sibling() {
    let mut bench = Bench::new();
    let first = bench.claim(1);
    bench.wait(2);
    assert_eq!(bench.registry.next_deadline(), Some(WAIT));
    bench.now = WAIT;
    bench.registry.passed(bench.now);
    let second = granted(bench.answers());
    assert_eq!(
        (second.outcome, second.because),
        (Outcome::FreshHeld, Some(Loss::Sibling))
    );
    assert_ne!(second.session, first.session);

    // Once both are gone they can't be told apart: neither is kept, and the next one is told, also
    // after a restart.
    bench.exit(&[1, 2]);
    assert!(!bench.is_there(&first) && !bench.is_there(&second));
    let mut bench = bench.restart();
    let third = bench.claim(3);
    assert_eq!(
        (third.outcome, third.because),
        (Outcome::FreshFirst, Some(Loss::Several))
    );
    bench.exit(&[3]);
    assert_eq!(bench.claim(4).because, None, "it is told once");
}

#[test]
fn plural_is_a_fact_of_now() {
    let mut bench = Bench::new();
    let first = bench.claim(1);
    bench.claim_at_once(2);
    bench.registry.end(
        &bench.registry.held_by[&process(2)]
            .first()
            .expect("held")
            .clone(),
    );
    bench.exit(&[2]);
    bench.exit(&[1]);
    assert_eq!(
        (bench.claim(3).outcome, bench.is_there(&first)),
        (Outcome::Resumed, true)
    );
}

#[test]
fn two_that_want_the_place_of_one_do_not_get_it() {
    let mut bench = Bench::new();
    let first = bench.claim(1);
    bench.wait(2);
    bench.wait(3);
    let answers = bench.exit(&[1]);
    assert_eq!(answers.len(), 2);
    let because: Vec<Option<Loss>> = answers
        .into_iter()
        .map(|(_, answer)| {
            let lease = answer.expect("a lease");
            assert_eq!(lease.outcome, Outcome::FreshPlural);
            assert_ne!(lease.session, first.session);
            lease.because
        })
        .collect();
    assert_eq!(because, [Some(Loss::Several), None]);
    assert!(!bench.is_there(&first));
    assert_eq!(bench.registry.waiting(), 0);
}

/// A manager that starts the next server before it closes the former one, with two that are equal:
/// nobody gets its sibling's.
#[test]
fn the_place_of_one_of_two_is_nobody_s_while_the_other_lives() {
    let mut bench = Bench::new();
    let first = bench.claim(1);
    let second = bench.claim_at_once(2);
    bench.wait(3);
    assert_eq!(bench.exit(&[1]), [], "the other one lives");
    bench.now = WAIT;
    bench.registry.passed(bench.now);
    let third = granted(bench.answers());
    assert_eq!(
        (third.outcome, third.because),
        (Outcome::FreshHeld, Some(Loss::Sibling))
    );
    assert!(
        !bench.is_there(&first),
        "what is free is ended before the next one starts"
    );
    assert!(bench.is_there(&second));
}

#[test]
fn a_successor_gets_the_only_free_one_also_while_others_live() {
    let mut bench = Bench::new();
    let first = bench.granted_asking(1, Siblings::Successor);
    let second = bench.granted_asking(2, Siblings::Successor);
    assert_eq!(
        (second.outcome, second.because),
        (Outcome::FreshHeld, None),
        "it does not wait, and nothing is lost"
    );
    bench.exit(&[1]);
    let third = bench.granted_asking(3, Siblings::Successor);
    assert_eq!(
        (third.outcome, &third.session),
        (Outcome::Resumed, &first.session)
    );
    bench.exit(&[2, 3]);
    let fourth = bench.granted_asking(4, Siblings::Successor);
    assert_eq!(
        (fourth.outcome, fourth.because),
        (Outcome::FreshFirst, Some(Loss::Several))
    );
}

#[test]
fn where_siblings_are_interchangeable_the_one_opened_first_is_resumed() {
    let mut bench = Bench::new();
    let first = bench.granted_asking(1, Siblings::Oldest);
    let late = Claim {
        deadline: 0,
        siblings: Some(Siblings::Oldest),
        ..bench.claim_of(HOST, 2)
    };
    let second = granted(bench.tell(late));
    bench.exit(&[2]);
    bench.exit(&[1]);
    for (pid, expected) in [(3, &first), (4, &second)] {
        let lease = bench.granted_asking(pid, Siblings::Oldest);
        assert_eq!(
            (lease.outcome, &lease.session),
            (Outcome::Resumed, &expected.session)
        );
    }
}

#[test]
fn under_never_a_session_ends_with_its_server() {
    let mut bench = Bench::new();
    let first = bench.granted_asking(1, Siblings::Never);
    let second = bench.granted_asking(2, Siblings::Never);
    assert_eq!([first.outcome, second.outcome], [Outcome::FreshNever; 2]);
    bench.exit(&[1]);
    assert!(!bench.is_there(&first) && bench.is_there(&second));
    assert_eq!(bench.granted_asking(3, Siblings::Never).because, None);
}

#[test]
fn the_table_of_hosts_counts_unless_the_claim_says_otherwise() {
    let mut bench = Bench::new();
    let claim = Claim {
        host_rule: Some(Siblings::Never),
        ..bench.claim_of(HOST, 1)
    };
    assert_eq!(granted(bench.tell(claim)).outcome, Outcome::FreshNever);
    bench.exit(&[1]);
    let mut bench = bench.restart();
    assert_eq!(bench.claim(2).outcome, Outcome::FreshNever);
    bench.exit(&[2]);
    bench.granted_asking(3, Siblings::Fresh);
    bench.exit(&[3]);
    assert_eq!(
        bench.granted_asking(4, Siblings::Fresh).outcome,
        Outcome::Resumed
    );
}

#[test]
fn a_key_with_a_crowd_counts_as_one_of_many_clients_until_the_host_exits() {
    let mut bench = Bench::new();
    let other = Claim {
        key: Some(key(8)),
        ..bench.claim_of(HOST, 9)
    };
    let other = granted(bench.tell(other));
    bench.exit(&[9]);
    bench.registry.set_policy(Policy {
        siblings: Siblings::Fresh,
        sessions_per_owner: 9,
        closed_again_ms: AGAIN,
    });
    bench.claim(1);
    bench.claim_at_once(2);
    assert!(bench.is_there(&other));
    bench.claim_at_once(3);
    assert!(bench.is_there(&other), "it is another server");
    bench.exit(&[1, 2, 3]);
    assert_eq!(bench.registry.sessions().count(), 1);
    let mut bench = bench.restart();
    let next = bench.claim(4);
    assert_eq!(
        (next.outcome, next.because),
        (Outcome::FreshNever, Some(Loss::Crowd))
    );
    let claim = Claim {
        key: Some(key(8)),
        ..bench.claim_of(HOST, 9)
    };
    let again = granted(bench.tell(claim));
    assert_eq!(
        (again.session, again.outcome),
        (other.session, Outcome::Resumed)
    );
    bench.exit(&[4, HOST.pid]);
    assert_eq!(bench.claim(5).outcome, Outcome::FreshFirst);
}

/// Whoever labels an entry has said which server it is.
#[test]
fn three_of_one_label_are_no_crowd() {
    let mut bench = Bench::new();
    for pid in 1..=3 {
        let claim = Claim {
            description: SelfDescription {
                label: Some("prod".parse().expect("a label")),
                ..SelfDescription::default()
            },
            deadline: 0,
            ..bench.claim_of(HOST, pid)
        };
        granted(bench.tell(claim));
    }
    bench.exit(&[1, 2]);
    bench.exit(&[3]);
    let next = bench.claim(4);
    assert_eq!(next.outcome, Outcome::Resumed);
}

#[test]
fn nothing_is_granted_to_whom_nobody_waits_for_any_more() {
    let mut bench = Bench::new();
    let first = bench.claim(1);
    let claim = Claim {
        expires: WAIT / 2,
        ..bench.claim_of(HOST, 2)
    };
    assert_eq!(bench.tell(claim), []);
    bench.registry.at(WAIT / 2);
    let answers = bench.exit(&[1]);
    assert!(
        matches!(answers[..], [(_, Err(Error::Unavailable { .. }))]),
        "{answers:?}"
    );
    bench.now = WAIT;
    let late = Claim {
        expires: WAIT,
        ..bench.claim_of(HOST, 3)
    };
    assert!(matches!(
        bench.tell(late)[..],
        [(_, Err(Error::Unavailable { .. }))]
    ));
    assert_eq!(bench.claim(4).session, first.session);
}

/// An entry gets a name while its server is kept.
#[test]
fn what_the_key_without_a_name_leads_to_is_resumed_and_gets_the_key_with_it() {
    let mut bench = Bench::new();
    let unnamed = Claim {
        key: Some(key(6)),
        ..bench.claim_of(HOST, 1)
    };
    let first = granted(bench.tell(unnamed));
    bench.wait_with_name(2);
    let resumed = granted(bench.exit(&[1]));
    assert_eq!(
        (resumed.outcome, &resumed.session),
        (Outcome::Resumed, &first.session)
    );
    bench.exit(&[2]);
    assert_eq!(
        bench.claim(3).session,
        first.session,
        "by the new key alone"
    );
    bench.exit(&[3]);
    let old = Claim {
        key: Some(key(6)),
        ..bench.claim_of(HOST, 4)
    };
    assert_eq!(granted(bench.tell(old)).outcome, Outcome::FreshFirst);
}

impl Bench {
    fn wait_with_name(&mut self, pid: u32) {
        let claim = Claim {
            unnamed: Some(key(6)),
            ..self.claim_of(HOST, pid)
        };
        assert_eq!(self.tell(claim), []);
    }
}
