//! The files that the user writes for us: config.toml and servers.json.

use std::io;
use std::path::Path;

use mcp_sessiond_daemon::config::{self, ConfigError, Loaded};
use serde_json::error::Category;

use super::{Finding, Findings, Outcome};
use crate::servers::{Entry, Servers, ServersError};

/// What to do about a file that is wrong somewhere.
const AGAIN: &str = "run `mcp-sessiond doctor` again";

/// The configuration, or what can be read of it.
pub(super) fn check(findings: &mut Findings) -> Option<Loaded> {
    let loaded = configuration(findings);
    servers(findings);
    loaded
}

/// What stands in the place of a file that can't be read. A pipe would be waited for.
fn no_file(check: &'static str, path: &Path) -> Option<Finding> {
    let shown = path.display();
    match path.metadata() {
        Ok(found) if !found.is_file() => Some(Finding::problem(
            check,
            format!("{shown} is not a file"),
            format!("see what it is (`ls -ld {shown}`), and move it away"),
        )),
        Err(_) if path.is_symlink() => Some(Finding::note(
            check,
            format!("{shown} is a symbolic link to a file that is not there, so it is ignored"),
            format!("write that file, or `rm {shown}`"),
        )),
        _ => None,
    }
}

fn configuration(findings: &mut Findings) -> Option<Loaded> {
    let path = config::usual_path();
    if let Some(finding) = path.as_deref().and_then(|path| no_file("config", path)) {
        let is_readable = finding.outcome == Outcome::Note;
        findings.add(finding);
        return if is_readable {
            config::load(None, &[]).ok()
        } else {
            None
        };
    }
    let shown = path.as_ref().map_or_else(
        || "config.toml".to_owned(),
        |path| path.display().to_string(),
    );
    let is_there = path.as_ref().is_some_and(|path| path.exists());
    match config::load(path.as_deref(), &[]) {
        Ok(loaded) => {
            findings.add(match is_there {
                true => Finding::ok("config", format!("{shown} is understood")),
                false
                    if std::env::var_os(config::FILE_VARIABLE)
                        .is_some_and(|named| !named.is_empty()) =>
                {
                    Finding::note(
                        "config",
                        format!(
                            "there is no {shown}, which {} names; every setting has its default",
                            config::FILE_VARIABLE
                        ),
                        format!("`unset {}`, or write that file", config::FILE_VARIABLE),
                    )
                }
                false => Finding::ok(
                    "config",
                    format!("there is no {shown}: every setting has its default"),
                ),
            });
            Some(loaded)
        }
        Err(error @ ConfigError::Override { .. }) => {
            // The value may be a secret.
            let ConfigError::Override {
                origin,
                name,
                error,
                ..
            } = error
            else {
                return None;
            };
            findings.add(Finding::problem(
                "config",
                format!("{origin} {name} can't be used: {error}"),
                format!("`unset {name}`, or correct it, then {AGAIN}"),
            ));
            None
        }
        // Its own sentence quotes the line. This one does not.
        Err(error) => match config::load_readable(path.as_deref(), &[], error) {
            Ok(loaded) => {
                let what = loaded
                    .fault
                    .as_ref()
                    .map_or_else(|| shown.clone(), |fault| fault.sentence.clone());
                findings.add(Finding::problem(
                    "config",
                    what,
                    format!("correct {shown}, then {AGAIN}"),
                ));
                Some(loaded)
            }
            Err(error) => {
                let why = error
                    .to_string()
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                findings.add(Finding::problem(
                    "config",
                    why,
                    format!("correct that, then {AGAIN}"),
                ));
                None
            }
        },
    }
}

fn servers(findings: &mut Findings) {
    let Ok(path) = Servers::usual_path() else {
        return;
    };
    if let Some(finding) = no_file("servers", &path) {
        return findings.add(finding);
    }
    let shown = path.display();
    let problem =
        |what: String| Finding::problem("servers", what, format!("correct {shown}, then {AGAIN}"));
    match Servers::read(&path) {
        Ok(servers) => {
            let wrong: Vec<Finding> = servers
                .all()
                .filter_map(|(name, entry)| {
                    let why = entry.map_or_else(|why| Some(why.to_owned()), Entry::missing)?;
                    Some(problem(format!("the server {name:?} in {shown}: {why}")))
                })
                .collect();
            if wrong.is_empty() {
                let number = servers.all().count();
                let noun = if number == 1 { "server" } else { "servers" };
                findings.add(Finding::ok(
                    "servers",
                    format!("{shown} is understood, and has {number} {noun}"),
                ));
            }
            wrong.into_iter().for_each(|finding| findings.add(finding));
        }
        Err(ServersError::Unread { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
        Err(ServersError::Form { error, .. }) => {
            let what = match error.classify() {
                Category::Data => "has something that does not belong there",
                _ => "is not JSON",
            };
            // Its own sentence may quote what is in there.
            findings.add(problem(format!(
                "{shown} {what}, at line {} column {}",
                error.line(),
                error.column()
            )));
        }
        Err(error) => findings.add(problem(error.to_string())),
    }
}
