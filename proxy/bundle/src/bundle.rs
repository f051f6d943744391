//! The trait of a bundle, its errors and its settings.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::error::RpcError;
use mcp_sessiond_jsonrpc::owned::{Id, Message};
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::call::{Call, Item, List, Target};
use crate::connection::Answer;
use crate::names::{Namespace, Origin, Style};
use crate::status::{Failure, Status};

/// Why a call was not made, or has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The bundle was closed.
    #[error("the session was closed")]
    Closed,
    /// No backend has that.
    #[error("Unknown {what}: {name}")]
    Unknown {
        /// What it would be.
        what: &'static str,
        /// Its name.
        name: String,
        /// What else there is to say: why some backends' are missing.
        missing: String,
    },
    /// The backend that has it can't be used.
    #[error("the server {backend:?} is not available: {why}")]
    NotAvailable {
        /// The backend.
        backend: String,
        /// Why.
        why: Failure,
    },
    /// The backend was lost before it had answered.
    #[error(
        "the server {backend:?} was lost before it had answered; it is not known what it has done"
    )]
    Lost {
        /// The backend.
        backend: String,
    },
    /// It took too long.
    #[error("the call took more than {timeout_ms} ms, the limit in {setting}; {}", if *.was_sent {
        "the server was asked to cancel it, and it is not known what it has done"
    } else {
        "it had to wait, and no server has got it"
    })]
    TooLong {
        /// Its limit.
        timeout_ms: u32,
        /// Which setting has it.
        setting: String,
        /// Whether a backend has got it.
        was_sent: bool,
    },
    /// Too many calls wait already.
    #[error("{waiting} calls wait already for {setting}; this one was not made")]
    Busy {
        /// How many wait.
        waiting: usize,
        /// Which setting makes them wait.
        setting: String,
    },
    /// The host has cancelled it before a backend had got it.
    #[error("the call was cancelled before a server had got it")]
    Cancelled,
    /// The request can't be made like this.
    #[error("{0}")]
    Refused(RpcError),
}

impl Error {
    /// No backend has what a call is about.
    pub(crate) fn unknown(target: &Target, status: &Status) -> Self {
        Self::Unknown {
            what: target.what(),
            name: target.name().to_owned(),
            missing: status.missing().join(" "),
        }
    }
}

impl From<Error> for RpcError {
    fn from(error: Error) -> Self {
        let outcome =
            |outcome: &str| serde_json::from_str(&format!(r#"{{"outcome":"{outcome}"}}"#)).ok();
        let sentence = error.to_string();
        let connection = |data| Self {
            code: code::CONNECTION,
            message: sentence.clone(),
            data,
        };
        match error {
            Error::Refused(error) => error,
            Error::TooLong { was_sent, .. } => Self {
                code: code::TIMED_OUT,
                ..connection(outcome(if was_sent { "unknown" } else { "not_sent" }))
            },
            Error::Closed | Error::NotAvailable { .. } | Error::Busy { .. } | Error::Cancelled => {
                connection(outcome("not_sent"))
            }
            Error::Lost { .. } => connection(outcome("unknown")),
            Error::Unknown { what, missing, .. } => {
                let code = if what == "resource" {
                    code::NO_RESOURCE
                } else {
                    code::INVALID_PARAMS
                };
                Self::new(
                    code,
                    if missing.is_empty() {
                        sentence
                    } else {
                        format!("{sentence}. {missing}")
                    },
                )
            }
        }
    }
}

/// What can be done with a bundle. A type that adds something (a filter, a limit) stands around
/// another bundle and is one itself.
pub trait Bundle: Send + Sync {
    /// Its state, and that of each backend.
    fn status(&self) -> Status;

    /// What the backends say about themselves, and which are missing. Changes when a backend comes
    /// or goes.
    fn instructions(&self) -> String;

    /// Waits until each backend was tried to its end, or for as long as the settings have it.
    fn ready(&self) -> BoxFuture<'_, ()>;

    /// A copy of a list of what all backends have, under the names by which it is called.
    ///
    /// # Errors
    /// [`Error::Closed`].
    fn list(&self, list: List) -> BoxFuture<'_, Result<Vec<Item>, Error>>;

    /// Makes a call. Dropping the future does not cancel it: [`tell`](Self::tell) does, with
    /// `notifications/cancelled`.
    ///
    /// # Errors
    /// [`Error`]. An error that a backend has answered with is an [`Answer`].
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Error>>;

    /// Passes on a message of the host that needs no answer: a notification, or the answer
    /// to a backend's request.
    fn tell(&self, message: Message) -> BoxFuture<'_, ()>;

    /// Waits until it is known which backend has this URI, if any.
    fn wait_for_owner<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, ()>;

    /// Cancels a call for a reason of our own, such as a time limit: the backend is told,
    /// and its answer is dropped, should it come nevertheless. The caller drops the call's
    /// future afterwards. False: no backend has got the call.
    fn give_up(&self, id: &Id, why: &str) -> bool;

    /// The backend that a call is for, and the name that it has there. None where no
    /// backend has it, for `logging/setLevel`, which is for all, and for a URI that is in
    /// no list: any backend that knows it may answer then.
    fn origin_of(&self, target: &Target) -> Option<Origin>;

    /// The name under which a backend's tool or prompt is listed.
    fn listed_as(&self, namespace: Namespace, own: &Origin) -> Option<String>;

    /// Another number than before where a list may have changed.
    fn version(&self) -> u64;

    /// Takes no more calls, waits until those under way are answered, and hangs up. The backends
    /// may live on.
    fn close(&self) -> BoxFuture<'_, ()>;
}

impl fmt::Debug for dyn Bundle {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Bundle")
    }
}

/// How a bundle is made.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How many backends may be starting at once: each may compile, or download, or open a
    /// browser.
    pub init_concurrency: usize,
    /// How long one may take to initialise and to give its lists.
    pub init_timeout: Duration,
    /// How long [`Bundle::ready`] waits for all of them. Who comes later joins then.
    pub ready_wait: Duration,
    /// The first and the longest pause before a backend that has failed is tried again; each is
    /// twice the one before.
    pub retry: (Duration, Duration),
    /// Whether one that was lost is tried at once the first time, and calls wait for it.
    pub retry_at_once: bool,
    /// Whether the host goes on with calls that a former process of this session has made: their
    /// answers are passed on to it. Else an answer that nobody here waits for is dropped.
    pub has_former: bool,
    /// How names are given.
    pub names: Style,
}

impl Settings {
    /// Until when the pages of a list may come that is asked for now: what is listed so far is better
    /// than a backend that was not ready in time.
    pub(crate) fn enough(&self) -> Instant {
        Instant::now() + self.init_timeout * 3 / 4
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            init_concurrency: 8,
            init_timeout: Duration::from_secs(30),
            ready_wait: Duration::from_secs(4),
            retry: (Duration::from_secs(1), Duration::from_secs(60)),
            retry_at_once: false,
            has_former: false,
            names: Style::default(),
        }
    }
}

/// A host's parameters of `initialize`.
#[derive(Debug, Clone)]
pub struct Handshake(pub Box<RawValue>);
