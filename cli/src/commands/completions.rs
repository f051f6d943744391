//! `mcp-sessiond completions`: the completions of a shell, which packages install beside the
//! executable. They are a few lines that run this executable whenever the shell has to complete
//! something.

use std::io;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::env::{CompleteEnv, EnvCompleter};
use clap_complete::{Shell, env};

use crate::completion::VARIABLE;
use crate::exit_code::SOFTWARE;
use crate::ui::output::{print, warn};

/// The command that is completed, and that the shell asks.
const NAME: &str = "mcp-sessiond";

#[derive(Debug, Args)]
#[command(after_help = "\
The shell asks `mcp-sessiond` what fits: verbs and options; servers that are kept, and those of servers.json; the tools of a server that \
runs, and their arguments. Nothing is started for that. Write the file again after an upgrade.

Exit codes: 0; 64 bad usage.

Examples:
  folder=~/.local/share/bash-completion/completions
  mcp-sessiond completions bash > $folder/mcp-sessiond
  mcp-sessiond completions zsh > ~/.zfunc/_mcp-sessiond
  mcp-sessiond completions fish > ~/.config/fish/completions/mcp-sessiond.fish")]
pub(crate) struct Arguments {
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let mut text = Vec::new();
    let written = match arguments.shell {
        Shell::Elvish => registration(&env::Elvish, &mut text),
        Shell::Fish => registration(&env::Fish, &mut text),
        Shell::PowerShell => registration(&env::Powershell, &mut text),
        Shell::Zsh => registration(&env::Zsh, &mut text),
        _ => registration(&env::Bash, &mut text),
    };
    match written {
        Ok(()) => print(&String::from_utf8_lossy(&text)),
        Err(error) => {
            warn(error);
            ExitCode::from(SOFTWARE)
        }
    }
}

fn registration(shell: &dyn EnvCompleter, text: &mut Vec<u8>) -> io::Result<()> {
    shell.write_registration(VARIABLE, NAME, NAME, NAME, text)?;
    if shell.is("zsh") {
        text.extend_from_slice(ZSH_END);
    }
    Ok(())
}

/// zsh reads the file when it first completes something for this command, as the function of the
/// file's name, and takes what that offers: so it has to complete, too, and not only register.
const ZSH_END: &[u8] =
    b"[[ $funcstack[1] != _mcp-sessiond ]] || _clap_dynamic_completer_mcp_sessiond \"$@\"\n";

/// Answers a shell that has run this executable to complete a command line, and exits then.
pub(crate) fn answer_shell(command: impl Fn() -> Command) {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    // What anything here says would stand in the middle of that line.
    if let Ok(nowhere) = std::fs::File::options().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stderr(nowhere);
    }
    CompleteEnv::with_factory(command)
        .var(VARIABLE)
        .bin(NAME)
        .complete();
}
