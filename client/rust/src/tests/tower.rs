//! The layer for HTTP servers, in front of a service that tells what it gets.

use std::convert::Infallible;
use std::future::{pending, poll_fn, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use mcp_sessiond_proto::Error;
use serde_json::{Value, json};
use tower_layer::Layer as _;
use tower_service::Service;

use super::fake::{Fake, Turn};
use super::sessions::view;
use crate::tower::{
    Begin, Refusal, SameSite, SessionCookie, SessionLayer, SessiondSession, caller,
};
use crate::{ConnectError, SessionError, Sessions, credential};

type Asked = Request<Full<Bytes>>;

/// Answers with the session that it finds, and the body that it gets.
#[derive(Debug, Clone, Default)]
struct Inner {
    status: StatusCode,
    is_ready: bool,
    /// The session that it names itself.
    names: Option<&'static str>,
    is_mute: bool,
    calls: Arc<Mutex<u32>>,
}

impl Service<Asked> for Inner {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<String>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Asked) -> Self::Future {
        assert!(
            std::mem::take(&mut self.is_ready),
            "called before it was asked whether it is ready"
        );
        *self.calls.lock().expect("calls") += 1;
        let (parts, body) = request.into_parts();
        let session = SessiondSession::of_parts(&parts);
        let session = session.map_or("none".to_owned(), |session| session.id().to_string());
        let body = futures::FutureExt::now_or_never(body.collect())
            .expect("at hand")
            .expect("whole");
        let said = format!("{session} {}", String::from_utf8_lossy(&body.to_bytes()));
        let mut response = Response::builder().status(self.status);
        if let Some(named) = self.names {
            response = response.header("mcp-session-id", named);
        }
        let response = response.body(said).expect("a response");
        if self.is_mute {
            Box::pin(pending())
        } else {
            Box::pin(ready(Ok(response)))
        }
    }
}

const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"clientInfo": {"name": "x"}}}"#;

fn layer(fake: &Fake) -> SessionLayer {
    SessionLayer::new(
        Sessions::of_service("web".parse().expect("a name"), fake.options()),
        caller::nobody,
    )
}

fn post(headers: &[(&str, &str)], body: impl Into<String>) -> Asked {
    let request = headers
        .iter()
        .fold(Request::post("/mcp"), |request, (name, value)| {
            request.header(*name, *value)
        });
    request.body(Full::from(body.into())).expect("a request")
}

async fn ask(layer: &SessionLayer, request: Asked) -> Response<String> {
    answer(&mut layer.layer(Inner::default()), request).await
}

async fn answer<S>(service: &mut S, request: Asked) -> Response<String>
where
    S: Service<Asked, Response = Response<String>, Error = Infallible>,
{
    poll_fn(|context| service.poll_ready(context))
        .await
        .expect("ready");
    service.call(request).await.expect("infallible")
}

fn header<'a>(response: &'a Response<String>, name: &str) -> Option<&'a str> {
    response
        .headers()
        .get(name)
        .map(|value| value.to_str().expect("text"))
}

/// The request that was heard, if it was the only one.
fn only(fake: &Fake, method: &str) -> Value {
    let heard = fake.heard();
    let [heard] = &heard[..] else {
        panic!("{heard:?}")
    };
    let (named, request) = heard.split_once(' ').expect("a request");
    assert_eq!(named, method);
    serde_json::from_str(request).expect("JSON")
}

