//! The state of a bundle, and of each of its backends.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a backend can't be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What kind of failure it is.
    pub code: FailureCode,
    /// One sentence, without the backend's name. A model is told it, and with it perhaps the user.
    pub message: String,
    /// The same at length, for standard error.
    #[serde(skip)]
    pub detail: Option<String>,
}

impl Failure {
    /// A failure.
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            detail: None,
        }
    }

    /// There is no such program. The sentence may end in `=` and where it was looked for.
    pub fn not_found(sentence: String) -> Self {
        let short = sentence.split_once('=').map(|(short, _)| short.to_owned());
        let detail = short.is_some().then(|| sentence.clone());
        Self {
            detail,
            ..Self::new(FailureCode::NotFound, short.unwrap_or(sentence))
        }
    }

    /// The same, where it names its backend: whoever says it says that name before it.
    pub(crate) fn without_name(mut self, backend: &str) -> Self {
        let named = format!("the server {backend:?}");
        self.message = self.message.replace(&named, "the server");
        self
    }

    /// The sentence for whoever can read all of it.
    pub fn at_length(&self) -> &str {
        self.detail.as_deref().unwrap_or(&self.message)
    }
}

/// Why a backend could not be used when it was started last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedStart {
    /// What it was, as [`Source::identity`](crate::Source::identity) has it.
    pub identity: Option<String>,
    /// Why.
    pub why: Failure,
}

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// There is no such program, or it may not be run; or the address is invalid.
    NotFound,
    /// It could not be started or connected.
    NotStarted,
    /// It has ended.
    Exited,
    /// It was not ready in time.
    TimedOut,
    /// It runs elsewhere, and can't be reached.
    Unreachable,
    /// It has refused to be initialised, or does not say what it has.
    Refused,
    /// The user has to log in.
    Unauthorized,
    /// Its entry in the file can't be read.
    BadEntry,
}

impl fmt::Display for FailureCode {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::NotFound => "not_found",
            Self::NotStarted => "not_started",
            Self::Exited => "exited",
            Self::TimedOut => "timed_out",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Unauthorized => "unauthorized",
            Self::BadEntry => "bad_entry",
        })
    }
}

/// The state of a backend.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum BackendState {
    /// Its turn has not come yet.
    #[default]
    NeverTried,
    /// It is being started, for the first time, or at once after it was lost.
    Initializing,
    /// It can be used.
    Ready,
    /// It can't be used, and is tried again later.
    Failed(Failure),
}

impl BackendState {
    /// Whether it was not tried to the end yet.
    pub(crate) fn is_new(&self) -> bool {
        matches!(self, Self::NeverTried | Self::Initializing)
    }
}

/// The state of a bundle as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BundleState {
    /// Some backends were not tried to the end yet.
    Initializing,
    /// Some backend is ready, or there is none.
    Ready,
    /// All backends have failed.
    Failed,
    /// It was closed.
    Closed,
}

/// The state of a bundle, and of each backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// As a whole.
    pub status: BundleState,
    /// Each backend, in the order of the file.
    pub backends: Vec<(String, BackendState)>,
    /// What is missing of the lists of backends that can be used: a backend's name, and what there is
    /// to say behind it.
    #[serde(skip)]
    pub lists: Vec<(String, String)>,
}

impl Status {
    pub(crate) fn of(
        is_closed: bool,
        backends: Vec<(String, BackendState)>,
        lists: Vec<(String, String)>,
    ) -> Self {
        let is =
            |wanted: fn(&BackendState) -> bool| backends.iter().any(|(_, state)| wanted(state));
        let status = if is_closed {
            BundleState::Closed
        } else if is(BackendState::is_new) {
            BundleState::Initializing
        } else if backends.is_empty() || is(|state| *state == BackendState::Ready) {
            BundleState::Ready
        } else {
            BundleState::Failed
        };
        Self {
            status,
            backends,
            lists,
        }
    }

    /// One sentence for each backend that can't be used, and why, and for each list of which something
    /// is missing. A model can say it to its user.
    pub fn missing(&self) -> Vec<String> {
        let missing = self
            .backends
            .iter()
            .filter_map(|(name, state)| match state {
                BackendState::Ready => None,
                BackendState::NeverTried | BackendState::Initializing => {
                    Some(format!("The server {name:?} is still starting."))
                }
                BackendState::Failed(Failure { message, .. }) => Some(format!(
                    "The server {name:?} is not available: {}.",
                    message.trim_end_matches('.')
                )),
            });
        let lists = self
            .lists
            .iter()
            .map(|(name, what)| format!("The server {name:?} {what}."));
        missing.chain(lists).collect()
    }
}
