//! `mcp-sessiond wrap`: an MCP server on stdio that outlives its own process.

mod url;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser};
use mcp_sessiond_client::{ClaimRequest, Label, Named};
use mcp_sessiond_proto::Resume;
use mcp_sessiond_proxy::front;
use mcp_sessiond_proxy::front::bundle::{Filter, Glob, Waking};
use mcp_sessiond_proxy::front::failed_start::{FailedStart, Next, StartError};
use mcp_sessiond_proxy::front::lazy;
use mcp_sessiond_proxy::front::shared;
use mcp_sessiond_proxy::front_settings::FrontSettings;
use mcp_sessiond_proxy::program::Program;

use crate::claim_args::ClaimArgs;
use crate::completion;
use crate::config::{front_settings, load_or_default};
use crate::exit_code::USAGE;
use crate::servers::{self, bundle};

#[derive(Debug, Args)]
#[command(after_help = "\
Put this before the command of an MCP server in the host's configuration. The server is started once, and is still there, in \
the state in which it was left, when the host reconnects, when this process is killed, and when the daemon is restarted. It \
ends with its host; half a minute after the host has closed it (`backends.closed_linger_ms`); or when no host has used it for ten minutes (`backends.linger_ms`).

With `--name` the server belongs to you: it is still there when the host was restarted, and any host that comes with the same \
name and command finds it, one at a time. A host that comes while another one has it gets a server of its own until it exits. It ends by `mcp-sessiond stop NAME`, or when no host has used it for eight hours \
(`backends.named_linger_ms`).

`@NAME` instead of the command runs the server NAME of `~/.config/mcp-sessiond/servers.json`. That file has the format of hosts' files \
(`mcpServers`), so you write a server down once, for all hosts. `--all` runs all of them as one server, each in a keeper of its own, a few \
at a time. If two servers have a tool of the same name, the later one is called `SERVER_NAME`.

With `--lazy` the server is started at its first call, with `--lazy=start` behind its host, which does not wait for it. Until then `wrap` answers `initialize` and lists with what the same command has \
answered last; the first time it starts the server at once. If a list has changed when the server runs, the host gets `list_changed`.

A URL instead of the command is a server that runs elsewhere. The session with it goes on for the host's next connection, and for \
nobody else. If the server needs a login, run `mcp-sessiond login URL` or `login NAME`.

If the server can't be started, the host's requests get the reason as an error, and each `initialize` tries again. If the host closes its end, or standard input is a terminal, the exit code says it.

If no daemon can be started, or the host can't be verified, the command runs as it is, and one line on standard error says so.

Exit codes: 0 the host has closed its end, or is gone; 126 the command can't be run; 127 there is no such command; 71 \
there are no more descriptors or threads; 66 there is no servers.json, or no such server in it; 65 the file, or the server in it, \
can't be read; 64 an option is wrong; 75 the host sends something other than JSON-RPC while a server of that `--name` is kept; those of the \
command, where it is run as it is.

Example, in a host's configuration:
  {\"mcpServers\": {\"browser\": {
    \"command\": \"mcp-sessiond\",
    \"args\": [\"wrap\", \"--\", \"npx\", \"@playwright/mcp\"]}}}

For a server elsewhere:
    \"args\": [\"wrap\", \"--\", \"https://example.org/mcp\"]

Where servers.json has the command:
    \"args\": [\"wrap\", \"@browser\"]")]
pub(crate) struct Arguments {
    #[command(flatten)]
    claiming: ClaimArgs,
    /// Start a fresh server, and end the previous one
    #[arg(long)]
    fresh: bool,
    /// Whether the host's next connection gets this server again, whatever is known about the host
    #[arg(long, value_name = "WHEN", value_parser = resume(), conflicts_with = "name")]
    resume: Option<Resume>,
    /// Keep the server for you, and not for the host: any host that uses this name finds it, also
    /// after a restart
    #[arg(long, value_name = "NAME", conflicts_with_all = ["label", "entry", "siblings"])]
    name: Option<Label>,
    /// Take the server of that name from the host that has it; if another command line has
    /// started it, end it
    #[arg(long, requires = "name")]
    take: bool,
    /// Wait for the server of that name while another host has it: calls wait, too
    #[arg(long, requires = "name", conflicts_with = "take")]
    wait: bool,
    /// Refuse calls while another host has the server of that name, as where the name is a lock
    #[arg(long, requires = "name", conflicts_with_all = ["take", "wait"])]
    exclusive: bool,
    /// Answer for the server with what it said last, until it is started: at its first `call`, or at the
    /// `start` of its host, which does not wait for it
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "call",
        value_parser = lazy(),
        conflicts_with = "name"
    )]
    lazy: Option<Waking>,
    /// Keep the server when a module that its script imports was edited
    #[arg(long)]
    no_sources: bool,
    /// Refused: only a server of servers.json can be shared
    #[arg(long, hide = true)]
    share: bool,
    /// All servers of servers.json, as one
    #[arg(long, conflicts_with_all = ["name", "command"])]
    all: bool,
    /// With --all: let through only what is listed by such a name; `*` stands for any text, `?` for
    /// one character. Repeatable
    #[arg(long, value_name = "GLOB", requires = "all")]
    only: Vec<Glob>,
    /// With --all: let through nothing that is listed by such a name. Repeatable
    #[arg(long, value_name = "GLOB", requires = "all")]
    without: Vec<Glob>,
    /// With a URL: send this header with each request, as `NAME: VALUE`; in the value
    /// `${env:NAME}`, `${file:PATH}` and `${keyring:SERVICE/ACCOUNT}` are looked up. Repeatable
    #[arg(long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// The server's command and its arguments; `--` before it may be left out. `@NAME`: the server
    /// NAME of servers.json. A URL: the server that answers there
    #[arg(
        trailing_var_arg = true,
        required_unless_present = "all",
        value_name = "CMD",
        add = completion::wrapped()
    )]
    command: Vec<OsString>,
}

