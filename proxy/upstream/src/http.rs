//! Requests to the server, with the user's login, if there is one.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::message::{Kind, Line};
use mcp_sessiond_proto::Loss;
use mcp_sessiond_proto::backends::relayed_max;
use mcp_sessiond_relay::verdict::{
    Refusal, SessionState, Verdict, error_message, names_session, said, without_secrets,
};
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue, LOCATION,
    RETRY_AFTER, WWW_AUTHENTICATE,
};
use reqwest::{Client, Method, Response, StatusCode};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::body::{Body, BodyError};
use crate::events::Events;
use crate::login::{Bearer, LoginError};
use crate::messages::CallFailure;
use crate::remote::{Remote, RemoteError};
use crate::request_headers::{RequestHeaders, VERSION};
use crate::session_headers::SessionHeaders;
use crate::tls::use_ring;
use crate::url::without_query;

/// How long one attempt to connect may take: a server may be far away.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// The pause before another attempt.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a connection is kept that nobody uses. Node and uvicorn close it after 5 s, and may do
/// so while we write.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// After how long a silent connection is probed, how often, and how many times before it counts as
/// broken.
const PROBE_AFTER: Duration = Duration::from_secs(30);
const PROBE_EACH: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;
/// Bytes of a refusal that are read.
const REFUSAL_MAX: usize = 64 * 1024;
/// How long the answer to the `ping` may take that asks whether a session is known.
const CHECK_WAIT: Duration = Duration::from_secs(5);
/// How long a refusal may take to be read.
const REFUSAL_WAIT: Duration = Duration::from_secs(5);

/// A request of ours, and its id.
pub(super) const PING_ID: &str = r#""mcp-sessiond-ping""#;
pub(super) const PING: &str = r#"{"jsonrpc":"2.0","id":"mcp-sessiond-ping","method":"ping"}"#;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// What the server has answered.
pub(super) enum Reply {
    /// It was taken, and there is nothing to say; or what there is, is no message.
    Taken(Taken),
    /// A message, or a batch.
    Message(Bytes),
    /// Events.
    Events(Events),
    /// The session can't be used any more; and what a call gets that may have begun. None: it was
    /// not begun, and may be made in the next session.
    Lost(Loss, Option<CallFailure>),
    /// It was not taken, with this status.
    Refused(StatusCode, CallFailure),
    /// It was not taken, and the server says so in an error of JSON-RPC: what it speaks is MCP, and
    /// it does not want this.
    Denied(CallFailure),
}

impl Reply {
    /// Whether the server has taken what was said.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self, Self::Taken(_) | Self::Message(_) | Self::Events(_))
    }

    /// Whether it is an error that speaks of the session.
    fn denies_session(&self) -> bool {
        let Self::Message(body) = self else {
            return false;
        };
        error_message(body).is_some_and(|said| names_session(said.as_bytes()))
    }
}

/// How a request was taken that is not answered.
pub(super) struct Taken {
    status: StatusCode,
    kind: String,
}

impl Taken {
    /// What a call gets that is answered so by the server of this name.
    pub(super) fn sentence(&self, name: &str) -> String {
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
            "the server {name:?} has answered this call by HTTP {status} {of}{page}, which is not an answer of MCP: its outcome is unknown"
        )
    }
}

/// A reply, and the id of the session that it has begun, and with which login.
pub(super) struct HttpReply {
    pub(super) reply: Reply,
    pub(super) session: Option<String>,
    pub(super) login: Option<String>,
}

impl HttpReply {
    fn lost(loss: Loss) -> Self {
        Self {
            reply: Reply::Lost(loss, None),
            session: None,
            login: None,
        }
    }
}

/// What has come back: a reply, or a refusal that is not judged yet.
enum Answered {
    Reply(HttpReply),
    Refusal(RawRefusal),
}

