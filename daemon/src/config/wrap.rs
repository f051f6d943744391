//! What fronts go by.

use super::section::section;

section! {
    /// How `wrap` waits. Each front reads it when it starts.
    pub struct Wrap {
        /// For the host's first line, which says what the host calls itself, in ms.
        first_line_wait_ms: u64 = 1_000; 1..,
        /// To have the server kept, in ms. After that it is run as it is.
        keeper_wait_ms: u64 = 2_000; 1..,
    }
}
