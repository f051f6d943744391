//! What fronts go by.

use super::Tell;
use super::section::section;

section! {
    /// How `wrap` waits and tells. Each front reads it when it starts.
    pub struct Wrap {
        /// For the host's first line, which says what the host calls itself, in ms.
        first_line_wait_ms: u64 = 1_000; 1..,
        /// To have the server kept, in ms. After that it is run as it is.
        keeper_wait_ms: u64 = 2_000; 1..,
        /// For answers to a host that has closed its input and still reads, in ms.
        input_end_wait_ms: u64 = 600_000; 1..,
        /// Where the host is told that its server begins afresh.
        tell: Tell = Tell::Error,
    }
}
