//! The registry against its rules, over random interleavings.
//!
//! The [`Cast`] says who is alive, and so which steps make sense. The [`World`] takes these steps:
//! it tells the registry of them as the engine would, keeps what the ledger would, crashes the
//! daemon in between, and compares what comes of it with the [`Book`](book::Book), a second and
//! naive account of the same rules.

mod book;
mod check;
mod keepers;
mod world;

use mcp_sessiond_identity::{Conversation, KeyDoubt, ProcessId, StartTime, Traits};
use mcp_sessiond_proto::{Loss, Resume, Siblings};
use proptest::prelude::*;
use proptest::sample::select;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

use super::Policy;
use super::records::{ProgramDir, Rule, RuleSource};
use world::World;

prop_state_machine! {
    #![proptest_config(ProptestConfig { cases: 1_600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_rules_hold_whatever_happens(sequential 20..120 => World);
}

/// Something that happens. Processes are numbered in the order in which they started, sessions from
/// the one that somebody was told of last.
#[derive(Clone, Debug)]
enum Step {
    /// A process starts, below another one or as a root. It may be given the pid and the start time
    /// of a dead one.
    Start {
        parent: Option<usize>,
        traits: usize,
        after: Option<usize>,
    },
    /// A process exits. The daemon takes it in when it next does anything.
    Exit(usize),
    Claim {
        process: usize,
        asks: Asks,
    },
    /// A process claims a session by its name.
    ClaimNamed {
        process: usize,
        named: Named,
    },
    /// A process tells what a keeper does.
    KeeperTells {
        process: usize,
        what: KeeperNews,
        epoch: Given,
    },
    /// Something is kept in a session, beside its backend.
    Touch(usize),
    Pass {
        ms: u64,
        told: bool,
    },
    /// The digest of a new token goes on record.
    Store {
        session: usize,
        epoch: Given,
    },
    /// A store whose digest is kept comes to its end.
    EndStore {
        nth: usize,
        written: bool,
    },
    Reject {
        session: usize,
        epoch: Given,
    },
    Release {
        session: usize,
        epoch: Given,
    },
    /// A process registers as the keeper of a session's backend.
    Register {
        process: usize,
        session: usize,
        epoch: Given,
    },
    /// A keeper has started its backend, which is any process.
    Started {
        process: usize,
        backend: usize,
    },
    /// A session's backend is stopped.
    /// The number of the backend, or all.
    Stop(usize, Option<u64>),
    /// What the keepers left that have exited is gone: of so many of them.
    Sweep(usize),
    /// The ledger gets on.
    Keep(usize),
    /// The daemon ends, in an orderly way or not, and another one takes over. Where a token was
    /// being written, the file may have been renamed already.
    Restart {
        crash: bool,
        renamed: bool,
    },
}

/// What a claim says and asks for.
#[derive(Clone, Debug)]
struct Asks {
    label: Option<usize>,
    entry: Option<usize>,
    client: Option<usize>,
    siblings: Option<Siblings>,
    rule: Rule,
    /// For how long it has run; None: that is not known.
    age: Option<u64>,
    /// Its keeper has refused it.
    closed: Option<bool>,
    wait: u64,
    patience: u64,
}

/// What a claim by a name says and asks for.
#[derive(Clone, Copy, Debug)]
struct Named {
    name: usize,
    command: u8,
    take: bool,
    fresh: bool,
    /// Whether it gets a server of its host's own where the name is in use, and what the host's rule
    /// says then.
    own: Option<Resume>,
    wait: u64,
}

/// What a keeper tells.
#[derive(Clone, Copy, Debug)]
enum KeeperNews {
    /// Some time after it was said, if that is known.
    Left {
        orderly: bool,
        used: bool,
        ago: Option<u64>,
    },
    Ends(Option<Loss>),
}

/// The epoch that a request carries.
#[derive(Clone, Copy, Debug)]
enum Given {
    Newest,
    Former,
    Next,
}

impl Given {
    fn of(self, newest: u64) -> u64 {
        match self {
            Self::Newest => newest,
            Self::Former => newest - 1,
            Self::Next => newest + 1,
        }
    }
}

/// A process that is, or was.
#[derive(Clone, Debug)]
struct Process {
    id: ProcessId,
    parent: Option<usize>,
    traits: usize,
    alive: bool,
}

/// Everybody, and the policy that is in force.
#[derive(Clone, Debug)]
struct Cast {
    policy: Policy,
    processes: Vec<Process>,
}

