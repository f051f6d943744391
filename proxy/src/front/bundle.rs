//! A front of several servers, which are one to its host: each has a keeper of its own, and all
//! belong to one session.
//!
//! - `member`: one of the servers, in its keeper.
//! - `name_memory`: the names by which their tools are listed, today and after a restart.
//! - `answer_memory`: what servers have answered that are started at their first call.
//!   `daemon_value`: where the daemon remembers both.
//! - [`report`]: which of them can't be used, told to people and to the daemon.
//!
//! What is listed and who is called is the bundle's: see `mcp_sessiond_bundle`.

pub(super) mod answer_memory;
mod daemon_value;
pub(super) mod member;
mod name_memory;
pub mod report;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use mcp_sessiond_bundle::decorate::{CallEntry, CallLog, Current, decorate};
pub use mcp_sessiond_bundle::decorate::{
    Calls, Decoration, Decorations, Filter, Glob, Mistake, NoGlob, Rename, Time,
};
use mcp_sessiond_bundle::modern::{EitherEra, for_modern_host, is_of_modern_host};
use mcp_sessiond_bundle::{Backends, BundleServer, BundleStore, Handshake, Lazy, Source, Target};
pub use mcp_sessiond_bundle::{End, Failure, FailureCode, Pipe, Settings, Style, TrackedLine};
pub use mcp_sessiond_bundle::{Receipt, WAITING, Waking};
use mcp_sessiond_client::{ClaimRequest, Control, Options, Start};
use mcp_sessiond_proto::sessions::SessionRef;
use mcp_sessiond_proto::types::LeaseRef;
use mcp_sessiond_proto::{BackendName, Claimed};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, mpsc};

use super::FAILED;
use super::drive::{self, Driver, Untold};
use super::first_line::{FOR_EVER, FirstLine};
use super::pending_leaves::PendingLeaves;
use super::probe::{self, Opening, ProbePolicy};
use super::stdio::{PipeFront, in_runtime};
use crate::front_settings::FrontSettings;
use crate::memory::forbid_core_dumps;
use crate::notices::{note_unkept, print, print_claim, print_lost_members};
use crate::program::Program;
use crate::server::connector::{NoBackend, WithoutKeeper};
use crate::server::facts::{ServerFacts, digest_of_list};
use crate::server::keeper_connector::{KeeperConnector, SessionCalls};
use crate::server::remote::{RemoteServer, StoreUsers};
use crate::server::shared::Shared;
use crate::signals::{FRONT, GivenMask, Leaving};
use crate::stderr::{NamedStderr, Stderr};
use answer_memory::AnswerMemory;
use member::{Backend, BundleContext};
use name_memory::NameMemory;
use report::Report;

/// What a server is.
#[derive(Debug)]
pub enum Launch {
    /// A program, which gets a keeper.
    Program {
        /// The program and its arguments.
        program: Program,
        /// Variables that it gets in addition to those of this process.
        environment: Vec<(OsString, OsString)>,
        /// Where it runs; none: where this process does.
        home: Option<PathBuf>,
    },
    /// A program that all hosts share. A host that can't gets one of its own.
    Shared(Shared),
    /// One that runs elsewhere.
    Remote(RemoteServer),
}

/// Looks up what a server is, just before it is started. It is called in a thread of a tokio
/// runtime that may wait.
pub type Launching = Arc<dyn Fn() -> Result<Launch, Failure> + Send + Sync>;

/// A server of the list.
#[derive(Clone)]
pub struct Server {
    /// Its name in the list.
    pub name: String,
    /// What it is, as the list has it. With another text under the same name it is another server:
    /// what the former one holds is not its own.
    pub identity: String,
    /// What it runs. It may wait for a file or for the user.
    pub launch: Launching,
    /// When it is started, where its host is answered from memory until then. None: with its host.
    pub lazy: Option<Waking>,
}

/// Hexadecimal digits that tell a server from one of the same name that was written otherwise.
const DIGEST: usize = 8;

impl Server {
    /// The name of its keeper. None where the server's name has too many bytes, or control
    /// characters.
    pub fn keeper_name(&self) -> Option<BackendName> {
        let digest = Sha256::digest(&self.identity);
        let digest: String = digest
            .iter()
            .take(DIGEST / 2)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("{}#{digest}", self.name).parse().ok()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Server({:?})", self.name)
    }
}

/// What an edit of the list means.
#[derive(Debug)]
pub enum Edit {
    /// These are the servers now, all of them.
    Servers(Vec<Server>),
    /// Something is wrong with the list: a sentence. What it had before still holds.
    Wrong(String),
}

