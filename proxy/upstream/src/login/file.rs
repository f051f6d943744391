//! The file of a login. It is called by a digest of the server's name and URL, is the user's alone,
//! and is replaced as a whole.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use mcp_sessiond_process::directory::Directory;
use mcp_sessiond_proto::paths::DIRECTORY_VARIABLE;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::unistd::{User, geteuid};
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::LoginError;

/// The directory of the files.
const DIRECTORY: &str = "logins";
/// Bytes of a file that are read: tokens have a few thousand at most.
const FILE_MAX: u64 = 256 * 1024;
/// How long the lock is waited for: as long as two refreshes may take.
const LOCK_WAIT: Duration = Duration::from_secs(60);
/// The pause before the lock is tried again. A thread that waits in flock(2) could not be stopped.
const LOCK_PAUSE: Duration = Duration::from_millis(15);
/// A token is refreshed this long before it expires, so that it lasts for the request: 30 s, or
/// less where it lives shortly.
const MARGIN_MS: u64 = 30_000;

/// The tokens of a login, and what a refresh needs.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Tokens {
    /// The name of the entry that it was made for: a logout goes by it.
    pub(super) name: String,
    /// The server's: a token goes nowhere else.
    pub(super) url: String,
    /// The authorization server, and where it gives tokens. A refresh token goes nowhere else.
    pub(super) issuer: String,
    pub(super) token_endpoint: String,
    pub(super) client_id: String,
    pub(super) client_secret: Option<String>,
    pub(super) redirect: String,
    pub(super) scopes: Vec<String>,
    /// The answer of the token endpoint (RFC 6749, section 5.1).
    pub(super) token: Value,
    /// When that was asked for, in ms since 1970.
    pub(super) asked_ms: u64,
    /// The authorization server has rejected the refresh token.
    #[serde(default)]
    pub(super) ended: bool,
    /// By which this login is told from a later one, perhaps with another account; refreshes don't
    /// change it. A file of an older version has none.
    #[serde(default)]
    pub(super) login: String,
}

impl Tokens {
    pub(super) fn access(&self) -> &str {
        self.token["access_token"].as_str().unwrap_or_default()
    }

    pub(super) fn refresh(&self) -> Option<&str> {
        self.token["refresh_token"].as_str()
    }

    /// Whether the access token lasts for another request.
    pub(super) fn is_fresh(&self, now_ms: u64) -> bool {
        let Some(lives) = self.token["expires_in"].as_u64() else {
            return true;
        };
        let lives = lives.saturating_mul(1000);
        now_ms
            < self
                .asked_ms
                .saturating_add(lives - MARGIN_MS.min(lives / 10))
    }
}

