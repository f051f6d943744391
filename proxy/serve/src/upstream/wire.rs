//! Requests to the server: one connection for each, so that a request is known not to have begun
//! where none could be made.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::future::AbortHandle;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{
    ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use mcp_sessiond_client::tower::SESSION_HEADER as SESSION;
use mcp_sessiond_relay::sse::{EVENT_MAX, Event, Parser};
use mcp_sessiond_relay::verdict::{Refusal, said, without_secrets};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::url::Url;

/// How long one attempt to connect may take.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// The pause before another attempt.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of a refusal that are read.
const REFUSAL_MAX: usize = 64 * 1024;
/// How long a refusal may take to be read.
const REFUSAL_WAIT: Duration = Duration::from_secs(5);

const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// What a request says of its session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The id that the server has given it, if it has.
    pub(super) session: Option<HeaderValue>,
    /// The version of MCP that was agreed on; none before that.
    pub(super) version: Option<HeaderValue>,
}

impl Stamp {
    /// Of a session with this id, and this version of MCP.
    pub(super) fn of(session: Option<&str>, version: Option<&str>) -> Self {
        let header = |text: Option<&str>| HeaderValue::from_str(text?).ok();
        Self {
            session: header(session),
            version: header(version),
        }
    }

    /// Tells the server's session from others that it has had for ours. It tells nothing of the id.
    pub(super) fn tag(&self) -> String {
        let id = self
            .session
            .as_ref()
            .map(HeaderValue::as_bytes)
            .unwrap_or_default();
        let digest = mcp_sessiond_process::digest("mcp-sessiond serve upstream", id);
        digest
            .iter()
            .take(TAG_LEN)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// A connection on which nothing was said yet.
#[derive(Debug)]
pub(super) struct Connected {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
    path: String,
    connection: Connection,
}

/// A connection, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// After how many seconds of silence a connection is probed, how many seconds later again, and how
/// often before it counts as broken.
#[cfg(target_os = "linux")]
const PROBE_AFTER: u32 = 30;
#[cfg(target_os = "linux")]
const PROBE_EACH: u32 = 10;
#[cfg(target_os = "linux")]
const PROBES: u32 = 3;

/// Bytes of the digest that stands for a session of the server.
const TAG_LEN: usize = 6;

/// What the server has answered.
#[derive(Debug)]
pub(super) enum Reply {
    /// It was taken, and there is nothing to say; or what there is, is no message.
    Taken(Taken),
    /// A message, or a batch.
    Message(Bytes),
    /// Events.
    Events(Events),
    /// It was not taken.
    Refused(Refused),
}

/// How a request was taken that is not answered.
#[derive(Debug)]
pub(super) struct Taken {
    status: StatusCode,
    kind: String,
}

impl Taken {
    /// What a call gets that is answered so.
    pub(super) fn sentence(&self) -> String {
        let Self { status, kind } = self;
        let of = if kind.is_empty() {
            "without a body".to_owned()
        } else {
            format!("with `{kind}`")
        };
        let page = if kind == "text/html" {
            ", as a login page does"
        } else {
            ""
        };
        format!(
            "the server has answered this call by HTTP {status} {of}{page}, which is not an answer of MCP: its outcome is unknown"
        )
    }
}

/// Why a request was not taken.
#[derive(Debug)]
pub(super) struct Refused {
    /// The status.
    pub(super) status: StatusCode,
    /// What the server says.
    pub(super) body: Bytes,
    in_session: bool,
    has_challenge: bool,
    /// Where it has moved to, without what may be secret.
    location: Option<String>,
    retry_after: Option<String>,
}

impl Refused {
    /// For the verdict.
    pub(super) fn refusal(&self) -> Refusal<'_> {
        Refusal {
            status: self.status.as_u16(),
            in_session: self.in_session,
            has_challenge: self.has_challenge,
            body: &self.body,
        }
    }

    /// What a call gets that is refused so.
    pub(super) fn sentence(&self) -> String {
        let mut sentence = format!("the server has refused this call with HTTP {}", self.status);
        if let Some(said) = said(&self.body) {
            sentence += &format!(": {said}");
        }
        if let Some(location) = &self.location {
            sentence += &format!(": it has moved to {location}; start `serve` with that URL");
        }
        if let Some(seconds) = &self.retry_after {
            sentence += &format!(" (Retry-After: {seconds})");
        }
        sentence
    }
}

/// A reply, and the id of the session that it has begun.
#[derive(Debug)]
pub(super) struct Replied {
    /// It.
    pub(super) reply: Reply,
    /// The id.
    pub(super) session: Option<HeaderValue>,
}

/// The request was said, and the connection broke before it was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken;

/// Connects within this time, and tries again while there is some.
///
/// # Errors
/// Those of the last attempt.
pub(super) async fn connect(url: &Url, wait: Duration) -> io::Result<Connected> {
    let until = Instant::now() + wait;
    loop {
        match connect_once(url).await {
            Err(error) if Instant::now() + PAUSE >= until => return Err(error),
            Err(_) => sleep(PAUSE).await,
            connected => return connected,
        }
    }
}

/// Has the kernel probe the connection while nothing is said on it, so that a call does not wait
/// for ever for a machine that is gone.
fn keep_alive(stream: &TcpStream) {
    use nix::sys::socket::{setsockopt, sockopt};
    let _ = setsockopt(stream, sockopt::KeepAlive, &true);
    #[cfg(target_os = "linux")]
    {
        let _ = setsockopt(stream, sockopt::TcpKeepIdle, &PROBE_AFTER);
        let _ = setsockopt(stream, sockopt::TcpKeepInterval, &PROBE_EACH);
        let _ = setsockopt(stream, sockopt::TcpKeepCount, &PROBES);
    }
}

async fn connect_once(url: &Url) -> io::Result<Connected> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "it does not answer");
    let stream = timeout(CONNECT_WAIT, TcpStream::connect((url.host(), url.port())));
    let stream = stream.await.map_err(|_| late())??;
    let _ = stream.set_nodelay(true);
    keep_alive(&stream);
    let (sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    let (connection, handle) = futures::future::abortable(connection);
    tokio::spawn(connection);
    Ok(Connected {
        sender,
        host: url.authority(),
        path: url.path().to_owned(),
        connection: Connection(handle),
    })
}