impl Cast {
    fn which(&self, which: impl Fn(&Process) -> bool) -> Vec<usize> {
        let numbered = self.processes.iter().enumerate();
        numbered
            .filter(|(_, process)| which(process))
            .map(|(number, _)| number)
            .collect()
    }

    fn is_alive(&self, id: &ProcessId) -> bool {
        self.processes
            .iter()
            .any(|process| process.id == *id && process.alive)
    }

    /// Whether it is dead, and nobody else has its pid.
    fn is_free(&self, number: usize) -> bool {
        let pid = self.processes[number].id.pid;
        !self
            .processes
            .iter()
            .any(|process| process.id.pid == pid && process.alive)
    }

    fn parent(&self, process: usize) -> Option<&Process> {
        self.processes[process]
            .parent
            .map(|parent| &self.processes[parent])
    }
}

/// Two in different places, one whose key is doubtful without a label, one whose key always is; one
/// in each of three conversations, and another program in the place of the first.
fn traits(which: usize) -> Traits {
    let some = |byte: u8| Some([byte; 32]);
    let (core, place, doubt) = match which {
        0 | 4 | 5 | 7 => (some(1), some(1), None),
        1 => (some(1), some(2), None),
        2 => (some(1), None, Some(KeyDoubt::Environment)),
        3 => (None, None, Some(KeyDoubt::Arguments)),
        _ => (some(2), some(1), None),
    };
    let conversation = match which {
        2 | 3 => Conversation::Hidden,
        4 | 5 | 7 => Conversation::Of([which as u8; 32]),
        _ => Conversation::None,
    };
    Traits {
        program: format!("server-{which}"),
        core,
        place,
        directory: place,
        conversation,
        doubt,
    }
}

/// Programs go by one name in each place.
fn program_dir(which: usize) -> Option<ProgramDir> {
    traits(which).directory
}

/// What the table of hosts says of a host.
fn host_row(host: ProcessId) -> Option<Siblings> {
    match host.inode.unwrap_or_default() % 6 {
        3 => Some(Siblings::Successor),
        4 => Some(Siblings::Never),
        _ => None,
    }
}

