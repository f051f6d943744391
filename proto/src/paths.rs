//! Where the daemon lives. Hosts hand their servers almost no environment, so daemon and clients
//! derive it from the uid alone, and arrive at the same place.

use std::path::{Path, PathBuf};

use crate::backends::KeeperName;

/// Overrides the runtime directory, for tests and odd systems. An absolute path.
pub const DIRECTORY_VARIABLE: &str = "MCP_SESSIOND_DIR";

/// The name of the daemon's socket in the runtime directory.
pub const SOCKET_NAME: &str = "daemon.sock";

/// The name of the directory of the keepers' sockets in the runtime directory.
pub const KEEPERS_NAME: &str = "keepers";

/// The name of the directory of notes about servers that are not kept, in the runtime directory. A
/// note is called `PID-START`, by the front's process.
pub const UNKEPT: &str = "unkept";

/// The name of the directory of the files of fronts whose hosts have closed them, in the runtime
/// directory. A file is called `PID-START`, by the front's process.
pub const CLOSED: &str = "closed";

/// The name of the directory of the notes on why keepers end, in the runtime directory. A note is
/// called `PID-START`, by the keeper's process.
pub const ENDED: &str = "ended";

/// Bytes that a socket's path may have at most: `sun_path` has 104 on macOS and 108 on Linux, with
/// a NUL.
pub const SOCKET_PATH_MAX: usize = 103;

/// A runtime directory that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryError {
    /// `MCP_SESSIOND_DIR` is relative.
    #[error("{DIRECTORY_VARIABLE} must be an absolute path, not {0:?}")]
    Relative(PathBuf),
    /// The socket's path would be too long for the operating system.
    #[error(
        "a socket's path may have {SOCKET_PATH_MAX} bytes, and in {0:?} it has more; set {DIRECTORY_VARIABLE} to a shorter one"
    )]
    TooLong(PathBuf),
    /// There is no home directory to derive it from (macOS).
    #[error("this user has no home directory; set {DIRECTORY_VARIABLE}")]
    NoHome,
}

/// The runtime directory: `MCP_SESSIOND_DIR`; else, on Linux, `/run/user/<uid>/mcp-sessiond` where
/// that parent exists and belongs to the user; on macOS
/// `~/Library/Application Support/mcp-sessiond`, with the home directory of the user database; else
/// `/tmp/mcp-sessiond-<uid>`.
///
/// # Errors
/// [`DirectoryError`] when no such path can be used.
#[cfg(unix)]
pub fn directory() -> Result<PathBuf, DirectoryError> {
    let path = match std::env::var_os(DIRECTORY_VARIABLE).filter(|value| !value.is_empty()) {
        Some(value) => PathBuf::from(value),
        None => derived()?,
    };
    usable(path)
}

/// `path`, if the sockets of the daemon and of its keepers can be in it.
///
/// # Errors
/// [`DirectoryError`] when it is relative, or too long.
pub fn usable(path: PathBuf) -> Result<PathBuf, DirectoryError> {
    if path.is_relative() {
        return Err(DirectoryError::Relative(path));
    }
    let longest = [socket(&path), keeper_socket(&path, KeeperName(0))];
    if longest
        .iter()
        .any(|socket| socket.as_os_str().len() > SOCKET_PATH_MAX)
    {
        return Err(DirectoryError::TooLong(path));
    }
    Ok(path)
}

/// The directory of the files of fronts whose hosts have closed them.
#[must_use]
pub fn closed(directory: &Path) -> PathBuf {
    directory.join(CLOSED)
}

/// The name of such a file: the process's pid, and its start time as in
/// [`ProcessRef`](crate::backends::ProcessRef).
#[must_use]
pub fn closed_name(pid: u32, start: u64) -> String {
    format!("{pid}-{start}")
}

/// The daemon's socket in a runtime directory.
#[must_use]
pub fn socket(directory: &Path) -> PathBuf {
    directory.join(SOCKET_NAME)
}

/// The byte of [`daemon_lock`] that the daemon holds.
pub const DAEMON_BYTE: u32 = 0;

