//! A server that speaks Streamable HTTP itself, and forgets its sessions when it restarts.
//!
//! No keeper holds the server. Before `serve` passes a message on, the daemon has stored, in the
//! session's state, what the next process needs to fetch the rest of each call. If the server has
//! forgotten the session, `serve` repeats the recorded handshake to it, and answers the calls that
//! were open "outcome unknown".
//!
//! - `wire.rs`: requests to it.
//! - `link.rs`: what all requests of one session share. `calls.rs`: requests that want an answer.
//!   `initialize.rs`: the handshake. `listen.rs`: the standalone stream.
//! - [`forward`]: requests of MCP 2026-07-28, which are passed on.
//! - `ledger.rs`: what is stored. `numbers.rs`: how a message is recognised that the server
//!   repeats.

mod calls;
pub mod forward;
mod initialize;
mod ledger;
mod link;
mod listen;
mod numbers;
mod wire;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use mcp_sessiond_client::{RequestId, Session, StreamId};
use mcp_sessiond_jsonrpc::id::normal;
use mcp_sessiond_proxy::server::service::{NotLeased, Options, Service};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::calls::Stream;
use self::ledger::{Found, Known, Ledger, StreamCursor};
use self::link::{Judgement, Link, WAITING_MAX};
use self::numbers::base;
use self::wire::{Reply, connect};
use crate::backend::{Backend, Backends, Ended};
use crate::keeper_backend::claim;
use crate::messages::{Id, Posted, PostedKind, answering, asked_by, not_started, read_post};
use crate::record::Record;
use crate::refusal::{Refusal, no_server};
use crate::settings::Settings;
use crate::url::Url;

/// The server has ended, and has not got the line.
const NOT_SENT: Ended = Ended {
    may_have_arrived: false,
};

/// How long a server may take to take a notification, or an answer to a request of its own.
const TELL_WAIT: Duration = Duration::from_secs(30);

/// How long the end of a session may take to be told.
const END_WAIT: Duration = Duration::from_secs(2);

/// The sessions of one server.
#[derive(Debug)]
pub struct Upstreams {
    /// Held, so that no other process serves the name.
    service: Service,
    url: Url,
    hold: Duration,
}

impl Upstreams {
    /// Takes the right to serve the name.
    ///
    /// # Errors
    /// Where another process has it, or there is no daemon.
    pub async fn of(settings: &Settings, url: Url) -> Result<Self, NotLeased> {
        let control = mcp_sessiond_client::Options::default().start(settings.start.clone());
        let options = Options {
            control: Some(control),
            ..Options::default()
        };
        let service = Service::lease(settings.service.clone(), options).await?;
        Ok(Self {
            service,
            url,
            hold: settings.hold,
        })
    }
}

impl Backends for Upstreams {
    fn backend<'a>(
        &'a self,
        session: &'a Session,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>, Refusal>> {
        async move {
            // The name is leased again, too, if the daemon has lost its records.
            claim(&self.service, session).await?;
            let ledger = Ledger::of(session.clone());
            let backend = match ledger.find().await? {
                Some(found) if found.known.url == self.url.to_string() => {
                    self.go_on(session, ledger, found).await?
                }
                found => {
                    // What is stored belongs to a session of another server.
                    for (stream, place) in found.into_iter().flat_map(|found| found.places) {
                        ledger.found(stream, place);
                        ledger.over(stream);
                    }
                    self.begin(ledger).await?
                }
            };
            let backend: Arc<dyn Backend> = Arc::new(backend);
            Ok(backend)
        }
        .boxed()
    }

    fn claim<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<(), Refusal>> {
        claim(&self.service, session).boxed()
    }
}

impl Upstreams {
    /// For a session that the server does not know.
    async fn begin(&self, ledger: Ledger) -> Result<Upstream, Refusal> {
        // A wrong URL is told by the first request.
        let connected = connect(&self.url, self.hold).await;
        connected
            .map_err(|error| no_server(format_args!("{} can't be reached: {error}", self.url)))?;
        let incarnation = RequestId::mint().to_string();
        let known = Known {
            url: self.url.to_string(),
            incarnation,
            process: 1,
            session: None,
            version: None,
            numbers: false,
            ready: false,
        };
        Ok(self.upstream(ledger, known, None, false, Vec::new()))
    }

