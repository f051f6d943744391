//! The `mcp-sessiond` command: the parser of the command line, and the dispatch to its verbs.
//!
//! It is a library only so that the tests can build the same command with its fault points.
//!
//! - [`commands`]: the verbs, one file each, and the verb's own folder below where it needs one.
//! - [`hosts`]: the files in which MCP hosts keep their servers: where each is, how its servers are
//!   read, and the edits of `setup` ([`hosts::entries`]), whose record ([`hosts::record`]) allows
//!   `setup --undo`.
//! - [`servers`]: `servers.json`: its entries, secrets ([`servers::Servers`] looks them up just
//!   before a start), edits while it is watched; several servers as one ([`servers::bundle`]), and
//!   servers with a URL ([`servers::remote`]).
//! - [`ui`]: tables and colours, printing, the screen of `status -w`, lengths of time.
//! - [`inventory`]: the kept servers, as the daemon and their keepers report them; `status` lists
//!   them ([`inventory::listing`]), and `stop`, `restart` and `logs` choose among them
//!   ([`inventory::selection`]).
//! - [`mcp_client`]: a client of one server, for `call`. [`other_names`]: what may be typed in the
//!   place of a verb.
//! - [`service_manager`]: the user service, of systemd or launchd.
//! - [`claim_args`], [`session_args`]: options that several verbs share: about a claim, and about
//!   the session that a command works on.
//! - [`completion`]: the servers and tools that a shell offers.
//! - [`calls`]: calls to the daemon, and why one came to nothing. [`exit_code`]: all exit codes.
//!   `extras`: what a build without a feature says. [`config`]: what the configuration says to a front. [`runtime`]: the asynchronous runtime of a
//!   command. [`version`]: the versions of this executable and of others.
//!
//! **Architecture Invariants.** A verb prints by [`ui::output`] alone, and exits with a code of
//! [`exit_code`]. Tokens, secrets and values are never printed, nor the arguments of a server. A
//! host's file is changed in one step or not at all, and only where its host would read the same
//! servers afterwards. `commands` stands above everything else: no other module names a verb.
#![forbid(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links)]

mod calls;
mod claim_args;
mod commands;
#[cfg(all(test, feature = "http"))]
mod commands_in_docs;
mod completion;
mod config;
mod exit_code;
#[cfg(not(all(feature = "http", feature = "tui")))]
mod extras;
mod file_end;
mod hosts;
mod inventory;
mod mcp_client;
mod other_names;
mod runtime;
mod servers;
mod service_manager;
mod session_args;
mod ui;
mod version;

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write};
use std::process::ExitCode;

