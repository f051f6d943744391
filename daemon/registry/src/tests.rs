//! The rules of claims, one example each. [`model`](super::model) has the interleavings.

mod facts;
mod keepers;
mod losses;
mod many;
mod rules;
mod services;
mod siblings;
mod strangers;
mod unreachable;
mod users;

use mcp_sessiond_identity::{Conversation, KeyDoubt, SelfDescription, StartTime, Traits};
use mcp_sessiond_proto::types::Outcome;
use mcp_sessiond_proto::{Epoch, Error, RequestId, Siblings};

use super::*;

const HOST: ProcessId = process(10);
const KEY: Key = key(7);

/// How long a claim waits here.
const WAIT: Millis = 1_000;

/// How soon the next front is started where a host reconnects.
const AGAIN: Millis = 1_000;

/// The key of a program, without conversation and client.
const fn key(what: u8) -> Key {
    Key {
        what: [what; 32],
        conversation: Conversation::None,
        client: None,
    }
}

const fn process(pid: u32) -> ProcessId {
    ProcessId {
        pid,
        start: StartTime(1_000 + pid as u64),
        inode: Some(pid as u64),
    }
}

/// A registry, and what it answers.
struct Bench {
    registry: Registry,
    now: Millis,
    tickets: u64,
}

impl Bench {
    fn new() -> Self {
        let policy = Policy {
            siblings: Siblings::Fresh,
            sessions_per_owner: 3,
            closed_again_ms: AGAIN,
        };
        Self {
            registry: Registry::restore(policy, Records::default()),
            now: 0,
            tickets: 0,
        }
    }

    /// The claim of an instance, which is not answered yet.
    fn claim_of(&mut self, host: ProcessId, pid: u32) -> Claim {
        self.tickets += 1;
        Claim {
            ticket: Ticket(self.tickets),
            id: SessionId::mint(),
            process: process(pid),
            host,
            host_name: "host".into(),
            host_rule: None,
            key: Some(KEY),
            unnamed: None,
            description: SelfDescription::default(),
            program_dir: None,
            program: "server".into(),
            siblings: None,
            rule: Rule::default(),
            started_ms: None,
            deadline: self.now + WAIT,
            expires: self.now + 10 * WAIT,
            opened_ms: 0,
            confirms_loss: false,
            wants: Wants::Keyed,
            own: None,
        }
    }

    /// Claims, and returns the answers that come at once.
    fn tell(&mut self, claim: Claim) -> Vec<(Ticket, Result<Lease, Error>)> {
        if self.registry.claimant(&claim.process).is_none() {
            let traits = Traits::unknown("server".into(), KeyDoubt::Executable);
            self.registry
                .introduce(claim.process, Claimant::new(claim.host, traits));
        }
        self.registry.claim(claim, self.now);
        self.answers()
    }

    fn answers(&mut self) -> Vec<(Ticket, Result<Lease, Error>)> {
        let effects = self.registry.take_effects().into_iter();
        effects
            .filter_map(|effect| match effect {
                Effect::Answer(ticket, answer) => Some((ticket, answer)),
                _ => None,
            })
            .collect()
    }

    /// A claim that is answered at once.
    fn claim(&mut self, pid: u32) -> Lease {
        let claim = self.claim_of(HOST, pid);
        granted(self.tell(claim))
    }

    /// A claim that has to wait.
    fn wait(&mut self, pid: u32) -> Ticket {
        let claim = self.claim_of(HOST, pid);
        let ticket = claim.ticket;
        assert_eq!(self.tell(claim), [], "it waits");
        ticket
    }

    fn exit(&mut self, pids: &[u32]) -> Vec<(Ticket, Result<Lease, Error>)> {
        let exited: Vec<ProcessId> = pids.iter().map(|pid| process(*pid)).collect();
        self.registry.exited(&exited);
        self.answers()
    }