    /// For a session that another process has served.
    async fn go_on(
        &self,
        session: &Session,
        ledger: Ledger,
        found: Found,
    ) -> Result<Upstream, Refusal> {
        let Found { mut known, places } = found;
        known.process = known.process.wrapping_add(1);
        if !ledger.know(&known).await {
            return Err(Refusal::for_now(
                "the daemon does not store what is known of the server",
            ));
        }
        let record = Record::of(session, &session.view().await?).await?;
        let initialize = record.map(|record| record.initialize);
        let open = places
            .iter()
            .flat_map(|(_, place)| place.calls.iter().map(|id| normal(id)))
            .collect();
        let upstream = self.upstream(ledger, known, initialize, true, open);
        let mut standalone = None;
        for (stream, place) in places {
            upstream.link.ledger.found(stream, place.clone());
            if place.calls.is_empty() {
                standalone = Some(place);
            } else {
                upstream.go_on(place);
            }
        }
        upstream.listen(standalone);
        Ok(upstream)
    }

    fn upstream(
        &self,
        ledger: Ledger,
        known: Known,
        initialize: Option<Box<serde_json::value::RawValue>>,
        continues: bool,
        open: Vec<Id>,
    ) -> Upstream {
        let (sender, lines) = mpsc::channel(WAITING_MAX);
        let incarnation = known.incarnation.clone();
        let link = Link::new(
            self.url.clone(),
            self.hold,
            ledger,
            known,
            initialize,
            sender,
        );
        Upstream {
            link: Arc::new(link),
            lines: tokio::sync::Mutex::new(lines),
            tasks: Mutex::default(),
            has_ended: watch::Sender::new(false),
            listens: Mutex::new(false),
            incarnation,
            continues,
            open,
        }
    }
}

/// One session of the server's.
#[derive(Debug)]
struct Upstream {
    link: Arc<Link>,
    lines: tokio::sync::Mutex<mpsc::Receiver<(u64, Bytes)>>,
    /// They end when this is dropped.
    tasks: Mutex<JoinSet<()>>,
    has_ended: watch::Sender<bool>,
    listens: Mutex<bool>,
    incarnation: String,
    continues: bool,
    open: Vec<Id>,
}