impl Answered {
    /// A request in a session is not answered by an error of no request: that is a refusal.
    fn in_session(self, ask: &HttpRequest, stamp: &SessionHeaders) -> Self {
        match self {
            Self::Reply(HttpReply {
                reply: Reply::Message(body),
                session,
                ..
            }) if stamp.session.is_some() && is_error_of_none(&body) && ask.call().is_some() => {
                Self::Refusal(RawRefusal {
                    status: StatusCode::OK,
                    has_challenge: false,
                    body,
                    session,
                    location: None,
                    retry_after: None,
                })
            }
            other => other,
        }
    }
}

/// Whether a body is an error whose id is null. It is no longer than other refusals: an answer of many
/// MiB is not read for this.
fn is_error_of_none(body: &Bytes) -> bool {
    if body.len() > REFUSAL_MAX {
        return false;
    }
    let copy = OnceCell::new();
    let message = Line::of(body, &copy).message();
    message.is_some_and(
        |message| matches!(message.kind, Kind::Answer { id, failed: true } if id == "null"),
    )
}

/// A refusal as it came.
struct RawRefusal {
    status: StatusCode,
    has_challenge: bool,
    body: Bytes,
    session: Option<String>,
    location: Option<String>,
    retry_after: Option<String>,
}

/// The last `ping` that has asked whether the server knows a session.
#[derive(Debug)]
struct Checked {
    began: Instant,
    session: Option<HeaderValue>,
    state: SessionState,
}

/// What goes to the server.
#[derive(Clone)]
pub(super) enum HttpRequest {
    /// A message, or a batch.
    Post(Bytes),
    /// The standalone stream, or what follows on an event.
    Get(Option<String>),
    /// The end of the session.
    Delete,
}

/// The way to one server.
#[derive(Debug)]
pub(super) struct HttpClient {
    client: Client,
    remote: Remote,
    checked: Mutex<Option<Checked>>,
    /// Whether the server was seen to answer by 404 in a session that lives.
    answers_by_404: AtomicBool,
    /// What requests say of themselves that are of no session.
    pub(super) request_headers: RequestHeaders,
}