    /// Everything that was recorded, in the hands of another daemon.
    fn restart(self) -> Self {
        let Registry {
            policy,
            owners,
            sessions,
            claimants,
            ending,
            exited_keepers,
            lost,
            kept,
            ..
        } = self.registry;
        let owners = owners.into_iter();
        let owners = owners.map(|(host, owner)| Record::Owner(owner.record(host)));
        let claimants = claimants.into_iter();
        let claimants = claimants.map(|(process, claimant)| Record::Claimant(process, claimant));
        let kept = kept.into_iter().flat_map(|(of, keepers)| {
            keepers
                .into_iter()
                .map(move |keeper| Record::Keeper(Some(of.clone()), keeper))
        });
        let ending = ending.into_values().chain(exited_keepers.into_values());
        let records = owners
            .chain(claimants)
            .chain(sessions.into_values().map(|session| session.into()))
            .chain(kept)
            .chain(ending.map(|keeper| Record::Keeper(None, keeper)))
            .chain(lost.map(Record::LostRecords));
        Self {
            registry: Registry::restore(policy, records.collect()),
            ..self
        }
    }
}

fn granted(mut answers: Vec<(Ticket, Result<Lease, Error>)>) -> Lease {
    assert_eq!(answers.len(), 1, "{answers:?}");
    answers.remove(0).1.expect("a lease")
}

#[test]
fn the_next_instance_resumes_what_the_former_one_left() {
    let mut bench = Bench::new();
    let first = bench.claim(1);
    assert_eq!(
        (first.outcome, first.epoch),
        (Outcome::FreshFirst, Epoch(1))
    );

    bench.exit(&[1]);
    let second = bench.claim(2);
    assert_eq!((second.outcome, second.epoch), (Outcome::Resumed, Epoch(2)));
    assert_eq!((second.session, second.file), (first.session, first.file));
}

#[test]
fn a_second_claim_of_the_holder_gets_the_same_lease() {
    let mut bench = Bench::new();
    let first = bench.claim(1);
    let second = bench.claim(1);
    assert_eq!(
        second,
        Lease {
            outcome: Outcome::Held,
            ..first
        }
    );
}

/// Of two claims that one process has under way, the one that need not wait answers the other.
#[test]
fn a_process_that_has_a_lease_waits_for_none() {
    let mut bench = Bench::new();
    bench.claim(1);
    let patient = Claim {
        siblings: Some(Siblings::Oldest),
        ..bench.claim_of(HOST, 3)
    };
    let ticket = patient.ticket;
    assert_eq!(bench.tell(patient), []);

    let hasty = Claim {
        deadline: 0,
        ..bench.claim_of(HOST, 3)
    };
    let (hasty_ticket, answers) = (hasty.ticket, bench.tell(hasty));
    let leases: Vec<(Ticket, Lease)> = answers
        .into_iter()
        .map(|(ticket, answer)| (ticket, answer.expect("a lease")))
        .collect();
    let outcomes: Vec<(Ticket, Outcome)> = leases
        .iter()
        .map(|(ticket, lease)| (*ticket, lease.outcome))
        .collect();
    assert_eq!(
        outcomes,
        [(hasty_ticket, Outcome::FreshHeld), (ticket, Outcome::Held)]
    );
    assert_eq!(leases[0].1.session, leases[1].1.session);
}

/// The same, where both were waiting.
#[test]
fn a_process_that_gets_a_lease_while_it_waits_for_it_twice_gets_one() {
    let mut bench = Bench::new();
    let first = bench.claim(1);
    let patient = Claim {
        siblings: Some(Siblings::Oldest),
        ..bench.claim_of(HOST, 2)
    };
    assert_eq!(bench.tell(patient), []);
    bench.wait(2);
    let answers = bench.exit(&[1]);
    let leases: Vec<Lease> = answers
        .into_iter()
        .map(|(_, answer)| answer.expect("a lease"))
        .collect();
    let outcomes: Vec<Outcome> = leases.iter().map(|lease| lease.outcome).collect();
    assert_eq!(outcomes, [Outcome::Resumed, Outcome::Held]);
    assert!(leases.iter().all(|lease| lease.session == first.session));
}