impl Upstream {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> tokio::task::AbortHandle {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task)
    }

    /// Goes on with calls that another process has made.
    fn go_on(&self, place: StreamCursor) {
        let (link, stream) = (self.link.clone(), base(place.number));
        self.link.open(stream, place.calls.clone());
        let task = self.spawn(async move { link.go_on(place).await });
        self.link.set_task(stream, task);
    }

    /// Listens to what belongs to no call.
    fn listen(&self, found: Option<StreamCursor>) {
        let link = self.link.clone();
        let mut listens = self.listens.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *listens, true) {
            self.spawn(async move { link.listen(found).await });
        }
    }

    /// Makes calls. Returns when they are about to be made, or can't be.
    async fn call(&self, calls: Vec<Id>, line: Bytes) {
        let stream = Stream::new(self.link.numbers());
        let id = stream.id();
        let place = StreamCursor {
            calls: calls.clone(),
            number: id,
            ..StreamCursor::default()
        };
        let is_on_record = self.link.ledger.place(id, place).await;
        self.link.open(id, calls);
        if !is_on_record {
            return self.link.give_up(stream, not_started).await;
        }
        let (link, (begun, begins)) = (self.link.clone(), oneshot::channel());
        let task = self.spawn(async move { link.call(stream, line, begun).await });
        self.link.set_task(id, task);
        // It is dropped, and that is the word.
        drop(begins.await);
    }

    /// Says what wants no answer.
    async fn tell(&self, line: Bytes, is_worth_repeating: bool) -> Result<(), Ended> {
        loop {
            let (stamp, generation) = self.link.stamp();
            let connected = self.link.connect().await.map_err(|_| NOT_SENT)?;
            let replied = timeout(TELL_WAIT, connected.post(line.clone(), &stamp)).await;
            let replied = replied.ok().and_then(Result::ok).ok_or(Ended {
                may_have_arrived: true,
            })?;
            let Reply::Refused(why) = replied.reply else {
                return Ok(());
            };
            if self.link.judge(&why, None, &stamp).await != Judgement::Gone {
                return Ok(());
            }
            let renewed = self.link.renew(generation).await;
            if let Err(sentence) = renewed {
                crate::stderr::warn(sentence);
                return Err(NOT_SENT);
            }
            // Another session of the server's has no such call, and has asked for nothing.
            if !is_worth_repeating {
                return Ok(());
            }
        }
    }

    async fn pass(&self, line: Bytes) -> Result<(), Ended> {
        let (messages, _) = read_post(&line).map_err(|_| NOT_SENT)?;
        let mut calls = Vec::new();
        for Posted { kind, .. } in &messages {
            match kind {
                PostedKind::Call(call) => calls.push(call.clone()),
                PostedKind::Initialize(id, params) => {
                    self.link.initialized_by(params.clone());
                    let (link, id) = (self.link.clone(), id.clone());
                    self.spawn(async move { link.begin(id, line).await });
                    return Ok(());
                }
                _ => {}
            }
        }
        if !calls.is_empty() {
            self.call(calls, line).await;
            return Ok(());
        }
        // Each process that takes the session up sends it.
        let is_ready = |posted: &Posted| matches!(posted.kind, PostedKind::Initialized);
        if self.link.knows_ready() && messages.iter().all(is_ready) {
            return Ok(());
        }
        let mut line = line;
        if let [
            Posted {
                kind: PostedKind::Answer(id) | PostedKind::Progress(id),
                ..
            },
        ] = &messages[..]
        {
            // A session that the server has forgotten has asked for it, perhaps.
            let Some(asked) = asked_by(&self.link.stamp().0.tag(), id) else {
                return Ok(());
            };
            line = answering(&line, &asked);
        }
        let mut is_worth_repeating = true;
        for Posted { kind, .. } in &messages {
            is_worth_repeating &= !matches!(kind, PostedKind::Answer(_) | PostedKind::Cancelled(_));
        }
        self.tell(line, is_worth_repeating).await?;
        for Posted { kind, .. } in messages {
            match kind {
                PostedKind::Cancelled(id) => self.link.cancelled(&id),
                PostedKind::Initialized => {
                    self.link.is_ready().await;
                    self.listen(None);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Backend for Upstream {
    fn send(&self, line: Bytes) -> BoxFuture<'_, Result<(), Ended>> {
        async {
            if *self.has_ended.borrow() {
                return Err(NOT_SENT);
            }
            self.pass(line).await
        }
        .boxed()
    }

    fn next(&self) -> BoxFuture<'_, Option<(u64, Bytes)>> {
        async {
            let mut lines = self.lines.lock().await;
            let mut ends = self.has_ended.subscribe();
            tokio::select! {
                line = lines.recv() => line,
                _ = ends.wait_for(|has_ended| *has_ended) => None,
            }
        }
        .boxed()
    }

    fn stream(&self, number: u64) -> Option<StreamId> {
        self.link.carried(number)
    }

    fn confirm(&self, number: u64) {
        self.link.ledger.confirmed(number);
    }

    fn open_calls(&self) -> BoxFuture<'_, Result<Vec<Id>, Ended>> {
        async { Ok(self.open.clone()) }.boxed()
    }

    fn end(&self) -> BoxFuture<'_, ()> {
        async {
            if self.has_ended.send_replace(true) {
                return;
            }
            self.tasks
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .abort_all();
            let (stamp, _) = self.link.stamp();
            if stamp.session.is_none() {
                return;
            }
            let told = async {
                if let Ok(connected) = connect(&self.link.url, Duration::ZERO).await {
                    drop(connected.delete(&stamp).await);
                }
            };
            // It finds out by itself, sooner or later.
            drop(timeout(END_WAIT, told).await);
        }
        .boxed()
    }

    fn incarnation(&self) -> &str {
        &self.incarnation
    }

    fn continues(&self) -> bool {
        self.continues
    }

    fn outlasts(&self) -> bool {
        self.link.numbers_events()
    }
}
