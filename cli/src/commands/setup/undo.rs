//! `setup --undo`.

use super::display::redacted_command;
use super::{Arguments, Change, Failure, Line, Outcome, Plan, check};
use crate::exit_code::{DATA_ERROR, NO_INPUT, SOFTWARE};
use crate::hosts::Host;
use crate::hosts::edit::{body, with_body};
use crate::hosts::entries::{expect_unwrapped, form};
use crate::hosts::file::HostFile;
use crate::hosts::listed::{expect_unlisted, unlist};
use crate::hosts::members::{Server, servers, tree};
use crate::hosts::record::{Record, Records, Wrapped};
use crate::ui::output::warn;
use clap::ValueEnum as _;

/// What is to be taken back, and the exit code so far.
pub(super) fn plans(
    arguments: &Arguments,
    change: &Change,
    records: &Records,
) -> Result<(Vec<Plan>, u8), Failure> {
    // `setup` takes back whatever it was, `share` what it has had run from `servers.json`.
    let is_meant = |one: &Wrapped| {
        let is_this = |name: &String| match change {
            Change::Wrap => one.name == *name,
            Change::List(_) => one.shares(name),
        };
        arguments.only.is_empty() || arguments.only.iter().any(is_this)
    };
    let (mut plans, mut code) = (Vec::new(), 0);
    let file = arguments
        .file
        .as_ref()
        .map(|file| file.canonicalize().unwrap_or_else(|_| file.clone()));
    for record in records
        .all()
        .map_err(|error| (SOFTWARE, error.to_string()))?
    {
        let record = match record {
            Ok(record) => record,
            // Whose it is can't be told. The others are not concerned.
            Err(why) => {
                warn(format_args!(
                    "{why}; undo by hand what it records, then move it away"
                ));
                code = DATA_ERROR;
                continue;
            }
        };
        let Ok(host) = Host::from_str(&record.host, false) else {
            continue;
        };
        let (meant, others): (Vec<_>, Vec<_>) = record.servers.iter().cloned().partition(is_meant);
        let is_there = arguments.host.is_none_or(|meant| meant == host)
            && file.as_ref().is_none_or(|meant| *meant == record.file);
        if !is_there || meant.is_empty() && !others.is_empty() {
            continue;
        }
        let found = HostFile::read(&record.given).and_then(|given| match given {
            None => HostFile::read(&record.file),
            given => Ok(given),
        });
        let planned = found.map_err(|error| error.to_string()).and_then(|read| {
            let Some(read) = read else {
                let place = records.place(&record.host, &record.file);
                return Err(format!(
                    "it is gone; what it had is in {}, which you may remove if you don't need it",
                    place.display()
                ));
            };
            let text = if read.text == record.after && others.is_empty() {
                record.before.clone()
            } else {
                unwrapped(host, &read.text, &record.before, (&meant, &others))?
            };
            if let Some(why) = read.hindrance().filter(|_| text != read.text) {
                return Err(why);
            }
            let lines = lines(host, &read, &text, &meant)?;
            let was_ours = ours(host, &record.before, &record.servers)?;
            let left = ours(host, &text, &record.servers)?
                .into_iter()
                .filter(|name| !was_ours.contains(name))
                .filter(|name| !others.iter().any(|other| other.name == *name))
                .collect();
            // What somebody has edited is not what we have written.
            let after = match read.text == record.after {
                true => text.clone(),
                false => record.after.clone(),
            };
            Ok(Plan {
                host,
                file: read,
                text,
                lines,
                record: Some(Record {
                    after,
                    servers: others.clone(),
                    ..record.clone()
                }),
                left,
            })
        });
        match planned {
            Ok(plan) => plans.push(plan),
            Err(why) => {
                warn(format_args!("{}: {why}", record.file.display()));
                code = DATA_ERROR;
            }
        }
    }
    if plans.is_empty() && code == 0 && arguments.host.is_some() {
        return Err((NO_INPUT, "`setup` has changed no such file".to_owned()));
    }
    Ok((plans, code))
}

