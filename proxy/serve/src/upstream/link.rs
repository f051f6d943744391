//! What all requests to one session's server have in common.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use mcp_sessiond_client::StreamId;
use mcp_sessiond_jsonrpc::id::normal;
use mcp_sessiond_relay::verdict::{SessionState, Verdict};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::ledger::{Known, Ledger};
use super::numbers::{Numbers, base};
use super::wire::{Connected, Refused, Reply, Stamp, connect};
use crate::messages::{Id, parts};
use crate::url::Url;

/// Lines that wait to be kept. Until there is room, the server is not read from.
pub(super) const WAITING_MAX: usize = 64;

/// A request of `serve` itself, which asks whether the server knows the session.
const PING: &str = r#"{"jsonrpc":"2.0","id":"mcp-sessiond-serve-ping","method":"ping"}"#;
/// Its id.
const PING_ID: &str = r#""mcp-sessiond-serve-ping""#;
/// How long its answer may take.
const PING_WAIT: Duration = Duration::from_secs(5);
/// The server's streams of which it is known what they carry.
const CARRIED_MAX: usize = 4_096;

/// What a refusal by the server means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Its body answers the call.
    Answer,
    /// The request is refused.
    Refused,
    /// The request is refused, and whether the server knows the session it does not say now.
    Unclear,
    /// The server does not know the session, and has not begun the request.
    Gone,
}

/// What all requests to one session's server have in common.
#[derive(Debug)]
pub(super) struct Link {
    /// Where it is.
    pub(super) url: Url,
    /// How long a request waits for a server that can't be reached.
    pub(super) hold: Duration,
    /// What is on record.
    pub(super) ledger: Ledger,
    /// One handshake at a time.
    pub(super) initializing: tokio::sync::Mutex<()>,
    /// The last `ping` that has asked whether the server knows a session: when it began, of which
    /// session, and what it has shown.
    checked: tokio::sync::Mutex<Option<(Instant, Stamp, SessionState)>>,
    /// Sessions that the server has had for ours.
    generation: watch::Sender<u64>,
    lines: mpsc::Sender<(u64, Bytes)>,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    known: Known,
    /// The parameters of `initialize`.
    initialize: Option<Box<RawValue>>,
    streams: u64,
    open: HashMap<u64, Open>,
    /// The client's stream for each of the server's.
    carried: BTreeMap<u64, StreamId>,
    /// Whether the server answers by 404 in a session that lives.
    answers_by_404: bool,
}

/// An open request, and what carries it out.
#[derive(Debug)]
struct Open {
    calls: Vec<Id>,
    task: Option<AbortHandle>,
}

/// A session that the server has begun for ours.
#[derive(Debug)]
pub(super) struct NewSession {
    /// The id that the server has given it, if it has.
    pub(super) id: Option<String>,
    /// The version of MCP that the server has chosen.
    pub(super) version: Option<String>,
    /// Whether the server numbers its events.
    pub(super) numbers: bool,
    /// What the server can do.
    pub(super) capabilities: Value,
}

impl NewSession {
    /// What a request in it says of its session.
    pub(super) fn stamp(&self) -> Stamp {
        Stamp::of(self.id.as_deref(), self.version.as_deref())
    }
}

