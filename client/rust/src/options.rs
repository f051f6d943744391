//! What a server may ask for. Every default is right for a server that its host starts once.

use std::path::PathBuf;
use std::time::Duration;

use mcp_sessiond_proto::{ClaimRequest, ClientName, Label, Siblings};

use crate::start::Start;

/// How long one call may take in all, with connecting, starting the daemon and reconnecting.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest timeout. A limit, so that adding it to the current time can't overflow.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// What [`Sessiond::init`](crate::Sessiond::init) is told.
///
/// ```
/// use mcp_sessiond_client::{Options, Start};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let options = Options::default().label("staging".parse()?).start(Start::Never).timeout(Duration::from_secs(3));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) directory: Option<PathBuf>,
    pub(crate) start: Start,
    /// What is claimed at every load, and again on every connection: so it never begins anew.
    pub(crate) claim: ClaimRequest,
    pub(crate) timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            directory: None,
            start: Start::default(),
            claim: ClaimRequest::default(),
            timeout: CALL_TIMEOUT,
        }
    }
}

impl Options {
    /// Takes `label` in place of directory and environment to tell this instance from others of its
    /// host.
    #[must_use]
    pub fn label(mut self, label: Label) -> Self {
        self.claim.label = Some(label);
        self
    }

    /// Tells sessions apart by what the host calls itself, too: `clientInfo.name` of its first
    /// message.
    #[must_use]
    pub fn client(mut self, client: ClientName) -> Self {
        self.claim.client = Some(client);
        self
    }

    /// The name of this server's entry in the host's file: what the entry was before it was edited
    /// ends.
    #[must_use]
    pub fn entry(mut self, entry: Label) -> Self {
        self.claim.entry = Some(entry);
        self
    }

    /// What to get where the host has, or had, several servers that are alike.
    #[must_use]
    pub fn siblings(mut self, siblings: Siblings) -> Self {
        self.claim.siblings = Some(siblings);
        self
    }

    /// Claims for the ancestor with this pid, not for the process itself.
    #[must_use]
    pub fn instance(mut self, pid: u32) -> Self {
        self.claim.instance = Some(pid);
        self
    }

    /// Whether a daemon is started where none runs. By default it is.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Whether a daemon is started where none runs.
    pub fn starts_daemon(&self) -> bool {
        !matches!(self.start, Start::Never)
    }

    /// Looks for the daemon in this runtime directory. By default `MCP_SESSIOND_DIR`, else the one
    /// derived from the uid.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// How long one call may take in all, [`CALL_TIMEOUT`] by default, and a day at most.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(TIMEOUT_MAX);
        self
    }
}
