//! MCP 2026-07-28 at the edges of a bundle, which speaks 2025-11-25 inside: what servers and hosts of
//! the later era say is translated where it comes in.
//!
//! | 2025-11-25 | 2026-07-28 |
//! | --- | --- |
//! | `initialize`, once | `server/discover`, and in each request who asks, what it can do, and the version |
//! | a request of the server's (a question, a sample, the host's folders) | the result `input_required`, after which the call is made again with the answers |
//! | `list_changed`, `resources/subscribe` | the same notifications, for whoever has opened `subscriptions/listen` |
//! | `logging/setLevel` | a level in each request |
//! | `ping` | nothing |
//!
//! - `source`: [`EitherEra`], a source whose server speaks one of both. `server`: which era such a server
//!   speaks. `calls`: what becomes of each message of one of the later era.
//!   `subscriptions`: how it tells what has changed.
//! - `host`: [`for_modern_host`], the pipe of a bundle for a host of the later era.
//! - `between`: what carries the messages of both.

mod between;
mod calls;
mod host;
mod server;
mod source;
mod subscriptions;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::error::RpcError;
use mcp_sessiond_jsonrpc::object::{Object, raw};
use mcp_sessiond_jsonrpc::owned::{Id, Message, Outcome};
use serde_json::value::RawValue;

use between::Out;
pub use host::{ServerOf, for_modern_host, is_of_modern_host};
pub use source::EitherEra;

/// What ids of ours begin with at a server, and those of its questions.
const OWN: &str = "mcp-sessiond/modern/";

/// The version of MCP that the later era began with.
const VERSION: &str = "2026-07-28";

/// What each request says of itself in `_meta`.
mod meta {
    pub(super) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    pub(super) const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
    pub(super) const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    pub(super) const LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// In notifications: which request has subscribed to them.
    pub(super) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
    /// In results: who has answered.
    pub(super) const SERVER: &str = "io.modelcontextprotocol/serverInfo";
}

/// Adds members to `_meta`.
fn with_envelope(params: &mut Object, members: &[(&'static str, Box<RawValue>)]) {
    let mut meta = params.object("_meta").unwrap_or_default();
    for (name, value) in members {
        meta.set(name, value.clone());
    }
    params.set("_meta", meta.write());
}

/// The message of a line that has one.
fn one(line: &[u8]) -> Option<Message> {
    let mut messages = Message::read(line);
    let message = messages.pop()?;
    messages.is_empty().then_some(message)
}

fn answer(id: &Id, outcome: Outcome) -> Out {
    let id = id.clone();
    Out::Host(Message::Answer { id, outcome }.write())
}

/// The error of a call of which nobody knows any more what has become of it: why.
fn unknown(why: &str) -> RpcError {
    RpcError {
        data: Some(raw(&serde_json::json!({"outcome": "unknown"}))),
        ..RpcError::new(code::CONNECTION, why)
    }
}

fn empty() -> Box<RawValue> {
    raw(&Object::default())
}

fn cancel(id: &Id, why: &str) -> Bytes {
    let mut params = Object::default();
    params.set("requestId", id.raw());
    params.set_text("reason", why);
    let method = "notifications/cancelled".to_owned();
    let params = Some(params.write());
    Message::Notification { method, params }.write()
}
