//! `mcp-sessiond doctor`: tries what a user depends on, and says what to do where something is
//! wrong.

mod claim;
mod daemon;
mod directories;
mod files;
mod hosts;
mod losses;
mod servers;
mod service;

use std::process::ExitCode;

use clap::Args;
use mcp_sessiond_client::Label;
use serde::Serialize;

use crate::exit_code::SOFTWARE;
use crate::runtime::block_on;
use crate::ui::output::{print, to_json, warn};
use crate::ui::table::{BAD, DOUBTFUL, GOOD, filled, paint, printable};

/// Columns of what is printed.
const COLUMNS: usize = 80;
/// Columns of an outcome and of a check's name, each with the blanks behind it.
const OUTCOME: usize = 9;
const CHECK: usize = 11;

#[derive(Debug, Args)]
#[command(after_help = "\
Tries, in this order: the configuration and servers.json; the runtime directory and the disk; the daemon (where none runs it starts one, as any \
client does) and its service; a claim and a write, in a session of its own that is gone afterwards; the servers that are kept; where hosts look for programs; each host's \
file; what was lost or runs unkept. Each line is `ok`, `note` (it works; you may want to look) or `problem` (something that you use does not work); the line below a note or \
a problem says what to do. Tokens, values and arguments are never shown.

With --json: an object. `version`: of this executable. `findings`: an array of `check` (config, servers, directory, storage, daemon, service, serve, \
records, claim, host, key, kept, path, setup, hint, unkept, lost), `outcome` (ok, note, problem); `what` (a sentence), and `fix` (what to do; absent where the \
outcome is ok). `problems`, `notes`: how many of each. `verdict`: the last line.

Exit codes: 0 no problem; 1 at least one.

Examples:
  mcp-sessiond doctor
  mcp-sessiond doctor --json | jq '.findings[] | select(.outcome != \"ok\")'
  mcp-sessiond doctor --for $$ >&2   # in a server's start script")]
pub(crate) struct Arguments {
    #[command(flatten)]
    asked: CallerArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Where the daemon is asked about the caller.
#[derive(Debug, Clone, Args)]
pub(crate) struct CallerArgs {
    /// Find the host and the key of this instance, an ancestor of this command below the host; by
    /// default of this command itself
    #[arg(long = "for", value_name = "PID")]
    instance: Option<u32>,
    /// The label that the instance would give
    #[arg(long = "instance", value_name = "LABEL")]
    label: Option<Label>,
}

/// How a finding is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    /// As it should be.
    Ok,
    /// It works. Somebody may want to know, or to do something.
    Note,
    /// Something that the user depends on does not work.
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    outcome: Outcome,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self {
            check,
            outcome: Outcome::Ok,
            what: what.into(),
            fix: None,
        }
    }

    fn note(check: &'static str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            check,
            outcome: Outcome::Note,
            what: what.into(),
            fix: Some(fix.into()),
        }
    }

    fn problem(check: &'static str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            check,
            outcome: Outcome::Problem,
            what: what.into(),
            fix: Some(fix.into()),
        }
    }
}

/// What was found, in the order in which it is said.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, finding: Finding) {
        self.0.push(finding);
    }

    /// Takes the directories of what was found by the same check before: the daemon knows better.
    fn replace(&mut self, finding: Finding) {
        match self.0.iter_mut().find(|known| known.check == finding.check) {
            Some(known) => *known = finding,
            None => self.add(finding),
        }
    }

    /// What to do about what was found by a check.
    fn fix_of(&self, check: &str) -> Option<String> {
        self.0
            .iter()
            .find(|finding| finding.check == check)?
            .fix
            .clone()
    }

    fn has_problem(&self, check: &str) -> bool {
        self.0
            .iter()
            .any(|finding| finding.check == check && finding.outcome == Outcome::Problem)
    }

    fn count(&self, outcome: Outcome) -> usize {
        self.0
            .iter()
            .filter(|finding| finding.outcome == outcome)
            .count()
    }

    fn verdict(&self) -> String {
        let notes = match self.count(Outcome::Note) {
            0 => String::new(),
            1 => "1 note".to_owned(),
            notes => format!("{notes} notes"),
        };
        let and = if notes.is_empty() {
            String::new()
        } else {
            format!(" and {notes}")
        };
        match self.count(Outcome::Problem) {
            0 if notes.is_empty() => "All is well.".to_owned(),
            0 => format!("All is well; {notes}."),
            1 => format!("1 problem{and}; the line below it says what to do."),
            problems => {
                format!(
                    "{problems} problems{and}; start with the first; the line below it says what to do."
                )
            }
        }
    }
}

