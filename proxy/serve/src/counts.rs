//! What this process has answered and refused, as Prometheus text (exposition format 0.0.4).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What became of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Connection {
    /// It was let in.
    Accepted,
    /// The kernel does not say that it is of our own user.
    AnotherUser,
    /// No request came on it: nothing did, or what was no HTTP, too large, or too slow.
    NoRequest,
}

impl Connection {
    fn label(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::AnotherUser => "another_user",
            Self::NoRequest => "no_request",
        }
    }
}

/// The counts of this process.
#[derive(Debug, Default)]
pub struct Counts(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    connections: BTreeMap<Connection, u64>,
    responses: BTreeMap<u16, u64>,
}

impl Counts {
    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection.
    pub fn connection(&self, what: Connection) {
        *self.counted().connections.entry(what).or_default() += 1;
    }

    /// Counts a response by its status.
    pub fn response(&self, status: u16) {
        *self.counted().responses.entry(status).or_default() += 1;
    }

    /// All counts, and how many sessions there are.
    pub fn text(&self, sessions: usize) -> String {
        let mut text = String::new();
        let mut head = |name: &str, help: &str, kind: &str, lines: &[String]| {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            lines.iter().for_each(|line| {
                let _ = writeln!(text, "{name}{line}");
            });
        };
        let counted = self.counted();
        let connections = counted.connections.iter();
        let connections: Vec<_> = connections
            .map(|(what, count)| format!("{{result=\"{}\"}} {count}", what.label()))
            .collect();
        let responses = counted.responses.iter();
        let responses: Vec<_> = responses
            .map(|(status, count)| format!("{{status=\"{status}\"}} {count}"))
            .collect();
        let about = "Connections that have ended, by what became of them.";
        head(
            "mcp_sessiond_serve_connections_total",
            about,
            "counter",
            &connections,
        );
        head(
            "mcp_sessiond_serve_responses_total",
            "Responses, by their status.",
            "counter",
            &responses,
        );
        let about = "Sessions that this process serves, with those of MCP 2026-07-28.";
        head(
            "mcp_sessiond_serve_sessions",
            about,
            "gauge",
            &[format!(" {sessions}")],
        );
        text
    }
}
