//! What becomes of each message between a bundle, which speaks MCP 2025-11-25, and a server that may
//! speak 2026-07-28 alone. It is asked by `initialize` first: one that speaks both is then one of
//! 2025-11-25, and nothing of it is changed. One that refuses that is asked by `server/discover`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::error::RpcError;
use mcp_sessiond_jsonrpc::object::{Object, raw};
use mcp_sessiond_jsonrpc::owned::{Id, Message, Outcome};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::between::{Out, Translation};
use super::calls::{ModernServer, early};
use super::{OWN, VERSION, answer, meta, one, with_envelope};

/// How long a server that has refused `initialize` may take to answer `server/discover`. One of the
/// later era has nothing else to do.
const DISCOVER_WAIT: Duration = Duration::from_secs(5);

/// What is between a bundle and a server.
pub(super) struct ServerTranslation {
    phase: Phase,
    /// Whether the server is asked by `server/discover` first: one of its kind has ended on an
    /// `initialize`.
    discovers: Arc<AtomicBool>,
}

enum Phase {
    /// The bundle has not begun.
    Waiting,
    /// The server has got the bundle's `initialize`.
    Initializing(Handshake),
    /// The server is asked by `server/discover`.
    Discovering {
        handshake: Handshake,
        /// What it has answered to `initialize`. None: it has not got that.
        refusal: Option<RpcError>,
        /// None: for as long as the bundle waits. It may have to be started first.
        until: Option<Instant>,
        /// What the bundle has said meanwhile.
        held: Vec<Bytes>,
    },
    /// It speaks 2025-11-25, as the bundle does.
    Older,
    /// It speaks 2026-07-28.
    Modern(Box<ModernServer>),
}

/// The bundle's `initialize`.
#[derive(Clone)]
struct Handshake {
    id: Id,
    params: Option<Box<RawValue>>,
}