#[tokio::test]
async fn an_initialize_begins_a_session_and_its_body_is_passed_on_as_it_came() {
    let fake = Fake::new([Turn::Tell(view("s1", None))]);
    let response = ask(&layer(&fake), post(&[], INITIALIZE)).await;
    assert_eq!(response.body(), &format!("s1 {INITIALIZE}"));
    assert_eq!(header(&response, "mcp-session-id"), Some("s1"));
    assert_eq!(header(&response, "set-cookie"), None, "cookies are off");
    let made = only(&fake, "create_session");
    assert_eq!(
        (&made["service"], &made["status"]["is"]),
        (&json!("web"), &json!("ready"))
    );
    assert_eq!(made["metadata"], r#"{"clientInfo": {"name": "x"}}"#);
    assert_eq!(made.get("binding"), None, "{made}");
}

#[tokio::test]
async fn nothing_but_an_initialize_begins_a_session_and_a_body_has_an_end() {
    let fake = Fake::new([]);
    let layer = layer(&fake);
    let batch = format!("[{INITIALIZE}]");
    for body in [
        "",
        "{",
        "[]",
        &batch,
        r#"{"method":"tools/list"}"#,
        r#"{"params":"initialize"}"#,
    ] {
        let response = ask(&layer, post(&[], body)).await;
        assert_eq!(
            (
                response.status().as_u16(),
                header(&response, "mcp-session-id")
            ),
            (400, None),
            "{body}"
        );
        assert!(response.body().contains("-32600"), "{}", response.body());
    }
    let get = Request::get("/mcp")
        .body(Full::from(INITIALIZE))
        .expect("a request");
    assert_eq!(ask(&layer, get).await.status(), 400);
    assert_eq!(
        ask(&layer, post(&[], "x".repeat(4 * 1024 * 1024 + 1)))
            .await
            .status(),
        413
    );
    assert_eq!(
        ask(&layer.begin(Begin::Never), post(&[], INITIALIZE))
            .await
            .status(),
        400
    );
    assert!(fake.heard().is_empty());
}

#[tokio::test]
async fn clients_of_mcp_2026_07_28_are_led_to_initialize_where_a_session_is_needed() {
    let fake = Fake::new([]);
    let layer = layer(&fake);
    let discover = r#"{"jsonrpc":"2.0","id":"a\"7","method":"server/discover","params":{}}"#;
    let response = ask(&layer, post(&[], discover)).await;
    let body: Value = serde_json::from_str(response.body()).expect("JSON");
    assert_eq!(
        (response.status().as_u16(), &body["id"]),
        (404, &json!("a\"7"))
    );
    assert_eq!(body["error"]["code"], -32601);
    let other = ask(&layer, post(&[], r#"{"id":8,"method":"tools/list"}"#)).await;
    let body: Value = serde_json::from_str(other.body()).expect("JSON");
    assert_eq!((other.status().as_u16(), &body["id"]), (400, &json!(8)));
    assert_eq!(
        ask(&layer.optional(), post(&[], discover)).await.body(),
        &format!("none {discover}")
    );
}

#[tokio::test]
async fn sessions_are_made_for_the_caller_and_opened_on_its_behalf() {
    let fake = Fake::new([Turn::Tell(view("s1", None)), Turn::Tell(view("s1", None))]);
    let layer = SessionLayer::new(
        Sessions::of_service("web".parse().expect("a name"), fake.options()),
        caller::bearer,
    );
    let bearer = ("authorization", "bearer secret");
    assert_eq!(ask(&layer, post(&[bearer], INITIALIZE)).await.status(), 200);
    let of = json!(credential(b"secret"));
    let made = only(&fake, "create_session");
    assert_eq!(
        (
            &made["binding"]["caller"],
            made["binding"]["on_mismatch"].as_str()
        ),
        (&of, Some("refuse"))
    );
    let response = ask(&layer, post(&[bearer, ("mcp-session-id", "s1")], "{}")).await;
    assert_eq!(
        (
            response.body().as_str(),
            header(&response, "mcp-session-id")
        ),
        ("s1 {}", Some("s1"))
    );
    assert_eq!(only(&fake, "open_session")["caller"], of);
    for anonymous in [
        &[][..],
        &[("authorization", "Basic secret")],
        &[("authorization", "Bearer  ")],
    ] {
        let response = ask(&layer, post(anonymous, INITIALIZE)).await;
        assert_eq!(
            (
                response.status().as_u16(),
                header(&response, "www-authenticate")
            ),
            (401, Some("Bearer"))
        );
    }
    assert!(fake.heard().is_empty());
}

#[tokio::test]
async fn a_request_may_do_without_a_session_where_that_is_allowed_but_not_with_a_wrong_one() {
    let unknown = || Turn::Refuse(Error::UnknownSession);
    let fake = Fake::new([unknown(), unknown(), Turn::Refuse(Error::BindingMismatch)]);
    let layer = layer(&fake)
        .optional()
        .begin(Begin::Never)
        .cookie(SessionCookie::default());
    assert_eq!(ask(&layer, post(&[], "x")).await.body(), "none x");
    assert_eq!(
        ask(&layer, post(&[("mcp-session-id", "s1")], "x"))
            .await
            .status(),
        404
    );
    // A browser sends cookies unasked.
    for _ in 0..2 {
        let response = ask(&layer, post(&[("cookie", "mcp_session_id=s1")], "x")).await;
        assert_eq!(
            (
                response.body().as_str(),
                header(&response, "mcp-session-id")
            ),
            ("none x", None)
        );
    }
    assert!(fake.is_done());
}

#[tokio::test]
async fn a_cookie_counts_where_it_is_switched_on_and_the_header_comes_before_it() {
    let fake = Fake::new([Turn::Tell(view("s1", None)), Turn::Tell(view("s2", None))]);
    let off = layer(&fake);
    let cookie = ("cookie", "a=b; mcp_session_id=s1; mcp_session_idx=s3");
    assert_eq!(ask(&off, post(&[cookie], "x")).await.status(), 400);
    let on = off.cookie(SessionCookie::default());
    let response = ask(&on, post(&[cookie], "x")).await;
    assert_eq!(
        (response.body().as_str(), header(&response, "set-cookie")),
        ("s1 x", None),
        "it has it already"
    );
    assert_eq!(
        ask(&on, post(&[cookie, ("mcp-session-id", "s2")], "x"))
            .await
            .body(),
        "s2 x"
    );
    assert_eq!(
        ask(&on, post(&[("cookie", "mcp_session_idx=s1")], "x"))
            .await
            .status(),
        400
    );
}

#[tokio::test]
async fn a_cookie_of_a_session_that_nobody_in_particular_has_begun_is_not_taken_from_a_caller_with_a_name()
 {
    let mut bound = view("s2", None);
    bound["bound"] = true.into();
    let fake = Fake::new([
        Turn::Tell(view("s1", None)),
        Turn::Tell(bound),
        Turn::Tell(view("s1", None)),
    ]);
    let sessions = Sessions::of_service("web".parse().expect("a name"), fake.options());
    let named = |_: &http::request::Parts| Ok(Some(credential(b"a key")));
    let layer = SessionLayer::new(sessions, named).cookie(SessionCookie::default());
    let planted = ask(&layer, post(&[("cookie", "mcp_session_id=s1")], "x")).await;
    assert_eq!(planted.status(), 404);
    assert_eq!(
        ask(&layer, post(&[("cookie", "mcp_session_id=s2")], "x"))
            .await
            .body(),
        "s2 x"
    );
    // The header is nothing that anybody else could have set.
    assert_eq!(
        ask(&layer, post(&[("mcp-session-id", "s1")], "x"))
            .await
            .body(),
        "s1 x"
    );
    assert!(fake.is_done());
}

#[tokio::test]
async fn where_every_request_may_begin_a_session_a_cookie_of_no_use_is_replaced() {
    let fake = Fake::new([
        Turn::Tell(view("s1", None)),
        Turn::Refuse(Error::SessionTerminated),
        Turn::Tell(view("s2", None)),
    ]);
    let cookie = SessionCookie::default()
        .path("/a;b c")
        .same_site(SameSite::None);
    let layer = layer(&fake).begin(Begin::Always).cookie(cookie);
    let response = ask(&layer, post(&[], "x")).await;
    let set = "mcp_session_id=s1; Path=/abc; HttpOnly; SameSite=None; Secure";
    assert_eq!(
        (response.body().as_str(), header(&response, "set-cookie")),
        ("s1 x", Some(set))
    );
    let response = ask(&layer, post(&[("cookie", "mcp_session_id=s1")], "x")).await;
    assert_eq!(
        (
            response.body().as_str(),
            header(&response, "mcp-session-id")
        ),
        ("s2 x", Some("s2"))
    );
}

#[tokio::test]
async fn a_session_whose_first_request_fails_ends_at_once() {
    let fake = Fake::new([
        Turn::Tell(view("s1", None)),
        Turn::Done,
        Turn::Tell(view("s2", None)),
    ]);
    let layer = layer(&fake).cookie(SessionCookie::default());
    let mut service = layer.layer(Inner {
        status: StatusCode::UNPROCESSABLE_ENTITY,
        ..Inner::default()
    });
    let response = answer(&mut service, post(&[], INITIALIZE)).await;
    assert_eq!(
        (response.status().as_u16(), response.headers().len()),
        (422, 0),
        "{response:?}"
    );
    assert!(fake.heard()[1].starts_with("terminate_session "));
    // One that was there before goes on.
    let response = answer(&mut service, post(&[("mcp-session-id", "s2")], "x")).await;
    assert_eq!(
        (
            response.status().as_u16(),
            header(&response, "mcp-session-id")
        ),
        (422, Some("s2"))
    );
    assert_eq!(fake.heard().len(), 1);
}

#[tokio::test]
async fn a_server_that_names_sessions_of_its_own_is_told_from_the_first_request() {
    let fake = Fake::new([Turn::Tell(view("s1", None)), Turn::Done]);
    let mut service = layer(&fake).layer(Inner {
        names: Some("own"),
        ..Inner::default()
    });
    let response = answer(&mut service, post(&[], INITIALIZE)).await;
    assert_eq!(
        (
            response.status().as_u16(),
            header(&response, "mcp-session-id")
        ),
        (500, None)
    );
    assert!(
        response.body().contains("a session of its own"),
        "{}",
        response.body()
    );
    assert!(fake.heard()[1].starts_with("terminate_session "));
}

#[tokio::test]
async fn what_is_refused_never_reaches_the_service() {
    let busy = Error::QuotaExceeded {
        what: "sessions".into(),
        limit: 3,
    };
    let fake = Fake::new([Turn::Refuse(Error::BindingMismatch), Turn::Refuse(busy)]);
    let inner = Inner::default();
    let mut service = layer(&fake).layer(inner.clone());
    let foreign = answer(&mut service, post(&[("mcp-session-id", "s1")], "x")).await;
    assert_eq!(foreign.status(), 404);
    let body: Value = serde_json::from_str(foreign.body()).expect("JSON");
    // It does not learn that there is such a session.
    assert_eq!(body["error"]["code"], -32001);
    let full = answer(&mut service, post(&[], INITIALIZE)).await;
    assert_eq!(
        (full.status().as_u16(), header(&full, "retry-after")),
        (503, Some("1"))
    );
    for forged in ["", "a b", &"x".repeat(1_000), "\u{e9}"] {
        let response = answer(&mut service, post(&[("mcp-session-id", forged)], "x")).await;
        assert!(
            matches!(response.status().as_u16(), 400 | 404),
            "{forged}: {response:?}"
        );
    }
    assert!(fake.is_done());
    assert_eq!(*inner.calls.lock().expect("calls"), 0);
}

#[test]
fn every_error_of_a_session_has_a_response() {
    let sentence = || "x".to_owned();
    let later = |ms| Error::Unavailable {
        sentence: sentence(),
        retry_after_ms: ms,
    };
    let unknown = Error::OutcomeUnknown {
        sentence: sentence(),
        retry_after_ms: 2_001,
    };
    let cases: [(SessionError, u16, i64, Option<u64>); 11] = [
        (ConnectError::Unsupported.into(), 503, -32000, Some(1)),
        (
            SessionError::NoAnswer(std::time::Duration::ZERO),
            503,
            -32000,
            Some(1),
        ),
        (later(5).into(), 503, -32000, Some(1)),
        (later(1_500).into(), 503, -32000, Some(2)),
        (unknown.into(), 503, -32000, Some(3)),
        (
            Error::WriteFailed {
                sentence: sentence(),
            }
            .into(),
            503,
            -32000,
            Some(1),
        ),
        (Error::SessionTerminated.into(), 404, -32001, None),
        (Error::UnknownCursor.into(), 400, -32600, None),
        (
            Error::InvalidArgument {
                sentence: sentence(),
            }
            .into(),
            400,
            -32600,
            None,
        ),
        (Error::StreamClosed.into(), 409, -32000, None),
        (SessionError::Type { line: 1, column: 2 }, 500, -32000, None),
    ];
    for (error, status, code, retry_after) in cases {
        let said = error.to_string();
        let refusal = Refusal::from(error);
        assert_eq!(
            (refusal.status.as_u16(), refusal.code, refusal.retry_after),
            (status, code, retry_after),
            "{said}"
        );
    }
    let data = Some(Box::new(json!([1])));
    let refusal = Refusal {
        data,
        ..Refusal::not_allowed("POST", "\"no\"")
    };
    let response: Response<String> = refusal.answering("7");
    assert_eq!(
        (response.status().as_u16(), header(&response, "allow")),
        (405, Some("POST"))
    );
    let error = json!({"code": -32000, "message": "\"no\"", "data": [1]});
    let body: Value = serde_json::from_str(response.body()).expect("JSON");
    assert_eq!(body, json!({"jsonrpc": "2.0", "id": 7, "error": error}));
    let nowhere = ConnectError::NotRunning {
        socket: "/run/secret".into(),
    };
    assert!(
        !Refusal::from(SessionError::from(nowhere))
            .message
            .contains("secret")
    );
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_handler_gets_its_session_or_says_what_is_missing() {
    use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};

    let (mut parts, ()) = Request::get("/").body(()).expect("a request").into_parts();
    let missing =
        <SessiondSession as FromRequestParts<()>>::from_request_parts(&mut parts, &()).await;
    assert_eq!(missing.expect_err("no layer").status, 500);
    let optional =
        <SessiondSession as OptionalFromRequestParts<()>>::from_request_parts(&mut parts, &())
            .await;
    assert_eq!(optional.expect_err("no layer").status, 500);
}