#[test]
fn the_new_server_waits_for_the_old_one_to_die() {
    let mut bench = Bench::new();
    let first = bench.claim(1);
    bench.wait(2);
    let second = granted(bench.exit(&[1]));
    assert_eq!(
        (second.outcome, second.session),
        (Outcome::Resumed, first.session)
    );
}

/// A host that starts its server anew twice: the one in the middle is no contender when it is known
/// to be dead.
#[test]
fn exits_that_are_known_together_count_together() {
    for exited in [[1, 2], [2, 1]] {
        let mut bench = Bench::new();
        let first = bench.claim(1);
        let middle = bench.wait(2);
        let last = bench.wait(3);
        let answers = bench.exit(&exited);
        assert!(
            answers.contains(&(middle, Err(Error::LeaseEnded))),
            "{answers:?}"
        );
        let resumed = Lease {
            outcome: Outcome::Resumed,
            epoch: Epoch(2),
            ..first
        };
        assert!(answers.contains(&(last, Ok(resumed))), "{answers:?}");
    }
}

#[test]
fn a_doubtful_key_gets_a_session_that_nobody_resumes() {
    let mut bench = Bench::new();
    let doubtful = |claim: Claim| Claim { key: None, ..claim };
    let claim = doubtful(bench.claim_of(HOST, 1));
    let first = granted(bench.tell(claim));
    assert_eq!(first.outcome, Outcome::FreshDoubtful);

    // The process itself finds it again.
    let claim = doubtful(bench.claim_of(HOST, 1));
    assert_eq!(granted(bench.tell(claim)).session, first.session);

    bench.exit(&[1]);
    assert_eq!(bench.registry.session(&first.session), None);
}

#[test]
fn a_host_takes_everything_of_its_own_with_it() {
    let mut bench = Bench::new();
    let other = process(11);
    let claim = bench.claim_of(other, 5);
    let stays = granted(bench.tell(claim));
    bench.claim(1);
    let waits = bench.wait(2);
    let answers = bench.exit(&[HOST.pid]);
    assert!(
        matches!(answers.as_slice(), [(ticket, Err(Error::NoVerifiedHost { .. }))] if *ticket == waits)
    );
    let left: Vec<&SessionId> = bench
        .registry
        .sessions()
        .map(|session| &session.id)
        .collect();
    assert_eq!(left, [&stays.session]);
    assert_eq!(
        bench.registry.processes(),
        BTreeSet::from([other, process(5)])
    );
}

/// Pid and start time had again: only the inode of the pidfd tells the new host from the old one.
#[test]
fn a_process_is_no_other_with_its_pid_and_start_time() {
    let mut bench = Bench::new();
    let first = bench.claim(1);
    let again = ProcessId {
        inode: Some(99),
        ..HOST
    };
    let mut bench = bench.restart();
    bench.registry.exited(&[process(1), HOST]);
    let claim = Claim {
        process: ProcessId {
            inode: Some(98),
            ..process(1)
        },
        ..bench.claim_of(again, 1)
    };
    let second = granted(bench.tell(claim));
    assert_eq!(second.outcome, Outcome::FreshFirst);
    assert_ne!(second.session, first.session);

    let claim = Claim {
        process: process(1),
        ..bench.claim_of(HOST, 1)
    };
    let third = granted(bench.tell(claim));
    assert_eq!(
        third.outcome,
        Outcome::FreshFirst,
        "nor is the old one the new one"
    );
}

