//! The runtime directory and the one of the storage: whose they are, and whether something can be
//! written there.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use mcp_sessiond_client::{ConnectError, Directory};
use mcp_sessiond_daemon::config::Config;
use mcp_sessiond_daemon::storage::Url;
use mcp_sessiond_proto::paths::DIRECTORY_VARIABLE;
use nix::sys::statvfs::statvfs;

use super::{Finding, Findings};
use crate::ui::table::bytes;

/// Bytes that are written to see whether that can be done: a block of usual file systems.
const TRIED: [u8; 4096] = [b'-'; 4096];

/// With less room than this it is time to make some: tokens and records need little, and a daemon
/// sets 1 MiB aside.
const ROOM: u64 = 16 * 1024 * 1024;

/// The runtime directory, if it can be used.
pub(super) fn check(config: Option<&Config>, findings: &mut Findings) -> Option<Directory> {
    let directory = match Directory::of_user() {
        Ok(directory) => directory,
        Err(error) => {
            let fix = format!("`unset {DIRECTORY_VARIABLE}`, or set it to a short absolute path");
            findings.add(Finding::problem("directory", error.to_string(), fix));
            return None;
        }
    };
    let (finding, is_usable) = runtime(&directory);
    findings.add(finding);
    let named = std::env::var_os("XDG_RUNTIME_DIR").filter(|named| !named.is_empty());
    if cfg!(not(target_os = "macos")) && std::env::var_os(DIRECTORY_VARIABLE).is_none() {
        let named = named.as_deref().map(Path::new);
        findings
            .0
            .extend(named.and_then(|named| elsewhere(directory.path(), named)));
    }
    if let Some(finding) = config.and_then(storage) {
        findings.add(finding);
    }
    is_usable.then_some(directory)
}

/// Said where `XDG_RUNTIME_DIR` names another place, which many expect to count.
fn elsewhere(directory: &Path, named: &Path) -> Option<Finding> {
    if directory.starts_with(named) {
        return None;
    }
    Some(Finding::note(
        "directory",
        format!(
            "XDG_RUNTIME_DIR is {}, and the runtime directory is {} nevertheless, since hosts don't pass that variable on",
            named.display(),
            directory.display()
        ),
        format!(
            "nothing; to have it elsewhere, set {DIRECTORY_VARIABLE} for every host and every shell"
        ),
    ))
}

/// What was found about it, and whether a daemon in it may be spoken to.
fn runtime(directory: &Directory) -> (Finding, bool) {
    let path = directory.path();
    let shown = path.display();
    match directory.check() {
        Ok(()) => {}
        Err(ConnectError::NotRunning { .. }) => {
            let what = format!("{shown} is not there yet: the first daemon makes it");
            return (Finding::ok("directory", what), true);
        }
        Err(error) => {
            let fix = match &error {
                ConnectError::WrongMode { .. } => {
                    format!(
                        "see who could write to it (`ls -la {shown}`), then `chmod 700 {shown}`"
                    )
                }
                ConnectError::WrongOwner { .. } => {
                    format!(
                        "have its owner remove it, or set {DIRECTORY_VARIABLE} to a directory that belongs to you"
                    )
                }
                _ => format!("see what it is (`ls -ld {shown}`), then `mv {shown} {shown}.old`"),
            };
            return (Finding::problem("directory", error.to_string(), fix), false);
        }
    }
    if let Err(error) = write(path) {
        return (unwritten("directory", path, &error), true);
    }
    let whose = format!("{shown} is yours alone, and can be written");
    (
        room(path).map_or_else(
            || Finding::ok("directory", whose.clone()),
            |free| {
                if free < ROOM {
                    let what = format!("{whose}, but its disk has only {} left", bytes(free));
                    return Finding::note(
                        "directory",
                        what,
                        format!("free some space: `df -h {shown}` shows the disk"),
                    );
                }
                Finding::ok("directory", format!("{whose}; {} are free", bytes(free)))
            },
        ),
        true,
    )
}

/// What is wrong with the directory of the database, where that is another one.
fn storage(config: &Config) -> Option<Finding> {
    let Ok(Url::Sqlite(Some(file))) = Url::parse(&config.storage.url) else {
        return None;
    };
    let directory = file.parent()?;
    if !directory.is_dir() {
        let what = format!(
            "the setting storage.url names a database in {0}, and there is no such directory",
            directory.display()
        );
        return Some(Finding::problem(
            "storage",
            what,
            format!("`mkdir -p {}`", directory.display()),
        ));
    }
    write(directory)
        .err()
        .map(|error| unwritten("storage", directory, &error))
}

fn unwritten(check: &'static str, directory: &Path, error: &io::Error) -> Finding {
    let shown = directory.display();
    let fix = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("free some space: `df -h {shown}` and `df -i {shown}` show the disk")
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            format!("`findmnt -T {shown}` shows the file system, which must be mounted for writing")
        }
        _ => format!("`ls -ld {shown}` shows who may write there"),
    };
    Finding::problem(check, format!("{shown} can't be written: {error}"), fix)
}

/// Writes a file for real. It has lost its name before the first byte, so that nothing is left
/// whatever happens.
fn write(directory: &Path) -> io::Result<()> {
    let path = directory.join(format!(".doctor-{}", std::process::id()));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    fs::remove_file(&path)?;
    file.write_all(&TRIED)?;
    file.sync_all()
}

/// Bytes that may still be written there, where that is known.
fn room(directory: &Path) -> Option<u64> {
    let found = statvfs(directory).ok()?;
    // The types differ between systems.
    #[allow(clippy::useless_conversion)]
    let (blocks, size) = (
        u64::from(found.blocks_available()),
        u64::from(found.fragment_size()),
    );
    Some(blocks.saturating_mul(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_directory_that_does_not_count_is_named() {
        let found = |directory: &str, named: &str| {
            elsewhere(Path::new(directory), Path::new(named)).map(|finding| finding.what)
        };
        let own = "/run/user/7/mcp-sessiond";
        assert_eq!(found(own, "/run/user/7"), None);
        assert_eq!(found(own, "/run/user/7/"), None);
        let what = found("/tmp/mcp-sessiond-7", "/home/me/run").expect("a note");
        assert!(
            what.contains("/home/me/run") && what.contains("/tmp/mcp-sessiond-7"),
            "{what}"
        );
    }
}
