//! `mcp-sessiond wrap`: an MCP server on stdio that outlives its own process.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use mcp_sessiond_client::{ClaimRequest, Label, Named};
use mcp_sessiond_daemon::config::{self, Loaded};
use mcp_sessiond_wrap::front::{self, Waits};
use mcp_sessiond_wrap::keeper::backend::Program;

use super::claiming::Claiming;

#[derive(Debug, Args)]
#[command(after_help = "\
Put this before the command of an MCP server in the host's configuration. The server is started once, and is still there, in \
the state in which it was left, when the host reconnects, when this process is killed, and when the daemon is restarted. It \
ends with its host; half a minute after the host has closed it (`backends.closed_linger_ms`); or when nobody has come for it \
for ten minutes (`backends.linger_ms`).

With `--name` the server belongs to you: it is still there when the host was restarted, and any host that comes with the same \
name and command finds it, one at a time. It ends by `mcp-sessiond stop NAME`, or when nobody has come for eight hours \
(`backends.named_linger_ms`).

Where there can be no daemon, or the host can't be verified, the command is run as it is, and one line on standard error says \
so.

Exit codes: 0 the host has closed its end, or is gone; 126 the command can't be run; 127 there is no such command; 71 \
there are no more descriptors or threads; those of the command, where it is run as it is.

Example, in a host's configuration:
  {\"mcpServers\": {\"browser\": {\"command\": \"mcp-sessiond\", \"args\": [\"wrap\", \"--\", \"npx\", \"@playwright/mcp\"]}}}")]
pub(super) struct Arguments {
    #[command(flatten)]
    claiming: Claiming,
    /// Begin afresh: end what a former server of this one has left
    #[arg(long)]
    fresh: bool,
    /// Keep the server for you, and not for the host: whoever comes with this name finds it, also after the host's restart
    #[arg(long, value_name = "NAME", conflicts_with_all = ["label", "entry", "siblings"])]
    name: Option<Label>,
    /// Take the server of that name from whoever has it; where it was started by another command line, end it
    #[arg(long, requires = "name")]
    take: bool,
    /// The server's command and its arguments; `--` before it may be left out
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(super) fn run(arguments: Arguments) -> ExitCode {
    let program = Program { title: arguments.name.clone(), ..program(arguments.command) };
    let named = arguments.name.map(|name| Named { name, command: program.digest(), take: arguments.take });
    let claim = ClaimRequest { fresh: arguments.fresh, named, ..arguments.claiming.claim() };
    front::run(arguments.claiming.options(), claim, &program, waits())
}

/// How long the configuration has us wait. One that is wrong is the daemon's to complain about: the host must have its server.
fn waits() -> Waits {
    let loaded = config::usual_path().map(|path| config::load(Some(&path), &[]));
    let Some(Ok(Loaded { config, .. })) = loaded else { return Waits::default() };
    Waits {
        first_line: Duration::from_millis(config.wrap.first_line_wait_ms),
        keeper: Duration::from_millis(config.wrap.keeper_wait_ms),
    }
}

/// The command line of a server.
pub(super) fn program(command: Vec<OsString>) -> Program {
    let mut words = command.into_iter();
    // The parser has seen to it that there is one.
    Program { name: words.next().unwrap_or_default(), arguments: words.collect(), title: None }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn read(words: &[&str]) -> Result<Vec<String>, clap::error::ErrorKind> {
        let line = Line::try_parse_from(["wrap"].iter().chain(words)).map_err(|error| error.kind())?;
        Ok(line.arguments.command.into_iter().map(|word| word.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn the_command_begins_behind_the_options_with_or_without_two_dashes() {
        let command = ["npx", "-y", "@playwright/mcp", "--", "--instance", "x"];
        for options in [&[][..], &["--no-start"], &["--instance", "x", "--siblings", "oldest"]] {
            for dashes in [&[][..], &["--"]] {
                assert_eq!(
                    read(&[options, dashes, &command].concat()).as_deref(),
                    Ok(&command.map(String::from)[..])
                );
            }
        }
        assert_eq!(read(&["--", "-odd-name"]).as_deref(), Ok(&["-odd-name".to_owned()][..]));
    }

    #[test]
    fn an_option_of_ours_that_is_mistyped_is_no_command() {
        for words in [&["--no-strat", "npx"][..], &[], &["--"], &["--instance", "x"]] {
            assert!(read(words).is_err(), "{words:?}");
        }
    }
}
