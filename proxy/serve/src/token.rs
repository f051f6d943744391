//! The bearer token. `serve` makes it at its first start, keeps it in a file of mode 0600, and
//! never shows it.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::libc::O_NOFOLLOW;
use nix::unistd::geteuid;
use subtle::ConstantTimeEq as _;

/// Bytes of randomness in a token that is made here.
const RANDOM: usize = 32;
/// How many characters a token may have.
const LENGTH: std::ops::RangeInclusive<usize> = 32..=4_096;

/// A bearer token (RFC 6750). It is never shown.
#[derive(Clone)]
pub struct Token(Box<str>);

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token")
    }
}

impl Token {
    /// Reads the token from this file. Makes the file if it is missing.
    ///
    /// # Errors
    /// Those of the operating system; when others can read the file, or it holds no token.
    pub fn at(path: &Path) -> io::Result<Self> {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(O_NOFOLLOW)
            .open(path);
        match opened {
            Ok(file) => Self::read(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::make(path),
            Err(error) => Err(error),
        }
    }

    fn make(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            DirBuilder::new()
                .mode(0o700)
                .recursive(true)
                .create(directory)?;
        }
        let mut random = [0; RANDOM];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        // Another process may do the same at this moment: one of the two links its file, whole, and
        // both use that.
        let new = path.with_extension(format!("new-{}", std::process::id()));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        let linked = (|| {
            writeln!(file, "{token}")?;
            file.sync_all()?;
            std::fs::hard_link(&new, path)
        })();
        std::fs::remove_file(&new)?;
        match linked {
            Ok(()) => Ok(Self(token.into())),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::read(
                OpenOptions::new()
                    .read(true)
                    .custom_flags(O_NOFOLLOW)
                    .open(path)?,
            ),
            Err(error) => Err(error),
        }
    }

    fn read(file: File) -> io::Result<Self> {
        let found = file.metadata()?;
        if found.uid() != geteuid().as_raw() || found.mode() & 0o077 != 0 || !found.is_file() {
            return Err(io::Error::other("it must be your own file, with mode 0600"));
        }
        let mut text = String::new();
        file.take(*LENGTH.end() as u64 + 2)
            .read_to_string(&mut text)?;
        let token = text.trim_end();
        let is_one =
            LENGTH.contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_one {
            let message = format!(
                "it holds no token: {} to {} visible ASCII characters",
                LENGTH.start(),
                LENGTH.end()
            );
            return Err(io::Error::other(message));
        }
        Ok(Self(token.into()))
    }

    /// Whether these are the bytes of the token. The time that this takes does not tell how many of
    /// them are.
    pub fn is(&self, shown: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(shown).into()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_is_ours_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("new").join("token");
        let made = Token::at(&path).expect("made");
        let text = std::fs::read_to_string(&path).expect("there");
        assert!(
            made.is(text.trim_end().as_bytes())
                && !made.is(b"")
                && !made.is(&text.as_bytes()[..63])
        );
        assert_eq!(
            std::fs::metadata(&path).expect("there").mode() & 0o777,
            0o600
        );
        assert_eq!(format!("{made:?}"), "Token");
        assert!(
            Token::at(&path)
                .expect("read")
                .is(text.trim_end().as_bytes())
        );
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("ours");
        Token::at(&path).expect_err("others can read it");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours");
        std::fs::write(&path, "short\n").expect("written");
        Token::at(&path).expect_err("no token");
        std::fs::remove_file(&path).expect("ours");
        std::os::unix::fs::symlink("/dev/null", &path).expect("linked");
        Token::at(&path).expect_err("a symlink");
    }
}