use clap::{Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use self::commands::{
    call, completions, debug, demo, doctor, import, install, keep, logs, man, mcp, restart, run,
    session, setup, share, state, status, stop, stream, task, token, wrap,
};
#[cfg(feature = "http")]
use self::commands::{login, logout, serve};
use self::exit_code::USAGE;
#[cfg(not(feature = "http"))]
use self::ui::output::warn;

/// Keeps MCP servers and their sessions alive when hosts kill and restart them.
#[derive(Debug, Parser)]
#[command(
    name = "mcp-sessiond",
    version,
    max_term_width = 110,
    after_help = "`mcp-sessiond help authors` shows the verbs for authors of servers,\n`mcp-sessiond help more` the rest.\n\nTry `mcp-sessiond demo`: it kills the wrapper and the daemon of a server that\ncounts, and the count goes on."
)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run an MCP server that is still there when its host comes back
    Wrap(wrap::Arguments),
    /// Put `wrap` in front of the servers in hosts' files
    Setup(setup::Arguments),
    /// Show which servers are kept, and how they are
    #[command(alias = "list", alias = "ps")]
    Status(status::Arguments),
    /// Show the log of the daemon, or of a server
    Logs(logs::Arguments),
    /// Replace kept servers by fresh ones
    Restart(restart::Arguments),
    /// End kept servers; their sessions stay
    Stop(stop::Arguments),
    /// Look for problems, and say what to do about each
    Doctor(doctor::Arguments),
    /// Call a tool of a server, or list its tools
    Call(call::Arguments),
    /// Show on real processes what is kept, in a private directory
    Demo(demo::Arguments),
    #[cfg(feature = "http")]
    /// Serve MCP servers over HTTP, in sessions that clients can resume
    Serve(Box<serve::Arguments>),
    /// Make the server of a name one process for all hosts
    Share(share::Arguments),
    /// Copy servers from hosts' files into servers.json
    Import(import::Arguments),
    #[cfg(feature = "http")]
    /// Log in to a remote server of servers.json, in the browser
    Login(login::Arguments),
    #[cfg(feature = "http")]
    /// Delete the tokens of a login
    Logout(logout::Arguments),
    /// Install the daemon's user service; show, restart or remove it
    Install(install::Arguments),
    /// Load, store or reject the caller's resume token
    Token(token::Arguments),
    /// Read and write the state of a session: JSON values by key
    State(state::Arguments),
    /// Append to a stream of a session, and print what is in it
    Stream(stream::Arguments),
    /// Run a command as a task; read, answer and cancel tasks
    Task(task::Arguments),
    /// End sessions of a service that are no longer in use
    Session(session::Arguments),
    /// Show what the daemon knows, without tokens and values
    Debug(debug::Arguments),
    /// Run the daemon in the foreground
    Run(run::Arguments),
    /// Let the model look after the servers of its host: an MCP server
    Mcp(mcp::Arguments),
    /// Print the completions of a shell
    Completions(completions::Arguments),
    /// Print the manual page, or write those of all verbs
    Man(man::Arguments),
    /// Hold a server for `wrap` (internal)
    #[command(hide = true)]
    Keep(keep::Arguments),
}

/// Parses, runs, and returns the exit code.
pub fn main() -> ExitCode {
    completions::answer_shell(command);
    let mut words = std::env::args_os();
    let own_name = words.next();
    let words = other_names::expand(words.collect());
    if let Some(list) = help_topic(&words) {
        return ui::output::print(&list);
    }
    let parsed = command()
        .try_get_matches_from(own_name.into_iter().chain(words))
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            #[cfg(not(feature = "http"))]
            if let Some(why) = extras::absent_verb(std::env::args().skip(1)) {
                warn(why);
                return ExitCode::from(USAGE);
            }
            print_usage_error(&error);
            return match error.use_stderr() {
                // A host may have started it.
                true if std::env::args_os()
                    .nth(1)
                    .is_some_and(|verb| verb == "wrap") =>
                {
                    wrap::refuse(sentence(&error.to_string()))
                }
                true => ExitCode::from(USAGE),
                false => ExitCode::SUCCESS,
            };
        }
    };
    let Some(verb) = cli.verb else {
        return match std::io::stdout().is_terminal() {
            true => status::run(&status::Arguments::default()),
            false => without_verb(),
        };
    };
    match verb {
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Token(arguments) => token::run(arguments),
        Verb::State(arguments) => state::run(arguments),
        Verb::Stream(arguments) => stream::run(arguments),
        Verb::Task(arguments) => task::run(arguments),
        Verb::Session(arguments) => session::run(arguments),
        Verb::Wrap(arguments) => wrap::run(&arguments),
        #[cfg(feature = "http")]
        Verb::Serve(arguments) => serve::run(*arguments),
        #[cfg(feature = "http")]
        Verb::Login(arguments) => login::run(arguments),
        #[cfg(feature = "http")]
        Verb::Logout(arguments) => logout::run(&arguments),
        Verb::Keep(arguments) => keep::run(arguments),
        Verb::Mcp(arguments) => mcp::run(&arguments),
        Verb::Completions(arguments) => completions::run(&arguments),
        Verb::Man(arguments) => man::run(&arguments, Cli::command()),
        Verb::Doctor(arguments) => doctor::run(&arguments),
        Verb::Debug(arguments) => debug::run(&arguments),
        Verb::Status(arguments) => status::run(&arguments),
        Verb::Logs(arguments) => logs::run(&arguments),
        Verb::Stop(arguments) => stop::run(&arguments),
        Verb::Restart(arguments) => restart::run(&arguments),
        Verb::Call(arguments) => call::run(&arguments),
        Verb::Setup(arguments) => setup::run(&arguments),
        Verb::Share(arguments) => share::run(&arguments),
        Verb::Import(arguments) => import::run(&arguments),
        Verb::Install(arguments) => install::run(&arguments),
        Verb::Demo(arguments) => demo::run(&arguments),
    }
}