/// Where the servers are written down.
pub trait List: Send {
    /// Where that is: the names of tools are remembered by it.
    fn place(&self) -> String;

    /// The servers, in their order.
    fn servers(&self) -> Vec<Server>;

    /// What is added to them.
    ///
    /// # Errors
    /// A sentence on what can't be. What was added before stays.
    fn decorations(&self) -> Result<Decorations, String>;

    /// Waits for an edit. Cancel-safe.
    fn next(&mut self) -> BoxFuture<'_, Edit>;
}

impl fmt::Debug for dyn List {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "List({:?})", self.place())
    }
}

/// How long an edit waits until it is said, before it ends anything: a front that is killed in between
/// would leave a server that ended without a word.
const SAID_WITHIN: Duration = Duration::from_millis(500);

/// How long the daemon may take to say what is known of a host that probes, and to be told. It may have to
/// be started, which the session needs as well.
const FACTS_WAIT: Duration = Duration::from_millis(500);

/// What the servers are together, for people.
const DISPLAY_NAME: &str = "all servers of servers.json";

/// Speaks MCP to the host, on standard input and output, until the host closes its end or is gone.
/// `list` is called in a tokio runtime.
pub fn run(
    options: &Options,
    claim: ClaimRequest,
    list: impl FnOnce() -> Box<dyn List>,
    settings: Settings,
    front_settings: FrontSettings,
) -> ExitCode {
    let mask = GivenMask::block(&FRONT);
    in_runtime(|runtime| {
        serve_host(
            runtime,
            options,
            claim,
            list,
            settings,
            front_settings,
            mask,
        )
    })
}

/// Claims the session, and waits for a daemon that hangs while it has servers of the list. None: the
/// host has left meanwhile.
fn claim_or_leave(
    runtime: &tokio::runtime::Runtime,
    mut connector: KeeperConnector,
    front: &PipeFront,
    settings: FrontSettings,
) -> Option<Result<(KeeperConnector, Claimed), NoBackend>> {
    let mut has_said_to_wait = false;
    loop {
        let until = Instant::now() + settings.keeper_wait;
        let why = match runtime.block_on(connector.claim(until)) {
            Ok(claimed) => return Some(Ok((connector, claimed))),
            Err(why) => why,
        };
        match connector.list_without_keepers(&why) {
            WithoutKeeper::ClaimAgain => {}
            WithoutKeeper::RunUnkept(_) | WithoutKeeper::Refuse(_) => return Some(Err(why)),
            WithoutKeeper::Wait(sentence) if has_said_to_wait => drop(sentence),
            WithoutKeeper::Wait(sentence) => {
                print(&sentence);
                has_said_to_wait = true;
            }
        }
        if *front.leaver.leave().borrow() > Leaving::No {
            return None;
        }
    }
}

