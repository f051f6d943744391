//! How `serve` answers clients that accept both a message and a stream of events.

use serde::{Deserialize, Serialize};

/// What a call is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Prefer {
    /// A stream, which begins at once.
    Stream,
    /// A message, where the answer is all that the server says.
    Json,
}