impl Translation for ServerTranslation {
    fn deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Discovering { until, .. } => *until,
            Phase::Modern(modern) => modern.deadline(),
            _ => None,
        }
    }

    fn on_host(&mut self, line: Bytes, now: Instant) -> Vec<Out> {
        match &mut self.phase {
            Phase::Waiting => {
                let Some(handshake) = Handshake::of(&line) else {
                    return vec![Out::Server(line)];
                };
                if self.discovers.load(Ordering::Relaxed) {
                    return self.discover(handshake, None, now);
                }
                self.phase = Phase::Initializing(handshake);
                vec![Out::Server(line)]
            }
            Phase::Initializing(_) | Phase::Older => vec![Out::Server(line)],
            Phase::Discovering { held, .. } => {
                held.push(line);
                Vec::new()
            }
            Phase::Modern(modern) => modern.on_host(&line, now),
        }
    }

    fn on_server(&mut self, line: Bytes, now: Instant) -> Vec<Out> {
        match &mut self.phase {
            Phase::Older => vec![Out::Host(line)],
            Phase::Waiting => vec![early(line)],
            Phase::Initializing(handshake) => {
                let Some(outcome) = answer_to(&handshake.id, &line) else {
                    return vec![early(line)];
                };
                match outcome {
                    Err(error) if !error.is_not_the_servers() => {
                        let handshake = handshake.clone();
                        self.discover(handshake, Some(error), now)
                    }
                    _ => {
                        self.phase = Phase::Older;
                        vec![Out::Host(line)]
                    }
                }
            }
            Phase::Discovering { .. } => match answer_to(&discover_id(), &line) {
                Some(outcome) => self.discovered(outcome.ok().as_deref(), now),
                None => vec![early(line)],
            },
            Phase::Modern(modern) => modern.on_server(line, now),
        }
    }

    fn on_time(&mut self, now: Instant) -> Vec<Out> {
        match &mut self.phase {
            Phase::Discovering { until, .. } if until.is_some_and(|until| until <= now) => {
                self.discovered(None, now)
            }
            Phase::Modern(modern) => modern.on_time(now),
            _ => Vec::new(),
        }
    }

    fn on_server_end(&mut self) -> Vec<Out> {
        match &self.phase {
            // It has said why.
            Phase::Discovering {
                handshake,
                refusal: Some(refusal),
                ..
            } => vec![answer(&handshake.id, Err(refusal.clone()))],
            Phase::Initializing(_) | Phase::Discovering { .. } => {
                // It may end on what it was asked by; the next one is asked by the other.
                self.discovers.fetch_not(Ordering::Relaxed);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }
}

impl ServerTranslation {
    /// For a server of either era. `discovers`: whether it is asked by `server/discover` first; the next
    /// one of its kind is asked by the other where it has ended on what it was asked by.
    pub(super) fn new(discovers: Arc<AtomicBool>) -> Self {
        let phase = Phase::Waiting;
        Self { phase, discovers }
    }

    fn discover(
        &mut self,
        handshake: Handshake,
        refusal: Option<RpcError>,
        now: Instant,
    ) -> Vec<Out> {
        let mut params = Object::default();
        with_envelope(&mut params, &handshake.envelope());
        // An error of this code may be its keeper's: it has ended, and is started again for this.
        let is_its_own = refusal
            .as_ref()
            .is_some_and(|refusal| refusal.code != code::CONNECTION);
        self.phase = Phase::Discovering {
            handshake,
            refusal,
            until: is_its_own.then(|| now + DISCOVER_WAIT),
            held: Vec::new(),
        };
        let asked = Message::Request {
            id: discover_id(),
            method: "server/discover".to_owned(),
            params: Some(params.write()),
        };
        vec![Out::Server(asked.write())]
    }

    /// The server has answered `server/discover`. None: with an error, or not in time.
    fn discovered(&mut self, result: Option<&RawValue>, now: Instant) -> Vec<Out> {
        let former = std::mem::replace(&mut self.phase, Phase::Older);
        let Phase::Discovering {
            handshake,
            refusal,
            held,
            ..
        } = former
        else {
            self.phase = former;
            return Vec::new();
        };
        let result = result.and_then(Object::read);
        let mut out = Vec::new();
        match (result.filter(is_modern), refusal) {
            (Some(result), _) => {
                out.push(answer(&handshake.id, Ok(handshake.result(&result))));
                let capabilities = result.object("capabilities").unwrap_or_default();
                let server = ModernServer::new(handshake.envelope(), &capabilities);
                self.phase = Phase::Modern(Box::new(server));
            }
            // What it has said of itself.
            (None, Some(refusal)) => out.push(answer(&handshake.id, Err(refusal))),
            (None, None) => {
                out.push(Out::Server(handshake.line()));
                self.phase = Phase::Initializing(handshake);
            }
        }
        for line in held {
            out.extend(self.on_host(line, now));
        }
        out
    }
}

impl Handshake {
    fn of(line: &[u8]) -> Option<Self> {
        match one(line)? {
            Message::Request { id, method, params } if method == "initialize" => {
                Some(Self { id, params })
            }
            _ => None,
        }
    }

    fn line(&self) -> Bytes {
        let Self { id, params } = self.clone();
        let method = "initialize".to_owned();
        Message::Request { id, method, params }.write()
    }

    fn params(&self) -> Object {
        let params = self.params.as_deref().and_then(Object::read);
        params.unwrap_or_default()
    }

    /// What each request says in `_meta`.
    fn envelope(&self) -> Vec<(&'static str, Box<RawValue>)> {
        let params = self.params();
        let mut capabilities = params.object("capabilities").unwrap_or_default();
        // Tasks are another thing in each era.
        capabilities.remove("tasks");
        let client = params.get("clientInfo").map(ToOwned::to_owned);
        let known = [
            (meta::VERSION, raw(VERSION)),
            (meta::CAPABILITIES, capabilities.write()),
        ];
        let client = client.map(|client| (meta::CLIENT, client));
        known.into_iter().chain(client).collect()
    }

    /// What the server would have answered to `initialize`.
    fn result(&self, discovered: &Object) -> Box<RawValue> {
        let mut result = Object::default();
        let version = self.params().text("protocolVersion").unwrap_or_default();
        result.set_text("protocolVersion", &version);
        let capabilities = discovered.object("capabilities").unwrap_or_default();
        result.set("capabilities", capabilities.write());
        let meta = discovered.object("_meta").unwrap_or_default();
        let server = meta.get(meta::SERVER).or(discovered.get("serverInfo"));
        let nameless = || raw(&serde_json::json!({"name": "", "version": ""}));
        result.set(
            "serverInfo",
            server.map_or_else(nameless, ToOwned::to_owned),
        );
        if let Some(instructions) = discovered.get("instructions") {
            result.set("instructions", instructions.to_owned());
        }
        result.write()
    }
}

/// Whether a server that has answered `server/discover` speaks the version that we do.
fn is_modern(result: &Object) -> bool {
    let versions = result.array("supportedVersions").unwrap_or_default();
    let own = raw(VERSION);
    versions.iter().any(|version| version.get() == own.get())
}

fn discover_id() -> Id {
    Id::text(&format!("{OWN}discover"))
}

fn answer_to(id: &Id, line: &[u8]) -> Option<Outcome> {
    match one(line)? {
        Message::Answer { id: of, outcome } if of == *id => Some(outcome),
        _ => None,
    }
}
