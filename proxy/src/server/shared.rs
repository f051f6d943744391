//! One server for all hosts and sessions of the user, where an entry of the user's list says so. It
//! is in a keeper of its own, which claims a session of the user's and has many clients: see
//! `keeper::sharing`.
//!
//! - [`connector`]: the front's side, which starts the keeper where there is none.

pub mod connector;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mcp_sessiond_proto::{BackendName, KeeperName};
use sha2::{Digest as _, Sha256};

use crate::keeper::launch::keeper_of_key;
use crate::program::{LaunchEnv, Program};

/// The variables of a host that reach a shared server: those that hosts hand to all their servers
/// (the official SDKs' list). No other one does, since it might be the host's secret.
pub const VARIABLES: [&str; 6] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];

/// Hexadecimal digits of the key that name a host's own server.
const OWN_DIGITS: usize = 8;

/// A shared server, as the user has written it down.
#[derive(Debug, Clone)]
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
    /// Of a host that can't share it: see [`Program::has_sources`].
    pub has_sources: bool,
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
            has_sources: self.has_sources,
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

    /// Which keeper has it.
    fn keeper(&self) -> Option<KeeperName> {
        keeper_of_key(&self.key)
    }
}
