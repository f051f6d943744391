//! The settings of one `serve` process.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mcp_sessiond_client::{ServiceName, Start};
use mcp_sessiond_proxy::front::bundle::{self, List};
use mcp_sessiond_proxy::program::Program;
use mcp_sessiond_upstream::Remote;

use crate::identity_headers::IdentityHeaders;
use crate::jwt::Jwt;
use crate::passed_headers::PassedHeaders;
use crate::token::Token;

/// Where `serve` listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// An address and a port; 0: a free port.
    Tcp(std::net::SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Servers that are written down, as one and each for itself.
#[derive(Clone)]
pub struct Servers {
    /// Reads the list, and watches it from then on. It is called in a tokio runtime.
    pub list: Arc<dyn Fn() -> Box<dyn List> + Send + Sync>,
    /// How they are started.
    pub settings: bundle::Settings,
}

impl fmt::Debug for Servers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Servers")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// What is served.
#[derive(Debug, Clone)]
pub enum Target {
    /// A program, which is run for each session.
    Program(Program),
    /// Several programs, all of which are run for each session.
    Servers(Servers),
    /// A server that speaks Streamable HTTP itself.
    Upstream(Box<Remote>),
}

/// What `serve` serves, and how.
#[derive(Debug)]
pub struct Settings {
    /// The service that the sessions belong to.
    pub service: ServiceName,
    /// Whether to start a daemon if none runs.
    pub start: Start,
    /// Whether it waits where no daemon can be had, instead of giving up.
    pub waits: bool,
    /// Whether the sessions stay after SIGINT, as they do after SIGTERM.
    pub keep: bool,
    /// What is served.
    pub target: Target,
    /// Where `serve` listens.
    pub listen: Listen,
    /// How long a request waits for the daemon.
    pub hold: Duration,
    /// A session ends after this time without a stream and without a call; 0: never.
    pub idle: Duration,
    /// Sessions at one time.
    pub sessions: usize,
    /// A session that nobody has used for this time makes room for a new one, if there is no other
    /// room; 0: never.
    pub unused: Duration,
    /// How long a client is told to wait before it comes back, in ms.
    pub retry_ms: u64,
    /// How long a client may take to send the head of a request, and again its body.
    pub peer_wait: Duration,
    /// A stream is sent a comment after this time without a message.
    pub keep_alive: Duration,
    /// Whether the messages of a stream without a reader go to the standalone stream, answers
    /// excepted.
    pub redirect: bool,
    /// Whether a client that accepts both gets a message, where the answer is all that is said.
    pub prefers_json: bool,
    /// Names that `Host` may have, beside those of loopback.
    pub hosts: Vec<String>,
    /// Origins of pages that may connect.
    pub origins: Vec<String>,
    /// Whether the session id is sent as a cookie, too, and taken from there.
    pub cookie: bool,
    /// Whether there is a page about the sessions.
    pub inspect: bool,
    /// How a caller proves that it may connect.
    pub proof: Proof,
    /// The headers in which a trusted proxy says on whose behalf a request is made. None: on behalf
    /// of whoever has given the proof.
    pub identity: Option<IdentityHeaders>,
    /// The headers of a client that a server with a URL gets.
    pub passed: Arc<PassedHeaders>,
}

/// How a caller proves that it may connect.
#[derive(Debug)]
pub enum Proof {
    /// The kernel says that the connection is of our own user.
    Kernel,
    /// Each request shows this token.
    Token(Token),
    /// Each request shows a token that somebody else has issued, and that can be verified.
    Jwt(Jwt),
}

impl Proof {
    /// Whose tokens are shown, where somebody issues them.
    pub fn jwt(&self) -> Option<&Jwt> {
        match self {
            Self::Jwt(jwt) => Some(jwt),
            Self::Kernel | Self::Token(_) => None,
        }
    }
}