/// The file that the daemon locks, so that it is known among the processes below a keeper.
#[must_use]
pub fn daemon_lock(directory: &Path) -> PathBuf {
    directory.join("daemon.lock")
}

/// The directory of the keepers' sockets in a runtime directory.
#[must_use]
pub fn keepers(directory: &Path) -> PathBuf {
    directory.join(KEEPERS_NAME)
}

/// The socket of the keeper of this name in a runtime directory.
#[must_use]
pub fn keeper_socket(directory: &Path, keeper: KeeperName) -> PathBuf {
    keepers(directory).join(keeper.to_string())
}

/// The file in which each keeper locks the byte that its name, a number, says: before Linux 6.5
/// that is how the process is known that listens on its socket.
#[must_use]
pub fn keeper_locks(directory: &Path) -> PathBuf {
    keepers(directory).join("locks")
}

/// The runtime directory without regard to `MCP_SESSIOND_DIR`: the one that a service manager's
/// units serve.
///
/// # Errors
/// [`DirectoryError::NoHome`].
#[cfg(target_os = "macos")]
pub fn derived() -> Result<PathBuf, DirectoryError> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .ok()
        .flatten();
    let home = user.ok_or(DirectoryError::NoHome)?.dir;
    Ok(home.join("Library/Application Support/mcp-sessiond"))
}

/// The runtime directory without regard to `MCP_SESSIOND_DIR`: the one that a service manager's
/// units serve.
///
/// # Errors
/// None here; macOS may have no home directory.
#[cfg(all(unix, not(target_os = "macos")))]
pub fn derived() -> Result<PathBuf, DirectoryError> {
    use std::os::unix::fs::MetadataExt;
    let uid = nix::unistd::geteuid().as_raw();
    let run = PathBuf::from(format!("/run/user/{uid}"));
    let ours =
        std::fs::symlink_metadata(&run).is_ok_and(|found| found.is_dir() && found.uid() == uid);
    Ok(if ours {
        run.join("mcp-sessiond")
    } else {
        PathBuf::from(format!("/tmp/mcp-sessiond-{uid}"))
    })
}

/// The user's own directories. All paths are absolute.
#[cfg(unix)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserDirectories {
    /// The home directory: `HOME`, or that of the user database where the variable is missing or
    /// empty.
    pub home: PathBuf,
    /// Where programs keep settings: `XDG_CONFIG_HOME`, or `~/.config`.
    pub config: PathBuf,
    /// Where applications of a desktop keep theirs: `~/Library/Application Support` on macOS, else
    /// the same as `config`.
    pub application_data: PathBuf,
}

