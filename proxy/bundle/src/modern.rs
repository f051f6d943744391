//! MCP 2026-07-28 at the edges of a bundle, which speaks 2025-11-25 inside: what a server of the later
//! era says is translated where it comes in.
//!
//! | 2025-11-25 | 2026-07-28 |
//! | --- | --- |
//! | `initialize`, once | `server/discover`, and in each request who asks, what it can do, and the version |
//! | a request of the server's (a question, a sample, the host's folders) | the result `input_required`, after which the call is made again with the answers |
//! | `list_changed`, `resources/subscribe` | the same notifications, for whoever has opened `subscriptions/listen` |
//! | `logging/setLevel` | a level in each request |
//! | `ping` | nothing |
//!
//! - [`source`]: [`EitherEra`], a source whose server speaks one of both.
//! - `translation`: what becomes of each message of such a server, without I/O.

pub(crate) mod source;
#[cfg(test)]
mod tests;
mod translation;

pub use source::EitherEra;

/// The version of MCP that the later era began with.
const VERSION: &str = "2026-07-28";

/// What each request says of itself in `_meta`.
mod meta {
    pub(super) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    pub(super) const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
    pub(super) const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    pub(super) const LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// In results: who has answered.
    pub(super) const SERVER: &str = "io.modelcontextprotocol/serverInfo";
}
