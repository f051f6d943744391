//! Keepers, one example each.

use mcp_sessiond_proto::BackendName;
use mcp_sessiond_proto::backends::KeeperName;

use super::*;

fn keeper(pid: u32) -> KeeperRecord {
    KeeperRecord::new(process(pid), KeeperName(pid), "server".into())
}

impl Bench {
    fn keep(&mut self, lease: &Lease, pid: u32) -> Result<(), Error> {
        self.registry
            .keep_backend(&(&lease.session).into(), lease.epoch, keeper(pid))
    }

    /// A session whose backend this keeper holds.
    fn with_keeper(&mut self, instance: u32, pid: u32) -> Lease {
        let lease = self.claim(instance);
        self.keep(&lease, pid).expect("the newest lease");
        self.registry.take_effects();
        lease
    }

    /// Which keepers were asked to end, and whose backends were to be swept, since the last call.
    fn asked(&mut self) -> (Vec<u32>, Vec<u32>) {
        let (mut ended, mut swept) = (Vec::new(), Vec::new());
        for effect in self.registry.take_effects() {
            match effect {
                Effect::EndKeeper(process) => ended.push(process.pid),
                Effect::SweepBackend(keeper) => swept.push(keeper.process.pid),
                _ => {}
            }
        }
        (ended, swept)
    }

    fn told_of(&self, lease: &Lease) -> Option<u32> {
        let keeper = self.registry.keepers_of(&(&lease.session).into()).of(None);
        keeper.map(|keeper| keeper.process.pid)
    }
}

#[test]
fn a_keeper_registers_under_the_newest_lease() {
    let mut bench = Bench::new();
    let first = bench.claim(1);
    bench.exit(&[1]);
    assert_eq!(bench.keep(&first, 50), Err(Error::LeaseEnded));
    let second = bench.claim(2);
    assert_eq!(
        bench.keep(&first, 50),
        Err(Error::StaleEpoch {
            given: Epoch(1),
            newest: Epoch(2)
        })
    );
    bench.keep(&second, 50).expect("the newest");
    bench.keep(&second, 50).expect("repeating it is allowed");
    assert_eq!(bench.told_of(&second), Some(50));

    let other = Claim {
        key: Some(key(8)),
        ..bench.claim_of(HOST, 3)
    };
    let other = granted(bench.tell(other));
    assert!(
        matches!(bench.keep(&other, 50), Err(Error::InvalidArgument { .. })),
        "it has another session's"
    );
    let namesake = KeeperRecord {
        name: KeeperName(50),
        ..keeper(51)
    };
    let refused = bench
        .registry
        .keep_backend(&(&other.session).into(), other.epoch, namesake);
    assert!(
        matches!(refused, Err(Error::InvalidArgument { .. })),
        "{refused:?}"
    );
}

#[test]
fn the_backend_stays_when_its_session_is_held_by_nobody() {
    let mut bench = Bench::new();
    let lease = bench.with_keeper(1, 50);
    bench.exit(&[1]);
    assert_eq!(bench.asked(), (vec![], vec![]));
    let next = bench.claim(2);
    assert_eq!(
        (bench.told_of(&next), next.session),
        (Some(50), lease.session)
    );
}

/// However little it answers: only its exit, or whoever ends it on purpose, makes room.
#[test]
fn no_keeper_takes_the_place_of_one_that_lives() {
    let mut bench = Bench::new();
    let lease = bench.with_keeper(1, 50);
    let refused = |kept: Result<(), Error>| matches!(kept, Err(Error::Unavailable { .. }));
    assert!(refused(bench.keep(&lease, 51)));
    assert_eq!(bench.asked(), (vec![], vec![]));
    assert_eq!(bench.told_of(&lease), Some(50));
    bench
        .registry
        .stop_backend(&(&lease.session).into(), None)
        .expect("there is one");
    assert!(refused(bench.keep(&lease, 51)), "it has not exited");
    assert_eq!(bench.asked(), (vec![50], vec![]));

    // What it starts all the same is on record, to be found when it is gone.
    let started =
        bench
            .registry
            .backend_started(&lease.session, KeeperName(50), process(50), process(60));
    assert_eq!(started, Err(Error::UnknownBackend));
    bench.registry.exited(&[process(50)]);
    let swept = bench.registry.take_effects();
    let of_it = |effect: &Effect| matches!(effect, Effect::SweepBackend(keeper) if keeper.backend == Some(process(60)));
    assert!(swept.iter().any(of_it), "{swept:?}");
    bench.keep(&lease, 51).expect("the former one has exited");
    assert_eq!(bench.told_of(&lease), Some(51));
}

