//! One server for all hosts and sessions of the user, where an entry of the user's list says so.
//!
//! The *sharer* is a small process that belongs to no host. To the server it is a front like every
//! other: it claims a session of the user's own, and the server is in that session's keeper. To
//! hosts it is the server: each front has a *place*, a connection to the sharer's socket. Which
//! message is whose [`mcp_sessiond_relay::multiplexer`] decides.
//!
//! - [`place`]: the front's side, which starts the sharer where there is none.
//! - [`share_host`]: the process. `clients`: the connections to it. `losses`: what hosts have to be
//!   told of servers that ended. [`usage`]: how each shared
//!   server is used, for people.
//!
//! **Architecture Invariant:** a place ends with its connection, and nothing of it is handed to
//! another one. The sharer has its session's lease; so there is one sharer for one server, whatever
//! else goes wrong.

mod clients;
mod losses;
pub mod place;
pub mod share_host;
pub mod usage;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mcp_sessiond_client::SessionId;
use mcp_sessiond_proto::{BackendName, paths};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::program::{LaunchEnv, Program};

/// The variables of a host that reach a shared server: those that hosts hand to all their servers
/// (the official SDKs' list). No other one does, since it might be the host's secret.
pub const VARIABLES: [&str; 6] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];

/// Hexadecimal digits of the key that name its socket.
const SOCKET_DIGITS: usize = 8;

/// Hexadecimal digits of the key that name a host's own server.
const OWN_DIGITS: usize = 8;

/// A shared server, as the user has written it down.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Shared {
    /// What it is called.
    pub name: String,
    /// What tells it from every other one: see [`Shared::key_of`].
    pub key: String,
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its variables, beside [`VARIABLES`].
    pub env: BTreeMap<String, String>,
    /// Where it runs; none: in the home directory.
    pub cwd: Option<PathBuf>,
    /// How long it stays when nobody uses it any more.
    pub linger: Duration,
}

/// Looks up again what a shared server's entry stands for: a secret may have been renewed since a
/// front was started.
#[derive(Clone)]
pub struct Looking(Arc<dyn Fn() -> Result<Shared, String> + Send + Sync>);

impl Looking {
    /// By this, which may wait. An error is a sentence.
    pub fn new(look: impl Fn() -> Result<Shared, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(look))
    }
}

impl fmt::Debug for Looking {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Looking")
    }
}

impl Shared {
    /// The key of the server that `list` has under this name, written so.
    pub fn key_of(list: &Path, name: &str, written: &str) -> String {
        let digest = Sha256::digest(serde_json::json!([list, name, written]).to_string());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// By which name the session of a host that can't share knows the server of its own.
    pub(crate) fn own_name(&self) -> Option<BackendName> {
        let digits = self.key.get(..OWN_DIGITS).unwrap_or_default();
        [&*self.name, "shared"]
            .into_iter()
            .find_map(|name| format!("{name}#{digits}").parse().ok())
    }

    /// What is run.
    pub fn program(&self) -> Program {
        let arguments = self.args.iter().map(Into::into).collect();
        Program {
            name: self.command.clone().into(),
            arguments,
            title: self.name.parse().ok(),
        }
    }

    /// Its variables, and where it runs, for a host that gets a server of its own.
    pub fn launch_env(&self) -> LaunchEnv {
        let environment = self
            .env
            .iter()
            .map(|(name, value)| (name.into(), value.into()));
        (environment.collect(), self.cwd.clone())
    }

    fn socket(&self, directory: &Path) -> PathBuf {
        paths::shared(directory).join(self.key.get(..SOCKET_DIGITS).unwrap_or_default())
    }
}

/// What is asked of a sharer: the first frame, in JSON. Hello and frames are those of a keeper's
/// socket.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    /// A place. Behind it comes the host's first line, as it is. From then on the front says what it
    /// says to a keeper.
    Place {
        key: String,
        /// The host has had its answer to that line, from a sharer that is gone.
        again: bool,
        /// The process that has started the front.
        host: u32,
    },
    /// How the server is used.
    Status {},
}

/// What a sharer says to that: its first frame, in JSON. Behind a welcome come messages, and ends of
/// servers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Welcome {
        /// Why former servers have ended that the host has to be told of.
        ended: Vec<String>,
    },
    /// The host gets a server of its own, and why.
    Own { why: String },
    /// The host is to come again after a while, and why.
    Later { why: String },
    /// It is another server's.
    Other {},
    Status {
        session: SessionId,
        places: usize,
        #[serde(default)]
        withheld: u64,
    },
}

/// What the sharer reports to the front that has started it, in one line of JSON on its standard
/// output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Report {
    Ready {},
    /// There is no such program: the exit code that a shell has for it, and why.
    NoProgram {
        code: u8,
        sentence: String,
    },
    /// The keeper of its server, with this pid, is stopped.
    Stalled {
        keeper: u32,
    },
    /// Why it can't run; whether the next attempt may go better.
    Failed {
        sentence: String,
        passing: bool,
    },
}
