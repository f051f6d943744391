//! Who may see the page, and who may ask for what it shows. No page of another origin may, not even
//! one that `--origin` names.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::IntoResponse as _;

use crate::admission;
use crate::connections::Client;
use crate::refusal::Refusal;
use crate::table::Table;

/// A request that changes anything has this header. A browser lets a page of another origin send it
/// only if `serve` allows that, which it does not.
const OWN: HeaderName = HeaderName::from_static("x-mcp-sessiond");

/// From where a browser says that a request comes.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Bytes of randomness in the value by which a browser knows script and style of the page.
const RANDOM: usize = 16;

/// Admits a request for the page: no token is needed, as the page has no data.
pub(super) async fn admit_page(
    State(table): State<Arc<Table>>,
    request: Request,
    next: Next,
) -> Response<Body> {
    match admission::check_origin(request.uri(), request.headers(), &table.shared().settings) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// Admits a request of the page, and notes on whose behalf it is made.
pub(super) async fn admitted(
    State(table): State<Arc<Table>>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    let settings = &table.shared().settings;
    let headers = request.headers();
    let caller = admission::check_origin(request.uri(), headers, settings)
        .and_then(|()| own_page(request.uri(), headers))
        .and_then(|()| {
            let has_leave = request.method().is_safe() || headers.contains_key(&OWN);
            has_leave.then_some(()).ok_or_else(|| {
                Refusal::new(
                    StatusCode::FORBIDDEN,
                    format!("this needs the header `{OWN}`, with any value"),
                )
            })
        })
        .and_then(|()| admission::caller(headers, settings));
    match caller {
        Ok(caller) => {
            if let Some(client) = request.extensions().get::<Arc<Client>>() {
                client.let_in();
            }
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Checks that a request comes from our own page, or from no page at all.
fn own_page(uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name| {
        headers
            .get(name)
            .map(|value: &HeaderValue| value.to_str().unwrap_or_default())
    };
    let host = uri
        .authority()
        .map(Authority::as_str)
        .or(text(&header::HOST))
        .unwrap_or_default();
    let is_ours = |origin: &str| {
        origin
            .split_once("://")
            .is_some_and(|(_, at)| at.eq_ignore_ascii_case(host))
    };
    let origin = text(&header::ORIGIN).is_none_or(is_ours);
    let site = text(&FETCH_SITE).is_none_or(|site| site == "same-origin" || site == "none");
    if origin && site {
        return Ok(());
    }
    Err(Refusal::new(
        StatusCode::FORBIDDEN,
        "pages of other origins may not inspect `serve`",
    ))
}

/// A value that nobody can guess.
pub(super) fn nonce() -> Result<String, Refusal> {
    let mut random = [0; RANDOM];
    getrandom::fill(&mut random).map_err(|error| Refusal::for_now(error.to_string()))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What the page may do: run its own script, and speak to `serve`.
pub(super) fn policy(nonce: &str) -> HeaderValue {
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'"
    );
    HeaderValue::from_str(&policy)
        .unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"))
}

/// Headers of each response, refusals among them: nothing is stored, framed, or taken for anything
/// else.
pub(super) async fn with_safe_headers(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let mut say = |name, value| {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    };
    say(
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'",
    );
    say(header::X_FRAME_OPTIONS, "DENY");
    say(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    say(header::REFERRER_POLICY, "no-referrer");
    say(
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    );
    say(
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    );
    response
}