#[test]
fn a_late_write_of_a_former_holder_is_refused() {
    let mut bench = Bench::new();
    let first = bench.claim(1);
    bench
        .registry
        .begin_store(&first.session, first.epoch, [1; 32])
        .expect("its own");
    bench.exit(&[1]);
    let ended = bench
        .registry
        .begin_store(&first.session, first.epoch, [2; 32]);
    assert_eq!(ended, Err(Error::LeaseEnded));
    let second = bench.claim(2);
    let late = bench
        .registry
        .begin_store(&first.session, first.epoch, [2; 32]);
    assert_eq!(
        late,
        Err(Error::StaleEpoch {
            given: first.epoch,
            newest: second.epoch
        })
    );
    assert_eq!(bench.registry.take_effects(), []);
    assert_eq!(
        bench
            .registry
            .session(&first.session)
            .expect("it is there")
            .digest,
        Some([1; 32])
    );
}

#[test]
fn a_full_owner_gives_up_the_session_that_has_been_free_the_longest() {
    let mut bench = Bench::new();
    let of_key = |bench: &mut Bench, pid: u32, what: u8| {
        let claim = Claim {
            key: Some(key(what)),
            ..bench.claim_of(HOST, pid)
        };
        bench.tell(claim).remove(0).1
    };
    let leases: Vec<Lease> = [1, 2, 3]
        .map(|number| of_key(&mut bench, number, number as u8).expect("a lease"))
        .into();
    // All three are held: there is no room.
    let refused = of_key(&mut bench, 4, 4);
    assert!(
        matches!(refused, Err(Error::QuotaExceeded { limit: 3, .. })),
        "{refused:?}"
    );

    bench.exit(&[3]);
    bench.exit(&[2]);
    let fourth = of_key(&mut bench, 4, 4).expect("a lease");
    assert_eq!(fourth.outcome, Outcome::FreshFirst);
    assert_eq!(bench.registry.session(&leases[2].session), None);
    assert!(bench.registry.session(&leases[1].session).is_some());
    assert_ne!(
        fourth.file, leases[2].file,
        "a file of a session that has ended is not had again"
    );
    // Whose it was is told so once there is room, and the next one has to go for it.
    of_key(&mut bench, 6, 2).expect("a lease");
    let refused = of_key(&mut bench, 5, 3);
    assert!(
        matches!(refused, Err(Error::QuotaExceeded { .. })),
        "{refused:?}"
    );
    bench.exit(&[6]);
    let again = of_key(&mut bench, 5, 3).expect("a lease");
    assert_eq!(
        (again.outcome, again.because),
        (Outcome::FreshFirst, Some(Loss::Quota))
    );
    assert_eq!(bench.registry.session(&leases[1].session), None);
}

/// A daemon that was killed between the records of a first claim never answered it. The claimant
/// alone says nothing of its host, whose exit nobody would tell.
#[test]
fn a_claimant_without_its_owner_is_forgotten_at_the_start() {
    let mut bench = Bench::new();
    let claim = bench.claim_of(HOST, 1);
    let traits = Traits::unknown("server".into(), KeyDoubt::Executable);
    bench
        .registry
        .introduce(claim.process, Claimant::new(HOST, traits));
    let mut bench = bench.restart();
    assert_eq!(bench.registry.processes(), BTreeSet::new());
    assert_eq!(
        bench.registry.take_effects(),
        [Effect::Drop(RecordKey::Claimant(process(1)))]
    );
}

impl Bench {
    /// A claim of a session that is found by its id.
    fn claim_that(&mut self, host: ProcessId, pid: u32, wants: Wants) -> Result<Lease, Error> {
        let claim = Claim {
            wants,
            ..self.claim_of(host, pid)
        };
        let mut answers = self.tell(claim);
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.remove(0).1
    }
}

fn chosen(id: &str) -> SessionId {
    id.parse().expect("an id")
}