/// Runs the server. While it can't be, the host gets the reason as the answer to its requests, and
/// each further message of the host is a further attempt.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let mut failed = FailedStart::of(called(arguments));
    loop {
        let error = match attempt(arguments) {
            Ok(code) => return code,
            Err(error) => error,
        };
        match failed.answer_on_stdin(&error) {
            Ok(Next::Again) => {}
            Ok(Next::Exit) | Err(_) => return ExitCode::from(&error),
        }
    }
}

/// Refuses a `wrap` whose options are wrong: the host gets the reason as the answer to its
/// requests.
pub(crate) fn refuse(sentence: String) -> ExitCode {
    let error = usage(sentence);
    let mut failed = FailedStart::of("wrap".to_owned());
    while let Ok(Next::Again) = failed.answer_on_stdin(&error) {}
    ExitCode::from(&error)
}

/// What people call the server.
fn called(arguments: &Arguments) -> String {
    let label = arguments.name.as_ref().or(arguments.claiming.entry());
    match (label, &arguments.command[..]) {
        (Some(label), _) => label.as_str().to_owned(),
        (None, []) => "wrap --all".to_owned(),
        (None, [url]) if url.to_str().is_some_and(servers::is_http) => {
            servers::remote::redacted_url(&url.to_string_lossy())
        }
        (None, words) => match servers::named(words) {
            Some(name) => name.to_owned(),
            None => program(words.to_vec()).display_name(),
        },
    }
}

fn usage(sentence: impl Into<String>) -> StartError {
    StartError {
        code: USAGE,
        sentence: sentence.into(),
    }
}

/// Runs the server, unless something is wrong that can be seen before anything was read of the
/// host.
fn attempt(arguments: &Arguments) -> Result<ExitCode, StartError> {
    if arguments.share {
        return Err(usage(
            "only a server of servers.json can be shared: it gets HOME, LOGNAME, PATH, SHELL, TERM, USER and the `env` of its entry, so that \
             no host's secrets reach another. Write it down there with `\"shared\": true`, and run it as `mcp-sessiond wrap @NAME`",
        ));
    }
    let (claiming, options) = (&arguments.claiming, || arguments.claiming.clone().options());
    let claim = ClaimRequest {
        fresh: arguments.fresh,
        ..claiming.clone().claim()
    };
    if arguments.all {
        let claim = ClaimRequest {
            resume: arguments.resume,
            ..claim
        };
        let only = (!arguments.only.is_empty()).then(|| arguments.only.clone());
        let filter = Filter {
            server: None,
            only,
            without: arguments.without.clone(),
        };
        let all = bundle::Flags {
            lazy: arguments.lazy,
            has_sources: !arguments.no_sources,
        };
        return Ok(bundle::run(&options(), claim, filter, all)?);
    }
    if let Some(code) = url::run(arguments)? {
        return Ok(code);
    }
    if let Some(name) = servers::named(&arguments.command) {
        if arguments.command.len() > 1 {
            return Err(usage(format!(
                "the arguments of @{name} are in servers.json; none may follow it"
            )));
        }
        let config = Arc::new(load_or_default());
        // What the user has named is one host's at a time.
        if arguments.name.is_none()
            && let Some((mut shared, looking)) = servers::shared(name, &config)?
        {
            shared.has_sources &= !arguments.no_sources;
            let settings = front_settings(&config);
            let claim = ClaimRequest {
                resume: arguments.resume.or_else(|| servers::resume_of(name)),
                ..claim
            };
            return Ok(shared::run(options(), claim, shared, looking, settings));
        }
        let words = words_of(arguments, name);
        return Err(servers::exec_wrap(name, &words, may_be_lazy(arguments)).into());
    }
    let program = Program {
        title: arguments.name.as_ref().or(claiming.entry()).cloned(),
        has_sources: !arguments.no_sources,
        ..program(arguments.command.clone())
    };
    let named = arguments.name.clone().map(|name| Named {
        name,
        command: program.digest(),
        take: arguments.take,
        own: !arguments.wait && !arguments.exclusive,
    });
    let claim = ClaimRequest {
        resume: arguments.resume,
        named,
        ..claim
    };
    let settings = FrontSettings {
        waits_for_name: arguments.wait,
        ..front_settings(&load_or_default())
    };
    Ok(match arguments.lazy {
        Some(waking) => lazy::run(options(), claim, &program, settings, waking),
        None => front::run(options(), claim, &program, settings),
    })
}