impl Connected {
    /// Says a message, or a batch.
    ///
    /// # Errors
    /// [`Broken`].
    pub(super) async fn post(self, line: Bytes, stamp: &Stamp) -> Result<Replied, Broken> {
        let mut request = Request::new(Full::new(line));
        *request.method_mut() = Method::POST;
        request.headers_mut().insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        request
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        self.ask(request, stamp).await
    }

    /// Asks for the standalone stream, or for what follows on an event.
    ///
    /// # Errors
    /// [`Broken`].
    pub(super) async fn get(self, after: Option<&str>, stamp: &Stamp) -> Result<Replied, Broken> {
        let mut request = Request::new(Full::default());
        request
            .headers_mut()
            .insert(ACCEPT, HeaderValue::from_static(EVENTS));
        if let Some(after) = after.map(|after| HeaderValue::from_bytes(after.as_bytes())) {
            request
                .headers_mut()
                .insert(LAST_EVENT, after.map_err(|_| Broken)?);
        }
        self.ask(request, stamp).await
    }

    /// Ends the session.
    ///
    /// # Errors
    /// [`Broken`].
    pub(super) async fn delete(self, stamp: &Stamp) -> Result<Replied, Broken> {
        let mut request = Request::new(Full::default());
        *request.method_mut() = Method::DELETE;
        self.ask(request, stamp).await
    }

    /// Says a message as it came, with these headers. The connection ends when it is dropped.
    ///
    /// # Errors
    /// [`Broken`].
    pub(super) async fn pass_on(
        mut self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(Response<Incoming>, Connection), Broken> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.path.parse().map_err(|_| Broken)?;
        *request.headers_mut() = headers;
        request.headers_mut().insert(HOST, self.host.clone());
        let response = self
            .sender
            .send_request(request)
            .await
            .map_err(|_| Broken)?;
        Ok((response, self.connection))
    }

    async fn ask(
        mut self,
        mut request: Request<Full<Bytes>>,
        stamp: &Stamp,
    ) -> Result<Replied, Broken> {
        *request.uri_mut() = self.path.parse().map_err(|_| Broken)?;
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        let said = [(SESSION, &stamp.session), (VERSION, &stamp.version)];
        for (name, value) in said
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.clone()?)))
        {
            headers.insert(name, value);
        }
        let response = self
            .sender
            .send_request(request)
            .await
            .map_err(|_| Broken)?;
        let session = response.headers().get(SESSION).cloned();
        let reply = read(response, stamp, self.connection).await?;
        Ok(Replied { reply, session })
    }
}

async fn read(
    response: Response<Incoming>,
    stamp: &Stamp,
    connection: Connection,
) -> Result<Reply, Broken> {
    let status = response.status();
    let kind = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind
        .and_then(|kind| kind.split(';').next())
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let header = |name: HeaderName| {
        let value = response.headers().get(name)?.to_str().ok()?;
        Some(value.to_owned())
    };
    let location = header(LOCATION)
        .filter(|_| status.is_redirection())
        .map(|location| without_secrets(&location));
    let (retry_after, has_challenge) = (header(RETRY_AFTER), header(WWW_AUTHENTICATE).is_some());
    let body = response.into_body();
    if status.is_success() {
        return match &*kind {
            EVENTS => Ok(Reply::Events(Events::new(body, connection))),
            JSON if status == StatusCode::OK => {
                let body = Limited::new(body, EVENT_MAX)
                    .collect()
                    .await
                    .map_err(|_| Broken)?
                    .to_bytes();
                Ok(if body.trim_ascii().is_empty() {
                    Reply::Taken(Taken { status, kind })
                } else {
                    Reply::Message(body)
                })
            }
            _ => Ok(Reply::Taken(Taken { status, kind })),
        };
    }
    let body = timeout(REFUSAL_WAIT, Limited::new(body, REFUSAL_MAX).collect()).await;
    let body = body
        .ok()
        .and_then(Result::ok)
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    Ok(Reply::Refused(Refused {
        status,
        body,
        in_session: stamp.session.is_some(),
        has_challenge,
        location,
        retry_after,
    }))
}

/// Events as they come.
#[derive(Debug)]
pub(super) struct Events {
    body: Incoming,
    parser: Parser,
    events: VecDeque<Event>,
    /// Whether the connection broke, and the server has not ended the stream.
    pub(super) broke_off: bool,
    _connection: Connection,
}

impl Events {
    fn new(body: Incoming, connection: Connection) -> Self {
        Self {
            body,
            parser: Parser::default(),
            events: VecDeque::new(),
            broke_off: false,
            _connection: connection,
        }
    }

    /// The next one. None: the stream has ended, or broken off.
    pub(super) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let Ok(frame) = self.body.frame().await? else {
                self.broke_off = true;
                return None;
            };
            let Ok(bytes) = frame.into_data() else {
                continue;
            };
            let mut rest = &bytes[..];
            while let Err(error) = self.parser.read(rest, |event| self.events.push_back(event)) {
                rest = &rest[error.read..];
                crate::stderr::warn(error);
            }
        }
    }
}
