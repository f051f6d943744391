//! `mcp-sessiond completions`: the completions of a shell, which packages install beside the
//! executable.

use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::ui::output::print;

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0; 64 bad usage.

Examples:
  mcp-sessiond completions bash > ~/.local/share/bash-completion/completions/mcp-sessiond
  mcp-sessiond completions zsh > ~/.zfunc/_mcp-sessiond
  mcp-sessiond completions fish > ~/.config/fish/completions/mcp-sessiond.fish")]
pub(crate) struct Arguments {
    shell: Shell,
}

/// `command` is the whole command line.
pub(crate) fn run(arguments: &Arguments, mut command: Command) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "mcp-sessiond", &mut text);
    print(&String::from_utf8_lossy(&text))
}