/// Now, in ms since 1970.
pub(super) fn now_ms() -> u64 {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// The right to change the file.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "held, not read")] Flock<fs::File>);

/// Where the tokens of one login are.
#[derive(Debug)]
pub(super) struct File {
    directory: PathBuf,
    name: String,
    url: String,
}

/// Whose login a file holds, whatever else is in it.
#[derive(Deserialize)]
struct FileOwner {
    name: String,
    url: String,
}

impl File {
    /// That of the server of this name at this URL: at another URL it is another login.
    pub(super) fn of(name: &str, url: &Url) -> Result<Self, LoginError> {
        let digest =
            mcp_sessiond_process::digest("mcp-sessiond login", format!("{name}\n{url}").as_bytes());
        let name = digest
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(Self {
            directory: directory()?,
            name,
            url: url.to_string(),
        })
    }

    /// Those of all logins with an entry of this name, whatever its URL was.
    pub(super) fn all_of(entry: &str) -> Result<Vec<Self>, LoginError> {
        Self::all_in(&directory()?, entry)
    }

    fn all_in(directory: &Path, entry: &str) -> Result<Vec<Self>, LoginError> {
        let error = |why| Self::error(directory, why);
        let found = match fs::read_dir(directory) {
            Err(missing) if missing.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            found => found.map_err(error)?,
        };
        let mut files = Vec::new();
        for file in found {
            let path = file.map_err(error)?.path();
            let is_login = path
                .extension()
                .is_some_and(|ending| ending == "json" || ending == "new");
            let Some(name) = path
                .file_stem()
                .and_then(|name| name.to_str())
                .filter(|_| is_login)
            else {
                continue;
            };
            // One that can't be read holds nobody's tokens that could be told.
            let whose = fs::read(&path)
                .ok()
                .and_then(|text| serde_json::from_slice::<FileOwner>(&text).ok());
            if let Some(FileOwner { url, .. }) = whose.filter(|whose| whose.name == entry) {
                files.push(Self {
                    directory: directory.to_owned(),
                    name: name.to_owned(),
                    url,
                });
            }
        }
        Ok(files)
    }

    fn path(&self, ending: &str) -> PathBuf {
        self.directory.join(format!("{}.{ending}", self.name))
    }

    fn error(path: &Path, why: impl Display) -> LoginError {
        LoginError::File {
            path: path.into(),
            why: why.to_string(),
        }
    }

    /// What is in it. None: it is not there.
    pub(super) fn read(&self) -> Result<Option<Tokens>, LoginError> {
        let path = self.path("json");
        let error = |why: &dyn Display| Self::error(&path, why);
        let mut file = match OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&path)
        {
            Err(missing) if missing.kind() == ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(error(&why)),
            Ok(file) => file,
        };
        let found = file.metadata().map_err(|why| error(&why))?;
        if !found.is_file() || found.uid() != geteuid().as_raw() || found.mode() & 0o077 != 0 {
            return Err(error(
                &"it is not a file that only you can read; remove it, and log in again",
            ));
        }
        let mut text = Vec::new();
        std::io::Read::take(&mut file, FILE_MAX)
            .read_to_end(&mut text)
            .map_err(|why| error(&why))?;
        // What serde_json says may hold a part of the text.
        let tokens: Tokens = serde_json::from_slice(&text)
            .map_err(|_| error(&"it holds no login that can be used; log in again"))?;
        if tokens.url != self.url {
            return Err(error(
                &"it holds the login with another server; remove it, and log in again",
            ));
        }
        Ok(Some(tokens))
    }

    /// Takes the lock, once no other process has it. An error names the entry.
    pub(super) async fn lock(&self, entry: &str) -> Result<Lock, LoginError> {
        create_directory(&self.directory)?;
        let path = self.path("lock");
        let file = own(OpenOptions::new().write(true).create(true).truncate(false)).open(&path);
        let mut file = file.map_err(|why| Self::error(&path, why))?;
        let until = Instant::now() + LOCK_WAIT;
        loop {
            file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(Lock(lock)),
                Err((file, Errno::EWOULDBLOCK | Errno::EINTR)) if Instant::now() < until => file,
                Err((_, Errno::EWOULDBLOCK)) => {
                    return Err(LoginError::Held(entry.to_owned()));
                }
                Err((_, errno)) => return Err(Self::error(&path, errno)),
            };
            sleep(LOCK_PAUSE).await;
        }
    }

    /// Replaces it. It is on the disk when this returns. Who calls has the lock.
    pub(super) fn write(&self, tokens: &Tokens) -> Result<(), LoginError> {
        let (path, new) = (self.path("json"), self.path("new"));
        let text = serde_json::to_vec(tokens).map_err(|why| Self::error(&path, why))?;
        let write = || {
            let mut file =
                own(OpenOptions::new().write(true).create(true).truncate(true)).open(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            fs::File::open(&self.directory)?.sync_all()
        };
        write().map_err(|why: std::io::Error| {
            // It may hold tokens.
            let _ = fs::remove_file(&new);
            Self::error(&path, why)
        })
    }

    /// Deletes it, and what a process has left that was killed while it wrote. False: nothing was
    /// there. Who calls has the lock.
    pub(super) fn delete(&self) -> Result<bool, LoginError> {
        let mut was_there = false;
        for ending in ["new", "json"] {
            let path = self.path(ending);
            match fs::remove_file(&path) {
                Ok(()) => was_there = true,
                Err(missing) if missing.kind() == ErrorKind::NotFound => {}
                Err(why) => return Err(Self::error(&path, why)),
            }
        }
        let sync = || fs::File::open(&self.directory)?.sync_all();
        sync().map_err(|why: std::io::Error| Self::error(&self.directory, why))?;
        Ok(was_there)
    }
}

