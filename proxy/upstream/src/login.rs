//! The user's login with a server: an access token, which all processes of the user share, and
//! which one of them refreshes.
//!
//! Rules: MCP 2025-11-25, "Authorization"; RFC 6749 section 6, RFC 8252, RFC 8707, RFC 9728. The
//! SDK carries them out, see `refresh.rs` and [`browser`]. Tokens are in a file of the user's for
//! each server, see `file.rs`.
//!
//! One refresh at a time: who wants to refresh takes the lock beside the file, reads the file
//! again, and takes what is there if another process was faster. The new tokens are in the file, on
//! the disk, before anybody uses them. A process that is killed between the authorization server's
//! answer and that leaves a refresh token that was used: the next refresh is rejected, and each
//! process says so.

mod authority;
pub mod browser;
mod file;
mod refresh;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Url;
use tokio::time::{Instant, timeout};

use self::file::{File, Tokens, now_ms};
use self::refresh::RefreshError;

/// How long a refresh may take, discovery included.
const REFRESH_WAIT: Duration = Duration::from_secs(30);

/// Why a request can't say who the user is. Each is one sentence, which names the command
/// that helps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The user has not logged in.
    #[error("the server {0:?} needs a login: run `mcp-sessiond login {name}`", name = quoted(.0))]
    Wanted(String),
    /// The server takes no token of this login.
    #[error("the server {0:?} no longer accepts your login: run `mcp-sessiond login {name}`", name = quoted(.0))]
    Refused(String),
    /// The refresh token was revoked, has expired, or was used by a process that was killed before
    /// it had kept the next one.
    #[error("your login with the server {0:?} has ended, or was revoked: run `mcp-sessiond login {name}`", name = quoted(.0))]
    Ended(String),
    /// The login does not cover what was asked for.
    #[error("your login with the server {0:?} does not cover this: run `mcp-sessiond login {name}{scope}`", name = quoted(.0), scope = scope_option(.1))]
    Scope(String, String),
    /// Tokens would be sent in the clear.
    #[error("the server {0:?} has an http:// URL: a login needs https://, except on this machine")]
    Plain(String),
    /// It could not be refreshed for now.
    #[error("your login with the server {name:?} could not be renewed: {why}; if this keeps failing, run `mcp-sessiond login {}`", quoted(.name))]
    NotRenewed {
        /// The server's.
        name: String,
        /// Why.
        why: String,
    },
    /// There could be no login.
    #[error("the login with the server {name:?} failed: {why}")]
    Failed {
        /// The server's.
        name: String,
        /// Why.
        why: String,
    },
    /// Another process does not give up the lock.
    #[error("another process has held the lock of your login with the server {0:?} for a minute: end it, or try again later; then run `mcp-sessiond login {name}` if need be", name = quoted(.0))]
    Held(String),
    /// The file of the login can't be used.
    #[error("{}: {why}", .path.display())]
    File {
        /// The file, or its directory.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// The name, as a shell takes it.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain) {
        name.to_owned()
    } else {
        format!("-- '{}'", name.replace('\'', r"'\''"))
    }
}

fn scope_option(scope: &str) -> String {
    // A server has chosen it, and somebody may paste it.
    let is_scope = |c: char| c.is_ascii_graphic() && !"'\"\\`$".contains(c) || c == ' ';
    if scope.is_empty() || !scope.chars().all(is_scope) {
        String::new()
    } else {
        format!(" --scope '{scope}'")
    }
}

/// Text of a server, as far as it can be shown.
fn readable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Deletes the tokens of all logins with an entry of this name. False: there were none. The
/// authorization server is not told.
///
/// # Errors
/// [`LoginError::File`].
pub async fn forget(name: &str) -> Result<bool, LoginError> {
    let mut were_there = false;
    for file in File::all_of(name)? {
        let _lock = file.lock(name).await?;
        were_there |= file.delete()?;
    }
    Ok(were_there)
}

/// The user's login with one server.
#[derive(Clone)]
pub struct Login {
    name: String,
    url: Url,
    /// One refresh of this process waits for the lock at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// When a refresh has failed for now, and why.
    failure: Arc<Mutex<Option<(Instant, LoginError)>>>,
}

/// An access token, and which login it is of. Not to be shown.
pub(crate) struct Bearer {
    pub(crate) token: String,
    pub(crate) login: String,
}

