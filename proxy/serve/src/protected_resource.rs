//! Where a client gets a token that is taken here: the metadata of a protected resource (RFC 9728), which a refusal names, and
//! by which clients of MCP log in by themselves (2025-11-25, Authorization).

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::IntoResponse;
use axum::routing::get;
use serde_json::json;

use crate::admission::{authority, check_origin};
use crate::jwt::Jwt;
use crate::refusal::Refusal;
use crate::settings::{Settings, Target};

/// Where the metadata is; behind it stands the path of the resource.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// How a client has reached us, where a proxy speaks TLS for us. A client that says so itself leads nobody but itself astray.
const PROTOCOL: &str = "x-forwarded-proto";

/// Where each of several servers is, beside all of them as one.
const SINGLES: &str = "/servers/";

/// The route of the metadata. Nobody has a token yet who asks for it. `whole`: the path of MCP.
pub(crate) fn router(settings: &Arc<Settings>, whole: &'static str) -> Router {
    Router::new()
        .route(WELL_KNOWN, get(metadata))
        .route(&format!("{WELL_KNOWN}/{{*path}}"), get(metadata))
        .with_state((settings.clone(), whole))
}

async fn metadata(
    State((settings, whole)): State<(Arc<Settings>, &'static str)>,
    request: Request,
) -> Result<impl IntoResponse, Refusal> {
    let (uri, headers) = (request.uri(), request.headers());
    check_origin(uri, headers, &settings)?;
    let unknown = |message: String| Refusal::new(StatusCode::NOT_FOUND, message);
    let jwt = settings.proof.jwt();
    let jwt = jwt.ok_or_else(|| unknown("nobody issues tokens for this server".into()))?;
    let are_several = matches!(settings.target, Target::Servers(_));
    let path = match uri.path().strip_prefix(WELL_KNOWN) {
        Some("" | "/") => whole,
        Some(path) if path == whole || are_several && path.starts_with(SINGLES) => path,
        _ => {
            let message = format!("nothing is served there: ask for {WELL_KNOWN}{whole}");
            return Err(unknown(message));
        }
    };
    let resource = resource(jwt, &origin(uri, headers), path);
    let metadata = json!({
        "resource": resource,
        "authorization_servers": [jwt.issuer()],
        "bearer_methods_supported": ["header"],
    });
    let is_json = (header::CONTENT_TYPE, "application/json");
    Ok(([is_json], metadata.to_string()))
}

/// What a token is asked for. It is the audience where that is a URL, since tokens are checked for it; otherwise, the URL by which
/// the client has come.
fn resource(jwt: &Jwt, origin: &str, path: &str) -> String {
    let audience = jwt.audience();
    match audience.contains("://") {
        true => audience.to_owned(),
        false => format!("{origin}{path}"),
    }
}

/// By which scheme, host and port the client has come.
fn origin(uri: &Uri, headers: &HeaderMap) -> String {
    // Of several proxies, the first one speaks with the client.
    let said = headers.get(PROTOCOL).and_then(|value| value.to_str().ok());
    let first = said.and_then(|said| said.split(',').next());
    let is_tls = first.is_some_and(|first| first.trim().eq_ignore_ascii_case("https"));
    let scheme = if is_tls { "https" } else { "http" };
    let host = authority(uri, headers).map(|host| host.to_string());
    format!("{scheme}://{}", host.unwrap_or_default())
}

/// Has the challenge of a refusal lead to the metadata (RFC 9728, section 5.1). `headers`: those of the request, to this path.
pub(crate) fn point_to(uri: &Uri, headers: &HeaderMap, path: &str, refused: &mut HeaderMap) {
    let Some(challenge) = refused.get(header::WWW_AUTHENTICATE) else {
        return;
    };
    let path = path.trim_end_matches('/').replace('"', "%22");
    let hint = format!(
        r#"resource_metadata="{}{WELL_KNOWN}{path}""#,
        origin(uri, headers)
    );
    let challenge = challenge.to_str().unwrap_or("Bearer");
    let separator = if challenge.contains('=') { "," } else { "" };
    if let Ok(value) = HeaderValue::from_str(&format!("{challenge}{separator} {hint}")) {
        refused.insert(header::WWW_AUTHENTICATE, value);
    }
}
