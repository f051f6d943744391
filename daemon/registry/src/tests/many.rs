//! Many at once. What these ask for takes moments; where every step goes over everything there is,
//! nextest ends it.

use super::*;

const MANY: u32 = 800;

/// A bench without a limit that counts here.
fn bench(siblings: Siblings) -> Bench {
    let mut bench = Bench::new();
    bench.registry.set_policy(Policy {
        siblings,
        sessions_per_owner: usize::MAX,
        closed_again_ms: AGAIN,
    });
    bench
}

#[test]
fn eight_hundred_equal_servers_where_siblings_are_interchangeable() {
    let mut bench = bench(Siblings::Oldest);
    let first = bench.claim(100);
    for pid in 101..100 + MANY {
        bench.wait(pid);
    }
    // The first goes: one of the others gets its place, and the rest wait on.
    let [(_, Ok(next))] = &bench.exit(&[100])[..] else {
        panic!("one is answered")
    };
    assert_eq!(
        (&next.session, next.outcome),
        (&first.session, Outcome::Resumed)
    );
    bench.now += WAIT;
    bench.registry.passed(bench.now);
    let fresh = bench.answers();
    assert_eq!(fresh.len(), MANY as usize - 2);
    assert!(fresh.iter().all(|(_, lease)| {
        lease
            .as_ref()
            .is_ok_and(|lease| lease.outcome == Outcome::FreshHeld)
    }));
    // They go one after the other, while as many wait for their places.
    for pid in 2_000..2_000 + MANY {
        bench.wait(pid);
    }
    for pid in 101..100 + MANY {
        let [(_, Ok(lease))] = &bench.exit(&[pid])[..] else {
            panic!("one is answered")
        };
        assert_eq!(lease.outcome, Outcome::Resumed);
    }
}

#[test]
fn as_many_of_different_keys_come_and_go() {
    let mut bench = bench(Siblings::Fresh);
    let claim = |bench: &mut Bench, pid: u32| {
        let mut claim = bench.claim_of(HOST, pid);
        let what = core::array::from_fn(|at| pid.to_be_bytes()[at % 4]);
        claim.key = Some(Key { what, ..KEY });
        claim.program_dir = Some([1; 32]);
        granted(bench.tell(claim))
    };
    for round in 0..2 {
        for pid in 0..MANY {
            let lease = claim(&mut bench, 10_000 + pid);
            assert_eq!(
                lease.outcome == Outcome::Resumed,
                round == 1,
                "{round} {pid}"
            );
        }
        for pid in 0..MANY {
            bench.exit(&[10_000 + pid]);
        }
    }
}

#[test]
fn a_service_with_ninety_thousand_sessions_starts_again() {
    const SESSIONS: u32 = 90_000;
    let mut bench = bench(Siblings::Fresh);
    for number in 0..SESSIONS {
        let mut claim = bench.claim_of(HOST, 100);
        let request = RequestId::mint();
        claim.wants = Wants::New(None, (number % 100 == 0).then_some(request));
        granted(bench.tell(claim));
    }
    assert_eq!(bench.registry.sessions().count(), SESSIONS as usize);
    let mut bench = bench.restart();
    assert_eq!(bench.registry.sessions().count(), SESSIONS as usize);
    bench.exit(&[100]);
    assert_eq!(
        bench
            .registry
            .sessions()
            .filter(|session| session.holder.is_some())
            .count(),
        0
    );
}