impl Bearer {
    fn of(tokens: &Tokens) -> Self {
        Self {
            token: tokens.access().to_owned(),
            login: tokens.login.clone(),
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Login")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Login {
    pub(crate) fn of(name: &str, url: &Url) -> Self {
        Self {
            name: name.to_owned(),
            url: url.clone(),
            turn: Arc::default(),
            failure: Arc::default(),
        }
    }

    /// The server's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn file(&self) -> Result<File, LoginError> {
        File::of(&self.name, &self.url)
    }

    /// By which the user is logged in now, as far as that can be read. No token is refreshed for
    /// it.
    pub(crate) fn present(&self) -> Option<String> {
        self.file().ok()?.read().ok()?.map(|tokens| tokens.login)
    }

    /// The access token to use now; it is refreshed first where it is about to expire. None: the
    /// user has not logged in.
    ///
    /// # Errors
    /// [`LoginError`].
    pub async fn token(&self) -> Result<Option<String>, LoginError> {
        Ok(self.bearer().await?.map(|bearer| bearer.token))
    }

    /// The access token to use after the server has refused this one.
    ///
    /// # Errors
    /// [`LoginError`].
    pub async fn token_after(&self, refused: &str) -> Result<String, LoginError> {
        Ok(self.bearer_after(refused).await?.token)
    }

    /// The same as [`Self::token`], and which login that is.
    pub(crate) async fn bearer(&self) -> Result<Option<Bearer>, LoginError> {
        let Some(tokens) = self.file()?.read()? else {
            return Ok(None);
        };
        if tokens.is_fresh(now_ms()) {
            Ok(Some(Bearer::of(&tokens)))
        } else {
            self.renewed(None).await.map(Some)
        }
    }

    /// The same as [`Self::token_after`], and which login that is.
    pub(crate) async fn bearer_after(&self, refused: &str) -> Result<Bearer, LoginError> {
        self.renewed(Some(refused.to_owned())).await
    }

    async fn renewed(&self, refused: Option<String>) -> Result<Bearer, LoginError> {
        let login = self.clone();
        // A call that is cancelled must not take a refresh with it whose answer is under way.
        let renewing = tokio::spawn(async move { login.renew(refused.as_deref()).await });
        renewing
            .await
            .unwrap_or_else(|_| Err(self.not_renewed("it was interrupted")))
    }

    /// Why a refresh has failed since then: whoever has waited for it does not try again, as each try
    /// could take [`REFRESH_WAIT`], one after the other.
    fn failure_since(&self, came: Instant) -> Option<LoginError> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure
            .as_ref()
            .filter(|(at, _)| came <= *at)
            .map(|(_, error)| error.clone())
    }

    async fn renew(&self, refused: Option<&str>) -> Result<Bearer, LoginError> {
        let came = Instant::now();
        let _turn = self.turn.lock().await;
        let file = self.file()?;
        if let Some(error) = self.failure_since(came) {
            // Another process may have got one, or the user has logged in.
            let tokens = file.read()?.filter(|tokens| tokens.is_fresh(now_ms()));
            let bearer = tokens.map(|tokens| Bearer::of(&tokens));
            return bearer
                .filter(|bearer| refused != Some(&bearer.token))
                .ok_or(error);
        }
        let _lock = file.lock(&self.name).await?;
        let mut tokens = file
            .read()?
            .ok_or_else(|| LoginError::Wanted(self.name.clone()))?;
        if tokens.is_fresh(now_ms()) && refused != Some(tokens.access()) {
            return Ok(Bearer::of(&tokens));
        }
        if tokens.ended || tokens.refresh().is_none() {
            return Err(LoginError::Ended(self.name.clone()));
        }
        let renewed = timeout(REFRESH_WAIT, refresh::refreshed(&self.url, &tokens)).await;
        match renewed.unwrap_or_else(|_| {
            Err(RefreshError::ForNow(
                "the authorization server does not answer".to_owned(),
            ))
        }) {
            Ok(renewed) => {
                file.write(&renewed)?;
                Ok(Bearer::of(&renewed))
            }
            Err(RefreshError::Rejected) => {
                tokens.ended = true;
                file.write(&tokens)?;
                Err(LoginError::Ended(self.name.clone()))
            }
            Err(RefreshError::ForNow(why)) => {
                let error = self.not_renewed(&why);
                let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                *failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    fn not_renewed(&self, why: &str) -> LoginError {
        LoginError::NotRenewed {
            name: self.name.clone(),
            why: readable(why),
        }
    }

    fn failed(&self, why: impl fmt::Display) -> LoginError {
        LoginError::Failed {
            name: self.name.clone(),
            why: readable(&why.to_string()),
        }
    }

    /// Keeps the tokens of a login.
    async fn keep(&self, tokens: &Tokens) -> Result<(), LoginError> {
        let file = self.file()?;
        let _lock = file.lock(&self.name).await?;
        file.write(tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_helps_can_be_pasted() {
        assert!(
            LoginError::Wanted("a-b".into())
                .to_string()
                .ends_with("run `mcp-sessiond login a-b`")
        );
        let odd = LoginError::Ended("it's; rm".into()).to_string();
        assert!(
            odd.ends_with(r"run `mcp-sessiond login -- 'it'\''s; rm'`"),
            "{odd}"
        );
        let scope = LoginError::Scope("a".into(), "files:read".into()).to_string();
        assert!(
            scope.ends_with("run `mcp-sessiond login a --scope 'files:read'`"),
            "{scope}"
        );
        let hostile = LoginError::Scope("a".into(), "x'; rm -rf ~; '".into()).to_string();
        assert!(hostile.ends_with("run `mcp-sessiond login a`"), "{hostile}");
    }
}
