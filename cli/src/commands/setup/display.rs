//! What `setup` shows to people. Of a command only its beginning: arguments may be secrets.

use std::fmt::Write as _;
use std::path::Path;

use super::{Line, ListEdit, Outcome, Plan};
use crate::hosts::executable::Executable;
use crate::ui::table;
use mcp_sessiond_process::programs::grammars;

/// Options of runners that take no value.
const HARMLESS: [&str; 2] = ["-y", "--yes"];

/// A command, and behind a runner the package or file that it runs.
pub(super) fn redacted_command(words: &[String]) -> String {
    let Some((command, rest)) = words.split_first() else {
        return String::new();
    };
    // Some write the whole command line there.
    let program = command.split_whitespace().next().unwrap_or_default();
    let is_whole = program == command || Path::new(command).exists();
    let command = if is_whole { command } else { program };
    let command = if command.contains('=') || command.contains("://") {
        "…"
    } else {
        command
    };
    let mut shown = vec![command];
    let program = Path::new(command)
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    if !grammars(program).is_empty() {
        let options = rest
            .iter()
            .take_while(|word| HARMLESS.contains(&word.as_str()));
        shown.extend(options.map(String::as_str));
        shown.extend(
            rest.get(shown.len() - 1)
                .filter(|word| is_name(word))
                .map(String::as_str),
        );
    }
    let rest = if shown.len() < words.len() || !is_whole {
        " …"
    } else {
        ""
    };
    shown.join(" ") + rest
}

/// Whether a word has the form of a package or a path: no address, and no value of anything.
fn is_name(word: &str) -> bool {
    let plain = word.strip_prefix('@').unwrap_or(word);
    let is_plain = |c: char| c.is_alphanumeric() || "._-/^~@".contains(c);
    !word.starts_with('-') && plain.chars().all(is_plain) && plain.matches('@').count() < 2
}

/// What will be done, for people.
pub(super) fn display(plans: &[Plan], edit: Option<&ListEdit>, executable: &Executable) -> String {
    let mut text = String::new();
    if let Some(ListEdit { path, sentence, .. }) = edit {
        let path = table::printable(&path.display().to_string());
        let _ = writeln!(text, "{path}\n  {}", table::printable(sentence));
    }
    if plans.iter().any(Plan::has_changes)
        && let Some(line) = executable.copied()
    {
        let _ = writeln!(text, "{line}");
    }
    for plan in plans.iter().filter(|plan| !plan.lines.is_empty()) {
        let _ = writeln!(
            text,
            "{}: {}",
            plan.host,
            table::printable(&plan.file.path.display().to_string())
        );
        for Line {
            server,
            outcome,
            why,
            command,
            becomes,
            ..
        } in &plan.lines
        {
            // Names come from the file, which may be anybody's.
            let server = table::printable(server);
            let (command, becomes) = (table::printable(command), table::printable(becomes));
            let _ = match (outcome, why) {
                (Outcome::Wrapped, Some(why)) => writeln!(text, "  {server}: {why}"),
                (Outcome::Wrapped | Outcome::Unwrapped, _) => {
                    writeln!(text, "  {server}\n    - {command}\n    + {becomes}")
                }
                (Outcome::Unchanged, _) => writeln!(text, "  {server}: is wrapped already"),
                (Outcome::Skipped, _) => {
                    writeln!(
                        text,
                        "  {server}: stays as it is: {}",
                        why.as_deref().unwrap_or_default()
                    )
                }
            };
        }
    }
    text
}