impl Link {
    /// To this server, which says its lines there.
    pub(super) fn new(
        url: Url,
        hold: Duration,
        ledger: Ledger,
        known: Known,
        initialize: Option<Box<RawValue>>,
        lines: mpsc::Sender<(u64, Bytes)>,
    ) -> Self {
        let now = Now {
            known,
            initialize,
            streams: 0,
            open: HashMap::new(),
            carried: BTreeMap::new(),
            answers_by_404: false,
        };
        let (initializing, generation) = (tokio::sync::Mutex::new(()), watch::Sender::new(0));
        Self {
            url,
            hold,
            ledger,
            initializing,
            checked: tokio::sync::Mutex::default(),
            generation,
            lines,
            now: Mutex::new(now),
        }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a request has to say of its session, and how many sessions there were before that.
    pub(super) fn stamp(&self) -> (Stamp, u64) {
        let now = self.now();
        let stamp = Stamp::of(now.known.session.as_deref(), now.known.version.as_deref());
        (stamp, *self.generation.borrow())
    }

    /// Waits until the server has another session for ours than this one.
    pub(super) async fn is_renewed(&self, generation: u64) {
        // The sender lives as long as this does.
        drop(
            self.generation
                .subscribe()
                .wait_for(|now| *now != generation)
                .await,
        );
    }

    /// The parameters of `initialize`, once they are known.
    pub(super) fn initialize(&self) -> Option<Box<RawValue>> {
        self.now().initialize.clone()
    }

    /// The client has said `initialize` with these.
    pub(super) fn initialized_by(&self, params: Box<RawValue>) {
        self.now().initialize = Some(params);
    }

    /// The server has a new session for ours, and has got `notifications/initialized` in it, or
    /// not. It is on record when this returns.
    pub(super) async fn has_session(&self, session: NewSession, ready: bool) {
        let NewSession {
            id,
            version,
            numbers,
            ..
        } = session;
        let known = Known {
            session: id,
            version,
            numbers,
            ready,
            ..self.now().known.clone()
        };
        self.ledger.know(&known).await;
        let mut now = self.now();
        now.known = known;
        self.generation.send_modify(|generation| *generation += 1);
    }

    /// Whether the server can be asked for what follows on an event.
    pub(super) fn numbers_events(&self) -> bool {
        self.now().known.numbers
    }

    /// Whether the server has got `notifications/initialized`.
    pub(super) fn knows_ready(&self) -> bool {
        self.now().known.ready
    }

    /// The server has got `notifications/initialized`.
    pub(super) async fn is_ready(&self) {
        let known = {
            let mut now = self.now();
            now.known.ready = true;
            now.known.clone()
        };
        self.ledger.know(&known).await;
    }

    /// The standalone stream's numbers.
    pub(super) fn standalone(&self) -> Numbers {
        Numbers::of(self.now().known.process, 0)
    }

    /// Numbers for another stream.
    pub(super) fn numbers(&self) -> Numbers {
        let mut now = self.now();
        now.streams += 1;
        Numbers::of(now.known.process, now.streams)
    }

    /// These calls are open.
    pub(super) fn open(&self, stream: u64, calls: Vec<Id>) {
        let mut now = self.now();
        let carried = calls.first().and_then(|id| parts(id));
        if let Some(carried) = carried.and_then(|(stream, _)| stream.parse().ok()) {
            now.carried.insert(stream, carried);
            if now.carried.len() > CARRIED_MAX {
                now.carried.pop_first();
            }
        }
        now.open.insert(stream, Open { calls, task: None });
    }

    /// The client's stream for what the server has said under this number.
    pub(super) fn carried(&self, number: u64) -> Option<StreamId> {
        let now = self.now();
        let of = base(number);
        if of == Numbers::of(now.known.process, 0).base() {
            return Some(StreamId::standalone());
        }
        now.carried.get(&of).cloned()
    }

    /// What this refusal of a request in this session means. `id`: of the call that the request was,
    /// if it was one.
    pub(super) async fn judge(&self, why: &Refused, id: Option<&str>, stamp: &Stamp) -> Judgement {
        let refusal = why.refusal();
        let known = self.now().answers_by_404;
        let verdict = match refusal.verdict(id, known) {
            Verdict::Suspected => match self.state_of(stamp).await {
                SessionState::Gone => return Judgement::Gone,
                SessionState::Unclear if id.is_none() => return Judgement::Unclear,
                state => {
                    let verdict = refusal.about_the_request(id);
                    if verdict == Verdict::Answer && state == SessionState::Alive {
                        self.now().answers_by_404 |= why.status == StatusCode::NOT_FOUND;
                    }
                    verdict
                }
            },
            verdict => verdict,
        };
        match verdict {
            Verdict::Answer => Judgement::Answer,
            Verdict::Refused | Verdict::Suspected => Judgement::Refused,
        }
    }

    /// Asks the server whether it knows a session. One `ping` serves all that wait when it begins.
    async fn state_of(&self, stamp: &Stamp) -> SessionState {
        let came = Instant::now();
        let mut checked = self.checked.lock().await;
        if let Some((began, of, state)) = &*checked
            && *began >= came
            && of == stamp
        {
            return *state;
        }
        let began = Instant::now();
        let asked = async {
            let connected = connect(&self.url, Duration::ZERO).await.ok()?;
            Some(connected.post(PING.into(), stamp).await.ok()?.reply)
        };
        let state = match timeout(PING_WAIT, asked).await.ok().flatten() {
            Some(Reply::Refused(why)) => why.refusal().of_ping(PING_ID),
            Some(Reply::Taken(_) | Reply::Message(_) | Reply::Events(_)) => SessionState::Alive,
            None => SessionState::Unclear,
        };
        *checked = Some((began, stamp.clone(), state));
        state
    }

    /// This carries them out.
    pub(super) fn set_task(&self, stream: u64, task: AbortHandle) {
        if let Some(open) = self.now().open.get_mut(&stream) {
            open.task = Some(task);
        }
    }

    /// The calls of a stream that were not answered.
    pub(super) fn unanswered(&self, stream: u64) -> Vec<Id> {
        self.now()
            .open
            .get(&stream)
            .map(|open| open.calls.clone())
            .unwrap_or_default()
    }

    /// A call of the stream was answered. Whether it was the last one.
    pub(super) fn answered(&self, stream: u64, id: &str) -> bool {
        let mut now = self.now();
        let Some(open) = now.open.get_mut(&stream) else {
            return false;
        };
        open.calls.retain(|call| normal(call) != normal(id));
        let is_over = open.calls.is_empty();
        if is_over {
            now.open.remove(&stream);
        }
        is_over
    }

    /// Nobody waits for the answer to this call any more: a server may never answer it.
    pub(super) fn cancelled(&self, id: &str) {
        let mut now = self.now();
        let is_it = |open: &Open| open.calls.iter().any(|call| normal(call) == normal(id));
        let Some(stream) = now
            .open
            .iter()
            .find_map(|(stream, open)| is_it(open).then_some(*stream))
        else {
            return;
        };
        let Some(open) = now.open.get_mut(&stream) else {
            return;
        };
        open.calls.retain(|call| normal(call) != normal(id));
        if open.calls.is_empty() {
            if let Some(task) = now.open.remove(&stream).and_then(|open| open.task) {
                task.abort();
            }
            drop(now);
            self.ledger.over(stream);
        }
    }

    /// Hands on a line, once there is room for it.
    pub(super) async fn emit(&self, number: u64, line: impl Into<Bytes>) {
        // Whoever does not listen any more has ended the session.
        let _ = self.lines.send((number, line.into())).await;
    }

    /// Connects, as soon as the server can be reached.
    ///
    /// # Errors
    /// Where it can't be for as long as a request may wait.
    pub(super) async fn connect(&self) -> io::Result<Connected> {
        connect(&self.url, self.hold).await
    }
}