/// Verbs, under the title that they have in `--help`.
type Group = (&'static str, &'static [&'static str]);

/// The verbs as `--help` groups them.
const GROUPS: [Group; 4] = [
    (
        "Every day",
        &[
            "setup", "status", "logs", "restart", "stop", "doctor", "call",
        ],
    ),
    (
        "Run servers",
        &["wrap", "serve", "share", "import", "login"],
    ),
    ("The daemon", &["install", "debug"]),
    ("More", &["demo", "help"]),
];

/// Those that `help` shows under a name of its own.
const HELP_TOPICS: [(&str, Group); 2] = [
    (
        "authors",
        (
            "For authors of servers",
            &["token", "state", "stream", "task", "session"],
        ),
    ),
    (
        "more",
        (
            "Seldom needed",
            &["mcp", "logout", "run", "completions", "man"],
        ),
    ),
];

/// What `help` is for.
const HELP_ABOUT: &str = "Print this message or the help of the given subcommand(s)";

/// What `help TOPIC` prints, where that is a topic.
fn help_topic(words: &[OsString]) -> Option<String> {
    let [help, topic] = words else { return None };
    let (_, group) = HELP_TOPICS.iter().find(|(name, _)| topic == name)?;
    let list = || verbs(&Cli::command(), &[*group]);
    (help == "help").then(|| format!("{}`mcp-sessiond VERB --help` shows more of each.\n", list()))
}

/// The list of verbs in these groups.
fn verbs(command: &Command, groups: &[Group]) -> String {
    let widest = |verbs: &[&str]| verbs.iter().map(|verb| verb.len()).max();
    let width = groups.iter().filter_map(|(_, verbs)| widest(verbs)).max();
    let width = width.unwrap_or_default();
    let mut list = String::new();
    for (group, verbs) in groups {
        list += &ui::table::paint(ui::table::HEADING, &format!("{group}:"));
        list += "\n";
        for verb in *verbs {
            // The parser adds `help` itself, and says of it then what it says here. To have it do so takes
            // longer than all the rest of a start.
            let about = match command.find_subcommand(verb).and_then(Command::get_about) {
                Some(about) => about.to_string(),
                None if *verb == "help" => HELP_ABOUT.to_owned(),
                // An extra that this build does not have.
                None => continue,
            };
            list += &format!("  {verb:width$}  {about}\n");
        }
        list += "\n";
    }
    list
}

/// The whole command line, whose `--help` groups the verbs.
fn command() -> Command {
    let list = verbs(&Cli::command(), &GROUPS);
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}{{after-help}}"
    );
    Cli::command().help_template(template)
}

/// Prints what the parser says.
fn print_usage_error(error: &clap::Error) {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    match harmless(error, words) {
        Some(text) => drop(writeln!(std::io::stderr(), "{text}")),
        None => drop(error.print()),
    }
}

/// What the parser says, without colours and with nothing that does something to a terminal. None:
/// none of these words, which it quotes, has anything of that kind.
fn harmless(error: &clap::Error, mut words: impl Iterator<Item = String>) -> Option<String> {
    let does_something = |word: String| ui::table::printable(&word) != word;
    words.any(does_something).then(|| {
        let text = error.to_string();
        let lines: Vec<String> = text.lines().map(ui::table::printable).collect();
        lines.join("\n")
    })
}

/// What is wrong with a command line, in one sentence: what the parser says before it shows the
/// usage.
fn sentence(error: &str) -> String {
    let is_usage = |line: &&str| line.starts_with("Usage:") || line.starts_with("For more");
    let lines = error.lines().take_while(|line| !is_usage(line));
    let mut sentence = String::new();
    let mut is_list = false;
    for line in lines
        .map(|line| ui::table::printable(line.trim()))
        .filter(|line| !line.is_empty() && !line.starts_with("tip: to pass"))
    {
        sentence += match () {
            () if sentence.is_empty() => "",
            () if sentence.ends_with(':') || line.starts_with('[') => " ",
            () if is_list => ", ",
            () => "; ",
        };
        is_list |= sentence.ends_with(": ");
        sentence += line.strip_prefix("error: ").unwrap_or(&line);
    }
    sentence
}