fn serve_host(
    runtime: &tokio::runtime::Runtime,
    options: &Options,
    mut claim: ClaimRequest,
    list: impl FnOnce() -> Box<dyn List>,
    settings: Settings,
    front_settings: FrontSettings,
    mask: GivenMask,
) -> io::Result<ExitCode> {
    // What the host speaks is known from its first line.
    let begin = FrontSettings {
        first_line_wait: FOR_EVER,
        ..front_settings
    };
    let (mut front, first) = PipeFront::begin(begin)?;
    match first {
        FirstLine::Closed => return Ok(ExitCode::SUCCESS),
        FirstLine::Read(client) => {
            let server = digest_of_list(client.as_ref());
            let facts = || ServerFacts::within(FACTS_WAIT, options.clone(), server.clone());
            let (input, lines) = (&mut front.input, &mut front.lines);
            let opening = probe::answer(client, ProbePolicy::Translated, &facts, input, lines);
            match runtime.block_on(opening) {
                Opening::Closed => return Ok(ExitCode::SUCCESS),
                Opening::Client(client) | Opening::ProbesOnly(client) => claim.client = client,
            }
        }
        // There is no one command that could get it. Each line of it is refused.
        FirstLine::Raw => {}
    }
    let is_modern = front.lines.whole_line().is_some_and(is_of_modern_host);
    front.probes_apart = is_modern;
    let program = Program {
        name: DISPLAY_NAME.into(),
        arguments: Vec::new(),
        title: None,
        has_sources: true,
    };
    claim.program = Some(DISPLAY_NAME.to_owned());
    let (to, own) = (options.clone(), claim.clone());
    let claimed = match KeeperConnector::new(to, own, program, mask, front_settings) {
        Ok(connector) => match claim_or_leave(runtime, connector, &front, front_settings) {
            Some(claimed) => claimed,
            None => return Ok(ExitCode::SUCCESS),
        },
        Err(why) => Err(why),
    };
    let (unkept, claimed) = match claimed {
        Ok((connector, claimed)) => {
            let (session_calls, confirm) = (connector.session(), connector.confirm_loss());
            let loss = connector.carried_loss(&claimed);
            (None, Some((session_calls, loss, confirm, claimed)))
        }
        Err(why) => {
            print(&format_args!(
                "{why}; the servers are run without being kept: they will not survive a reconnect"
            ));
            note_unkept(DISPLAY_NAME.to_owned(), &why);
            (Some(why.to_string()), None)
        }
    };
    // Messages are carried from here on.
    forbid_core_dumps();
    let stderr = Stderr::new()?;
    let named = NamedStderr::of_one(stderr.clone());
    let session_loss = claimed
        .as_ref()
        .and_then(|(.., claimed)| claimed.because.filter(|because| !because.is_rule()));
    let lost_members = claimed.iter().flat_map(|(.., claimed)| &claimed.lost);
    let lost_members = lost_members.filter_map(|lost| lost.of.clone()).collect();
    let claimed_losses = claimed.iter().flat_map(|(.., claimed)| &claimed.lost);
    let claimed_losses = claimed_losses.map(|lost| lost.id).collect();
    let (held, lease): (Option<_>, _) = claimed
        .map(
            |(
                session_calls,
                loss,
                confirm,
                Claimed {
                    session,
                    epoch,
                    lost,
                    outcome,
                    ..
                },
            )| {
                let to = named.clone();
                let untold: Untold = Box::new(move || {
                    print_claim(&to, loss, Some(outcome));
                    print_lost_members(&to.stderr, lost, confirm.as_ref());
                });
                ((session_calls, untold), LeaseRef { session, epoch })
            },
        )
        .unzip();
    let (session_calls, untold) = held.unzip();
    let common = Arc::new(BundleContext {
        options: options.clone(),
        claim,
        mask,
        settings: front_settings,
        stderr,
        leaving: front.leaver.leave().subscribe(),
        lease,
        shelves: StoreUsers::default(),
        pending_leaves: PendingLeaves::default(),
        session_loss,
        lost_members,
        claimed_losses,
        unkept,
    });
    let carrying = Carrying {
        common,
        front,
        settings,
        session_calls,
        untold,
        named,
        is_modern,
    };
    // The list is watched from within the runtime.
    runtime.block_on(async { carry(carrying, list()).await })
}

struct Carrying {
    common: Arc<BundleContext>,
    front: PipeFront,
    settings: Settings,
    session_calls: Option<SessionCalls>,
    untold: Option<Untold>,
    named: NamedStderr,
    /// Whether the host speaks MCP 2026-07-28.
    is_modern: bool,
}

/// Where the names are remembered of the servers that are written down at this place. None where
/// that can't be.
pub fn memory(place: &str, options: Options) -> Option<Arc<dyn BundleStore>> {
    Some(Arc::new(NameMemory::new(place, options)?))
}

/// Which server runs under which name.
pub fn identities(servers: &[Server]) -> BTreeMap<String, String> {
    servers
        .iter()
        .map(|server| (server.name.clone(), server.identity.clone()))
        .collect()
}

/// Notes calls on standard error, where a decoration asks for it.
struct CallLogger(Stderr);

impl CallLog for CallLogger {
    fn note(&self, call: CallEntry) {
        self.0.print(&call);
    }
}

/// Whom the servers are reported to.
fn report(common: &BundleContext) -> Report {
    let daemon = common.lease.as_ref().map(|LeaseRef { session, epoch }| {
        let of = SessionRef {
            session: session.clone(),
            service: None,
            epoch: Some(*epoch),
            caller: None,
        };
        (Control::new(common.options.clone().start(Start::Never)), of)
    });
    let stderr = common.stderr.clone();
    Report::new(daemon, move |line| stderr.print(line))
}