impl HttpClient {
    /// To this server.
    ///
    /// # Errors
    /// [`RemoteError::Client`].
    pub(super) fn to(remote: Remote) -> Result<Self, RemoteError> {
        let client = client(&remote)?;
        Ok(Self {
            client,
            remote,
            checked: Mutex::default(),
            answers_by_404: AtomicBool::new(false),
            request_headers: RequestHeaders::default(),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.remote.name
    }

    /// How long a request waits for a server that can't be reached.
    pub(super) fn hold(&self) -> Duration {
        self.remote.hold
    }

    /// Whether the user is logged in as when this was stamped.
    pub(super) fn is_login_of(&self, stamp: &SessionHeaders) -> bool {
        self.remote
            .login
            .as_ref()
            .is_none_or(|login| stamp.is_of(login.present().as_deref()))
    }

    /// Says a request, and waits a little for a server that can't be reached.
    ///
    /// # Errors
    /// What a call in it is answered.
    pub(super) async fn ask(
        &self,
        ask: &HttpRequest,
        stamp: &SessionHeaders,
    ) -> Result<HttpReply, CallFailure> {
        let in_session = stamp.session.is_some();
        let asking = || self.ask_once(ask, stamp);
        let replied = self.remote.within_hold(in_session, asking).await;
        replied.map_err(|failed| match failed {
            Failed::NotReached(why) => {
                let (name, url) = (self.name(), without_query(&self.remote.url));
                let at = if name == url {
                    String::new()
                } else {
                    format!(" at {url}")
                };
                CallFailure::NotSent(format!("the server {name:?}{at} can't be reached: {why}"))
            }
            Failed::Login(why) => CallFailure::NotSent(why),
            Failed::Broken => CallFailure::lost(self.name()),
            Failed::TooLarge => CallFailure::too_large(self.name()),
            Failed::Coding(coding) => CallFailure::coded(self.name(), &coding),
        })
    }

    /// The same, where nothing waits for the answer.
    pub(super) async fn try_once(
        &self,
        ask: &HttpRequest,
        stamp: &SessionHeaders,
    ) -> Option<HttpReply> {
        self.ask_once(ask, stamp).await.ok()
    }

    async fn ask_once(
        &self,
        ask: &HttpRequest,
        stamp: &SessionHeaders,
    ) -> Result<HttpReply, Failed> {
        match self.ask_raw(ask, stamp).await? {
            Answered::Reply(replied) => Ok(replied),
            Answered::Refusal(refused) => self.judged(ask, stamp, refused).await,
        }
    }

    /// What a refusal of this request means.
    async fn judged(
        &self,
        ask: &HttpRequest,
        stamp: &SessionHeaders,
        mut refused: RawRefusal,
    ) -> Result<HttpReply, Failed> {
        let id = ask.call();
        let id = id.as_deref();
        let known = self.answers_by_404.load(Ordering::Relaxed);
        let mut verdict = refused.refusal(stamp).verdict(id, known);
        if verdict == Verdict::Suspected {
            let state = self.state_of(stamp).await;
            if state == SessionState::Alive && refused.refusal(stamp).contradicts_ping(id) {
                // Another node may have answered the ping, and one that does not know the session has
                // not begun the request.
                refused = match self.ask_raw(ask, stamp).await? {
                    Answered::Refusal(again) if again.refusal(stamp).contradicts_ping(id) => {
                        return Ok(HttpReply::lost(Loss::Scattered));
                    }
                    Answered::Refusal(again) => again,
                    Answered::Reply(replied) => return Ok(replied),
                };
            }
            let refusal = refused.refusal(stamp);
            verdict = match state {
                SessionState::Gone => {
                    let begun = (!refusal.may_be_repeated()).then(|| self.refusal(&refused));
                    let reply = Reply::Lost(Loss::Forgotten, begun.map(CallFailure::unknown));
                    return Ok(HttpReply::of(reply, refused));
                }
                SessionState::Unclear if id.is_none() => {
                    // The same request may be taken a little later.
                    let why = self.refusal(&refused);
                    let reply = Reply::Refused(StatusCode::BAD_GATEWAY, why);
                    return Ok(HttpReply::of(reply, refused));
                }
                SessionState::Alive | SessionState::Unclear => refusal.about_the_request(id),
            };
            let is_404 = refused.status == StatusCode::NOT_FOUND;
            if verdict == Verdict::Answer && state == SessionState::Alive && is_404 {
                self.answers_by_404.store(true, Ordering::Relaxed);
            }
        }
        // A server that is busy, or fails, has not refused the handshake for good.
        let is_final =
            refused.status.is_client_error() && refused.status != StatusCode::TOO_MANY_REQUESTS;
        let reply = match verdict {
            Verdict::Answer if stamp.session.is_some() || is_final => {
                Reply::Message(refused.body.clone())
            }
            _ if refused.status == StatusCode::BAD_REQUEST
                && error_message(&refused.body).is_some() =>
            {
                Reply::Denied(self.refusal(&refused))
            }
            _ => Reply::Refused(refused.status, self.refusal(&refused)),
        };
        Ok(HttpReply::of(reply, refused))
    }

    /// Asks the server whether it knows a session. One `ping` serves all that wait when it begins.
    async fn state_of(&self, stamp: &SessionHeaders) -> SessionState {
        let came = Instant::now();
        let mut checked = self.checked.lock().await;
        if let Some(last) = &*checked
            && last.began >= came
            && last.session == stamp.session
        {
            return last.state;
        }
        let began = Instant::now();
        let ping = HttpRequest::Post(PING.into());
        let state = match timeout(CHECK_WAIT, self.ask_raw(&ping, stamp)).await {
            Ok(Ok(Answered::Reply(replied))) if replied.reply.denies_session() => {
                SessionState::Gone
            }
            Ok(Ok(Answered::Reply(replied))) if replied.reply.is_taken() => SessionState::Alive,
            Ok(Ok(Answered::Refusal(refused))) => refused.refusal(stamp).of_ping(PING_ID),
            _ => SessionState::Unclear,
        };
        *checked = Some(Checked {
            began,
            session: stamp.session.clone(),
            state,
        });
        state
    }

    async fn ask_raw(&self, ask: &HttpRequest, stamp: &SessionHeaders) -> Result<Answered, Failed> {
        let Some(login) = &self.remote.login else {
            let response = self.send(ask, stamp, None).await?;
            return Ok(read(response).await?.in_session(ask, stamp));
        };
        let mut bearer = login.bearer().await?;
        if !stamp.is_for(bearer.as_ref()) {
            return Ok(Answered::Reply(HttpReply::lost(Loss::OtherLogin)));
        }
        let token = |bearer: &Option<Bearer>| bearer.as_ref().map(|bearer| bearer.token.clone());
        let mut response = self.send(ask, stamp, token(&bearer).as_deref()).await?;
        let is_refused = |response: &Response| {
            response.status() == StatusCode::UNAUTHORIZED
                && (bearer.is_some() || response.headers().contains_key(WWW_AUTHENTICATE))
        };
        if is_refused(&response) {
            // Some servers say so that they have forgotten the session: another token would not
            // help. Where they say that the token is not valid (RFC 6750, section 3.1), that comes
            // first.
            let is_of_token = says_invalid_token(response.headers());
            if stamp.session.is_some() && !is_of_token {
                let refused = RawRefusal::of(response).await;
                if names_session(&refused.body) {
                    return Ok(Answered::Refusal(RawRefusal {
                        has_challenge: false,
                        ..refused
                    }));
                }
            }
            let Some(refused) = bearer.take() else {
                return Err(LoginError::Wanted(login.name().to_owned()).into());
            };
            // A server that says so has not begun.
            bearer = Some(login.bearer_after(&refused.token).await?);
            if !stamp.is_for(bearer.as_ref()) {
                return Ok(Answered::Reply(HttpReply::lost(Loss::OtherLogin)));
            }
            response = self.send(ask, stamp, token(&bearer).as_deref()).await?;
            if response.status() == StatusCode::UNAUTHORIZED {
                if stamp.session.is_some() {
                    let refused = RawRefusal::of(response).await;
                    if names_session(&refused.body) {
                        let has_challenge = false;
                        return Ok(Answered::Refusal(RawRefusal {
                            has_challenge,
                            ..refused
                        }));
                    }
                }
                return Err(LoginError::Refused(login.name().to_owned()).into());
            }
        }
        if response.status() == StatusCode::FORBIDDEN
            && let Some(scope) = wanted_scope(response.headers())
        {
            return Err(LoginError::Scope(login.name().to_owned(), scope).into());
        }
        Ok(match read(response).await?.in_session(ask, stamp) {
            Answered::Reply(replied) => Answered::Reply(HttpReply {
                login: bearer.map(|bearer| bearer.login),
                ..replied
            }),
            refused => refused,
        })
    }

    async fn send(
        &self,
        ask: &HttpRequest,
        stamp: &SessionHeaders,
        token: Option<&str>,
    ) -> Result<Response, Failed> {
        let method = match ask {
            HttpRequest::Post(_) => Method::POST,
            HttpRequest::Get(_) => Method::GET,
            HttpRequest::Delete => Method::DELETE,
        };
        let mut request = self
            .client
            .request(method, self.remote.url.clone())
            .header(ACCEPT_ENCODING, "identity")
            .headers(self.remote.headers.clone());
        request = match ask {
            HttpRequest::Post(line) => request
                .header(ACCEPT, "application/json, text/event-stream")
                .header(CONTENT_TYPE, JSON)
                .body(line.clone()),
            HttpRequest::Get(None) => request.header(ACCEPT, EVENTS),
            HttpRequest::Get(Some(after)) => {
                let after =
                    HeaderValue::from_bytes(after.as_bytes()).map_err(|_| Failed::Broken)?;
                request.header(ACCEPT, EVENTS).header(LAST_EVENT, after)
            }
            HttpRequest::Delete => request,
        };
        let own = match ask {
            HttpRequest::Post(line) => self.request_headers.of(line),
            HttpRequest::Get(_) | HttpRequest::Delete => None,
        };
        if let Some(own) = own {
            request = request.headers(own);
        } else {
            for (name, value) in [(SESSION, &stamp.session), (VERSION, &stamp.version)] {
                if let Some(value) = value {
                    request = request.header(name, value.clone());
                }
            }
        }
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if let Some(cookies) = stamp.cookies.header(self.remote.headers.get(COOKIE)) {
            request = request.headers(HeaderMap::from_iter([(COOKIE, cookies)]));
        }
        let response = request.send().await?;
        stamp.cookies.note(response.headers(), &self.remote.url);
        Ok(response)
    }

    /// What a call is answered that the server has refused.
    fn refusal(&self, refused: &RawRefusal) -> CallFailure {
        let status = refused.status;
        let mut message = format!(
            "the server {:?} has refused this with HTTP {status}",
            self.name()
        );
        if let Some(location) = &refused.location {
            message += &format!(": it has moved to {location}, and `url` must name the new place");
        } else if let Some(said) = said(&refused.body) {
            message += &format!(": {said}");
        }
        if let Some(seconds) = &refused.retry_after {
            message += &format!(" (Retry-After: {seconds})");
        }
        // A server that fails may have begun, and one that answers for no request, too.
        if status.is_server_error() || status.is_success() {
            CallFailure::Unknown(message)
        } else {
            CallFailure::NotSent(message)
        }
    }
}

/// What the requests to a server go through.
///
/// # Errors
/// [`RemoteError::Client`].
pub(super) fn client(remote: &Remote) -> Result<Client, RemoteError> {
    if let Some(client) = remote.client.get() {
        return Ok(client.clone());
    }
    use_ring();
    // A redirect would carry the entry's headers elsewhere.
    let mut builder = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_WAIT)
        .pool_idle_timeout(IDLE_MAX)
        .tcp_keepalive(PROBE_AFTER)
        .tcp_keepalive_interval(PROBE_EACH)
        .tcp_keepalive_retries(PROBES)
        .user_agent(concat!("mcp-sessiond/", env!("CARGO_PKG_VERSION")));
    if remote.is_direct {
        builder = builder.no_proxy().pool_max_idle_per_host(0);
    }
    let client = builder
        .build()
        .map_err(|error| RemoteError::Client(cause(&error)))?;
    Ok(remote.client.get_or_init(|| client).clone())
}

impl Remote {
    /// Makes a request, and waits a little for a server that can't be reached, but was before, or has
    /// a session: `in_session`.
    pub(crate) async fn within_hold<T, R: Future<Output = Result<T, Failed>>>(
        &self,
        in_session: bool,
        mut once: impl FnMut() -> R,
    ) -> Result<T, Failed> {
        let until = Instant::now() + self.hold;
        loop {
            let replied = once().await;
            let Err(Failed::NotReached(_)) = &replied else {
                self.was_reached.store(true, Ordering::Relaxed);
                return replied;
            };
            let waits = in_session || self.was_reached();
            if !waits || Instant::now() + PAUSE >= until {
                return replied;
            }
            sleep(PAUSE).await;
        }
    }
}

impl HttpRequest {
    /// The id of the call that it is.
    fn call(&self) -> Option<String> {
        let Self::Post(line) = self else { return None };
        let copy = OnceCell::new();
        match Line::of(line, &copy).message()?.kind {
            Kind::Request { id, .. } => Some(id.to_owned()),
            Kind::Notification { .. } | Kind::Answer { .. } => None,
        }
    }
}

impl RawRefusal {
    async fn of(response: Response) -> Self {
        let status = response.status();
        let header = |name: HeaderName| {
            let value = response.headers().get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        let location = header(LOCATION).filter(|_| status.is_redirection());
        Self {
            status,
            has_challenge: response.headers().contains_key(WWW_AUTHENTICATE),
            session: header(SESSION),
            location: location.map(|location| without_secrets(&location)),
            retry_after: header(RETRY_AFTER),
            body: refusal_of(response).await,
        }
    }

    fn refusal(&self, stamp: &SessionHeaders) -> Refusal<'_> {
        Refusal {
            status: self.status.as_u16(),
            in_session: stamp.session.is_some(),
            has_challenge: self.has_challenge,
            body: &self.body,
        }
    }
}

impl HttpReply {
    fn of(reply: Reply, refused: RawRefusal) -> Self {
        Self {
            reply,
            session: refused.session,
            login: None,
        }
    }
}

async fn read(response: Response) -> Result<Answered, Failed> {
    let status = response.status();
    if !status.is_success() {
        return Ok(Answered::Refusal(RawRefusal::of(response).await));
    }
    let header = |name: HeaderName| {
        response
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let session = header(SESSION).map(str::to_owned);
    let kind = header(CONTENT_TYPE)
        .and_then(|kind| kind.split(';').next())
        .unwrap_or_default();
    let kind = kind.trim().to_ascii_lowercase();
    let reply = match &*kind {
        EVENTS => Reply::Events(Events::of(response)?),
        JSON if status == StatusCode::OK => {
            let body = read_up_to(response, relayed_max()).await?;
            if body.trim_ascii().is_empty() {
                Reply::Taken(Taken { status, kind })
            } else {
                Reply::Message(body)
            }
        }
        _ => Reply::Taken(Taken { status, kind }),
    };
    Ok(Answered::Reply(HttpReply {
        reply,
        session,
        login: None,
    }))
}

/// Why there is no reply.
#[derive(Debug)]
pub(super) enum Failed {
    /// Nothing was said.
    NotReached(String),
    /// It was said, and the connection broke.
    Broken,
    /// It was said, and the answer has more bytes than are read.
    TooLarge,
    /// It was said, and the answer has this content coding.
    Coding(String),
    /// The user has to do something first.
    Login(String),
}

impl From<reqwest::Error> for Failed {
    fn from(error: reqwest::Error) -> Self {
        if error.is_connect() || error.is_builder() {
            Self::NotReached(cause(&error))
        } else {
            Self::Broken
        }
    }
}

impl From<BodyError> for Failed {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Broken => Self::Broken,
            BodyError::Coding(coding) => Self::Coding(coding),
        }
    }
}