/// A file that only the user can read.
fn own(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600).custom_flags(OFlag::O_NOFOLLOW.bits())
}

/// The directory of the files: `logins` in `MCP_SESSIOND_DIR`, where that is set; else in
/// `~/.local/state/mcp-sessiond`, on macOS in `~/Library/Application Support/mcp-sessiond`. The
/// home directory is that of the user database: hosts hand their servers almost no environment, and
/// all processes of the user must come to the same place.
fn directory() -> Result<PathBuf, LoginError> {
    if let Some(path) = std::env::var_os(DIRECTORY_VARIABLE).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        if path.is_relative() {
            return Err(File::error(
                &path,
                format!("{DIRECTORY_VARIABLE} must be an absolute path"),
            ));
        }
        return Ok(path.join(DIRECTORY));
    }
    let home = User::from_uid(geteuid())
        .ok()
        .flatten()
        .map(|user| user.dir);
    let home = home.ok_or_else(|| {
        File::error(
            Path::new("~"),
            format!("you have no home directory; set {DIRECTORY_VARIABLE}"),
        )
    })?;
    let state = if cfg!(target_os = "macos") {
        "Library/Application Support"
    } else {
        ".local/state"
    };
    Ok(home.join(state).join("mcp-sessiond").join(DIRECTORY))
}