/// The text without us, wherever we stand as `setup` has put us: somebody may have given a server
/// another name since. Where we stood before, we stay, and in front of those that are to stay
/// wrapped.
pub(super) fn unwrapped(
    host: Host,
    text: &str,
    before: &str,
    (wrapped, to_stay): (&[Wrapped], &[Wrapped]),
) -> Result<String, String> {
    let plain = body(text);
    let tree = tree(host, plain)?;
    let was_ours = ours(host, before, wrapped)?;
    let was_plain = body(before);
    let was_tree = self::tree(host, was_plain)?;
    let was = servers(host, was_tree.as_ref())?;
    let (mut edits, mut taken) = (Vec::new(), Vec::new());
    for Server { name, entry, .. } in servers(host, tree.as_ref())? {
        let form = form(host, entry)?;
        let listed = wrapped
            .iter()
            .find(|one| one.name == name && one.listed.is_some());
        if let Some(one) = listed {
            let was = was.iter().find(|was| was.name == name);
            let unlisted = was.map(|was| unlist((host, plain), entry, one, (was_plain, was.entry)));
            // Its file may be as `setup` had left it, if a kill came before it was written.
            let unlisted = unlisted.transpose()?.flatten();
            let is_listed = unlisted.is_some();
            if let Some(own) = unlisted.or_else(|| form.unwrap(plain, one)) {
                edits.extend(own);
                taken.push((name, one, is_listed));
            }
            continue;
        }
        let by_name = wrapped.iter().filter(|one| one.name == name);
        let by_form = wrapped
            .iter()
            .filter(|one| one.name != name && one.listed.is_none())
            .filter(|_| !was_ours.contains(&name))
            .filter(|_| !to_stay.iter().any(|other| other.name == name));
        let found = by_name
            .chain(by_form)
            .find_map(|one| form.unwrap(plain, one).map(|edits| (edits, one)));
        if let Some((own, one)) = found {
            edits.extend(own);
            taken.push((name, one, false));
        }
    }
    let bare = with_body(text, edits);
    let was_read = host.all_members(was_plain)?;
    check(host, text, &bare, |name, entry| {
        let taken = taken.iter().find(|(taken, ..)| *taken == name);
        let was = was_read.iter().find(|(was, _)| was == name);
        match (taken, was) {
            (Some((_, _, true)), Some((_, was))) => expect_unlisted(host, entry, was.clone()),
            (Some((_, one, _)), _) => expect_unwrapped(host, entry, one),
            (None, _) => {}
        }
    })?;
    Ok(bare)
}

/// The servers that run by us.
fn ours(host: Host, text: &str, wrapped: &[Wrapped]) -> Result<Vec<String>, String> {
    let tree = tree(host, body(text))?;
    let mut names = Vec::new();
    for Server { name, entry, .. } in servers(host, tree.as_ref())? {
        let form = form(host, entry)?;
        if form.is_ours("mcp-sessiond") || wrapped.iter().any(|one| form.is_ours(&one.executable)) {
            names.push(name);
        }
    }
    Ok(names)
}

/// The servers that are wrapped by us, and will not be.
fn lines(
    host: Host,
    file: &HostFile,
    text: &str,
    wrapped: &[Wrapped],
) -> Result<Vec<Line>, String> {
    let remaining = ours(host, text, wrapped)?;
    let taken: Vec<_> = ours(host, &file.text, wrapped)?
        .into_iter()
        .filter(|name| !remaining.contains(name))
        .collect();
    let tree = tree(host, body(text))?;
    let mut lines = Vec::new();
    for Server { name, own, entry } in servers(host, tree.as_ref())? {
        if taken.contains(&name) {
            let becomes = redacted_command(&form(host, entry)?.words());
            let one = wrapped.iter().find(|one| one.name == name);
            let listed = one.and_then(|one| one.listed.as_ref());
            lines.push(Line {
                host: host.to_string(),
                file: file.path.clone(),
                server: name,
                own: own.to_owned(),
                outcome: Outcome::Unwrapped,
                why: None,
                command: match listed {
                    Some(listed) => format!("mcp-sessiond wrap @{listed}"),
                    None => format!("mcp-sessiond wrap … {becomes}"),
                },
                becomes,
            });
        }
    }
    Ok(lines)
}