impl From<LoginError> for Failed {
    fn from(error: LoginError) -> Self {
        Self::Login(error.to_string())
    }
}

/// An error of the client, and what has caused it, without the URL, which may hold a secret.
fn cause(error: &reqwest::Error) -> String {
    let mut causes =
        std::iter::successors(std::error::Error::source(error), |error| error.source());
    causes.by_ref().last().map_or_else(
        || "the request can't be made".to_owned(),
        ToString::to_string,
    )
}

/// The scope that a server says is missing (RFC 6750, section 3.1).
fn wanted_scope(headers: &HeaderMap) -> Option<String> {
    let challenge = headers.get(WWW_AUTHENTICATE)?.to_str().ok()?;
    challenge.contains("insufficient_scope").then(|| {
        let scope = challenge
            .split("scope=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        scope.unwrap_or_default().to_owned()
    })
}

/// Whether a server says that the token is not valid (RFC 6750, section 3.1).
fn says_invalid_token(headers: &HeaderMap) -> bool {
    let challenge = headers.get(WWW_AUTHENTICATE);
    challenge
        .is_some_and(|value| String::from_utf8_lossy(value.as_bytes()).contains("invalid_token"))
}

/// What a refusal says. Nothing, where that is too much or takes too long.
async fn refusal_of(response: Response) -> Bytes {
    let body = timeout(REFUSAL_WAIT, read_up_to(response, REFUSAL_MAX)).await;
    body.ok().and_then(Result::ok).unwrap_or_default()
}

/// The body, where it is not larger, and whole.
async fn read_up_to(response: Response, most: usize) -> Result<Bytes, Failed> {
    let mut body = Vec::new();
    let mut chunks = Body::of(response)?;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        if body.len() + chunk.len() > most {
            return Err(Failed::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_scope_is_read() {
        let headers = |text: &'static str| {
            HeaderMap::from_iter([(WWW_AUTHENTICATE, HeaderValue::from_static(text))])
        };
        let challenge = headers(
            r#"Bearer error="insufficient_scope", scope="files:read files:write", resource_metadata="x""#,
        );
        assert_eq!(
            wanted_scope(&challenge).as_deref(),
            Some("files:read files:write")
        );
        assert_eq!(
            wanted_scope(&headers(r#"Bearer error="invalid_token""#)),
            None
        );
    }
}
