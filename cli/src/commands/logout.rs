//! `mcp-sessiond logout`: deletes the tokens of a login.

use std::process::ExitCode;

use clap::Args;
use clap_complete::ArgValueCandidates;
use mcp_sessiond_upstream::login::forget;

use crate::completion;
use crate::exit_code::SOFTWARE;
use crate::runtime::block_on;
use crate::servers::is_http;
use crate::servers::remote::redacted_url;
use crate::ui::output::{print, warn};

#[derive(Debug, Args)]
#[command(after_help = "\
Deletes the tokens of all logins under this name from this machine, whatever servers.json says by now. The authorization server is \
not told: to revoke them, use its own page.

Exit codes: 0 you are logged out, or were not logged in; 70 the tokens could not be deleted.

Example:
  mcp-sessiond logout github")]
pub(crate) struct Arguments {
    /// The name that the server had in servers.json at the login, or its URL
    #[arg(add = ArgValueCandidates::new(completion::remote))]
    name: String,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let name = &if is_http(&arguments.name) {
        redacted_url(&arguments.name)
    } else {
        arguments.name.clone()
    };
    match block_on(forget(name))
        .map_err(|error| error.to_string())
        .and_then(|done| done.map_err(|error| error.to_string()))
    {
        Ok(true) => print(&format!("The tokens for {name} are deleted.\n")),
        Ok(false) => print(&format!("You were not logged in to {name}.\n")),
        Err(why) => {
            warn(why);
            ExitCode::from(SOFTWARE)
        }
    }
}
