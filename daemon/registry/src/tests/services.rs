//! Services: one process at a time holds the lease on a name, and the backends of the service's
//! sessions outlive that process.

use std::collections::BTreeMap;

use mcp_sessiond_proto::backends::KeeperName;
use mcp_sessiond_proto::{BackendName, Loss, LossId, ServiceName, SessionId};
use proptest::prelude::*;

use super::*;

fn web() -> ServiceName {
    "web".parse().expect("a name")
}

fn session(number: u32) -> ServiceSession {
    (web(), format!("s{number}").parse().expect("an id"))
}

fn keeper(pid: u32) -> KeeperRecord {
    KeeperRecord::new(process(pid), KeeperName(pid), "server".into())
}

impl Bench {
    fn serve(&mut self, pid: u32) -> Result<Epoch, Error> {
        self.registry
            .lease_service(&web(), process(pid), 5)
            .map(|service| service.epoch)
    }

    fn ended(&mut self) -> Vec<u32> {
        let effects = self.registry.take_effects().into_iter();
        effects
            .filter_map(|effect| {
                if let Effect::EndKeeper(process) = effect {
                    Some(process.pid)
                } else {
                    None
                }
            })
            .collect()
    }
}

#[test]
fn one_process_at_a_time_serves_a_name() {
    let mut bench = Bench::new();
    assert_eq!(
        (bench.serve(1), bench.serve(1)),
        (Ok(Epoch(1)), Ok(Epoch(1)))
    );
    assert_eq!(
        bench.serve(2),
        Err(Error::ServiceTaken {
            pid: 1,
            since_ms: 5
        })
    );
    assert!(!bench.registry.is_idle() && bench.registry.depends_on(&process(1)));
    assert!(
        bench.registry.processes().contains(&process(1)),
        "the registry must be told of its exit"
    );
    let of = session(1);
    bench
        .registry
        .keep_backend(&(&of).into(), Epoch(1), keeper(50))
        .expect("it serves");
    bench.exit(&[1]);
    assert_eq!(
        bench.serve(2),
        Ok(Epoch(2)),
        "the epoch grows while a keeper remembers the former one"
    );
    assert_eq!(
        bench.registry.release_service(&web(), Epoch(1), process(1)),
        Err(Error::StaleEpoch {
            given: Epoch(1),
            newest: Epoch(2)
        })
    );
    assert_eq!(
        bench.registry.release_service(&web(), Epoch(2), process(1)),
        Err(Error::ServiceTaken {
            pid: 2,
            since_ms: 5
        })
    );
    bench
        .registry
        .release_service(&web(), Epoch(2), process(2))
        .expect("it serves");
    assert_eq!(
        bench.registry.release_service(&web(), Epoch(2), process(2)),
        Err(Error::LeaseEnded)
    );
    assert_eq!(bench.ended(), [0; 0]);
}

#[test]
fn a_keeper_lets_only_the_services_leaseholder_attach() {
    let mut bench = Bench::new();
    let of = session(1);
    assert_eq!(
        bench
            .registry
            .keep_backend(&(&of).into(), Epoch(1), keeper(50)),
        Err(Error::LeaseEnded)
    );
    bench.serve(1).expect("it is free");
    bench
        .registry
        .keep_backend(&(&of).into(), Epoch(1), keeper(50))
        .expect("it serves");
    bench
        .registry
        .keep_backend(&(&of).into(), Epoch(1), keeper(50))
        .expect("repeating it is allowed");
    let front = |bench: &mut Bench, epoch| {
        bench
            .registry
            .front(&of.1, KeeperName(50), process(50), Epoch(epoch))
    };
    assert_eq!(front(&mut bench, 1), Ok(process(1)));
    bench.exit(&[1]);
    assert_eq!(front(&mut bench, 1), Err(Error::LeaseEnded));
    bench.serve(2).expect("it is free");
    assert_eq!(
        front(&mut bench, 1),
        Err(Error::StaleEpoch {
            given: Epoch(1),
            newest: Epoch(2)
        })
    );
    assert_eq!(front(&mut bench, 2), Ok(process(2)));
    bench
        .registry
        .backend_started(&of.1, KeeperName(50), process(50), process(60))
        .expect("it is its keeper");
    let known = bench
        .registry
        .keepers_of(&(&of).into())
        .of(None)
        .and_then(|keeper| keeper.backend);
    assert_eq!(known, Some(process(60)));
}