#[test]
fn a_keeper_that_does_not_answer_is_ended_and_its_server_is_lost() {
    let mut bench = Bench::new();
    let lease = bench.with_keeper(1, 50);
    let ended = |bench: &mut Bench, keeper| {
        bench
            .registry
            .end_faulty(&lease.session, KeeperName(keeper), true)
    };
    assert_eq!(
        ended(&mut bench, 51),
        Err(Error::UnknownBackend),
        "another one keeps it by now"
    );
    ended(&mut bench, 50).expect("it is the session's");
    assert_eq!(bench.registry.is_faulty(&process(50)), Some(true));
    assert_eq!(bench.asked(), (vec![50], vec![]));
    bench.registry.exited(&[process(50)]);
    assert_eq!(bench.registry.is_faulty(&process(50)), None);
    assert_eq!(bench.asked(), (vec![], vec![50]));
    let told = bench.registry.losses(HOST).map(|loss| loss.because);
    assert_eq!(told.collect::<Vec<_>>(), [Loss::Hung]);
}

#[test]
fn however_a_session_ends_so_does_its_backend() {
    let ends: [fn(&mut Bench, &Lease); 3] = [
        |bench, _| bench.registry.exited(&[HOST]),
        |bench, lease| bench.registry.end(&lease.session),
        |bench, _| {
            let fresh = Claim {
                wants: Wants::Fresh,
                ..bench.claim_of(HOST, 1)
            };
            bench.registry.claim(fresh, bench.now);
        },
    ];
    for end in ends {
        let mut bench = Bench::new();
        let lease = bench.with_keeper(1, 50);
        end(&mut bench, &lease);
        assert_eq!(bench.asked(), (vec![50], vec![]));
        assert!(bench.registry.depends_on(&process(50)) && !bench.registry.is_idle());
        bench.registry.exited(&[process(50), HOST]);
        assert_eq!(bench.asked(), (vec![], vec![50]));
        assert!(!bench.registry.is_idle(), "its backend may be there still");
        bench.registry.swept(&process(50));
        assert_eq!(
            bench.registry.take_effects(),
            [Effect::Drop(RecordKey::Keeper(process(50)))]
        );
        assert!(bench.registry.is_idle());
    }
}

/// Nobody could ever come back to it.
#[test]
fn the_backend_of_a_doubtful_session_ends_with_its_holder() {
    let mut bench = Bench::new();
    let doubtful = Claim {
        key: None,
        ..bench.claim_of(HOST, 1)
    };
    let lease = granted(bench.tell(doubtful));
    bench.keep(&lease, 50).expect("the newest lease");
    bench.asked();
    bench.registry.exited(&[process(1)]);
    assert_eq!(bench.asked(), (vec![50], vec![]));
}

#[test]
fn nobody_is_led_to_a_backend_that_was_stopped() {
    let mut bench = Bench::new();
    let lease = bench.with_keeper(1, 50);
    bench
        .registry
        .stop_backend(&(&lease.session).into(), None)
        .expect("there is one");
    bench
        .registry
        .stop_backend(&(&lease.session).into(), None)
        .expect("it is still there");
    assert_eq!(bench.asked(), (vec![50], vec![]));
    let front = bench
        .registry
        .front(&lease.session, KeeperName(50), process(50), lease.epoch);
    assert_eq!(front, Err(Error::UnknownBackend));
    assert_eq!(bench.told_of(&lease), Some(50), "until it has exited");
    bench.registry.exited(&[process(50)]);
    assert_eq!(bench.asked(), (vec![], vec![50]));
    assert_eq!(bench.told_of(&lease), None);
    assert_eq!(
        bench.registry.stop_backend(&(&lease.session).into(), None),
        Err(Error::UnknownBackend)
    );
}