impl ReferenceStateMachine for Cast {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        (
            select(vec![
                Siblings::Fresh,
                Siblings::Fresh,
                Siblings::Successor,
                Siblings::Oldest,
            ]),
            select(vec![3, 100]),
        )
            .prop_map(|(siblings, sessions_per_owner)| Self {
                policy: Policy {
                    siblings,
                    sessions_per_owner,
                    closed_again_ms: 10,
                },
                processes: Vec::new(),
            })
            .boxed()
    }

    fn transitions(cast: &Self) -> BoxedStrategy<Step> {
        let alive = cast.which(|process| process.alive);
        // A few hosts and many instances; sometimes an instance is a host itself.
        let roots = cast.which(|process| process.alive && process.parent.is_none());
        let mut parents: Vec<Option<usize>> = roots
            .iter()
            .cycle()
            .take(16)
            .map(|root| Some(*root))
            .collect();
        parents.extend(alive.iter().take(4).map(|process| Some(*process)));
        if roots.len() < 2 {
            parents.extend([None; 4]);
        }
        let mut after = vec![None; 4];
        after.extend(
            (0..cast.processes.len())
                .filter(|number| cast.is_free(*number))
                .map(Some),
        );
        let start = (
            select(parents),
            select(vec![0, 0, 0, 0, 0, 1, 2, 3, 4, 4, 4, 5, 5, 6, 7]),
            select(after),
        )
            .prop_map(|(parent, traits, after)| Step::Start {
                parent,
                traits,
                after,
            });

        let session = || 0..4_usize;
        let epoch = || {
            select(vec![
                Given::Newest,
                Given::Newest,
                Given::Newest,
                Given::Former,
                Given::Next,
            ])
        };
        let mutation = |step: fn(usize, Given) -> Step| {
            (session(), epoch()).prop_map(move |(session, epoch)| step(session, epoch))
        };
        let mut steps = vec![
            (6, start.boxed()),
            (
                3,
                (1..12_u64, any::<bool>())
                    .prop_map(|(ms, told)| Step::Pass { ms, told })
                    .boxed(),
            ),
            (
                4,
                mutation(|session, epoch| Step::Store { session, epoch }).boxed(),
            ),
            (
                1,
                mutation(|session, epoch| Step::Reject { session, epoch }).boxed(),
            ),
            (
                2,
                mutation(|session, epoch| Step::Release { session, epoch }).boxed(),
            ),
            (8, (1..16_usize).prop_map(Step::Keep).boxed()),
            (
                1,
                (session(), proptest::option::of(1..3_u64))
                    .prop_map(|(session, backend)| Step::Stop(session, backend))
                    .boxed(),
            ),
            (3, (1..4_usize).prop_map(Step::Sweep).boxed()),
            (
                1,
                (any::<bool>(), any::<bool>())
                    .prop_map(|(crash, renamed)| Step::Restart { crash, renamed })
                    .boxed(),
            ),
            (
                4,
                (0..2_usize, any::<bool>())
                    .prop_map(|(nth, written)| Step::EndStore { nth, written })
                    .boxed(),
            ),
        ];
        let instances = cast.which(|process| process.alive && process.parent.is_some());
        if !instances.is_empty() {
            // Hosts live longer than their instances.
            let mut mortal = alive;
            mortal.extend(instances.iter().cycle().take(instances.len() * 3));
            steps.push((4, select(mortal).prop_map(Step::Exit).boxed()));
            let keeper = (select(instances.clone()), session(), epoch());
            let register = keeper.prop_map(|(process, session, epoch)| Step::Register {
                process,
                session,
                epoch,
            });
            steps.push((5, register.boxed()));
            let started = (select(instances.clone()), select(instances.clone()));
            let started = started.prop_map(|(process, backend)| Step::Started { process, backend });
            steps.push((2, started.boxed()));
            let told = proptest::prop_oneof![
                4 => (any::<bool>(), any::<bool>(), select(vec![None, Some(0), Some(2)]))
                    .prop_map(|(orderly, used, ago)| KeeperNews::Left { orderly, used, ago }),
                1 => select(vec![Some(Loss::Exited), Some(Loss::Lingered), Some(Loss::Abandoned), None])
                    .prop_map(KeeperNews::Ends),
            ];
            let tells = (select(instances.clone()), told, epoch());
            let tells = tells.prop_map(|(process, what, epoch)| Step::KeeperTells {
                process,
                what,
                epoch,
            });
            steps.push((5, tells.boxed()));
            steps.push((1, session().prop_map(Step::Touch).boxed()));
            let flag = || select(vec![false, false, true]);
            let named = (
                select(instances.clone()),
                0..2_usize,
                select(vec![1, 1, 1, 2]),
                (flag(), flag()),
                select(vec![
                    None,
                    Some(Resume::Always),
                    Some(Resume::Always),
                    Some(Resume::Always),
                    Some(Resume::Never),
                ]),
                select(vec![0, 5]),
            );
            let named = named.prop_map(|(process, name, command, (take, fresh), own, wait)| {
                Step::ClaimNamed {
                    process,
                    named: Named {
                        name,
                        command,
                        take,
                        fresh,
                        own,
                        wait,
                    },
                }
            });
            steps.push((4, named.boxed()));
            let mut asked = vec![None; 8];
            asked.extend(Siblings::ALL.map(Some));
            let some = || select(vec![None, None, None, None, None, None, Some(0), Some(1)]);
            let rule = |resume, source| Rule { resume, source };
            let mut rules = vec![Rule::default(); 8];
            rules.extend([rule(Resume::Cut, RuleSource::Table); 6]);
            rules.extend([rule(Resume::Never, RuleSource::Table); 2]);
            rules.extend([rule(Resume::Unknown, RuleSource::Table); 4]);
            rules.extend([rule(Resume::Conversation, RuleSource::Table); 6]);
            rules.extend([
                rule(Resume::Always, RuleSource::Table),
                rule(Resume::Never, RuleSource::Library),
            ]);
            rules.extend(Resume::ALL.map(|resume| rule(resume, RuleSource::Asked)));
            let closed = select(vec![None, None, None, None, None, Some(true), Some(false)]);
            let asks = (
                some(),
                some(),
                some(),
                select(asked),
                (
                    select(rules),
                    closed,
                    select(vec![None, Some(0), Some(1), Some(4)]),
                ),
                select(vec![0, 5, 10, 10]),
            );
            let claim = (
                select(instances),
                asks,
                select(vec![8, 1_000, 1_000, 1_000]),
            );
            let claim = claim.prop_map(
                |(
                    process,
                    (label, entry, client, siblings, (rule, closed, age), wait),
                    patience,
                )| {
                    Step::Claim {
                        process,
                        asks: Asks {
                            label,
                            entry,
                            client,
                            siblings,
                            rule,
                            age,
                            closed,
                            wait,
                            patience,
                        },
                    }
                },
            );
            steps.push((12, claim.boxed()));
        }
        proptest::strategy::Union::new_weighted(steps).boxed()
    }

    fn preconditions(cast: &Self, step: &Step) -> bool {
        let alive = |number: &usize| {
            cast.processes
                .get(*number)
                .is_some_and(|process| process.alive)
        };
        match step {
            Step::Start { parent, after, .. } => {
                parent.iter().all(alive)
                    && after
                        .iter()
                        .all(|dead| *dead < cast.processes.len() && cast.is_free(*dead))
            }
            Step::Exit(process) => alive(process),
            Step::Register { process, .. } => alive(process),
            Step::KeeperTells { process, .. } => alive(process),
            Step::Started { process, backend } => alive(process) && alive(backend),
            Step::Claim { process, .. } | Step::ClaimNamed { process, .. } => {
                alive(process) && cast.processes[*process].parent.is_some()
            }
            _ => true,
        }
    }

    fn apply(mut cast: Self, step: &Step) -> Self {
        match step {
            Step::Start {
                parent,
                traits,
                after,
            } => {
                let number = cast.processes.len();
                let (pid, start) = match after {
                    Some(dead) => (cast.processes[*dead].id.pid, cast.processes[*dead].id.start),
                    None => (100 + number as u32, StartTime(1_000 + number as u64)),
                };
                let id = ProcessId {
                    pid,
                    start,
                    inode: Some(number as u64),
                };
                cast.processes.push(Process {
                    id,
                    parent: *parent,
                    traits: *traits,
                    alive: true,
                });
            }
            Step::Exit(process) => cast.processes[*process].alive = false,
            _ => {}
        }
        cast
    }
}