async fn carry(carrying: Carrying, mut list: Box<dyn List>) -> io::Result<ExitCode> {
    let Carrying {
        common,
        front,
        settings,
        session_calls,
        untold,
        named,
        is_modern,
    } = carrying;
    let answers = AnswerMemory::new(common.options.clone(), common.stderr.clone());
    let sources = {
        let (common, answers, limit) = (common.clone(), answers.clone(), settings.init_timeout);
        let turns = Arc::new(Semaphore::new(settings.init_concurrency.max(1)));
        move |servers: Vec<Server>, handshake: &Handshake| {
            let source = |server: Server| -> Arc<dyn Source> {
                let lazy = server.lazy.filter(|_| common.unkept.is_none());
                let known = lazy.map(|waking| {
                    (
                        waking,
                        answers.of(&server.identity, Some(server.name.clone())),
                    )
                });
                let backend = EitherEra::of(Arc::new(Backend::new(server, common.clone())));
                match known {
                    Some((waking, known)) => Arc::new(
                        Lazy::new(backend, Arc::new(known), Some(handshake.clone()), waking)
                            .within(limit)
                            .in_turn(turns.clone()),
                    ),
                    None => backend,
                }
            };
            servers.into_iter().map(source).collect::<Vec<_>>()
        }
    };
    let memory =
        NameMemory::new(&list.place(), common.options.clone()).filter(|_| common.unkept.is_none());
    let memory = memory.map_or_else(
        || Arc::new(()) as Arc<dyn BundleStore>,
        |memory| Arc::new(memory),
    );
    let (made, mut is_made) = mpsc::channel::<(Arc<Backends>, Arc<Current>, Handshake)>(1);
    let first = list.servers();
    let mut running = identities(&first);
    let log = Arc::new(CallLogger(common.stderr.clone())) as Arc<dyn CallLog>;
    let mut decorations = match list.decorations() {
        Ok(decorations) => decorations,
        // Without them something would be let through that must not be.
        Err(why) => {
            print(&why);
            return Ok(ExitCode::from(FAILED));
        }
    };
    let (first_decorations, first_log) = (decorations.clone(), log.clone());
    let make_sources = sources.clone();
    let (said, from) = mpsc::channel(WAITING);
    let speaker = BundleServer::new(said, move |handshake, host| {
        let (first, own) = (make_sources(first, &handshake), handshake.clone());
        let backends = Backends::start(first, handshake, host, memory, settings);
        let backends = Arc::new(backends);
        let decorated = decorate(backends.clone(), &first_decorations, &first_log);
        let current = Arc::new(Current::new(decorated));
        // There is room for the one that there will be.
        let _ = made.try_send((backends, current.clone(), own));
        current
    });
    let speaker = Arc::new(speaker);
    let asked = speaker.clone();
    let server_of = move |target: &Target| Some(asked.bundle()?.origin_of(target)?.backend);
    let (to, mut lines) = mpsc::channel::<Bytes>(WAITING);
    let speaking = tokio::spawn(async move {
        while let Some(line) = lines.recv().await {
            speaker.receive(&line).await;
        }
        speaker.close().await;
    });
    let pending_leaves = common.pending_leaves.clone();
    tokio::spawn(async move {
        let Some((backends, current, handshake)) = is_made.recv().await else {
            return;
        };
        tokio::spawn(report(&common).follow(Arc::downgrade(&backends)));
        loop {
            match list.next().await {
                Edit::Servers(servers) => match list.decorations() {
                    Ok(now) => {
                        // Before the servers that they are for.
                        let are_others = now != decorations;
                        if are_others {
                            decorations = now;
                            current.set(decorate(backends.clone(), &decorations, &log));
                        }
                        let wanted = identities(&servers);
                        let mut said = None;
                        for (name, former) in &running {
                            let what = match wanted.get(name) {
                                Some(now) if now == former => continue,
                                Some(_) => "this server begins afresh: its entry was edited",
                                None => "this server is ended: its entry was removed",
                            };
                            let text = format!("{name}: {what}");
                            said = Some(common.stderr.print_within(SAID_WITHIN, &text));
                        }
                        // They are written one after the other.
                        if let Some(said) = said {
                            said.await;
                        }
                        backends.set_sources(sources(servers, &handshake), |name| {
                            running.get(name) == wanted.get(name)
                        });
                        running = wanted;
                        if are_others {
                            backends.tell_changed().await;
                        }
                    }
                    Err(why) => common
                        .stderr
                        .print(&format_args!("{why}; its servers stay as they are")),
                },
                Edit::Wrong(why) => common.stderr.print(&why),
            }
        }
    });
    let end = End::by_drop();
    let pipe = Pipe { to, from, end };
    let pipe = match is_modern {
        true => for_modern_host(pipe, Box::new(server_of)),
        false => pipe,
    };
    let driver = move |client| Driver::new(client, drive::policy(), named).telling(untold);
    let close = async {
        let _ = speaking.await;
        answers.flush().await;
    };
    match front
        .carry(pipe, driver, session_calls, close, pending_leaves)
        .await? {}
}
