//! The hosts' files that are here, and whether a host finds what they name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use mcp_sessiond_proto::paths;

use super::{Finding, Findings};
use crate::hosts::Host;
use crate::hosts::inspect::{Entry, EntryState, HostEntries, entries_of};
use crate::hosts::record::Records;
use crate::servers::Servers;
use crate::version;

/// Where a host looks for programs that a desktop has started, whatever a shell's PATH is.
const PLACES: [&str; 3] = ["/usr/bin", "/bin", "/usr/local/bin"];

pub(super) fn check(findings: &mut Findings) {
    let Some(user) = paths::user_directories() else {
        return;
    };
    let mut seen: Vec<(Host, HostEntries)> = Vec::new();
    let mut unread = Vec::new();
    for host in Host::value_variants() {
        for path in host.files(&user) {
            match entries_of(*host, &path) {
                // Two hosts may share a file, by a symbolic link, too.
                Ok(Some(entries)) if seen.iter().any(|(_, other)| other.file == entries.file) => {}
                Ok(Some(entries)) => seen.push((*host, entries)),
                Ok(None) => {}
                Err(why) => unread.push(Finding::note(
                    "setup",
                    format!("{host}: {} can't be understood: {why}", path.display()),
                    format!(
                        "correct that place in {}; its host may not read it either",
                        path.display()
                    ),
                )),
            }
        }
    }
    findings.add(found_by_hosts(&seen));
    if seen.is_empty() && unread.is_empty() {
        findings.add(Finding::ok(
            "setup",
            "no file of a host that `mcp-sessiond setup` knows is here",
        ));
    }
    let records = Servers::usual_path().ok();
    let records = records.map(|servers| Records::beside(&servers));
    seen.iter()
        .flat_map(|(host, entries)| of_file(*host, entries, records.as_ref()))
        .for_each(|finding| findings.add(finding));
    unread.into_iter().for_each(|finding| findings.add(finding));
}

/// Whether hosts find `mcp-sessiond` where their files name it without a path.
fn found_by_hosts(seen: &[(Host, HostEntries)]) -> Finding {
    let places = PLACES.join(":");
    if let Some(found) = PLACES
        .map(|place| Path::new(place).join("mcp-sessiond"))
        .into_iter()
        .find(|path| version::is_program(path))
    {
        return Finding::ok(
            "path",
            format!(
                "hosts find {} also without your shell's PATH",
                found.display()
            ),
        );
    }
    let named = |(host, entries): &(Host, HostEntries)| {
        let names: Vec<String> = entries
            .entries
            .iter()
            .filter(|entry| entry.is_bare)
            .map(|entry| format!("{:?}", entry.name))
            .collect();
        (!names.is_empty()).then(|| format!("{host} ({})", names.join(", ")))
    };
    let named: Vec<String> = seen.iter().filter_map(named).collect();
    if named.is_empty() {
        return Finding::ok("path", "no host's file names mcp-sessiond without its path");
    }
    let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("mcp-sessiond"));
    Finding::note(
        "path",
        format!(
            "mcp-sessiond is named without its path in the file of {}, and is not in {places}, where a host that was not started from a shell looks for it",
            named.join(", ")
        ),
        format!(
            "write {} in its place, or `sudo ln -s {0} /usr/local/bin/mcp-sessiond`",
            own.display()
        ),
    )
}

/// The servers of a file that `setup` has wrapped once.
fn wrapped_before(host: Host, file: &Path, records: Option<&Records>) -> BTreeSet<String> {
    let record = records.and_then(|records| records.get(&host.to_string(), file).ok().flatten());
    let servers = record.map(|record| record.servers).unwrap_or_default();
    servers.into_iter().map(|wrapped| wrapped.name).collect()
}

/// What was found in one file, worst first.
fn of_file(host: Host, seen: &HostEntries, records: Option<&Records>) -> Vec<Finding> {
    let shown = seen.file.display();
    let names = |is: &dyn Fn(&Entry) -> bool| -> Vec<String> {
        seen.entries
            .iter()
            .filter(|entry| is(entry))
            .map(|entry| format!("{:?}", entry.name))
            .collect()
    };
    let mut findings = Vec::new();
    for entry in &seen.entries {
        if let EntryState::Gone(executable) = &entry.state {
            findings.push(Finding::problem(
                "setup",
                format!("{host}: {:?} in {shown} is started by {executable}, which is not there", entry.name),
                seen.hindrance.clone().map_or_else(
                    || format!("`mcp-sessiond setup {host}`, which names this executable instead"),
                    |why| {
                        format!(
                            "{why}; then `mcp-sessiond setup {host}`, which names this executable instead"
                        )
                    },
                ),
            ));
        }
    }
    let before = wrapped_before(host, &seen.file, records);
    let is_unwrapped = |entry: &Entry| {
        matches!(entry.state, EntryState::Wrappable) && before.contains(&entry.name)
    };
    let unwrapped = names(&is_unwrapped);
    if !unwrapped.is_empty() {
        let (was, are) = if unwrapped.len() == 1 {
            ("was", "is")
        } else {
            ("were", "are")
        };
        let what = format!(
            "{host}: {} in {shown} {was} wrapped by `setup`, and no longer {are}: the host, an update of it, or somebody else has rewritten the file",
            unwrapped.join(", ")
        );
        let fix = match &seen.hindrance {
            Some(why) => why.clone(),
            None => format!("`mcp-sessiond setup {host}`"),
        };
        findings.push(Finding::note("setup", what, fix));
    }
    let open = names(&|entry| {
        matches!(entry.state, EntryState::Wrappable) && !before.contains(&entry.name)
    });
    if !open.is_empty() {
        let are = if open.len() == 1 { "is" } else { "are" };
        let what = format!(
            "{host}: {} in {shown} {are} not wrapped, and could be",
            open.join(", ")
        );
        findings.push(match (&seen.hindrance, host.shares) {
            (_, true) => Finding::ok(
                "setup",
                format!(
                    "{host}: {} in {shown} {are} not wrapped: nothing would be kept there",
                    open.join(", ")
                ),
            ),
            (Some(why), _) => Finding::note("setup", what, why.clone()),
            (None, _) => Finding::note("setup", what, format!("`mcp-sessiond setup {host}`")),
        });
    }
    for entry in &seen.entries {
        if let EntryState::NotWrappable(why) = entry.state {
            findings.push(Finding::ok(
                "setup",
                format!("{host}: {:?} in {shown} stays as it is: {why}", entry.name),
            ));
        }
    }
    let wrapped = names(&|entry| matches!(entry.state, EntryState::Wrapped));
    if !wrapped.is_empty() {
        let are = if wrapped.len() == 1 { "is" } else { "are" };
        findings.push(Finding::ok(
            "setup",
            format!("{host}: {} in {shown} {are} wrapped", wrapped.join(", ")),
        ));
    }
    if seen.entries.is_empty() {
        findings.push(Finding::ok(
            "setup",
            format!("{host}: {shown} has no servers"),
        ));
    }
    findings
}
