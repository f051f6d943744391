//! A login in the browser: authorization code with PKCE (MCP 2025-11-25, "Authorization"), and a
//! redirect to this machine (RFC 8252, section 7.3).

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use mcp_sessiond_proto::RequestId;
use reqwest::Url;
use rmcp::transport::auth::{AuthError, AuthorizationManager, OAuthClientConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::authority::Authority;
use super::file::{Tokens, now_ms};
use super::{Login, LoginError, readable};
use crate::url::is_private;

/// How long the user may take in the browser.
const WAIT: Duration = Duration::from_secs(10 * 60);
/// How long the browser may take to say its request, once it has connected.
const REQUEST_WAIT: Duration = Duration::from_secs(5);
/// Connections that are read at once. If there are more, the oldest one goes.
const CONNECTIONS_MAX: usize = 64;
/// Bytes that the head of a request may have.
const REQUEST_MAX: usize = 32 * 1024;
/// How the authorization server knows us.
const CLIENT: &str = "mcp-sessiond";
/// The path of the redirect.
const PATH: &str = "/callback";

/// What may be said of a login beforehand.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// The scopes to ask for. None: those that the server names.
    pub scopes: Vec<String>,
    /// The client's id, where it is registered already. None: it is registered dynamically (RFC
    /// 7591).
    pub client_id: Option<String>,
}

/// A login that waits for the browser.
pub struct Waiting {
    login: Login,
    manager: AuthorizationManager,
    client: OAuthClientConfig,
    issuer: String,
    token_endpoint: String,
    listener: TcpListener,
    state: String,
    /// Where the user logs in.
    pub url: String,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Waiting")
            .field("login", &self.login)
            .finish_non_exhaustive()
    }
}

impl Login {
    /// Finds the authorization server, and prepares a login with it.
    ///
    /// # Errors
    /// [`LoginError`].
    pub async fn begin(&self, wishes: Wishes) -> Result<Waiting, LoginError> {
        if !is_private(&self.url) {
            return Err(LoginError::Plain(self.name.clone()));
        }
        crate::tls::use_ring();
        let failed = |error: AuthError| self.failed(error);
        let mut manager = AuthorizationManager::new(self.url.clone())
            .await
            .map_err(failed)?;
        let Authority { issuer, metadata } = Authority::of(&manager)
            .await
            .map_err(|why| self.failed(why))?;
        let token_endpoint = metadata.token_endpoint.clone();
        manager.set_metadata(metadata);
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .map_err(|error| self.failed(error))?;
        let port = listener
            .local_addr()
            .map_err(|error| self.failed(error))?
            .port();
        let redirect = format!("http://127.0.0.1:{port}{PATH}");
        let scopes = if wishes.scopes.is_empty() {
            manager.select_initial_scopes(&[]).await
        } else {
            wishes.scopes
        };
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let client = match wishes.client_id {
            Some(id) => {
                let client = OAuthClientConfig::new(id, redirect);
                manager.configure_client(client.clone()).map_err(failed)?;
                client
            }
            None => manager
                .register_client(CLIENT, &redirect, &scopes)
                .await
                .map_err(failed)?,
        };
        let url = manager
            .get_authorization_url(&scopes)
            .await
            .map_err(failed)?;
        let parsed = Url::parse(&url).map_err(|error| self.failed(error))?;
        let state = parsed
            .query_pairs()
            .find(|(name, _)| name == "state")
            .map(|(_, value)| value.into_owned());
        let state = state.ok_or_else(|| self.failed("the request has no state"))?;
        Ok(Waiting {
            login: self.clone(),
            manager,
            client,
            issuer,
            token_endpoint,
            listener,
            state,
            url,
        })
    }
}

impl Waiting {
    /// Waits until the browser comes back, and keeps the tokens.
    ///
    /// # Errors
    /// [`LoginError`].
    pub async fn finish(self) -> Result<(), LoginError> {
        let Self {
            login,
            manager,
            client,
            issuer,
            token_endpoint,
            listener,
            state,
            ..
        } = self;
        let (stream, back) = timeout(WAIT, wait_for_redirect(&listener, &state))
            .await
            .map_err(|_| login.failed("nobody has logged in within ten minutes"))?
            .map_err(|error| login.failed(error))?;
        let kept = async {
            let code = back.code.map_err(|why| login.failed(why))?;
            let asked_ms = now_ms();
            let response = manager
                .exchange_code_for_token_with_issuer(&code, &state, back.issuer.as_deref())
                .await;
            let response = response.map_err(|error| login.failed(error))?;
            let token = serde_json::to_value(response).map_err(|error| login.failed(error))?;
            let scopes = manager.get_current_scopes().await;
            let tokens = Tokens {
                name: login.name.clone(),
                url: login.url.to_string(),
                issuer,
                token_endpoint,
                client_id: client.client_id,
                client_secret: client.client_secret,
                redirect: client.redirect_uri,
                scopes,
                token,
                asked_ms,
                ended: false,
                login: RequestId::mint().as_str().to_owned(),
            };
            login.keep(&tokens).await
        };
        let kept = kept.await;
        let text = match &kept {
            Ok(()) => "You are logged in. You can close this page.".to_owned(),
            Err(error) => error.to_string(),
        };
        // The browser may be gone, and the login is kept.
        let _ = answer(
            stream,
            if kept.is_ok() {
                "200 OK"
            } else {
                "400 Bad Request"
            },
            &text,
        )
        .await;
        kept
    }
}

/// What the authorization server has sent by the browser.
#[derive(Debug, PartialEq, Eq)]
struct Redirect {
    /// The code, or why there is none.
    code: Result<String, String>,
    issuer: Option<String>,
}