#[test]
fn what_a_session_has_lost_is_on_record_with_its_reason_until_it_was_told() {
    let mut bench = Bench::new();
    bench.serve(1).expect("it is free");
    let of = session(1);
    let lost = |bench: &Bench| -> Vec<Loss> {
        let losses = bench.registry.service_losses();
        losses.map(|(_, loss)| loss.because).collect()
    };
    let keep = |bench: &mut Bench, pid| {
        let kept = bench
            .registry
            .keep_backend(&(&of).into(), Epoch(1), keeper(pid));
        kept.expect("it serves");
    };
    let exit = |bench: &mut Bench, pid| {
        bench.exit(&[pid]);
        bench.registry.swept(&process(pid));
    };
    keep(&mut bench, 50);
    bench.registry.take_effects();
    bench.registry.exited(&[process(50)]);
    let effects = bench.registry.take_effects();
    let at = |is_it: fn(&Effect) -> bool| effects.iter().position(is_it).expect("an effect");
    let noted = at(|effect| matches!(effect, Effect::Save(Record::ServiceLoss(..))));
    let gone = at(|effect| matches!(effect, Effect::Save(Record::Keeper(None, _))));
    assert!(
        noted < gone,
        "a daemon that is killed between the two finds one of them"
    );
    bench.registry.swept(&process(50));
    assert_eq!(lost(&bench), [Loss::Killed]);
    keep(&mut bench, 51);
    let ends =
        bench
            .registry
            .backend_ending(&of.1, KeeperName(51), process(51), Some(Loss::Lingered));
    assert_eq!(ends, Ok(()));
    exit(&mut bench, 51);
    assert_eq!(lost(&bench), [Loss::Lingered], "the latest one");
    keep(&mut bench, 52);
    let hung = bench.registry.end_faulty(&of.1, KeeperName(52), true);
    assert_eq!(hung, Ok(()));
    exit(&mut bench, 52);
    assert_eq!(lost(&bench), [Loss::Hung]);
    keep(&mut bench, 53);
    let stopped = bench.registry.stop_backend(&(&of).into(), None);
    assert_eq!(stopped, Ok(()));
    exit(&mut bench, 53);
    assert_eq!(lost(&bench), [Loss::Stopped]);
    let ids: Vec<LossId> = bench
        .registry
        .service_losses()
        .map(|(_, loss)| loss.id)
        .collect();
    let told = |bench: &mut Bench, of: &ServiceSession, by| {
        bench
            .registry
            .service_loss_told(of, Epoch(1), process(by), &ids)
    };
    told(&mut bench, &of, 2).expect_err("another process");
    assert_eq!(told(&mut bench, &session(2), 1), Ok(()));
    assert_eq!(lost(&bench).len(), 1, "another session's");
    assert_eq!(told(&mut bench, &of, 1), Ok(()));
    assert_eq!(lost(&bench), []);
    keep(&mut bench, 54);
    exit(&mut bench, 54);
    // What only the holder of the lease can know.
    let forgotten = |bench: &mut Bench, by| {
        let (registry, why) = (&mut bench.registry, Loss::Forgotten);
        registry.note_loss_of(&of, Epoch(1), process(by), None, why)
    };
    forgotten(&mut bench, 2).expect_err("another process");
    let first = forgotten(&mut bench, 1).expect("its lease");
    let again = forgotten(&mut bench, 1).expect("its lease");
    assert!(again.id > first.id);
    assert_eq!(lost(&bench), [Loss::Forgotten], "one that is told once");
    bench.registry.end_service_session(&of);
    assert_eq!(lost(&bench), [], "the session has ended");
}