#[test]
fn a_session_with_an_id_is_found_by_it_alone() {
    let mut bench = Bench::new();
    let new = |id: Option<&str>| Wants::New(id.map(chosen), None);
    let made = bench.claim_that(HOST, 1, new(Some("mine"))).expect("made");
    assert_eq!((made.outcome, made.epoch), (Outcome::FreshFirst, Epoch(1)));
    assert_eq!(
        bench.claim_that(HOST, 2, new(Some("mine"))),
        Err(Error::AlreadyExists)
    );
    // Nobody comes to it by the key of whom it was made for; and the same id of another host's is
    // another session.
    assert_ne!(bench.claim(1).session, made.session);
    let other = process(11);
    let theirs = bench
        .claim_that(other, 5, new(Some("mine")))
        .expect("another host's");
    assert_ne!(theirs.session, made.session);
    // Held; free after its holder, and after a restart too; of one epoch more for whoever takes it.
    let named = || Wants::Named(chosen("mine"));
    assert_eq!(bench.claim_that(HOST, 2, named()), Err(Error::SessionHeld));
    bench.exit(&[1]);
    let mut bench = bench.restart();
    let taken = bench.claim_that(HOST, 2, named()).expect("free");
    assert_eq!(
        (taken.session, taken.epoch, taken.outcome),
        (made.session.clone(), Epoch(2), Outcome::Resumed)
    );
    assert_eq!(
        bench
            .claim_that(HOST, 2, named())
            .expect("held already")
            .outcome,
        Outcome::Held
    );
    assert_eq!(
        bench.registry.check(&made.session, Epoch(1)),
        Err(Error::StaleEpoch {
            given: Epoch(1),
            newest: Epoch(2)
        })
    );
    // Once it has ended there is none of that id, and another may have it.
    bench.registry.end(&made.session);
    let effects = bench.registry.take_effects();
    assert!(
        effects.contains(&Effect::EndContents(HOST, chosen("mine"))),
        "{effects:?}"
    );
    assert_eq!(
        bench.claim_that(HOST, 2, named()),
        Err(Error::UnknownSession)
    );
    assert_eq!(
        bench
            .registry
            .find(other, &chosen("mine"))
            .map(|one| &one.id),
        Some(&theirs.session)
    );
    assert_ne!(
        bench
            .claim_that(HOST, 2, new(Some("mine")))
            .expect("again")
            .session,
        made.session
    );
    // The daemon's own id of a session whose owner chose another is no id to its owner.
    assert_eq!(
        bench.claim_that(other, 6, Wants::Named(theirs.session)),
        Err(Error::UnknownSession)
    );
}

#[test]
fn a_request_that_is_repeated_makes_one_session() {
    let mut bench = Bench::new();
    let request = RequestId::mint();
    let made = bench
        .claim_that(HOST, 1, Wants::New(None, Some(request.clone())))
        .expect("made");
    let again = bench
        .claim_that(HOST, 1, Wants::New(None, Some(request.clone())))
        .expect("the same");
    assert_eq!(
        (&again.session, again.outcome),
        (&made.session, Outcome::Held)
    );
    // Without a request every one is another, and so is another process's.
    let other = bench
        .claim_that(HOST, 1, Wants::New(None, None))
        .expect("made");
    let third = bench
        .claim_that(HOST, 2, Wants::New(None, Some(request)))
        .expect("made");
    assert!(other.session != made.session && third.session != made.session);
}

#[test]
fn a_fresh_claim_ends_what_it_would_have_had() {
    let mut bench = Bench::new();
    let first = bench.claim(1);
    let fresh = bench.claim_that(HOST, 1, Wants::Fresh).expect("fresh");
    assert_eq!(fresh.outcome, Outcome::FreshFirst);
    assert!(fresh.session != first.session && fresh.file != first.file);
    assert_eq!(bench.registry.session(&first.session), None);
    bench.exit(&[1]);
    let next = bench.claim_that(HOST, 2, Wants::Fresh).expect("fresh");
    assert_eq!(
        (next.outcome, bench.registry.session(&fresh.session)),
        (Outcome::FreshFirst, None)
    );
    // A sibling that lives keeps what it has.
    let claim = Claim {
        deadline: 0,
        wants: Wants::Fresh,
        ..bench.claim_of(HOST, 3)
    };
    assert_eq!(granted(bench.tell(claim)).outcome, Outcome::FreshHeld);
    assert!(bench.registry.session(&next.session).is_some());
}
