//! Sessions that the user has given names.

use mcp_sessiond_proto::{Label, Resume};

use super::*;

impl Bench {
    /// The claim of a process that is nobody's instance.
    fn named(&mut self, pid: u32, command: u8, wants: Wants) -> Claim {
        let name: Label = "browser".parse().expect("a label");
        Claim {
            key: Some(Key::of_name(&name)),
            description: SelfDescription {
                label: Some(name),
                ..SelfDescription::default()
            },
            program_dir: Some([command; 32]),
            wants,
            ..self.claim_of(ProcessId::USER, pid)
        }
    }

    fn named_now(&mut self, pid: u32, command: u8, wants: Wants) -> Result<Lease, Error> {
        let claim = Claim {
            deadline: 0,
            ..self.named(pid, command, wants)
        };
        self.tell(claim).remove(0).1
    }
}

const PLAIN: Wants = Wants::Users {
    take: false,
    fresh: false,
};
const TAKE: Wants = Wants::Users {
    take: true,
    fresh: false,
};
const FRESH: Wants = Wants::Users {
    take: false,
    fresh: true,
};

fn taken(answer: Result<Lease, Error>) -> String {
    match answer {
        Err(Error::NameTaken { sentence }) => sentence,
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_is_found_again_whatever_the_host_is() {
    let mut bench = Bench::new();
    let first = bench.named_now(1, 1, PLAIN).expect("first");
    assert_eq!(first.outcome, Outcome::FreshFirst);
    assert_eq!(
        bench.registry.processes(),
        BTreeSet::from([process(1)]),
        "nobody would tell of the user's end"
    );
    bench.exit(&[1]);
    assert!(bench.registry.is_idle());
    let mut bench = bench.restart();
    let second = bench.named_now(2, 1, PLAIN).expect("free");
    assert_eq!(
        (second.outcome, second.session),
        (Outcome::Resumed, first.session)
    );
}

#[test]
fn there_is_one_front_at_a_time() {
    let mut bench = Bench::new();
    let first = bench.named_now(1, 1, PLAIN).expect("first");
    assert!(taken(bench.named_now(2, 1, PLAIN)).contains("in use by another host"));
    let waits = bench.named(3, 1, PLAIN);
    assert_eq!(bench.tell(waits), []);
    let resumed = granted(bench.exit(&[1]));
    assert_eq!(
        (resumed.session, resumed.epoch),
        (first.session.clone(), Epoch(2))
    );
    let waits = bench.named(4, 1, PLAIN);
    assert_eq!(bench.tell(waits), []);
    bench.now = WAIT;
    bench.registry.passed(bench.now);
    taken(bench.answers().remove(0).1);
    // It is taken in one step, and the former one has lost it.
    let lease = bench.named_now(5, 1, TAKE).expect("taken");
    assert_eq!(
        (lease.session.clone(), lease.epoch, lease.outcome),
        (first.session, Epoch(3), Outcome::Resumed)
    );
    let stale = bench.registry.check(&lease.session, Epoch(2));
    assert!(matches!(stale, Err(Error::StaleEpoch { .. })), "{stale:?}");
    taken(bench.named_now(3, 1, PLAIN));
}

#[test]
fn another_command_under_the_name_is_refused_unless_it_is_taken() {
    let mut bench = Bench::new();
    let first = bench.named_now(1, 1, PLAIN).expect("first");
    bench.exit(&[1]);
    let refused = taken(bench.named_now(2, 2, PLAIN));
    assert!(
        refused.contains("`browser`") && refused.contains("--take"),
        "{refused}"
    );
    let taken = bench.named_now(2, 2, TAKE).expect("taken");
    assert_eq!(taken.outcome, Outcome::FreshFirst);
    assert_eq!(bench.registry.session(&first.session), None);
}

#[test]
fn it_can_be_begun_afresh_by_whoever_may_have_it() {
    let mut bench = Bench::new();
    let first = bench.named_now(1, 1, PLAIN).expect("first");
    taken(bench.named_now(2, 1, FRESH));
    bench.exit(&[1]);
    let second = bench.named_now(2, 1, FRESH).expect("fresh");
    assert_ne!(second.session, first.session);
    assert_eq!(bench.registry.sessions().count(), 1);
    bench.registry.end(&second.session);
    let effects = bench.registry.take_effects();
    assert_eq!(
        effects.last(),
        Some(&Effect::Drop(RecordKey::Owner(ProcessId::USER))),
        "{effects:?}"
    );
}

#[test]
fn names_of_one_command_have_nothing_to_do_with_each_other() {
    let mut bench = Bench::new();
    let first = bench.named_now(1, 1, PLAIN).expect("first");
    bench.exit(&[1]);
    let other: Label = "other".parse().expect("a label");
    let claim = Claim {
        key: Some(Key::of_name(&other)),
        ..bench.named(2, 1, PLAIN)
    };
    granted(bench.tell(claim));
    assert!(bench.registry.session(&first.session).is_some());
}

const OTHER: ProcessId = process(20);

/// The key of a host's own server of a name.
const OWN: Key = key(9);

impl Bench {
    /// The claim of a front of this host, which gets a server of the host's own where the name is in
    /// use.
    fn of_host(&mut self, host: ProcessId, pid: u32, key: Key, rule: Resume) -> Claim {
        let traits = Traits::unknown("server".into(), KeyDoubt::Executable);
        let claim = self.named(pid, 1, PLAIN);
        let own = Claim {
            ticket: claim.ticket,
            host,
            key: Some(key),
            rule: Rule {
                resume: rule,
                source: RuleSource::Library,
            },
            ..self.claim_of(host, pid)
        };
        Claim {
            own: Some(Box::new(OwnClaim {
                claimant: Claimant::new(host, traits),
                claim: own,
            })),
            deadline: self.now,
            ..claim
        }
    }

    fn own_now(&mut self, host: ProcessId, pid: u32, key: Key, rule: Resume) -> Lease {
        let claim = self.of_host(host, pid, key, rule);
        let mut answers = self.tell(claim);
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.remove(0).1.expect("granted")
    }

    fn owner_of(&self, lease: &Lease) -> ProcessId {
        self.registry
            .session(&lease.session)
            .expect("a session")
            .owner
    }
}

#[test]
fn a_busy_name_gives_a_server_of_its_own_to_which_the_same_host_and_key_come_back() {
    let mut bench = Bench::new();
    let named = bench.own_now(HOST, 1, OWN, Resume::Always);
    assert_eq!(bench.owner_of(&named), ProcessId::USER);
    let own = bench.own_now(OTHER, 2, OWN, Resume::Always);
    assert_eq!(bench.owner_of(&own), OTHER);
    // The name is free from now on, and it is not that of the other host.
    bench.exit(&[1]);
    bench.exit(&[2]);
    let mut bench = bench.restart();
    let again = bench.own_now(OTHER, 3, OWN, Resume::Always);
    assert_eq!(
        (again.session, again.outcome),
        (own.session, Outcome::Resumed)
    );
    // Its other key has had no server.
    let other = bench.own_now(OTHER, 4, key(8), Resume::Always);
    assert_eq!(other.session, named.session);
    bench.exit(&[OTHER.pid]);
    let mut left = bench.registry.sessions();
    assert!(left.all(|session| session.owner == ProcessId::USER));
}

#[test]
fn a_claim_of_a_name_waits_before_it_gets_a_server_of_its_own() {
    let mut bench = Bench::new();
    let named = bench.own_now(HOST, 1, OWN, Resume::Always);
    let claims = [3, 4].map(|pid| Claim {
        deadline: WAIT,
        ..bench.of_host(
            OTHER,
            pid,
            key(u8::try_from(pid).expect("small")),
            Resume::Always,
        )
    });
    for claim in claims {
        assert_eq!(bench.tell(claim), []);
    }
    let lease = granted(bench.exit(&[1]));
    assert_eq!(lease.session, named.session);
    bench.now = WAIT;
    bench.registry.passed(bench.now);
    let own = bench.answers().remove(0).1.expect("its own");
    assert_eq!(bench.owner_of(&own), OTHER);
}

#[test]
fn the_own_server_of_a_host_that_has_held_the_name_ends_with_its_front() {
    let mut bench = Bench::new();
    let named = bench.own_now(HOST, 1, OWN, Resume::Always);
    let own = bench.own_now(HOST, 2, OWN, Resume::Always);
    assert_eq!(own.outcome, Outcome::FreshNever);
    let mut bench = bench.restart();
    bench.exit(&[2]);
    assert!(bench.registry.session(&own.session).is_none());
    // Busy: another one. Free: the name's.
    let fresh = bench.own_now(HOST, 3, OWN, Resume::Always);
    assert_eq!(fresh.outcome, Outcome::FreshNever);
    bench.exit(&[3]);
    bench.exit(&[1]);
    let back = bench.own_now(HOST, 4, OWN, Resume::Always);
    assert_eq!(
        (back.session, back.outcome),
        (named.session, Outcome::Resumed)
    );
}

#[test]
fn the_own_server_of_a_host_that_runs_many_conversations_ends_with_its_front() {
    let mut bench = Bench::new();
    let named = bench.own_now(HOST, 1, OWN, Resume::Always);
    let own = bench.own_now(OTHER, 2, OWN, Resume::Never);
    assert_eq!(own.outcome, Outcome::FreshNever);
    // It is led to its own while that lives.
    let kept = bench.own_now(OTHER, 2, OWN, Resume::Never);
    assert_eq!((kept.session, kept.outcome), (own.session, Outcome::Held));
    bench.exit(&[1]);
    let next = bench.own_now(OTHER, 3, OWN, Resume::Never);
    assert_eq!(next.session, named.session);
}

#[test]
fn whoever_takes_a_name_gets_that_and_another_command_gets_nothing() {
    let mut bench = Bench::new();
    let named = bench.own_now(HOST, 1, OWN, Resume::Always);
    let own = bench.own_now(OTHER, 2, OWN, Resume::Always);
    let claim = Claim {
        wants: TAKE,
        ..bench.of_host(OTHER, 3, OWN, Resume::Always)
    };
    assert_eq!(granted(bench.tell(claim)).session, named.session);
    assert_ne!(own.session, named.session);
    let claim = Claim {
        program_dir: Some([2; 32]),
        ..bench.of_host(process(30), 4, OWN, Resume::Always)
    };
    assert!(taken(bench.tell(claim).remove(0).1).contains("another command line"));
}

#[test]
fn a_claim_that_waits_for_a_name_ends_with_its_host() {
    let mut bench = Bench::new();
    bench.own_now(HOST, 1, OWN, Resume::Always);
    let waits = Claim {
        deadline: WAIT,
        ..bench.of_host(OTHER, 2, OWN, Resume::Always)
    };
    assert_eq!(bench.tell(waits), []);
    assert!(bench.registry.processes().contains(&OTHER));
    let answers = bench.exit(&[OTHER.pid]);
    assert!(
        matches!(answers[..], [(_, Err(Error::NoVerifiedHost { .. }))]),
        "{answers:?}"
    );
}