/// Waits for the redirect. Requests that are something else, or another login's, are refused. Several
/// connections are read at once: browsers open some on which they ask nothing.
async fn wait_for_redirect(
    listener: &TcpListener,
    state: &str,
) -> io::Result<(TcpStream, Redirect)> {
    let (mut reading, mut started) = (JoinSet::new(), VecDeque::<AbortHandle>::new());
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                started.retain(|task| !task.is_finished());
                if started.len() >= CONNECTIONS_MAX
                    && let Some(oldest) = started.pop_front()
                {
                    oldest.abort();
                }
                started.push_back(reading.spawn(read_redirect(stream, state.to_owned())));
            }
            Some(read) = reading.join_next() => if let Ok(Some(redirect)) = read {
                return Ok(redirect);
            },
        }
    }
}

/// Reads a request. None: it is not the redirect of this login, or does not come in time.
async fn read_redirect(mut stream: TcpStream, state: String) -> Option<(TcpStream, Redirect)> {
    let target = timeout(REQUEST_WAIT, read_target(&mut stream)).await;
    match back(&target.ok()?.ok()?, &state) {
        Some(back) => Some((stream, back)),
        None => {
            let _ = answer(stream, "404 Not Found", "There is nothing here.").await;
            None
        }
    }
}

/// The target of a GET.
async fn read_target(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if head.len() > REQUEST_MAX || stream.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    let head = String::from_utf8_lossy(&head);
    let mut words = head.split(' ');
    match (words.next(), words.next()) {
        (Some("GET"), Some(target)) => Ok(target.to_owned()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// What the target of a request says, where it is the redirect of this login.
fn back(target: &str, state: &str) -> Option<Redirect> {
    let url = Url::parse("http://127.0.0.1/").ok()?.join(target).ok()?;
    let find = |name: &str| {
        url.query_pairs()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.into_owned())
    };
    if url.path() != PATH || find("state").as_deref() != Some(state) {
        return None;
    }
    let code = match (find("error"), find("code")) {
        (Some(error), _) => {
            let more = find("error_description")
                .map(|text| format!(" ({text})"))
                .unwrap_or_default();
            Err(readable(&format!(
                "the authorization server says {error}{more}"
            )))
        }
        (None, Some(code)) => Ok(code),
        (None, None) => Err("the authorization server has sent no code".to_owned()),
    };
    Some(Redirect {
        code,
        issuer: find("iss"),
    })
}

async fn answer(mut stream: TcpStream, status: &str, text: &str) -> io::Result<()> {
    let head =
        "Content-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\nConnection: close";
    let length = text.len();
    let whole = format!("HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {length}\r\n\r\n{text}");
    stream.write_all(whole.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn asked(listener: &TcpListener, target: &str) -> TcpStream {
        let at = listener.local_addr().expect("bound");
        let mut stream = TcpStream::connect(at).await.expect("it listens");
        stream.write_all(target.as_bytes()).await.expect("sent");
        stream
    }

    /// A browser opens connections on which it asks nothing.
    #[tokio::test]
    async fn the_redirect_does_not_wait_for_idle_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let mut idle = asked(&listener, "").await;
        let _others = (asked(&listener, "").await, asked(&listener, "GET ").await);
        let redirect = "GET /callback?code=a&state=s HTTP/1.1\r\n\r\n";
        let _redirected = asked(&listener, redirect).await;
        tokio::select! {
            biased;
            found = wait_for_redirect(&listener, "s") => {
                let (_, back) = found.expect("the redirect");
                assert_eq!(back.code, Ok("a".into()));
            }
            _ = idle.read_u8() => panic!("the idle connection was waited for"),
        }
    }

    #[tokio::test]
    async fn more_connections_than_are_read_at_once_keep_the_redirect_out_no_longer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let waiting = wait_for_redirect(&listener, "s");
        let redirected = async {
            let mut idle = Vec::new();
            for _ in 0..=CONNECTIONS_MAX {
                idle.push(asked(&listener, "").await);
            }
            // The oldest one goes for the newest, and no other: it is not that its time is over.
            let gone = idle[0].read_u8().await;
            let held = idle[2].try_read(&mut [0]);
            let redirect = "GET /callback?code=a&state=s HTTP/1.1\r\n\r\n";
            let redirected = asked(&listener, redirect).await;
            (
                gone.is_err(),
                held.map_err(|error| error.kind()),
                redirected,
                idle,
            )
        };
        let (found, (gone, held, ..)) = tokio::join!(waiting, redirected);
        assert_eq!((gone, held), (true, Err(io::ErrorKind::WouldBlock)));
        assert_eq!(found.expect("the redirect").1.code, Ok("a".into()));
    }

    #[test]
    fn only_the_redirect_of_this_login_is_taken() {
        let code = |text: &str| {
            Some(Redirect {
                code: Ok(text.into()),
                issuer: None,
            })
        };
        assert_eq!(back("/callback?code=a%20b&state=s", "s"), code("a b"));
        for other in [
            "/callback?code=a&state=t",
            "/callback?code=a",
            "/?code=a&state=s",
            "/favicon.ico",
            "//x/callback",
        ] {
            assert_eq!(back(other, "s"), None, "{other}");
        }
        let refused = back(
            "/callback?error=access_denied&error_description=no%0Aw&state=s",
            "s",
        )
        .expect("the redirect");
        assert_eq!(
            refused.code,
            Err("the authorization server says access_denied (now)".to_owned())
        );
        assert_eq!(
            back("/callback?code=a&state=s&iss=https://i", "s")
                .and_then(|back| back.issuer)
                .as_deref(),
            Some("https://i")
        );
    }
}
