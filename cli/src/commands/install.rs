//! `mcp-sessiond install`: the user service, of systemd or launchd.

mod status;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use mcp_sessiond_proto::text::did_you_mean;

#[cfg(feature = "http")]
use super::serve;
use crate::service_manager::{self, Name, ServeCommand, ServiceError, writable};

#[derive(Debug, Args)]
#[command(after_help = "\
Writes a user service for this executable, for systemd or launchd, and has the service manager listen on the daemon's socket: the first connection starts the daemon. Sessions stay when it is run again, \
after an upgrade or from another place; it says what has changed. If MCP_SESSIOND_DIR is set, the service is for that directory; clients without that variable look in the usual one. If a system package has installed units for this executable, it enables those and writes none.

With `--serve NAME` it writes a service for `mcp-sessiond serve --name NAME` with the options and the command that follow, and starts \
it. Where that fails, it prints the last line of the service's log, and takes back what it has written. The service starts again at each login and whenever it ends. `serve` and the servers behind it run in this directory, \
with this shell's PATH; all other variables are the service manager's. Servers survive when the service is restarted. If `serve` exits \
with 64, 65, 66, 70, 75, 126 or 127, systemd does not start it again.

`--restart` has the service manager restart the daemon, or that `serve`, with the executable that is there now. Sessions and servers stay, and connected clients come back by themselves.

`--remove` stops it and removes what `install` has made; units of a package are disabled, and stay. The daemon's sessions stay in their directory, which it names, and clients \
start a daemon on demand from then on. Those of a `serve` stay, too, and their servers end after `http.linger_ms`.

With --status --json: an object. `manager`: systemd or launchd. `installed`; `packaged`: a package has brought the units. `units`: their files. `enabled`, `listens`: at the next \
login it is there, and the manager listens on the daemon's socket now; null where the manager can't be asked. `pid`: of the daemon that the manager runs. \
`executable`, `version`: what it starts. `daemon`: the one that answers, no matter what has started it: pid, version, \
started_by (systemd, launchd, on_demand, foreground); null if none does. `own_version`: of this executable. `serve`: an array of name, units, enabled, pid. `finding`, `advice`: what is wrong with it, and what to do; what is not known is null.

Exit codes: 0, also where there was nothing to remove or to show; 64 bad usage or directory; 66 there is nothing to restart; 69 neither a systemd user manager nor launchd can be reached, or \
`--status`: it is installed, and does not work; 70 it failed; 75 another process listens there; 127 there is no such command.

Examples:
  mcp-sessiond install --dry-run
  mcp-sessiond install --serve browser -- npx @playwright/mcp
  mcp-sessiond install --status --json | jq .enabled
  mcp-sessiond install --restart --serve browser
  mcp-sessiond install --remove")]
pub(crate) struct Arguments {
    #[command(flatten)]
    instead: Instead,
    /// Show the files and the commands, and change nothing
    #[arg(long, conflicts_with_all = ["status", "restart"])]
    dry_run: bool,
    /// Leave it to the next login to start it
    #[arg(long, conflicts_with = "Instead")]
    no_start: bool,
    /// `serve` under this name instead of the daemon
    #[arg(long, value_name = "NAME", conflicts_with = "status")]
    serve: Option<Name>,
    /// With `--status`: print JSON
    #[arg(long, requires = "status")]
    json: bool,
    /// With `--serve`: options of `serve`, `--`, and the server's command; or `--upstream URL`
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        conflicts_with = "Instead",
        value_name = "SERVING"
    )]
    serving: Vec<OsString>,
}

/// What is to be done instead of installing.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct Instead {
    /// Show whether it is installed, enabled and running, from which files, and of which version
    #[arg(long)]
    status: bool,
    /// Restart the daemon of the service; sessions and servers stay
    #[arg(long)]
    restart: bool,
    /// Stop the service and remove it; sessions stay
    #[arg(long)]
    remove: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let Arguments { dry_run, serve, .. } = arguments;
    let Instead {
        status,
        restart,
        remove,
    } = arguments.instead;
    if status {
        return status::show(arguments.json);
    }
    service_manager::report(match () {
        () if restart => service_manager::restart(serve.as_ref()),
        () if remove => service_manager::uninstall(serve.as_ref(), *dry_run),
        () => install(arguments),
    })
}

fn install(arguments: &Arguments) -> Result<(), ServiceError> {
    let serve = match (&arguments.serve, arguments.serving.first()) {
        (Some(name), _) => {
            let (command, checked) = serve_command(name, &arguments.serving)?;
            let is_running = || service_manager::unit_state(Some(name)).pid.is_some();
            if !arguments.dry_run
                && let Some((code, sentence)) = checked.why_no_start(is_running())
            {
                return Err(ServiceError::NoStart { code, sentence });
            }
            Some((name.clone(), command))
        }
        (None, Some(word)) => return Err(ServiceError::Usage(unexpected(word))),
        (None, None) => None,
    };
    service_manager::install(serve.as_ref(), !arguments.no_start, arguments.dry_run)
}