/// The words of `--lazy`.
fn lazy() -> impl TypedValueParser<Value = Waking> {
    PossibleValuesParser::new(["call", "start"]).map(|word| match &*word {
        "start" => Waking::AtStart,
        _ => Waking::AtFirstCall,
    })
}

/// What each word of `--resume` means, for `--help`.
fn resume() -> impl TypedValueParser<Value = Resume> {
    let meaning = |resume| match resume {
        Resume::Always => "Also after the host has closed it, for hosts that reconnect by closing",
        Resume::Cut => "Only where the connection was cut off",
        // The two that nobody may choose are not shown.
        Resume::Never | Resume::Unknown | Resume::Conversation => {
            "Never: it ends with its connection"
        }
    };
    let words =
        Resume::CHOICES.map(|resume| PossibleValue::new(resume.as_str()).help(meaning(resume)));
    PossibleValuesParser::new(words).try_map(|word| word.parse::<Resume>())
}

/// Whether the entry of the server decides if it is started at its first call. What has a name of
/// the user's is started once.
fn may_be_lazy(arguments: &Arguments) -> bool {
    arguments.lazy.is_none() && arguments.name.is_none()
}

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

/// The command in what follows `wrap`. None: that is no `wrap` of ours.
pub(crate) fn command_in(words: &[OsString]) -> Option<Vec<OsString>> {
    let line =
        Line::try_parse_from(std::iter::once(OsString::from("wrap")).chain(words.iter().cloned()))
            .ok()?;
    Some(line.arguments.command)
}

/// The options that this process was started with, for a `wrap` of the server of this name in
/// `servers.json`.
fn words_of(arguments: &Arguments, name: &str) -> Vec<OsString> {
    // What was parsed are `wrap`, the options, perhaps `--`, and the name at the end.
    let mut words: Vec<OsString> = std::env::args_os()
        .skip_while(|word| word != "wrap")
        .skip(1)
        .collect();
    words.pop();
    words.pop_if(|word| word == "--");
    // When the entry is edited, the former server ends.
    if arguments.name.is_none()
        && arguments.claiming.entry().is_none()
        && name.parse::<Label>().is_ok()
    {
        words.extend(["--entry".into(), name.into()]);
    }
    words
}

/// The command line of a server.
pub(crate) fn program(command: Vec<OsString>) -> Program {
    let mut words = command.into_iter();
    // The parser has seen to it that there is one.
    Program {
        name: words.next().unwrap_or_default(),
        arguments: words.collect(),
        title: None,
        has_sources: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Vec<String>, clap::error::ErrorKind> {
        let line =
            Line::try_parse_from(["wrap"].iter().chain(words)).map_err(|error| error.kind())?;
        Ok(line
            .arguments
            .command
            .into_iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect())
    }

    #[test]
    fn the_command_begins_behind_the_options_with_or_without_two_dashes() {
        let command = ["npx", "-y", "@playwright/mcp", "--", "--instance", "x"];
        for options in [
            &[][..],
            &["--no-start"],
            &["--instance", "x", "--siblings", "oldest"],
        ] {
            for dashes in [&[][..], &["--"]] {
                assert_eq!(
                    read(&[options, dashes, &command].concat()).as_deref(),
                    Ok(&command.map(String::from)[..])
                );
            }
        }
        assert_eq!(
            read(&["--", "-odd-name"]).as_deref(),
            Ok(&["-odd-name".to_owned()][..])
        );
    }

    #[test]
    fn an_option_of_ours_that_is_mistyped_is_no_command() {
        for words in [
            &["--no-strat", "npx"][..],
            &[],
            &["--"],
            &["--instance", "x"],
        ] {
            assert!(read(words).is_err(), "{words:?}");
        }
    }
}