#[test]
fn a_keeper_ends_with_its_session_and_no_other_one_takes_its_place_before() {
    let mut bench = Bench::new();
    bench.serve(1).expect("it is free");
    let of = session(1);
    bench
        .registry
        .keep_backend(&(&of).into(), Epoch(1), keeper(50))
        .expect("it serves");
    let other = bench
        .registry
        .keep_backend(&(&session(2)).into(), Epoch(1), keeper(50));
    assert!(
        matches!(other, Err(Error::InvalidArgument { .. })),
        "it holds the backend of another session"
    );
    bench
        .registry
        .keep_backend(&(&of).into(), Epoch(1), keeper(51))
        .expect_err("the first one lives");
    assert_eq!(bench.ended(), [0; 0]);
    bench.registry.end_service_session(&of);
    assert_eq!(
        (
            bench.ended(),
            bench.registry.keepers_of(&(&of).into()).of(None)
        ),
        (vec![50], None)
    );
    assert!(
        !bench.registry.free_backend(&(&of).into(), None),
        "what is left of it may be in the way"
    );
    bench.exit(&[50]);
    assert!(!bench.registry.free_backend(&(&of).into(), None));
    bench.registry.swept(&process(50));
    assert!(bench.registry.free_backend(&(&of).into(), None));
    bench.exit(&[1]);
    assert!(
        bench.registry.is_idle() && bench.registry.services().next().is_none(),
        "nothing is left"
    );
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Serve(u32),
    Release(u32),
    Exit(u32),
    Keep {
        serves: u32,
        keeper: u32,
        session: u32,
    },
    End(u32),
    Stop(u32, bool),
    Swept(u32),
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let (serves, keepers, sessions) = (1..4_u32, 50..58_u32, 1..4_u32);
    prop_oneof![
        4 => serves.clone().prop_map(Step::Serve),
        1 => serves.clone().prop_map(Step::Release),
        2 => prop_oneof![serves.clone(), keepers.clone()].prop_map(Step::Exit),
        6 => (serves, keepers.clone(), sessions.clone())
            .prop_map(|(serves, keeper, session)| Step::Keep { serves, keeper, session }),
        1 => sessions.clone().prop_map(Step::End),
        1 => (sessions, any::<bool>()).prop_map(|(session, named)| Step::Stop(session, named)),
        2 => keepers.prop_map(Step::Swept),
        2 => Just(Step::Crash),
    ]
}

/// A second, naive implementation of the rules.
#[derive(Default)]
struct Book {
    serves: Option<u32>,
    /// The last epoch that each process got, and the newest of all.
    told: BTreeMap<u32, u64>,
    newest: u64,
    /// The session of each keeper, and the keepers that have to end and are not swept.
    keeps: BTreeMap<u32, SessionId>,
    gone: Vec<u32>,
}

fn name(number: u32) -> BackendName {
    format!("backend-{number}").parse().expect("a name")
}