/// This build has no `serve`.
#[cfg(not(feature = "http"))]
mod serve {
    pub(super) enum Checked {}

    pub(super) fn check(_: &[std::ffi::OsString]) -> Result<Checked, String> {
        Err(crate::extras::absent("`serve`", "http"))
    }

    impl Checked {
        pub(super) fn command_len(&self) -> usize {
            match *self {}
        }

        pub(super) fn at(&self) -> String {
            match *self {}
        }

        pub(super) fn why_no_start(self, _: bool) -> Option<(u8, String)> {
            match self {}
        }
    }
}

/// Why a word is refused without `--serve`.
fn unexpected(word: &OsString) -> String {
    let word = word.to_string_lossy();
    let known = Arguments::augment_args(Command::new("install"));
    let known: Vec<String> = known
        .get_arguments()
        .filter_map(|known| Some(format!("--{}", known.get_long()?)))
        .collect();
    let meant = did_you_mean(&word, known.iter().map(String::as_str));
    format!(
        "`install` has no option or argument {word:?}{meant}{}",
        if meant.is_empty() {
            "; `mcp-sessiond install --help` shows which it has"
        } else {
            ""
        }
    )
}

/// As it would run here and now with these words after `serve`.
fn serve_command(
    name: &Name,
    words: &[OsString],
) -> Result<(ServeCommand, serve::Checked), ServiceError> {
    let given = ["--name", name.as_str()].map(OsString::from);
    let given: Vec<OsString> = given.into_iter().chain(words.iter().cloned()).collect();
    let checked = serve::check(&given).map_err(ServiceError::Usage)?;
    let (options, command) = given.split_at(given.len() - checked.command_len());
    let options = options.strip_suffix(&["--".into()]).unwrap_or(options);
    let separator = OsString::from("--");
    let separator = (!command.is_empty()).then_some(&separator);
    let arguments = options.iter().chain(separator).chain(command).map(readable);
    let directory = std::env::current_dir().map_err(|error| {
        ServiceError::Failed(format!("the current directory can't be read: {error}"))
    })?;
    let path = std::env::var_os("PATH")
        .map(PathBuf::from)
        .unwrap_or_default();
    let command = ServeCommand {
        arguments: arguments.collect::<Result<_, _>>()?,
        directory: writable(&directory)?,
        path: writable(Path::new(&path))?,
        at: checked.at(),
    };
    Ok((command, checked))
}

/// A word as text that can stand in a file.
fn readable(word: &OsString) -> Result<String, ServiceError> {
    match word.to_str() {
        Some(text)
            if !text.contains(|letter: char| letter.is_control() && !"\n\t".contains(letter)) =>
        {
            Ok(text.to_owned())
        }
        _ => Err(ServiceError::Usage(format!(
            "{} can't be written into a service file",
            word.to_string_lossy()
        ))),
    }
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        serve_command(&"x".parse().expect("a name"), &words)
            .expect("good usage")
            .0
            .arguments
    }

    #[test]
    fn the_command_stands_behind_a_separator() {
        let expected = [
            "--name",
            "x",
            "--listen",
            "localhost:1",
            "--",
            "npx",
            "--listen",
            "2",
        ];
        assert_eq!(
            arguments(&["--listen", "localhost:1", "--", "npx", "--listen", "2"]),
            expected
        );
        assert_eq!(
            arguments(&["--listen", "localhost:1", "npx", "--listen", "2"]),
            expected
        );
        assert_eq!(
            arguments(&["npx", "--", "2"]),
            ["--name", "x", "--", "npx", "--", "2"]
        );
        let upstream = ["--upstream", "http://127.0.0.1:3/mcp"];
        assert_eq!(
            arguments(&upstream),
            [&["--name", "x"], &upstream[..]].concat()
        );
    }

    #[test]
    fn what_is_no_option_is_refused() {
        for (word, expected) in [
            ("--dry-rn", "\"--dry-rn\"; did you mean --dry-run?"),
            (
                "--bogus",
                "\"--bogus\"; `mcp-sessiond install --help` shows",
            ),
            (
                "browser",
                "\"browser\"; `mcp-sessiond install --help` shows",
            ),
        ] {
            let refused = unexpected(&word.into());
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn what_serve_refuses_is_refused() {
        for words in [
            &[][..],
            &["--name", "y", "npx"],
            &["--listen", "nowhere", "npx"],
            &["a\u{1}b"],
        ] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let refused = serve_command(&"x".parse().expect("a name"), &words);
            assert!(matches!(refused, Err(ServiceError::Usage(_))), "{words:?}");
        }
        for name in ["", "a b", "a/b", "a@b", "a%b", "é"] {
            assert!(name.parse::<Name>().is_err(), "{name:?}");
        }
    }
}
