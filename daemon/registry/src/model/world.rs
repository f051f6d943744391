//! The registry in its surroundings: the engine, the ledger, the token files and the clients,
//! without any I/O.

mod checks;
mod effects;
mod leased;
mod records;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use mcp_sessiond_identity::{Conversation, Key, KeyDoubt, ProcessId, SelfDescription, Traits};
use mcp_sessiond_proto::backends::KeeperName;
use mcp_sessiond_proto::types::Outcome;
use mcp_sessiond_proto::{ClientName, Epoch, Error, Label, Resume, SessionId};

use super::book::Book;
use super::check::check;
use super::keepers::{KeeperModel, backend_name, backend_of};
use super::{Asks, Cast, Given, KeeperNews, Named, Step, host_row, program_dir, traits};
use crate::{
    Claim, Claimant, Departure, Digest, Effect, KeeperRecord, Lease, Millis, NO_TOKEN, OwnClaim,
    Policy, Registry, Rule, RuleSource, SessionRecord, Ticket, TokenFile, Wants,
};
use crate::{RecordKey, Records};

/// What happens in this order, and counts once it is kept.
#[derive(Debug)]
enum Item {
    Record(Effect),
    Answer(Box<Claim>, Lease),
    Begun(SessionId),
    Rejected(SessionId, TokenFile),
    Registered(ProcessId),
}

/// A token that is on its way to its file. Whoever else wants the file waits.
#[derive(Debug)]
struct Writing {
    digest: Option<Digest>,
    file: TokenFile,
    /// Whether the digest is kept, and the file so may be written.
    ready: bool,
}

/// What the clients know of a session.
#[derive(Debug)]
struct Known {
    owner: ProcessId,
    /// The newest lease that somebody was told of, and whether its holder has given it back.
    epoch: Epoch,
    holder: ProcessId,
    released: bool,
    /// The token that was stored for sure, and those that may have been stored since.
    tokens: Vec<Option<Digest>>,
}

/// Everything that a claim is about: no session goes from one of these to another.
#[derive(Clone, Debug, PartialEq)]
struct About {
    host: ProcessId,
    core: Option<[u8; 32]>,
    /// Unless a label takes its place.
    place: Option<[u8; 32]>,
    conversation: Conversation,
    description: SelfDescription,
}

#[derive(Debug)]
pub(super) struct World {
    policy: Policy,
    registry: Registry,
    book: Book,
    keepers: KeeperModel,
    now: Millis,
    tickets: u64,
    tokens: u64,
    claims: BTreeMap<Ticket, Claim>,
    watched: BTreeSet<ProcessId>,
    exits: Vec<ProcessId>,
    /// What the ledger was given, what it has kept, and what lies between.
    recorded: Records,
    kept: Records,
    queue: VecDeque<Item>,
    files: BTreeMap<String, Digest>,
    writing: BTreeMap<SessionId, Writing>,
    /// The process that registers in this step.
    registering: Option<ProcessId>,
    /// What the claims are about that wait for an answer, and what those were that opened sessions.
    facts: HashMap<Ticket, About>,
    own_facts: HashMap<Ticket, About>,
    openers: HashMap<SessionId, About>,
    /// Sessions that somebody has taken from their holders, or has begun afresh.
    taken: HashSet<SessionId>,
    told: Vec<SessionId>,
    known: HashMap<SessionId, Known>,
    leases: HashMap<(SessionId, Epoch), ProcessId>,
}

impl World {
    pub(super) fn new(cast: &Cast) -> Self {
        let (policy, recorded) = (cast.policy, Records::default());
        Self {
            policy,
            registry: Registry::restore(policy, recorded.clone()),
            book: Book::new(policy, 0, &recorded),
            keepers: KeeperModel::default(),
            now: 0,
            tickets: 0,
            tokens: 0,
            claims: BTreeMap::new(),
            watched: BTreeSet::new(),
            exits: Vec::new(),
            kept: recorded.clone(),
            recorded,
            queue: VecDeque::new(),
            files: BTreeMap::new(),
            writing: BTreeMap::new(),
            registering: None,
            facts: HashMap::new(),
            own_facts: HashMap::new(),
            openers: HashMap::new(),
            taken: HashSet::new(),
            told: Vec::new(),
            known: HashMap::new(),
            leases: HashMap::new(),
        }
    }

