//! Damaged or odd files and settings: the daemon does not panic, shows no password, and gives no
//! session another's data. `tests/fuzz` runs these with coverage; as ordinary tests they run the
//! corpus in `__fuzz__` and some random inputs.

mod damage;
mod databases;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use mcp_sessiond_process::directory::Directory;
use mcp_sessiond_process::{ProcessId, StartTime};
use mcp_sessiond_proto::token::TOKEN_MAX;
use mcp_sessiond_registry::TokenFile;

use crate::config;
use crate::storage::{Url, redacted};
use crate::tokens::{Found, Tokens};

/// The password in the inputs.
const SECRET: &str = "hunter2";

/// A directory of ours.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).expect("it is ours");
    directory
}

#[test]
fn storage_url() {
    bolero::check!().for_each(|input: &[u8]| {
        let Ok(text) = std::str::from_utf8(input) else {
            return;
        };
        let seen = redacted(text);
        match Url::parse(text) {
            Ok(url) => assert!(format!("{url:?}").contains(&seen) || !text.starts_with("postgres")),
            Err(error) => assert!(!error.to_string().contains(SECRET)),
        }
        #[cfg(feature = "postgres")]
        if let Some((password, rest)) = crate::storage::postgres::password(text) {
            let is_secret = password.contains(SECRET) && !rest.contains(SECRET);
            assert!(!is_secret || !seen.contains(SECRET), "{text}: {seen}");
        }
    });
}

#[test]
fn configuration() {
    let directory = directory();
    let path = directory.path().join("config.toml");
    bolero::check!().for_each(|input: &[u8]| {
        fs::write(&path, input).expect("written");
        let text = String::from_utf8_lossy(input);
        // Whether it occurs, and only as a password.
        let as_password = format!("://me:{SECRET}@");
        let is_password = text.matches(SECRET).count() == text.matches(&as_password).count()
            && text.contains(SECRET);
        let loaded = match config::load(Some(&path), &[]) {
            Ok(loaded) => {
                assert_eq!(loaded.fault, None);
                loaded
            }
            Err(error) => {
                assert!(
                    !is_password || !error.to_string().contains(SECRET),
                    "{error}"
                );
                // A daemon that a client has started uses the settings that it understands.
                let loaded =
                    config::load_readable(Some(&path), &[], error).expect("it is the file");
                let fault = loaded.fault.as_ref().expect("it is told");
                assert!(!fault.sentence.contains('\n'), "{fault:?}");
                assert!(
                    !is_password || !fault.sentence.contains(SECRET),
                    "{fault:?}"
                );
                loaded
            }
        };
        assert!(loaded.changes(&loaded).is_empty());
        for setting in loaded
            .settings()
            .iter()
            .filter(|setting| setting.name == "storage.url")
        {
            assert!(
                !is_password || !setting.value.contains(SECRET),
                "{setting:?}"
            );
        }
    });
}

#[test]
fn token_file() {
    let directory = directory();
    let tokens =
        Tokens::open(&Directory::open_existing(directory.path()).expect("ours")).expect("tokens/");
    let host = ProcessId {
        pid: 7,
        start: StartTime(42),
        inode: None,
    };
    let file = TokenFile { host, number: 1 };
    let path = directory.path().join("tokens").join(file.to_string());
    bolero::check!().for_each(|input: &[u8]| {
        let Some(([kind, low, high], content)) = input.split_first_chunk() else {
            return;
        };
        // Repeated, so that it may be too long.
        let content = content.repeat(if *kind == 1 {
            1 + usize::from(*low) * 8
        } else {
            1
        });
        let mode = if kind % 4 == 3 {
            u32::from(u16::from_le_bytes([*low, *high])) & 0o7777
        } else {
            0o600
        };
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
        match kind {
            2 => fs::create_dir(&path).expect("made"),
            6 => std::os::unix::fs::symlink("/dev/zero", &path).expect("made"),
            _ => fs::write(&path, &content).expect("written"),
        }
        if !matches!(kind, 2 | 6) {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
        }
        let is_good =
            !matches!(kind, 2 | 6) && mode == 0o600 && (1..=TOKEN_MAX).contains(&content.len());
        match tokens.read(file).expect("tokens/ is fine") {
            Found::Token(token) => assert!(is_good && token.expose() == content),
            Found::Corrupted(why) => assert!(!is_good, "{why}"),
            Found::Absent => panic!("it is there"),
        }
    });
}
