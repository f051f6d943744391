//! `storage.url`: which backend, and where it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::sqlite::SqliteError;
use super::{Durability, Memory, Sqlite, Storage};

/// The database of the default backend, in the runtime directory.
const FILE: &str = "contents.db";

/// What a storage URL says.
#[derive(Clone, PartialEq, Eq)]
pub enum Url {
    /// `memory:`
    Memory,
    /// `sqlite:` or `sqlite:/path/to/file`
    Sqlite(Option<PathBuf>),
    /// `postgres://…` or `postgresql://…`, as libpq has it, whole.
    Postgres(String),
    /// `dynamodb:TABLE?region=…&endpoint=…&create=true`, whole.
    DynamoDb(String),
}

impl std::fmt::Debug for Url {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory => formatter.write_str("Memory"),
            Self::Sqlite(path) => write!(formatter, "Sqlite({path:?})"),
            Self::Postgres(url) => write!(formatter, "Postgres({})", shown(url)),
            Self::DynamoDb(url) => write!(formatter, "DynamoDb({})", shown(url)),
        }
    }
}

/// A text that is no storage URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// It names no backend.
    #[error(
        "begins with none of `memory:`, `sqlite:`, `postgres://`, `dynamodb:`; examples: `sqlite:/home/me/contents.db`, `postgres://me@db.example/sessions`"
    )]
    Scheme,
    /// The path is relative, and a daemon has no directory of its own.
    #[error("the path of the database must be absolute: `sqlite:/path/to/file`")]
    Relative,
    /// There is nothing more to say.
    #[error("`memory:` has nothing behind it")]
    Memory,
}

impl Url {
    /// Reads it. Whether there is such a database is found out when it is opened.
    ///
    /// # Errors
    /// [`UrlError`], which quotes nothing: there may be a password in it.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once(':').ok_or(UrlError::Scheme)?;
        match scheme {
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => Err(UrlError::Memory),
            "sqlite" if rest.is_empty() => Ok(Self::Sqlite(None)),
            "sqlite" => {
                // `sqlite:///path`, as others write it, is the same.
                let path = Path::new(rest.strip_prefix("//").unwrap_or(rest));
                if path.is_absolute() { Ok(Self::Sqlite(Some(path.into()))) } else { Err(UrlError::Relative) }
            }
            "postgres" | "postgresql" => Ok(Self::Postgres(text.into())),
            "dynamodb" => Ok(Self::DynamoDb(text.into())),
            _ => Err(UrlError::Scheme),
        }
    }
}

/// A storage URL as it may be shown: without what could be a password.
#[must_use]
pub fn shown(url: &str) -> String {
    let (plain, has_query) = url.split_once('?').map_or((url, false), |(plain, _)| (plain, true));
    let query = if has_query { "?…" } else { "" };
    match plain.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((user, host)) => {
                let name = user.split(':').next().unwrap_or_default();
                let password = if user.contains(':') { ":…" } else { "" };
                format!("{scheme}://{name}{password}@{host}{query}")
            }
            None => format!("{plain}{query}"),
        },
        None => format!("{plain}{query}"),
    }
}

/// A storage that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL is none.
    #[error("storage.url: {0}")]
    Url(#[from] UrlError),
    /// SQLite.
    #[error(transparent)]
    Sqlite(#[from] SqliteError),
    /// PostgreSQL.
    #[cfg(feature = "postgres")]
    #[error("storage.url: {0}")]
    Postgres(#[from] super::postgres::OpenError),
    /// This build does not have it.
    #[error(
        "this build of mcp-sessiond has no {backend}; build it with `--features {backend}`, or choose another storage.url"
    )]
    Absent {
        /// The backend, which is the name of the feature too.
        backend: &'static str,
    },
}

#[cfg(any(feature = "postgres", feature = "dynamodb"))]
impl OpenError {
    /// Why it does not answer, where it may answer later.
    pub(super) fn passes(&self) -> Option<String> {
        use super::StorageError::Unavailable;
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(super::postgres::OpenError::Storage(Unavailable(why))) => Some(why.clone()),
            _ => None,
        }
    }
}

/// Opens the storage that a URL names. A database that does not answer at the moment is asked again and again, behind
/// what is returned. `directory` is the runtime directory.
///
/// # Errors
/// [`OpenError`].
#[cfg_attr(
    not(any(feature = "postgres", feature = "dynamodb")),
    expect(clippy::unused_async, reason = "databases that are reached over a network need it")
)]
pub async fn open(
    url: &str,
    durability: Durability,
    directory: &Path,
) -> Result<Arc<dyn Storage>, OpenError> {
    match Url::parse(url)? {
        Url::Memory => Ok(Arc::new(Memory::default())),
        Url::Sqlite(path) => {
            let path = path.unwrap_or_else(|| directory.join(FILE));
            Ok(Arc::new(Sqlite::open(&path, durability)?))
        }
        #[cfg(feature = "postgres")]
        Url::Postgres(url) => {
            let attempt = move || {
                let url = url.clone();
                async move {
                    let opened = super::Postgres::open(&url, super::postgres::Options::default()).await?;
                    Ok(Arc::new(opened) as Arc<dyn Storage>)
                }
            };
            super::awaited::open("postgres", attempt).await
        }
        #[cfg(not(feature = "postgres"))]
        Url::Postgres(_) => Err(OpenError::Absent { backend: "postgres" }),
        Url::DynamoDb(_) => Err(OpenError::Absent { backend: "dynamodb" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_backend() {
        assert_eq!(Url::parse("memory:"), Ok(Url::Memory));
        assert_eq!(Url::parse("sqlite:"), Ok(Url::Sqlite(None)));
        for path in ["sqlite:/a/b", "sqlite:///a/b"] {
            assert_eq!(Url::parse(path), Ok(Url::Sqlite(Some("/a/b".into()))), "{path}");
        }
        assert_eq!(Url::parse("sqlite:a"), Err(UrlError::Relative));
        assert_eq!(Url::parse("memory:a"), Err(UrlError::Memory));
        for other in ["", "mysql://x", "sqlite"] {
            assert_eq!(Url::parse(other), Err(UrlError::Scheme), "{other}");
        }
    }

    #[test]
    fn what_is_shown_has_no_password() {
        for (url, seen) in [
            ("sqlite:/a", "sqlite:/a"),
            ("postgres://me:pa@ss@db:5432/x", "postgres://me:…@db:5432/x"),
            ("postgres://me@db/x?password=p&sslmode=require", "postgres://me@db/x?…"),
        ] {
            assert_eq!(shown(url), seen);
        }
    }
}