    pub(super) fn step(&mut self, cast: &Cast, step: &Step) {
        match *step {
            Step::Start { .. } => {}
            Step::Exit(process) => {
                let id = cast.processes[process].id;
                if self.watched.remove(&id) {
                    self.exits.push(id);
                }
            }
            Step::Claim { process, ref asks } => {
                self.take_in_exits(cast);
                self.claim(cast, process, asks);
            }
            Step::ClaimNamed { process, named } => {
                self.take_in_exits(cast);
                self.claim_named(cast, process, named);
            }
            Step::KeeperTells {
                process,
                what,
                epoch,
            } => {
                self.take_in_exits(cast);
                self.keeper_tells(cast, cast.processes[process].id, what, epoch);
            }
            Step::Touch(session) => {
                self.take_in_exits(cast);
                let Some(id) = self.told.iter().rev().nth(session).cloned() else {
                    return;
                };
                self.registry.touch(&id);
                self.book.touched(&id);
            }
            Step::Pass { ms, told } => {
                self.now += ms;
                if told {
                    self.take_in_exits(cast);
                    self.registry.passed(self.now);
                    self.book.passed();
                    let next = self.registry.next_deadline();
                    assert_eq!(
                        next,
                        self.claims_waiting().map(|claim| claim.deadline).min()
                    );
                }
            }
            Step::Store { session, epoch } => self.mutate(cast, session, epoch, Self::store),
            Step::EndStore { nth, written } => self.end_store(cast, nth, written),
            Step::Reject { session, epoch } => self.mutate(cast, session, epoch, Self::reject),
            Step::Release { session, epoch } => self.mutate(cast, session, epoch, Self::release),
            Step::Register {
                process,
                session,
                epoch,
            } => {
                // The process answers for itself: one that is dead does not ask.
                let keeper = cast.processes[process].id;
                self.registering = Some(keeper);
                self.mutate(cast, session, epoch, Self::register);
            }
            Step::Started { process, backend } => {
                self.take_in_exits(cast);
                let (keeper, backend) = (cast.processes[process].id, cast.processes[backend].id);
                self.started(cast, keeper, backend);
            }
            Step::Stop(session, backend) => {
                self.take_in_exits(cast);
                let Some(id) = self.told.iter().rev().nth(session).cloned() else {
                    return;
                };
                let backend = backend.map(backend_name);
                let is_there = self.keepers.stop(&(&id).into(), backend.as_ref());
                self.book.stopped(&id, backend.as_ref());
                let stopped = self.registry.stop_backend(&(&id).into(), backend.as_ref());
                assert_eq!(stopped.is_ok(), is_there, "whether it was stopped");
            }
            Step::Sweep(most) => {
                self.take_in_exits(cast);
                for _ in 0..most {
                    let Some(keeper) = self.keepers.sweep() else {
                        break;
                    };
                    self.registry.swept(&keeper);
                }
            }
            Step::Keep(items) => self.keep(cast, items),
            Step::Restart { crash, renamed } => self.restart(cast, crash, renamed),
        }
        self.apply(cast);
    }

    fn claims_waiting(&self) -> impl Iterator<Item = &Claim> {
        let waiting = self.book.waiting();
        self.claims
            .values()
            .filter(move |claim| waiting.contains(&claim.ticket))
    }

    /// As the engine does before anything else.
    fn take_in_exits(&mut self, cast: &Cast) {
        self.registry.at(self.now);
        self.book.at(self.now);
        self.book.tokens = self.tokens_on_record();
        let exits = std::mem::take(&mut self.exits);
        self.registry.exited(&exits);
        self.book.exited(&exits);
        self.keepers.exited(&exits);
        self.apply(cast);
    }

    fn tokens_on_record(&self) -> BTreeSet<SessionId> {
        let with_token = self
            .registry
            .sessions()
            .filter(|session| session.digest.is_some());
        with_token.map(|session| session.id.clone()).collect()
    }

    fn claim(&mut self, cast: &Cast, number: usize, asks: &Asks) {
        let process = cast.processes[number].id;
        let which = cast.processes[number].traits;
        let claimant = match self.registry.claimant(&process) {
            Some(known) => known.clone(),
            None => {
                // Verifying it would fail.
                let Some(host) = cast.parent(number).filter(|host| host.alive) else {
                    return;
                };
                self.watched.extend([process, host.id]);
                let claimant = Claimant::new(host.id, traits(which));
                self.registry.introduce(process, claimant.clone());
                claimant
            }
        };
        let label = |kind: &str, number: usize| -> Label {
            format!("{kind}-{number}").parse().expect("a label")
        };
        let client =
            |client: usize| -> ClientName { format!("client-{client}").parse().expect("a name") };
        let description = SelfDescription {
            label: asks.label.map(|number| label("label", number)),
            entry: asks.entry.map(|number| label("entry", number)),
            client: asks.client.map(client),
        };
        self.tickets += 1;
        let (key, unnamed) = (
            claimant.traits.key(&description).ok(),
            claimant.traits.unnamed_key(&description),
        );
        let claim = Claim {
            ticket: Ticket(self.tickets),
            id: SessionId::mint(),
            process,
            host: claimant.host,
            host_name: "host".into(),
            host_rule: host_row(claimant.host),
            key,
            unnamed,
            description: description.clone(),
            program_dir: program_dir(which),
            program: claimant.traits.program,
            siblings: asks.siblings,
            rule: asks.rule,
            started_ms: asks.age.map(|age| self.now.saturating_sub(age)),
            deadline: self.now + asks.wait,
            expires: self.now + asks.patience,
            opened_ms: self.now,
            confirms_loss: false,
            wants: match asks.closed {
                Some(used) => Wants::AfterClose { used },
                None => Wants::Keyed,
            },
            own: None,
        };
        let read = traits(which);
        let place = read.place.filter(|_| description.label.is_none());
        let about = About {
            host: claim.host,
            core: read.core,
            place,
            conversation: read.conversation,
            description,
        };
        self.facts.insert(claim.ticket, about);
        self.claims.insert(claim.ticket, claim.clone());
        self.book.claim(&claim);
        self.registry.claim(claim, self.now);
    }

