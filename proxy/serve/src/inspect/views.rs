//! What the page gets to know of sessions: never a message, a value or the id of an event.

use mcp_sessiond_client::{Part, SessionId, SessionStatus, SessionView};
use mcp_sessiond_http_session::handshake::Handshake;
use mcp_sessiond_proto::debug::StreamInfo;
use mcp_sessiond_proto::{ServiceName, StreamId};
use serde::{Deserialize, Serialize};

use crate::live::LiveStatus;
use crate::settings::{Settings, Target};

/// Characters of a client's name or version that are shown.
const NAME_MAX: usize = 100;

/// What is served, where it is several servers.
const SERVERS: &str = "servers of servers.json";

/// The service's sessions, the newest first.
#[derive(Debug, Serialize)]
pub(super) struct SessionList {
    service: ServiceName,
    version: &'static str,
    /// The process that serves them.
    pid: u32,
    /// What is served: a server's display name, or a URL without its query.
    server: String,
    now_ms: u64,
    sessions: Vec<SessionRow>,
    /// How many of other callers are among those that were active last.
    others: usize,
    /// How many were active less recently.
    more: usize,
}

impl SessionList {
    pub(super) fn new(
        settings: &Settings,
        sessions: Vec<SessionRow>,
        others: usize,
        more: usize,
    ) -> Self {
        let server = match &settings.target {
            Target::Program(program) => program.display_name(),
            Target::Servers(_) => SERVERS.to_owned(),
            Target::Upstream(url) => url.to_string(),
        };
        let (service, version) = (settings.service.clone(), env!("CARGO_PKG_VERSION"));
        Self {
            service,
            version,
            pid: std::process::id(),
            server,
            now_ms: now_ms(),
            sessions,
            others,
            more,
        }
    }
}

/// A session.
#[derive(Debug, Serialize)]
pub(super) struct SessionRow {
    session: SessionId,
    status: &'static str,
    /// Its servers, where they are several: how each is.
    parts: Vec<Part>,
    client: Client,
    pub(super) created_ms: u64,
    active_ms: u64,
    /// Whether this process serves it.
    served: bool,
    streams: u32,
    events: u32,
    event_bytes: u64,
    /// Calls that are not answered, and streams that a client reads; null where this process does
    /// not serve the session.
    calls: Option<usize>,
    readers: Option<usize>,
    /// The server's pid.
    pid: Option<u32>,
}

impl SessionRow {
    pub(super) fn new(
        view: &SessionView,
        client: Client,
        now: Option<&LiveStatus>,
        pid: Option<u32>,
    ) -> Self {
        Self {
            session: view.session.clone(),
            status: match view.status {
                SessionStatus::Initializing => "initializing",
                SessionStatus::Ready { .. } => "ready",
                SessionStatus::Failed { .. } => "failed",
                SessionStatus::Terminated => "terminated",
            },
            parts: view.status.parts().to_vec(),
            client,
            created_ms: view.created_ms,
            active_ms: view.active_ms,
            served: now.is_some(),
            streams: view.streams,
            events: view.events,
            event_bytes: view.event_bytes,
            calls: now.map(|now| now.calls.iter().map(|(_, calls)| calls).sum()),
            readers: now.map(|now| now.readers.len()),
            pid,
        }
    }

    /// The same of a session that all requests of one caller share. None: this process does not
    /// serve it.
    pub(super) fn of_all(mut self, version: &str, requests: Option<usize>) -> Self {
        self.client.protocol = Some(version.to_owned());
        Self {
            served: requests.is_some(),
            calls: requests,
            ..self
        }
    }
}

/// Whether the caller may see a session.
#[derive(Debug, Clone)]
pub(super) enum Access {
    /// The caller's.
    Own(Client),
    /// Another caller's.
    Others,
}

impl Access {
    pub(super) fn of(handshake: &Handshake) -> Self {
        Self::Own(Client::of(handshake))
    }

    /// The caller's, as the daemon has it.
    pub(super) fn stored(view: &SessionView) -> Self {
        let record = view
            .metadata
            .as_ref()
            .and_then(|json| serde_json::from_str(json.as_str()).ok());
        Self::Own(record.as_ref().map(Client::of).unwrap_or_default())
    }
}

/// What a client has said of itself in the handshake.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Client {
    name: Option<String>,
    version: Option<String>,
    /// The version of MCP.
    protocol: Option<String>,
}

impl Client {
    fn of(handshake: &Handshake) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Params {
            client_info: Info,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Info {
            name: Option<String>,
            version: Option<String>,
        }
        let params: Params = serde_json::from_str(handshake.initialize.get()).unwrap_or_default();
        let Info { name, version } = params.client_info;
        Self {
            name: name.map(shorten),
            version: version.map(shorten),
            protocol: Some(shorten(handshake.version.clone())),
        }
    }
}

/// One session.
#[derive(Debug, Serialize)]
pub(super) struct SessionDetails {
    #[serde(flatten)]
    pub(super) row: SessionRow,
    pub(super) streams: Vec<Stream>,
    pub(super) server: Option<Server>,
}

/// A stream.
#[derive(Debug, Serialize)]
pub(super) struct Stream {
    stream: StreamId,
    state: &'static str,
    last_position: u64,
    events: u32,
    bytes: u64,
    /// As in a session.
    calls: Option<usize>,
    reader: Option<bool>,
}

impl Stream {
    pub(super) fn new(info: StreamInfo, now: Option<&LiveStatus>) -> Self {
        let StreamInfo {
            stream,
            closed,
            orphaned,
            last_position,
            events,
            bytes,
        } = info;
        let state = match (closed, orphaned) {
            (true, true) => "closed, orphan",
            (true, false) => "closed",
            (false, true) => "orphan",
            (false, false) => "open",
        };
        let calls = now.map(|now| {
            now.calls
                .iter()
                .find(|(of, _)| *of == stream)
                .map_or(0, |(_, calls)| *calls)
        });
        let reader = now.map(|now| now.readers.contains(&stream));
        Self {
            stream,
            state,
            last_position,
            events,
            bytes,
            calls,
            reader,
        }
    }
}

/// The server of a session, as `mcp-sessiond status` shows it.
#[derive(Debug, Default, Serialize)]
pub(super) struct Server {
    pub(super) server: String,
    pub(super) pid: Option<u32>,
    pub(super) keeper_pid: Option<u32>,
    /// null: its keeper alone would know, and there is none.
    pub(super) state: Option<&'static str>,
    pub(super) age_ms: Option<u64>,
    /// How often it was started again since this process serves the session; null where it does
    /// not.
    pub(super) restarts: Option<u32>,
    /// With all that it has started, in bytes.
    pub(super) memory: Option<u64>,
    pub(super) last_error: Option<String>,
    /// Calls that it has not answered.
    pub(super) calls: Vec<Call>,
}

/// A call.
#[derive(Debug, Serialize)]
pub(super) struct Call {
    pub(super) method: String,
    pub(super) age_ms: u64,
}

/// Now, in ms since the Unix epoch.
pub(super) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The beginning of a text.
pub(super) fn shorten(text: String) -> String {
    match text.char_indices().nth(NAME_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