/// The directories of this process's user. None: there is no home directory.
#[cfg(unix)]
#[must_use]
pub fn user_directories() -> Option<UserDirectories> {
    let base = directories::BaseDirs::new().filter(|base| base.home_dir().is_absolute())?;
    let home = base.home_dir().to_owned();
    // There `BaseDirs` says `~/Library/Application Support`, and command-line programs don't.
    let config = if cfg!(target_os = "macos") {
        std::env::var_os("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .unwrap_or_else(|| home.join(".config"))
    } else {
        base.config_dir().to_owned()
    };
    let application_data = base.config_dir().to_owned();
    Some(UserDirectories {
        home,
        config,
        application_data,
    })
}

/// The directory of the user's own units of systemd. None: there is no home directory.
#[cfg(all(unix, not(target_os = "macos")))]
#[must_use]
pub fn own_units() -> Option<PathBuf> {
    Some(user_directories()?.config.join("systemd/user"))
}

/// The directory of the user's own agents of launchd. None: there is no home directory.
#[cfg(unix)]
#[must_use]
pub fn agents() -> Option<PathBuf> {
    Some(user_directories()?.home.join("Library/LaunchAgents"))
}

/// Where systemd looks for the units of a user: in the user's own folder first, then in those of
/// the administrator and of packages.
#[cfg(all(unix, not(target_os = "macos")))]
#[must_use]
pub fn unit_directories() -> Vec<PathBuf> {
    let others = [
        "/etc/systemd/user",
        "/usr/local/lib/systemd/user",
        "/usr/lib/systemd/user",
    ];
    own_units()
        .into_iter()
        .chain(others.map(PathBuf::from))
        .collect()
}

/// The file that systemd takes a user's unit from: the first that there is. None: there is none, or
/// it is masked, by a link to `/dev/null`.
#[cfg(all(unix, not(target_os = "macos")))]
#[must_use]
pub fn unit(name: &str) -> Option<PathBuf> {
    first_unit(unit_directories(), name)
}

#[cfg(all(unix, not(target_os = "macos")))]
fn first_unit(directories: Vec<PathBuf>, name: &str) -> Option<PathBuf> {
    let mut paths = directories
        .into_iter()
        .map(|directory| directory.join(name));
    paths
        .find(|path| path.symlink_metadata().is_ok())
        .filter(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(all(unix, not(target_os = "macos")))]
    #[test]
    fn the_first_unit_counts_even_if_it_is_masked() {
        let places: Vec<_> = (0..3)
            .map(|_| tempfile::tempdir().expect("a directory"))
            .collect();
        let found = || {
            first_unit(
                places.iter().map(|place| place.path().to_owned()).collect(),
                "a.socket",
            )
        };
        let unit = |place: usize| places[place].path().join("a.socket");
        assert_eq!(found(), None);
        std::fs::write(unit(2), "").expect("written");
        assert_eq!(found(), Some(unit(2)));
        std::fs::write(unit(1), "").expect("written");
        assert_eq!(found(), Some(unit(1)));
        std::os::unix::fs::symlink("/dev/null", unit(0)).expect("linked");
        assert_eq!(found(), None);
    }

    /// A process's environment can't be changed beside other threads, so this runs itself.
    #[cfg(unix)]
    #[test]
    #[expect(
        clippy::print_stdout,
        reason = "the process that runs this test reads it"
    )]
    fn the_home_directory_is_the_user_database_s_where_home_is_missing() {
        const CHILD: &str = "MCP_SESSIOND_TEST_HOME";
        if std::env::var_os(CHILD).is_some() {
            let user = user_directories().expect("root has a home directory");
            println!("{user:?}");
            return;
        }
        let of_database = nix::unistd::User::from_uid(nix::unistd::geteuid())
            .expect("a user database")
            .expect("this user")
            .dir;
        let seen = |home: Option<&str>, config: Option<&str>| {
            let mut child = std::process::Command::new(std::env::current_exe().expect("this test"));
            child
                .args(["--exact", "--nocapture"])
                .arg(
                    "paths::tests::the_home_directory_is_the_user_database_s_where_home_is_missing",
                )
                .env(CHILD, "1");
            for (name, value) in [("HOME", home), ("XDG_CONFIG_HOME", config)] {
                child.env_remove(name);
                child.envs(value.map(|value| (name, value)));
            }
            let output = child.output().expect("it runs");
            String::from_utf8(output.stdout).expect("UTF-8")
        };
        for home in [None, Some("")] {
            let seen = seen(home, None);
            let config = of_database.join(".config");
            assert!(
                seen.contains(&format!("home: {of_database:?}, config: {config:?}")),
                "{seen}"
            );
        }
        let elsewhere = seen(Some("/home/me"), Some("/etc/me"));
        assert!(
            elsewhere.contains(r#"home: "/home/me", config: "/etc/me""#),
            "{elsewhere}"
        );
        let relative = seen(Some("/home/me"), Some("me"));
        assert!(
            relative.contains(r#"config: "/home/me/.config""#),
            "{relative}"
        );
    }

    #[test]
    fn the_longest_socket_decides() {
        let of = |length: usize| PathBuf::from(format!("/{}", "d".repeat(length - 1)));
        let longest = SOCKET_PATH_MAX - "/keepers/00c0ffee".len();
        assert_eq!(usable(of(longest)), Ok(of(longest)));
        assert_eq!(
            usable(of(longest + 1)),
            Err(DirectoryError::TooLong(of(longest + 1)))
        );
        assert_eq!(
            usable("d".into()),
            Err(DirectoryError::Relative("d".into()))
        );
        let socket = keeper_socket(Path::new("/d"), KeeperName(0x00c0_ffee));
        assert_eq!(socket, Path::new("/d/keepers/00c0ffee"));
    }
}