    /// A session was taken from its holder, by whoever may do so.
    pub(super) fn note_taken(&mut self) {
        for taken in std::mem::take(&mut self.book.taken) {
            // Its holder may not have been told yet.
            if let Some(known) = self.known.get_mut(&taken) {
                known.released = true;
            }
            self.taken.insert(taken);
        }
    }

    /// Ends what the user has named: with it nobody would.
    pub(super) fn end_named(&mut self, cast: &Cast) {
        let of_user = self
            .registry
            .sessions()
            .filter(|session| session.owner == ProcessId::USER);
        for id in of_user
            .map(|session| session.id.clone())
            .collect::<Vec<_>>()
        {
            self.registry.end(&id);
        }
        self.book.end_named();
        self.apply(cast);
    }

    /// A process that has not claimed as a host's instance, and never will.
    fn claim_named(&mut self, cast: &Cast, number: usize, named: Named) {
        let process = cast.processes[number].id;
        let unknown = || Traits::unknown("server".into(), KeyDoubt::Gone);
        let own = named
            .own
            .and_then(|resume| self.own(cast, number, named, resume));
        match self.registry.claimant(&process) {
            Some(known) if known.host != ProcessId::USER => {
                // It has claimed as a host's instance, or it has a server of its host's own.
                let key = own.as_ref().and_then(|(own, _)| own.claim.key);
                if key.is_none_or(|key| !known.keys.contains(&key)) {
                    return;
                }
            }
            Some(_) => {}
            None => {
                self.watched.insert(process);
                self.registry
                    .introduce(process, Claimant::new(ProcessId::USER, unknown()));
            }
        }
        if let Some((own, _)) = &own {
            self.watched.insert(own.claim.host);
        }
        let name: Label = format!("name-{}", named.name).parse().expect("a label");
        self.tickets += 1;
        let description = SelfDescription {
            label: Some(name.clone()),
            ..SelfDescription::default()
        };
        let claim = Claim {
            ticket: Ticket(self.tickets),
            id: SessionId::mint(),
            process,
            host: ProcessId::USER,
            host_name: "you".into(),
            host_rule: None,
            key: Some(Key::of_name(&name)),
            unnamed: None,
            description: description.clone(),
            program_dir: Some([named.command; 32]),
            program: "server".into(),
            siblings: None,
            rule: Rule::default(),
            started_ms: None,
            deadline: self.now + named.wait,
            expires: self.now + 1_000,
            opened_ms: self.now,
            confirms_loss: false,
            wants: Wants::Users {
                take: named.take,
                fresh: named.fresh,
            },
            own: None,
        };
        let (own, about_own) = own.unzip();
        let claim = Claim {
            own: own.map(|own| {
                Box::new(OwnClaim {
                    claim: Claim {
                        ticket: claim.ticket,
                        id: claim.id.clone(),
                        ..own.claim
                    },
                    ..own
                })
            }),
            ..claim
        };
        self.own_facts
            .extend(about_own.map(|about| (claim.ticket, about)));
        // The command stands in the place of what it is made of.
        let about = About {
            host: ProcessId::USER,
            core: claim.program_dir,
            place: None,
            conversation: Conversation::None,
            description,
        };
        self.facts.insert(claim.ticket, about);
        self.claims.insert(claim.ticket, claim.clone());
        self.book.claim_named(&claim, named.take, named.fresh);
        self.note_taken();
        self.registry.claim(claim, self.now);
    }