/// Which backend of its session a keeper holds: one of three, of which the one without a name is
/// alone.
fn backend(keeper: u32) -> Option<BackendName> {
    match keeper % 3 {
        0 => None,
        number => Some(name(number)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

    /// Holds for any order of events, and wherever the daemon is killed.
    #[test]
    fn one_serves_and_every_keeper_is_accounted_for(steps in proptest::collection::vec(step(), 1..80)) {
        let mut bench = Bench::new();
        let mut records = Records::default();
        let mut book = Book::default();
        for step in steps {
            match step {
                Step::Serve(pid) => match (bench.serve(pid), book.serves) {
                    (Ok(epoch), Some(holder)) => {
                        prop_assert_eq!(holder, pid);
                        prop_assert_eq!(Some(&epoch.0), book.told.get(&pid));
                    }
                    (Ok(epoch), None) => {
                        prop_assert!(book.keeps.is_empty() || epoch.0 > book.newest, "a keeper has already seen this epoch");
                        book.newest = epoch.0;
                        book.told.insert(pid, epoch.0);
                        book.serves = Some(pid);
                    }
                    (Err(error), holder) => {
                        let pid = holder.filter(|holder| *holder != pid).expect("it was free");
                        prop_assert_eq!(error, Error::ServiceTaken { pid, since_ms: 5 });
                    }
                },
                Step::Release(pid) => {
                    let epoch = Epoch(book.told.get(&pid).copied().unwrap_or(9));
                    let released = bench.registry.release_service(&web(), epoch, process(pid));
                    prop_assert_eq!(released.is_ok(), book.serves == Some(pid));
                    book.serves = book.serves.filter(|holder| *holder != pid);
                }
                Step::Exit(pid) => {
                    bench.registry.exited(&[process(pid)]);
                    book.serves = book.serves.filter(|holder| *holder != pid);
                    if book.keeps.remove(&pid).is_some() {
                        book.gone.push(pid);
                    }
                }
                Step::Keep { serves, keeper: pid, session: number } => {
                    let epoch = Epoch(book.told.get(&serves).copied().unwrap_or(9));
                    let of = session(number);
                    let named = KeeperRecord { of: backend(pid), ..keeper(pid) };
                    let kept = bench.registry.keep_backend(&(&of).into(), epoch, named);
                    let is_newest = book.serves.is_some() && epoch.0 == book.newest;
                    let stopped = bench.registry.keepers_of(&(&of).into()).of(backend(pid).as_ref()).is_some_and(|keeper| keeper.ending);
                    let is_free = match book.keeps.get(&pid) {
                        Some(kept) => *kept == of.1 && !stopped,
                        None => {
                            let is_mixed = |other: u32| backend(other).is_some() != backend(pid).is_some();
                            let mut others = book.keeps.iter().filter(|(_, id)| **id == of.1);
                            let is_kept = book
                                .keeps
                                .iter()
                                .any(|(other, id)| *id == of.1 && backend(*other) == backend(pid));
                            !is_kept && !book.gone.contains(&pid) && !others.any(|(other, _)| is_mixed(*other))
                        }
                    };
                    prop_assert_eq!(kept.is_ok(), is_newest && is_free, "{:?}", kept);
                    if kept.is_ok() {
                        book.keeps.insert(pid, of.1);
                    }
                }
                Step::End(number) => {
                    let of = session(number);
                    bench.registry.end_service_session(&of);
                    let former: Vec<u32> =
                        book.keeps.iter().filter(|(_, id)| **id == of.1).map(|(pid, _)| *pid).collect();
                    for pid in former {
                        book.keeps.remove(&pid);
                        book.gone.push(pid);
                    }
                }
                Step::Stop(number, named) => {
                    let of = session(number);
                    let is_meant = |pid: u32| !named || backend(pid) == Some(name(1));
                    let known = book.keeps.iter().any(|(pid, id)| *id == of.1 && is_meant(*pid));
                    let stopped = bench.registry.stop_backend(&(&of).into(), named.then(|| name(1)).as_ref());
                    prop_assert_eq!(stopped.is_ok(), known);
                }
                Step::Swept(pid) => {
                    // The engine calls this only after the keeper has exited.
                    if book.gone.contains(&pid) {
                        bench.registry.exited(&[process(pid)]);
                        bench.registry.swept(&process(pid));
                        book.gone.retain(|gone| *gone != pid);
                    }
                }
                Step::Crash => {
                    bench.registry.take_effects().into_iter().for_each(|effect| records.apply(effect));
                    let policy = bench.registry.policy;
                    bench.registry = Registry::restore(policy, records.clone());
                    // The new daemon finds out who has exited before; all others live.
                    for pid in &book.gone {
                        bench.registry.exited(&[process(*pid)]);
                    }
                }
            }
            bench.registry.take_effects().into_iter().for_each(|effect| records.apply(effect));
            let known: BTreeMap<u32, SessionId> = bench.registry.backends()
                .filter_map(|(of, keeper)| Some((keeper.process.pid, of.service()?.1.clone()))).collect();
            prop_assert_eq!(&known, &book.keeps);
            for pid in &book.gone {
                prop_assert!(records.keepers.contains_key(&process(*pid)), "a keeper is forgotten only after it is swept");
            }
            let holder = bench.registry.services().next().and_then(|service| service.holder);
            prop_assert_eq!(holder.map(|holder| holder.pid), book.serves);
        }
    }
}
