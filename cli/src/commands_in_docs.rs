//! Tests: every command that the pages and `--help` show is one that this executable takes.

use std::ffi::OsString;
use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _, Parser as _};

use crate::{Cli, help_topic, other_names};

/// A command as a page shows it, and where.
#[derive(Debug)]
struct Example {
    at: String,
    command: String,
    /// Whether it is meant to be typed as it stands. In a sentence its arguments may be left out.
    whole: bool,
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "packaging/README.md"]
        .map(|page| root.join(page))
        .into();
    let docs = read_dir(root.join("docs"))
        .expect("docs")
        .map(|entry| entry.expect("an entry").path());
    pages.extend(docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    pages
}

/// What follows the name of the executable, where a line or a piece of code begins with it.
fn command(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let text = text.strip_prefix("$ ").unwrap_or(text);
    let text = text.strip_prefix("sudo ").unwrap_or(text);
    text.strip_prefix("mcp-sessiond ")
}

/// Whether it is a synopsis, with what may be left out in brackets.
fn is_synopsis(command: &str) -> bool {
    command.contains(['[', '…'])
}

fn examples_in_page(page: &Path) -> Vec<Example> {
    let text = read_to_string(page).expect("a page");
    let (mut shown, mut fenced) = (Vec::new(), false);
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let at = || format!("{}:{number}", page.display());
        if fenced || line.starts_with("    ") {
            let command = command(line).map(str::to_owned);
            shown.extend(command.map(|command| Example {
                at: at(),
                command,
                whole: true,
            }));
            continue;
        }
        let code = line.split('`').skip(1).step_by(2);
        shown.extend(code.filter_map(command).map(|command| Example {
            at: at(),
            command: command.to_owned(),
            whole: false,
        }));
    }
    shown
}

/// The examples at the end of a verb's help, and of those below it.
fn examples(verb: &Command, path: &str) -> Vec<Example> {
    let help = verb
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let lines = help.lines().skip_while(|line| *line != "Examples:");
    let mut found: Vec<Example> = lines
        .filter_map(command)
        .map(|command| Example {
            at: format!("`{path} --help`"),
            command: command.to_owned(),
            whole: true,
        })
        .collect();
    for below in verb.get_subcommands() {
        found.extend(examples(below, &format!("{path} {}", below.get_name())));
    }
    found
}

/// Puts a word in the place of everything that a shell would have replaced.
fn without_expansions(command: &str) -> String {
    let mut text = command.replace("$$", "1");
    for (open, close) in [("$((", "))"), ("$(", ")"), ("<(", ")")] {
        while let Some((before, rest)) = text.split_once(open) {
            let (_, after) = rest.split_once(close).expect("an expansion ends");
            text = format!("{before}1{after}");
        }
    }
    text
}

/// The words that the executable gets of a line for a shell.
fn words(command: &str) -> Vec<String> {
    let words = shlex::split(&without_expansions(command)).expect("quotes have pairs");
    let ends = |word: &String| {
        ["|", "||", "&", "&&", ";", ")"].contains(&&**word)
            || word.trim_start_matches(['1', '2']).starts_with(['>', '<'])
    };
    words.into_iter().take_while(|word| !ends(word)).collect()
}

fn refusal(shown: &Example) -> Option<String> {
    let words = words(&shown.command).into_iter().map(OsString::from);
    let own_name = std::iter::once(OsString::from("mcp-sessiond"));
    let words = other_names::expand(words.collect());
    if help_topic(&words).is_some() {
        return None;
    }
    let error = Cli::try_parse_from(own_name.chain(words)).err()?;
    let is_well = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => !shown.whole,
        // NAME, PID: what is to be put there is another value. None at all: only the option is
        // meant.
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            match error.get(ContextKind::InvalidValue) {
                Some(ContextValue::String(value)) if !value.is_empty() => {
                    value.chars().all(|char| char.is_ascii_uppercase())
                }
                _ => !shown.whole,
            }
        }
        _ => false,
    };
    (!is_well).then(|| format!("{}: mcp-sessiond {}\n{error}", shown.at, shown.command))
}

#[test]
fn every_command_in_the_pages_and_the_help_is_taken() {
    let mut shown: Vec<Example> = pages()
        .iter()
        .flat_map(|page| examples_in_page(page))
        .collect();
    let in_pages = shown.len();
    shown.extend(examples(&Cli::command(), "mcp-sessiond"));
    let in_help = shown.len() - in_pages;
    assert!(
        in_pages > 100 && in_help > 30,
        "{in_pages} in pages, {in_help} in help: they are not found any more"
    );
    shown.retain(|one| !is_synopsis(&one.command));
    let refused: Vec<String> = shown.iter().filter_map(refusal).collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn a_command_that_is_not_taken_is_found() {
    let refused = |command: &str, whole| {
        refusal(&Example {
            at: "here".to_owned(),
            command: command.to_owned(),
            whole,
        })
        .is_some()
    };
    assert!(refused("nothing", false), "no such verb");
    assert!(refused("status --nothing", false), "no such option");
    assert!(
        refused("stop", true) && !refused("stop", false),
        "no argument"
    );
    assert!(!refused(
        r#"state set count $((count + 1)) --for $$ 2>/dev/null || exit"#,
        true
    ));
}