    /// What a claim by a name is where that is in use.
    fn own(
        &self,
        cast: &Cast,
        number: usize,
        named: Named,
        resume: Resume,
    ) -> Option<(OwnClaim, About)> {
        let host = cast.parent(number).filter(|host| host.alive)?.id;
        let which = cast.processes[number].traits;
        let read = traits(which);
        let entry: Label = format!("name-{} (own)", named.name)
            .parse()
            .expect("a label");
        let description = SelfDescription {
            entry: Some(entry),
            ..SelfDescription::default()
        };
        let claim = Claim {
            ticket: Ticket(0),
            id: SessionId::mint(),
            process: cast.processes[number].id,
            host,
            host_name: "host".into(),
            host_rule: host_row(host),
            key: read.key(&description).ok(),
            unnamed: None,
            description: description.clone(),
            program_dir: program_dir(which),
            program: read.program.clone(),
            siblings: None,
            rule: Rule {
                resume,
                source: RuleSource::Library,
            },
            started_ms: None,
            deadline: self.now + named.wait,
            expires: self.now + 1_000,
            opened_ms: self.now,
            confirms_loss: false,
            wants: if named.fresh {
                Wants::Fresh
            } else {
                Wants::Keyed
            },
            own: None,
        };
        let about = About {
            host,
            core: read.core,
            place: read.place,
            conversation: read.conversation,
            description,
        };
        let claimant = Claimant::new(host, read);
        Some((OwnClaim { claimant, claim }, about))
    }

    /// Some session that somebody was told of, and the epoch that a request for it carries. The
    /// registry must refuse what the book does, and change nothing then.
    fn mutate(
        &mut self,
        cast: &Cast,
        session: usize,
        epoch: Given,
        mutation: fn(&mut Self, &Cast, &SessionId, Epoch) -> Result<(), Error>,
    ) {
        self.take_in_exits(cast);
        let Some(id) = self.told.iter().rev().nth(session).cloned() else {
            return;
        };
        let newest = self
            .registry
            .session(&id)
            .map_or(self.known[&id].epoch.0, |record| record.epoch.0);
        let epoch = epoch.of(newest);
        let refusal = self.book.refusal(&id, Epoch(epoch));
        let done = mutation(self, cast, &id, Epoch(epoch));
        if let Err(error) = done {
            assert_eq!(Some(error.code()), refusal, "refused");
            assert_eq!(
                self.registry.take_effects(),
                [],
                "it was refused and had effects"
            );
        } else {
            assert_eq!(refusal, None, "not refused");
        }
    }

    /// Somebody else is writing the file: this waits, and is not done in this step.
    fn wait_for_file(&self, id: &SessionId, epoch: Epoch) -> Option<Result<(), Error>> {
        self.writing
            .contains_key(id)
            .then(|| match self.book.refusal(id, epoch) {
                None => Ok(()),
                Some(_) => {
                    // Nothing to ask the registry; say what it would.
                    let record = self.registry.session(id);
                    Err(match record {
                        None => Error::UnknownSession,
                        Some(record) if record.epoch != epoch => Error::StaleEpoch {
                            given: epoch,
                            newest: record.epoch,
                        },
                        Some(_) => Error::LeaseEnded,
                    })
                }
            })
    }

    fn end_store(&mut self, cast: &Cast, nth: usize, written: bool) {
        self.take_in_exits(cast);
        let mut ready = self.writing.iter().filter(|(_, writing)| writing.ready);
        let Some(id) = ready.nth(nth).map(|(id, _)| id.clone()) else {
            return;
        };
        let Some(Writing { digest, file, .. }) = self.writing.remove(&id) else {
            return;
        };
        // If the session has ended meanwhile, the file is deleted right after.
        if self.registry.session(&id).is_none() {
            return;
        }
        if written {
            self.files
                .extend(digest.map(|digest| (file.to_string(), digest)));
            self.registry.end_store(&id, digest);
            assert!(!self.registry.sessions[&id].offered, "it is accepted once");
            self.known.get_mut(&id).expect("somebody stored").tokens = vec![digest];
        } else {
            self.settle(&id);
        }
    }

    /// As `Engine::settle_file` does.
    fn settle(&mut self, id: &SessionId) {
        let Some(record) = self.registry.session(id) else {
            return;
        };
        let had = record.digest.is_some();
        match self.files.get(&record.file.to_string()).copied() {
            None if record.former == Some(NO_TOKEN) => self.registry.end_store(id, None),
            None => {}
            holds => {
                if [record.digest, record.former].contains(&holds) {
                    self.registry.end_store(id, holds);
                }
            }
        }
        if had
            && self
                .registry
                .session(id)
                .is_none_or(|record| record.digest.is_none())
        {
            self.book.token_lost(id);
        }
    }

    fn may_have(&mut self, id: &SessionId, token: Option<Digest>) {
        self.known
            .get_mut(id)
            .expect("somebody was told of it")
            .tokens
            .push(token);
    }
}
