//! A log of calls: names, times and how they ended, no contents.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use mcp_sessiond_jsonrpc::object::Object;
use serde::Serialize;
use tokio::time::Instant;

use crate::bundle::{Bundle, Error};
use crate::call::{Call, Target};
use crate::connection::Answer;
use crate::decorate::Decorator;

/// Characters of a name that are noted. A name that is not listed can be anything that the host
/// has sent.
const NAME_MAX: usize = 128;

/// Where calls are noted.
pub trait CallLog: Send + Sync {
    /// A call has ended. Must not wait: the answer does.
    fn note(&self, entry: CallEntry);
}

/// Nothing is noted.
impl CallLog for () {
    fn note(&self, _: CallEntry) {}
}

impl fmt::Debug for dyn CallLog {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("CallLog")
    }
}

/// A call that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallEntry {
    /// The method.
    pub method: String,
    /// The name of the tool or prompt; the URI of the resource, without what may be a secret in it:
    /// user, query and fragment.
    pub name: Option<String>,
    /// The backend, where it is known.
    pub server: Option<String>,
    /// How long it took. It has ended just now.
    pub took: Duration,
    /// How it has ended.
    pub ended: CallEnd,
}

/// One line for a person.
impl fmt::Display for CallEntry {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.method)?;
        if let Some(name) = &self.name {
            write!(to, " {name:?}")?;
        }
        if let Some(server) = &self.server {
            write!(to, " of {server:?}")?;
        }
        write!(to, ": {} after {} ms", self.ended, self.took.as_millis())
    }
}

/// How a call has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallEnd {
    /// With a result.
    Done,
    /// With a result that says that the tool has failed.
    ToolError,
    /// With an error of this code, by the backend or by us.
    Refused(i64),
    /// [`Error::Unknown`].
    Unknown,
    /// [`Error::NotAvailable`].
    NotAvailable,
    /// [`Error::Lost`].
    Lost,
    /// [`Error::TooLong`].
    TooLong,
    /// [`Error::Busy`].
    Busy,
    /// [`Error::Cancelled`], or nobody waited for the answer any more.
    Cancelled,
    /// [`Error::Closed`].
    Closed,
}

impl CallEnd {
    fn of(target: &Target, answer: &Result<Answer, Error>) -> Self {
        match answer {
            Ok(answer) => match &answer.outcome {
                Ok(result) if matches!(target, Target::Tool(_)) => {
                    let is_error = Object::read(result)
                        .and_then(|result| Some(result.get("isError")?.get() == "true"));
                    if is_error == Some(true) {
                        Self::ToolError
                    } else {
                        Self::Done
                    }
                }
                Ok(_) => Self::Done,
                Err(error) => Self::Refused(error.code),
            },
            Err(Error::Refused(error)) => Self::Refused(error.code),
            Err(Error::Unknown { .. }) => Self::Unknown,
            Err(Error::NotAvailable { .. }) => Self::NotAvailable,
            Err(Error::Lost { .. }) => Self::Lost,
            Err(Error::TooLong { .. }) => Self::TooLong,
            Err(Error::Busy { .. }) => Self::Busy,
            Err(Error::Cancelled) => Self::Cancelled,
            Err(Error::Closed) => Self::Closed,
        }
    }
}

impl fmt::Display for CallEnd {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Done => "done",
            Self::ToolError => "tool_error",
            Self::Refused(code) => return write!(to, "refused with {code}"),
            Self::Unknown => "unknown",
            Self::NotAvailable => "not_available",
            Self::Lost => "lost",
            Self::TooLong => "too_long",
            Self::Busy => "busy",
            Self::Cancelled => "cancelled",
            Self::Closed => "closed",
        })
    }
}

pub(super) struct LoggedBundle {
    pub(super) inner: Arc<dyn Bundle>,
    pub(super) log: Arc<dyn CallLog>,
}

/// A call under way. It is noted when it ends, also by being dropped.
struct NoteOnDrop<'a> {
    log: &'a dyn CallLog,
    entry: Option<CallEntry>,
    began: Instant,
}

impl NoteOnDrop<'_> {
    fn end(&mut self, ended: CallEnd) {
        if let Some(entry) = self.entry.take() {
            self.log.note(CallEntry {
                took: self.began.elapsed(),
                ended,
                ..entry
            });
        }
    }
}

impl Drop for NoteOnDrop<'_> {
    fn drop(&mut self) {
        self.end(CallEnd::Cancelled);
    }
}

impl Decorator for LoggedBundle {
    fn inner(&self) -> &dyn Bundle {
        &*self.inner
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Error>> {
        Box::pin(async move {
            let target = call.target.clone();
            let entry = CallEntry {
                method: cut(target.method()),
                name: match target.uri() {
                    Some(uri) => Some(cut(&without_secrets(uri))),
                    None => target.listed_name().map(|(_, name)| cut(name)),
                },
                server: self.inner.origin_of(&target).map(|own| own.backend),
                took: Duration::ZERO,
                ended: CallEnd::Cancelled,
            };
            let mut noting = NoteOnDrop {
                log: &*self.log,
                entry: Some(entry),
                began: Instant::now(),
            };
            let answer = self.inner.call(call).await;
            noting.end(CallEnd::of(&target, &answer));
            answer
        })
    }
}

fn cut(name: &str) -> String {
    name.chars().take(NAME_MAX).collect()
}

/// An URI without user, query and fragment (RFC 3986, 3).
fn without_secrets(uri: &str) -> String {
    let uri = uri.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = uri.split_once("://") else {
        return uri.to_owned();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_secret_is_not_in_a_name() {
        for (uri, noted) in [
            ("file:///home/me/a@b", "file:///home/me/a@b"),
            (
                "https://me:secret@example.com/x?token=secret#secret",
                "https://example.com/x",
            ),
            ("https://a@b@example.com", "https://example.com"),
            ("db:rows?secret", "db:rows"),
            ("x#secret", "x"),
        ] {
            assert_eq!(without_secrets(uri), noted);
        }
    }
}