#[test]
fn a_keeper_and_its_host_that_exit_together_are_asked_for_nothing() {
    let mut bench = Bench::new();
    bench.with_keeper(1, 50);
    bench.registry.exited(&[HOST, process(50), process(1)]);
    assert_eq!(bench.asked(), (vec![], vec![50]));
}

#[test]
fn the_next_daemon_goes_on_ending_keepers() {
    let mut bench = Bench::new();
    let lease = bench.with_keeper(1, 50);
    bench
        .registry
        .stop_backend(&(&lease.session).into(), None)
        .expect("there is one");
    let mut bench = bench.restart();
    assert_eq!(
        (bench.asked().0, bench.told_of(&lease)),
        (vec![50], Some(50))
    );
    assert!(bench.registry.processes().contains(&process(50)));
    bench.registry.exited(&[process(50)]);
    assert_eq!(bench.asked(), (vec![], vec![50]));
    // Killed before it had swept: the next one does.
    let mut bench = bench.restart();
    bench.registry.exited(&[process(50)]);
    assert_eq!(bench.asked().1, [50]);
}

#[test]
fn each_backend_of_a_session_has_a_keeper_and_a_life_of_its_own() {
    let mut bench = Bench::new();
    let lease = bench.claim(1);
    let named = |name: &str, pid| KeeperRecord {
        of: Some(name.parse().expect("a name")),
        ..keeper(pid)
    };
    for (name, pid) in [("files", 50), ("web", 51)] {
        bench
            .registry
            .keep_backend(&(&lease.session).into(), lease.epoch, named(name, pid))
            .expect("the newest");
    }
    assert_eq!(
        bench.asked(),
        (vec![], vec![]),
        "neither takes the place of the other"
    );
    let same = bench
        .registry
        .keep_backend(&(&lease.session).into(), lease.epoch, named("web", 50));
    assert!(
        matches!(same, Err(Error::InvalidArgument { .. })),
        "it keeps another backend: {same:?}"
    );

    let nameless = bench.keep(&lease, 52);
    assert!(
        matches!(nameless, Err(Error::InvalidArgument { .. })),
        "it would not be the only one: {nameless:?}"
    );

    bench.registry.exited(&[process(50)]);
    assert_eq!(bench.asked(), (vec![], vec![50]));
    let [files, web] = ["files", "web"].map(|name| name.parse::<BackendName>().expect("a name"));
    assert!(
        !bench
            .registry
            .free_backend(&(&lease.session).into(), Some(&files)),
        "it is being swept"
    );
    assert!(
        bench
            .registry
            .free_backend(&(&lease.session).into(), Some(&web))
    );
    let kept = |bench: &Bench, name| {
        let kept = bench
            .registry
            .keepers_of(&(&lease.session).into())
            .of(Some(name))?;
        Some((kept.process.pid, kept.ending))
    };
    assert_eq!(
        (kept(&bench, &files), kept(&bench, &web)),
        (None, Some((51, false)))
    );

    let stopped = bench
        .registry
        .stop_backend(&(&lease.session).into(), Some(&files));
    assert_eq!(stopped, Err(Error::UnknownBackend));
    bench
        .registry
        .stop_backend(&(&lease.session).into(), None)
        .expect("there is one");
    assert_eq!(
        (bench.asked(), kept(&bench, &web)),
        ((vec![51], vec![]), Some((51, true)))
    );
}

#[test]
fn a_session_has_so_many_backends_and_no_more() {
    let mut bench = Bench::new();
    let lease = bench.claim(1);
    let mut keep = |name: u32, pid: u32| {
        let of = Some(format!("backend-{name}").parse().expect("a name"));
        bench.registry.keep_backend(
            &(&lease.session).into(),
            lease.epoch,
            KeeperRecord { of, ..keeper(pid) },
        )
    };
    for number in 0..256 {
        keep(number, 1_000 + number).expect("there is room");
    }
    let limit = 256;
    let what = "the number of backends of this session".into();
    assert_eq!(keep(256, 2_000), Err(Error::QuotaExceeded { what, limit }));
    assert!(matches!(keep(255, 2_001), Err(Error::Unavailable { .. })));
}
