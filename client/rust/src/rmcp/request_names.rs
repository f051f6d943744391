//! The names by which a server knows requests and their progress: their own, unless it may still
//! work on another one of that name.

use std::collections::HashSet;

use rmcp::model::NumberOrString;

/// Bytes of names that are remembered. So many are of a thousand calls that a client has cancelled;
/// it seldom cancels ten.
const LEFT_MAX: usize = 64 * 1024;

/// What the names begin with that are given here.
const GIVEN: &str = "mcp-sessiond-";

/// Which names a new request may not have, beside those of the requests that are under way.
pub(super) struct RequestNames {
    /// Ids and tokens of requests that were cancelled: the server may still work on them, and rmcp
    /// does not tell when it has ended. None: they are too many, so that no request has its own
    /// name any more.
    left: Option<HashSet<NumberOrString>>,
    bytes: usize,
    given: u64,
}

impl RequestNames {
    pub(super) fn new() -> Self {
        Self {
            left: Some(HashSet::new()),
            bytes: 0,
            given: 0,
        }
    }

    /// Whether a request may have this name.
    pub(super) fn is_free(&self, name: &NumberOrString) -> bool {
        !is_given(name) && self.left.as_ref().is_some_and(|left| !left.contains(name))
    }

    /// A name that no client has, and that is given once.
    pub(super) fn give(&mut self) -> NumberOrString {
        self.given += 1;
        NumberOrString::String(format!("{GIVEN}{}", self.given).into())
    }

    /// The request of this name was cancelled.
    pub(super) fn leave(&mut self, name: NumberOrString) {
        let Some(left) = self.left.as_mut().filter(|_| !is_given(&name)) else {
            return;
        };
        let bytes = match &name {
            NumberOrString::Number(_) => 0,
            NumberOrString::String(text) => text.len(),
        };
        if left.insert(name) {
            self.bytes += size_of::<NumberOrString>() + bytes;
        }
        if self.bytes > LEFT_MAX {
            self.left = None;
        }
    }
}

fn is_given(name: &NumberOrString) -> bool {
    matches!(name, NumberOrString::String(text) if text.starts_with(GIVEN))
}
