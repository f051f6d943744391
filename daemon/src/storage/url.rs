//! `storage.url`: which backend, and where it is.

use std::path::{Path, PathBuf};

/// What a storage URL says.
#[derive(Clone, PartialEq, Eq)]
pub enum Url {
    /// `memory:`
    Memory,
    /// `sqlite:` or `sqlite:/path/to/file`
    Sqlite(Option<PathBuf>),
    /// `postgres://…` or `postgresql://…`, as libpq has it, whole.
    Postgres(String),
    /// `dynamodb:TABLE?region=…&endpoint=…&create=true`.
    DynamoDb(Table),
}

/// A table of DynamoDB, as a storage URL names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub table: String,
    /// The region, where the environment and the profile don't say.
    pub region: Option<String>,
    /// The service's URL, where that is not the region's own.
    pub endpoint: Option<String>,
    /// Whether to create it when there is none.
    pub create: bool,
}

impl Table {
    /// The table of DynamoDB where the URL names none.
    const USUAL: &str = "mcp-sessiond";

    fn parse(rest: &str) -> Result<Self, UrlError> {
        let (table, options) = rest.split_once('?').unwrap_or((rest, ""));
        let table = if table.is_empty() { Self::USUAL } else { table };
        let mut parsed = Self { table: table.into(), region: None, endpoint: None, create: false };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=').ok_or(UrlError::Option)? {
                ("region", value) => parsed.region = Some(value.into()),
                ("endpoint", value) => parsed.endpoint = Some(value.into()),
                ("create", "true") => parsed.create = true,
                ("create", "false") => parsed.create = false,
                _ => return Err(UrlError::Option),
            }
        }
        Ok(parsed)
    }
}

impl std::fmt::Debug for Url {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory => formatter.write_str("Memory"),
            Self::Sqlite(path) => write!(formatter, "Sqlite({path:?})"),
            Self::Postgres(url) => write!(formatter, "Postgres({})", shown(url)),
            Self::DynamoDb(table) => write!(formatter, "DynamoDb({table:?})"),
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
    /// Something behind the question mark is not understood.
    #[error(
        "`dynamodb:TABLE` takes the options `region=`, `endpoint=` and `create=true`, with `?` before and `&` between them"
    )]
    Option,
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
            "dynamodb" => Ok(Self::DynamoDb(Table::parse(rest)?)),
            _ => Err(UrlError::Scheme),
        }
    }
}

/// A storage URL as it may be shown: without what could be a password.
#[must_use]
pub fn shown(url: &str) -> String {
    // A password may have a question mark in it: what ends it is the last `@`.
    let host = url.rfind('@').unwrap_or_default();
    let (plain, has_query) = match url[host..].find('?') {
        Some(at) => (&url[..host + at], true),
        None => (url, false),
    };
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
        let table = Url::parse("dynamodb:t?region=eu-west-1&create=true&endpoint=http://127.0.0.1:8000");
        let expected = Table {
            table: "t".into(),
            region: Some("eu-west-1".into()),
            endpoint: Some("http://127.0.0.1:8000".into()),
            create: true,
        };
        assert_eq!(table, Ok(Url::DynamoDb(expected)));
        assert!(matches!(Url::parse("dynamodb:"), Ok(Url::DynamoDb(table)) if table.table == Table::USUAL));
        assert_eq!(Url::parse("dynamodb:t?colour=blue"), Err(UrlError::Option));
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
            ("postgres://me:pa?ss@db/x?a=b", "postgres://me:…@db/x?…"),
        ] {
            assert_eq!(shown(url), seen);
        }
    }
}
