//! What services go by that are served over HTTP.

use super::section::section;

section! {
    /// Sessions of a service (`serve`), and the servers behind them. Applies to keepers that register from now on.
    pub struct Http {
        /// How long the backend of a service's session stays when nobody serves it, in ms.
        linger_ms: u64 = 600_000,
    }
}
