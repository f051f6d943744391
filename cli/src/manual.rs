//! `mcp-sessiond completions` and `mcp-sessiond man`: what packages install beside the executable.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::{Cli, UNWRITTEN, complain, print};

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0; 64 bad usage.

Examples:
  mcp-sessiond completions bash > ~/.local/share/bash-completion/completions/mcp-sessiond
  mcp-sessiond completions zsh > ~/.zfunc/_mcp-sessiond
  mcp-sessiond completions fish > ~/.config/fish/completions/mcp-sessiond.fish")]
pub(super) struct CompletionsArguments {
    shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0; 64 bad usage; 73 a page could not be written.

Examples:
  mcp-sessiond man | man -l -
  mcp-sessiond man --to ~/.local/share/man/man1")]
pub(super) struct ManArguments {
    /// Write a page for each verb, `mcp-sessiond-VERB.1`, into this directory
    #[arg(long, value_name = "DIRECTORY")]
    to: Option<PathBuf>,
}

pub(super) fn completions(arguments: &CompletionsArguments) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Cli::command(),
        "mcp-sessiond",
        &mut text,
    );
    print(&String::from_utf8_lossy(&text))
}

pub(super) fn man(arguments: &ManArguments) -> ExitCode {
    let written = match &arguments.to {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command())
                .render(&mut page)
                .map(|()| page)
        }
        Some(directory) => std::fs::create_dir_all(directory)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), directory))
            .map(|()| Vec::new()),
    };
    let said = |error: io::Error| {
        let place = arguments
            .to
            .as_ref()
            .map(|place| format!("{}: ", place.display()))
            .unwrap_or_default();
        complain(format_args!("{place}{error}"));
        ExitCode::from(UNWRITTEN)
    };
    written.map_or_else(said, |page| print(&String::from_utf8_lossy(&page)))
}
