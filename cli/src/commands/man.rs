//! `mcp-sessiond man`: the manual pages, which packages install beside the executable.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};

use crate::exit_code::CANT_CREATE;
use crate::ui::output::{print, warn};

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0; 64 bad usage; 73 a page could not be written.

Examples:
  mcp-sessiond man | man -l -
  mcp-sessiond man --to ~/.local/share/man/man1")]
pub(crate) struct Arguments {
    /// Write a page for each verb, `mcp-sessiond-VERB.1`, into this directory
    #[arg(long, value_name = "DIRECTORY")]
    to: Option<PathBuf>,
}

/// `command` is the whole command line.
pub(crate) fn run(arguments: &Arguments, command: Command) -> ExitCode {
    let written = match &arguments.to {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command)
                .render(&mut page)
                .map(|()| page)
        }
        Some(directory) => std::fs::create_dir_all(directory)
            .and_then(|()| clap_mangen::generate_to(command, directory))
            .map(|()| Vec::new()),
    };
    let said = |error: io::Error| {
        let place = arguments
            .to
            .as_ref()
            .map(|place| format!("{}: ", place.display()))
            .unwrap_or_default();
        warn(format_args!("{place}{error}"));
        ExitCode::from(CANT_CREATE)
    };
    written.map_or_else(said, |page| print(&String::from_utf8_lossy(&page)))
}
