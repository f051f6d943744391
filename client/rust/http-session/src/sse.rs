//! The events of a response, as text (Server-Sent Events, HTML Living Standard, section 9.2).

use alloc::format;
use alloc::string::String;

use mcp_sessiond_jsonrpc::{is_one_line, one_line};
use mcp_sessiond_proto::streams::EventId;

/// A comment, so that proxies and clients see that the connection is alive.
pub const COMMENT: &str = ": still here\n\n";

/// The message of an event that [`event`] has made. None: it has none.
pub fn data(event: &str) -> Option<&str> {
    event.lines().find_map(|line| line.strip_prefix("data: "))
}

/// An event with a message. Without an id it is not stored.
pub fn event(id: Option<&EventId>, message: &str) -> String {
    let id = id.map_or_else(String::new, |EventId(id)| format!("id: {id}\n"));
    if !is_one_line(message) {
        // JSON that another client has stored may have several lines.
        let message = one_line(message);
        return format!("event: message\n{id}data: {message}\n\n");
    }
    format!("event: message\n{id}data: {message}\n\n")
}

/// An event without data: an id to resume with, and how long, in ms, the client is to wait before it
/// does. Clients of versions before 2025-11-25 expect a message in each event that is called
/// `message`, as one without a name is.
pub fn priming(EventId(id): &EventId, retry_ms: u64, primes: bool) -> String {
    let name = if primes { "" } else { "event: priming\n" };
    format!("{name}id: {id}\nretry: {retry_ms}\ndata: \n\n")
}

/// How long, in ms, the client is to wait before it comes back.
pub fn retry(retry_ms: u64) -> String {
    format!("retry: {retry_ms}\n\n")
}
