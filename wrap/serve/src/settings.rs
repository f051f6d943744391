//! How `serve` serves.

use std::path::PathBuf;
use std::time::Duration;

use mcp_sessiond_client::{ServiceName, Start};
use mcp_sessiond_wrap::keeper::backend::Program;

use crate::token::Token;
use crate::upstream::url::Url;

/// Where it listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// An address, and a port; 0: one that is free.
    Tcp(std::net::SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// What is behind.
#[derive(Debug, Clone)]
pub enum Behind {
    /// A program, which is run for each session.
    Program(Program),
    /// A server that speaks Streamable HTTP itself.
    Upstream(Url),
}

/// What is served, and how.
#[derive(Debug)]
pub struct Settings {
    /// The service that the sessions belong to.
    pub service: ServiceName,
    /// Whether a daemon is started where none runs.
    pub start: Start,
    /// What is behind.
    pub behind: Behind,
    /// Where it listens.
    pub listen: Listen,
    /// How long a request is held while the daemon is away.
    pub hold: Duration,
    /// After how long without a stream and without a call a session ends; 0: never.
    pub idle: Duration,
    /// Sessions at one time.
    pub sessions: usize,
    /// After what time a client is told to come back whose connection has ended, in ms.
    pub retry_ms: u64,
    /// How long a client may take to send the head of a request, and again its body.
    pub peer_wait: Duration,
    /// After how long without a message a comment is sent.
    pub keep_alive: Duration,
    /// Whether messages of a stream whose reader is gone go to the standalone stream until it is back.
    pub redirect: bool,
    /// Names of this host, beside those of loopback, that `Host` may say.
    pub hosts: Vec<String>,
    /// Origins of pages that may come.
    pub origins: Vec<String>,
    /// Whether the session id may come, and goes, in a cookie.
    pub cookie: bool,
    /// What a caller has to show whom the kernel does not vouch for.
    pub token: Option<Token>,
}
