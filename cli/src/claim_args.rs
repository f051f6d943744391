//! What every command that claims can be told about the claim.

use clap::builder::{PossibleValue, TypedValueParser as _};
use clap::{Args, builder::PossibleValuesParser};
use mcp_sessiond_client::{ClaimRequest, Label, Options, Siblings, Start};
use mcp_sessiond_process::executable;

#[derive(Debug, Clone, Args)]
pub(crate) struct ClaimArgs {
    /// Tell instances apart by this label, not by directory, environment and the path to the
    /// program
    #[arg(long = "instance", value_name = "LABEL")]
    label: Option<Label>,
    /// The name of this server in the host's file: `status` shows it, the other verbs find the server
    /// by it, and when its command is edited, the previous server ends
    #[arg(long, value_name = "NAME")]
    entry: Option<Label>,
    /// What to get where the host has, or had, several servers that are alike
    #[arg(long, value_name = "WHICH", value_parser = which())]
    siblings: Option<Siblings>,
    /// Do not start a daemon where none runs
    #[arg(long)]
    no_start: bool,
}

/// What each word means, for `--help`.
fn meaning(siblings: Siblings) -> &'static str {
    match siblings {
        Siblings::Fresh => "The only free session, if no other server like this one lives",
        Siblings::Successor => {
            "The only free session, also while others live, for hosts that close a server before they start the next"
        }
        Siblings::Oldest => {
            "The free session that was opened first, where they are interchangeable"
        }
        Siblings::Never => "A session of its own, which ends with it",
    }
}

fn which() -> impl clap::builder::TypedValueParser<Value = Siblings> {
    let words =
        Siblings::ALL.map(|siblings| PossibleValue::new(siblings.as_str()).help(meaning(siblings)));
    PossibleValuesParser::new(words).try_map(|word| word.parse::<Siblings>())
}

impl ClaimArgs {
    /// The same for the client library. A daemon is started from this very executable.
    pub(crate) fn options(self) -> Options {
        let start = if self.no_start {
            Start::Never
        } else {
            Start::Auto {
                binary: executable::own(),
            }
        };
        let options = Options::default().start(start);
        let options = self.label.into_iter().fold(options, Options::label);
        let options = self.entry.into_iter().fold(options, Options::entry);
        self.siblings.into_iter().fold(options, Options::siblings)
    }

    /// The name of the entry in the host's file, if it was given.
    pub(crate) fn entry(&self) -> Option<&Label> {
        self.entry.as_ref()
    }

    /// The claim that a front makes.
    pub(crate) fn claim(&self) -> ClaimRequest {
        let Self {
            label,
            entry,
            siblings,
            ..
        } = self.clone();
        ClaimRequest {
            label,
            entry,
            siblings,
            wrapped: true,
            ..ClaimRequest::default()
        }
    }
}
