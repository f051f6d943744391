//! Sessions that the user has given names.

use mcp_sessiond_proto::Label;

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
    assert!(taken(bench.named_now(2, 1, PLAIN)).contains("in use by process 1"));
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
        Some(&Effect::DropOwner(ProcessId::USER)),
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