/// A program has called us and said no verb.
fn without_verb() -> ExitCode {
    let help = command().render_help();
    let _ = write!(anstream::stderr(), "{}", help.ansi());
    ExitCode::from(USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of a verb and of those below it that would be wrapped at 80 columns.
    fn wrapped_examples(verb: &Command) -> Vec<String> {
        let help = verb.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        let examples = help.lines().skip_while(|line| !line.starts_with("Example"));
        let wide = examples.filter(|line| line.chars().count() > 80);
        let mut found: Vec<String> = wide.map(str::to_owned).collect();
        found.extend(verb.get_subcommands().flat_map(wrapped_examples));
        found
    }

    #[test]
    fn a_usage_error_is_one_whole_sentence() {
        for (words, expected) in [
            (
                &["wrap"][..],
                "the following required arguments were not provided: <CMD>...",
            ),
            (
                &["wrap", "--no-strat", "npx"],
                "unexpected argument '--no-strat' found; tip: a similar argument exists: '--no-start'",
            ),
            (
                &["wrap", "--resume", "x", "npx"],
                "invalid value 'x' for '--resume <WHEN>' [possible values: always, cut, never]",
            ),
            (
                &["wrap", "--take", "--only", "x", "npx"],
                "the following required arguments were not provided: --name <NAME>, --all",
            ),
        ] {
            let words = std::iter::once(&"mcp-sessiond").chain(words);
            let error = command().try_get_matches_from(words);
            let error = error.expect_err("a usage error").to_string();
            assert_eq!(sentence(&error), expected, "{error}");
        }
    }

    #[test]
    fn what_was_typed_does_nothing_to_a_terminal() {
        for (name, expected) in [("a\u{1b}[31mb\u{7}", Some("'ab'")), (" plain", None)] {
            let words = ["mcp-sessiond", "wrap", "--name", name, "true"];
            let error = command().try_get_matches_from(words);
            let error = error.expect_err("a usage error");
            let text = harmless(&error, words.iter().map(ToString::to_string));
            let has = |expected: &str| {
                let is_clean = |text: &String| !text.contains(['\u{1b}', '\u{7}']);
                text.as_ref()
                    .is_some_and(|text| text.contains(expected) && is_clean(text))
            };
            assert!(expected.map_or(text.is_none(), has), "{text:?}");
        }
    }

    #[test]
    fn no_example_is_wrapped_at_80_columns() {
        assert_eq!(wrapped_examples(&Cli::command()), Vec::<String>::new());
    }

    #[cfg(not(feature = "http"))]
    #[test]
    fn help_has_no_verb_that_is_absent() {
        let help = command().render_help().to_string();
        assert!(help.contains("\n  wrap "), "{help}");
        assert!(!help.contains("\n  serve "), "{help}");
    }

    #[cfg(feature = "http")]
    #[test]
    fn every_verb_is_in_one_group_of_help() {
        use std::collections::BTreeSet;

        let mut command = Cli::command();
        command.build();
        let verbs: BTreeSet<&str> = command
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set())
            .map(Command::get_name)
            .collect();
        let topics = HELP_TOPICS.iter().map(|(_, group)| group);
        let grouped: Vec<&str> = GROUPS
            .iter()
            .chain(topics)
            .flat_map(|(_, verbs)| *verbs)
            .copied()
            .collect();
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), verbs);
        assert_eq!(grouped.len(), verbs.len());
        let help = super::command().render_help().to_string();
        let list = help.lines().take_while(|line| *line != "Options:");
        let widest = list.map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{help}");
        let shown: usize = GROUPS.iter().map(|(_, verbs)| verbs.len()).sum();
        assert_eq!(shown, 16, "{help}");
    }
}