impl StateMachineTest for World {
    type SystemUnderTest = Self;
    type Reference = Cast;

    fn init_test(cast: &Cast) -> Self {
        Self::new(cast)
    }

    fn apply(mut world: Self, cast: &Cast, step: Step) -> Self {
        world.step(cast, &step);
        world
    }

    fn check_invariants(world: &Self, cast: &Cast) {
        world.check(cast);
    }

    fn teardown(mut world: Self, mut cast: Cast) {
        for number in cast.which(|process| process.alive) {
            cast.processes[number].alive = false;
            world.step(&cast, &Step::Exit(number));
        }
        world.step(&cast, &Step::Pass { ms: 0, told: true });
        world.end_named(&cast);
        world.step(&cast, &Step::Sweep(usize::MAX));
        world.check(&cast);
        world.check_over();
    }
}

/// These steps, in a host with three instances.
fn play(claims: impl IntoIterator<Item = Step>) {
    let mut cast = Cast {
        policy: Policy {
            siblings: Siblings::Fresh,
            sessions_per_owner: 3,
            closed_again_ms: 10,
        },
        processes: Vec::new(),
    };
    let start = |parent| Step::Start {
        parent,
        traits: 0,
        after: None,
    };
    let starts = [None, Some(0), Some(0), Some(0)].map(start);
    let mut world = World::new(&cast);
    for step in starts.into_iter().chain(claims) {
        cast = <Cast as ReferenceStateMachine>::apply(cast, &step);
        world.step(&cast, &step);
        world.check(&cast);
    }
    World::teardown(world, cast);
}

fn claim_named(process: usize, command: u8, fresh: bool, own: Option<Resume>, wait: u64) -> Step {
    let named = Named {
        name: 0,
        command,
        take: false,
        fresh,
        own,
        wait,
    };
    Step::ClaimNamed { process, named }
}

/// Two claims of one process wait, each to begin afresh: the latter one ends what the former gets.
#[test]
fn who_waits_twice_to_begin_afresh_gets_the_latter_one() {
    let own = Some(Resume::Always);
    play([
        claim_named(1, 1, false, None, 0),
        claim_named(2, 1, false, own, 0),
        claim_named(3, 1, false, own, 5),
        claim_named(3, 1, true, own, 5),
        claim_named(3, 1, true, own, 5),
        Step::Exit(2),
        Step::Pass { ms: 1, told: true },
        Step::Keep(100),
    ]);
}

/// Also where the claim that shows it is refused.
#[test]
fn a_host_that_has_held_a_name_is_known_to_have() {
    let own = Some(Resume::Always);
    play([
        claim_named(1, 1, false, None, 0),
        claim_named(1, 2, false, own, 0),
        claim_named(2, 1, false, own, 0),
    ]);
}
