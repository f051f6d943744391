//! What every command that claims can be told about the claim.

use clap::{Args, ValueEnum};
use mcp_sessiond_client::{Label, Options, Siblings, Start};
use mcp_sessiond_process::executable;

#[derive(Debug, Args)]
pub(super) struct Claiming {
    /// Tell instances apart by this label, not by directory and environment
    #[arg(long = "instance", value_name = "LABEL")]
    label: Option<Label>,
    /// What to get where sessions of one host can't be told apart
    #[arg(long, value_name = "WHICH")]
    siblings: Option<Which>,
    /// Do not start a daemon where none runs
    #[arg(long)]
    no_start: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Which {
    /// A session of its own, always
    Fresh,
    /// The one opened first that nobody holds
    Oldest,
}

impl Claiming {
    /// The same for the client library. A daemon is started from this very executable.
    pub(super) fn options(self) -> Options {
        let start = if self.no_start { Start::Never } else { Start::Auto { binary: executable::own() } };
        let mut options = Options::default().start(start);
        options.claim.label = self.label;
        options.claim.siblings = self.siblings.map(|which| match which {
            Which::Fresh => Siblings::Fresh,
            Which::Oldest => Siblings::Oldest,
        });
        options
    }
}