/// Where people read more, whose package has no pages.
fn page(name: &str) -> String {
    format!("more in docs/{name}.md of the sources")
}

/// Looks at everything, prints what was found, and returns the exit code.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let findings = match block_on(examine(&arguments.asked)) {
        Ok(findings) => findings,
        Err(error) => {
            warn(error);
            return ExitCode::from(SOFTWARE);
        }
    };
    let problems = findings.count(Outcome::Problem);
    let printed = print(&if arguments.json {
        to_json(&serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "findings": findings.0,
            "problems": problems,
            "notes": findings.count(Outcome::Note),
            "verdict": findings.verdict(),
        }))
    } else {
        text(&findings)
    });
    if problems > 0 {
        ExitCode::FAILURE
    } else {
        printed
    }
}

async fn examine(asked: &CallerArgs) -> Findings {
    let mut findings = Findings::default();
    let loaded = files::check(&mut findings);
    let directory = directories::check(loaded.as_ref().map(|loaded| &loaded.config), &mut findings);
    if let Some(directory) = &directory
        && let Some(connection) = daemon::check(directory, &mut findings).await
    {
        if let Some(loaded) = &loaded {
            daemon::settings(&connection, loaded, &mut findings).await;
        }
        service::check(&mut findings).await;
        claim::check(&connection, asked, &mut findings).await;
        if findings.has_problem("claim") && !daemon::recheck(&connection, &mut findings).await {
            // One fix for both.
            findings.0.retain(|finding| finding.check != "claim");
        }
        servers::check(&mut findings).await;
        hosts::check(&mut findings);
        losses::check(&connection, &mut findings).await;
    } else {
        service::check(&mut findings).await;
        hosts::check(&mut findings);
    }
    if let Some(directory) = &directory {
        losses::unkept(directory, &mut findings);
    }
    findings
}

fn text(findings: &Findings) -> String {
    let mut text = String::new();
    for Finding {
        check,
        outcome,
        what,
        fix,
    } in &findings.0
    {
        let (style, word) = match outcome {
            Outcome::Ok => (GOOD, "ok"),
            Outcome::Note => (DOUBTFUL, "note"),
            Outcome::Problem => (BAD, "problem"),
        };
        // The blanks come after the style, so that they are counted as what they are.
        let word = paint(style, word) + &" ".repeat(OUTCOME - word.len());
        text += &format!("{word}{check:<CHECK$}{}", indented(what, ""));
        if let Some(fix) = fix {
            text += &format!("{:1$}{2}", "", OUTCOME + CHECK, indented(fix, "-> "));
        }
    }
    text + "\n" + &findings.verdict() + "\n"
}

/// A sentence behind the two first columns, in lines that begin there.
fn indented(sentence: &str, mark: &str) -> String {
    let indent = OUTCOME + CHECK + mark.len();
    mark.to_owned() + &filled(&printable(sentence), indent, indent, COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_counts() {
        let note = || Finding::note("path", "a note", "nothing");
        let problem = || Finding::problem("claim", "a problem", "do this");
        let verdict = |findings| Findings(findings).verdict();
        assert_eq!(verdict(vec![Finding::ok("path", "fine")]), "All is well.");
        assert_eq!(verdict(vec![note()]), "All is well; 1 note.");
        assert_eq!(
            verdict(vec![problem()]),
            "1 problem; the line below it says what to do."
        );
        assert!(
            verdict(vec![problem(), note(), problem(), note()])
                .starts_with("2 problems and 2 notes; ")
        );
    }

    #[test]
    fn lines_have_80_columns() {
        let long = "word ".repeat(40);
        let text = text(&Findings(vec![Finding::note(
            "directory",
            long.clone(),
            long,
        )]));
        let lines: Vec<String> = text
            .lines()
            .map(|line| anstream::adapter::strip_str(line).to_string())
            .collect();
        assert!(
            lines.iter().all(|line| line.chars().count() <= COLUMNS),
            "{lines:#?}"
        );
        assert_eq!(text.matches("word").count(), 80);
        assert!(
            lines[0].starts_with("note     directory  word")
                && lines[1].starts_with("                    word")
        );
    }
}