/// Makes the directory, and the one that it is in, as the user's alone.
fn create_directory(directory: &Path) -> Result<(), LoginError> {
    let above = directory.parent().unwrap_or(directory);
    if let Some(state) = above.parent() {
        fs::create_dir_all(state).map_err(|why| File::error(state, why))?;
    }
    for directory in [above, directory] {
        Directory::open(directory).map_err(|error| File::error(directory, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    fn tokens(token: Value) -> Tokens {
        Tokens {
            name: "a".into(),
            url: "https://example.org/mcp".into(),
            issuer: "https://example.org".into(),
            token_endpoint: "https://example.org/token".into(),
            client_id: "c".into(),
            client_secret: None,
            redirect: "http://127.0.0.1/".into(),
            scopes: Vec::new(),
            token,
            asked_ms: 1_000_000,
            ended: false,
            login: "l".into(),
        }
    }

    #[test]
    fn a_token_is_refreshed_before_it_expires() {
        let hour = tokens(json!({"access_token": "a", "expires_in": 3600}));
        assert!(
            hour.is_fresh(1_000_000)
                && hour.is_fresh(1_000_000 + 3_569_000)
                && !hour.is_fresh(1_000_000 + 3_571_000)
        );
        let short = tokens(json!({"access_token": "a", "expires_in": 2}));
        assert!(short.is_fresh(1_001_700) && !short.is_fresh(1_001_800));
        assert!(tokens(json!({"access_token": "a"})).is_fresh(u64::MAX));
    }

    #[test]
    fn a_file_is_the_users_alone_and_its_name_tells_nothing() {
        let place = tempfile::tempdir().expect("a directory");
        let url: Url = "https://example.org/mcp".parse().expect("a URL");
        let of = |name: &str, url: &Url| File {
            directory: place.path().into(),
            ..File::of(name, url).expect("a file")
        };
        let hostile = of(
            "../../etc/passwd",
            &"https://example.org/../%2e%2e%2fx".parse().expect("a URL"),
        );
        assert!(hostile.name.chars().all(|c| c.is_ascii_hexdigit()) && hostile.name.len() == 32);
        let file = of("a", &url);
        assert!(file.read().expect("readable").is_none());
        file.write(&tokens(json!({"access_token": "secret"})))
            .expect("written");
        let mode = fs::metadata(file.path("json"))
            .expect("a file")
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(mode, 0o600);
        assert_eq!(
            file.read().expect("readable").expect("tokens").access(),
            "secret"
        );
        assert!(
            of("b", &url).read().expect("readable").is_none(),
            "another entry has another login"
        );

        fs::set_permissions(file.path("json"), fs::Permissions::from_mode(0o640)).expect("set");
        assert!(matches!(file.read(), Err(LoginError::File { .. })));
        fs::remove_file(file.path("json")).expect("removed");
        fs::write(
            file.path("other"),
            serde_json::to_vec(&tokens(json!({"access_token": "secret"}))).expect("JSON"),
        )
        .expect("written");
        std::os::unix::fs::symlink(file.path("other"), file.path("json")).expect("linked");
        assert!(
            matches!(file.read(), Err(LoginError::File { .. })),
            "a symlink is not followed"
        );
        assert!(file.delete().expect("deleted") && !file.delete().expect("nothing"));
    }

    #[test]
    fn all_logins_of_an_entry_are_found_by_its_name() {
        let place = tempfile::tempdir().expect("a directory");
        assert!(
            File::all_in(&place.path().join("none"), "a")
                .expect("nothing")
                .is_empty()
        );
        for (entry, url) in [
            ("a", "https://example.org/1"),
            ("a", "https://example.org/2"),
            ("b", "https://example.org/1"),
        ] {
            let file = File::of(entry, &url.parse().expect("a URL")).expect("a file");
            let file = File {
                directory: place.path().into(),
                ..file
            };
            file.write(&Tokens {
                name: entry.into(),
                ..tokens(json!({}))
            })
            .expect("written");
        }
        fs::write(place.path().join("x.json"), "{").expect("written");
        let found = File::all_in(place.path(), "a").expect("files");
        assert_eq!(found.len(), 2);
        for file in found {
            assert!(file.delete().expect("deleted"));
        }
        assert_eq!(File::all_in(place.path(), "a").expect("files").len(), 0);
        assert_eq!(File::all_in(place.path(), "b").expect("files").len(), 1);
    }

    #[test]
    fn no_half_written_file_stays() {
        let place = tempfile::tempdir().expect("a directory");
        let url: Url = "https://example.org/mcp".parse().expect("a URL");
        let file = File {
            directory: place.path().into(),
            ..File::of("a", &url).expect("a file")
        };
        fs::write(file.path("new"), "secret").expect("written");
        assert!(file.delete().expect("deleted") && !file.path("new").exists());
        // What is there can't be replaced.
        fs::create_dir(file.path("json")).expect("made");
        file.write(&tokens(json!({"access_token": "secret"})))
            .expect_err("a directory");
        assert!(!file.path("new").exists());
    }

    #[test]
    fn a_damaged_file_is_told_without_what_it_holds() {
        let place = tempfile::tempdir().expect("a directory");
        let url: Url = "https://example.org/other".parse().expect("a URL");
        let file = File {
            directory: place.path().into(),
            ..File::of("a", &url).expect("a file")
        };
        file.write(&tokens(json!({"access_token": "secret"})))
            .expect("written");
        assert!(
            file.read()
                .map(|_| ())
                .expect_err("another server's")
                .to_string()
                .contains("another server")
        );
        for field in ["issuer", "token_endpoint"] {
            let text = fs::read(file.path("json")).expect("bytes");
            let mut old: Value = serde_json::from_slice(&text).expect("JSON");
            old.as_object_mut().expect("an object").remove(field);
            assert!(
                serde_json::from_value::<Tokens>(old).is_err(),
                "{field} is wanted"
            );
        }
        let cut = &fs::read(file.path("json")).expect("bytes")[..60];
        own(OpenOptions::new().write(true).truncate(true))
            .open(file.path("json"))
            .expect("open")
            .write_all(cut)
            .expect("written");
        let error = file.read().map(|_| ()).expect_err("damaged").to_string();
        assert!(
            error.contains("log in again") && !error.contains("example"),
            "{error}"
        );
    }
}
