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
        let mut parsed = Self {
            table: table.into(),
            region: None,
            endpoint: None,
            create: false,
        };
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
            Self::Postgres(url) => write!(formatter, "Postgres({})", redacted(url)),
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
    #[error("`memory:` takes nothing after it")]
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
                if path.is_absolute() {
                    Ok(Self::Sqlite(Some(path.into())))
                } else {
                    Err(UrlError::Relative)
                }
            }
            "postgres" | "postgresql" => Ok(Self::Postgres(text.into())),
            "dynamodb" => Ok(Self::DynamoDb(Table::parse(rest)?)),
            _ => Err(UrlError::Scheme),
        }
    }

    /// The name of the backend, and whether other daemons may have it open at the same time.
    pub(super) fn backend(&self) -> (&'static str, bool) {
        match self {
            Self::Memory => ("memory", false),
            Self::Sqlite(_) => ("sqlite", false),
            Self::Postgres(_) => ("postgres", true),
            Self::DynamoDb(_) => ("dynamodb", true),
        }
    }
}

/// A URL, taken apart: `SCHEME://USER@PLACE?QUERY`.
pub(super) struct Parts<'a> {
    pub(super) scheme: &'a str,
    /// The user, and behind a colon the password.
    pub(super) user: Option<&'a str>,
    /// Hosts with their ports, and the path.
    pub(super) place: &'a str,
    pub(super) query: Option<&'a str>,
}

/// The options of PostgreSQL's URLs in which an `@` may well stand. Before any other word it ends a
/// password.
const TEXTS: [&str; 7] = [
    "password",
    "user",
    "dbname",
    "options",
    "application_name",
    "host",
    "sslrootcert",
];

/// Takes a URL apart. None: it is none. Whoever reads a URL and whoever shows it must agree on what
/// is a password, so both ask here.
pub(super) fn split(url: &str) -> Option<Parts<'_>> {
    let (scheme, rest) = url.split_once("://")?;
    if !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let (user, rest) = match user_end(rest) {
        Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
        None => (None, rest),
    };
    let (place, query) = match rest.split_once('?') {
        Some((place, query)) => (place, Some(query)),
        None => (rest, None),
    };
    Some(Parts {
        scheme,
        user,
        place,
        query,
    })
}

/// Where the user and the password end: a password may have anything in it, but for an `@` behind a
/// slash or question mark.
fn user_end(rest: &str) -> Option<usize> {
    let first = rest.find('@')?;
    if rest[..first]
        .split_once('?')
        .is_some_and(|(place, query)| has_ports(place) && is_text(query))
    {
        return None;
    }
    let host = &rest[first + 1..];
    let host = &host[..host.find(['/', '?']).unwrap_or(host.len())];
    Some(host.rfind('@').map_or(first, |more| first + 1 + more))
}

/// Whether what stands behind the colons of these hosts can be ports.
fn has_ports(place: &str) -> bool {
    let hosts = place.split('/').next().unwrap_or_default();
    hosts.split(',').all(|host| {
        let name = host.rfind(']').map_or(0, |end| end + 1);
        let port = host[name..].split_once(':').map_or("", |(_, port)| port);
        port.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Whether a query that is cut off somewhere ends in the value of an option in which anything may
/// stand.
fn is_text(query: &str) -> bool {
    let last = query.rsplit('&').next().unwrap_or_default();
    last.split_once('=')
        .is_some_and(|(name, _)| TEXTS.contains(&name))
}

/// A storage URL as it may be shown: without what could be a password.
pub fn redacted(url: &str) -> String {
    if url.starts_with("sqlite:") {
        return url.to_owned();
    }
    let Some(Parts {
        scheme,
        user,
        place,
        query,
    }) = split(url)
    else {
        let plain = url.split('?').next().unwrap_or_default();
        return match plain.split_once(':') {
            Some((scheme, _)) if plain.contains('@') => format!("{scheme}:…"),
            _ if plain.len() < url.len() => format!("{plain}?…"),
            _ => plain.to_owned(),
        };
    };
    // What may be the end of a password is not shown.
    let is_plain = |query: &str| {
        query
            .split_once('@')
            .is_none_or(|(before, _)| is_text(before))
    };
    let is_name = |user: &str| {
        !user
            .split(':')
            .next()
            .unwrap_or_default()
            .contains(['/', '?'])
    };
    let is_clear = user.is_none_or(is_name) && !place.contains('@') && has_ports(place);
    if !is_clear || !query.is_none_or(is_plain) {
        return format!("{scheme}://…");
    }
    let user = user.map_or_else(String::new, |user| match user.split_once(':') {
        Some((name, _)) => format!("{name}:…@"),
        None => format!("{user}@"),
    });
    let query = if query.is_some() { "?…" } else { "" };
    format!("{scheme}://{user}{place}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_backend() {
        assert_eq!(Url::parse("memory:"), Ok(Url::Memory));
        assert_eq!(Url::parse("sqlite:"), Ok(Url::Sqlite(None)));
        for path in ["sqlite:/a/b", "sqlite:///a/b"] {
            assert_eq!(
                Url::parse(path),
                Ok(Url::Sqlite(Some("/a/b".into()))),
                "{path}"
            );
        }
        assert_eq!(Url::parse("sqlite:a"), Err(UrlError::Relative));
        assert_eq!(Url::parse("memory:a"), Err(UrlError::Memory));
        let table =
            Url::parse("dynamodb:t?region=eu-west-1&create=true&endpoint=http://127.0.0.1:8000");
        let expected = Table {
            table: "t".into(),
            region: Some("eu-west-1".into()),
            endpoint: Some("http://127.0.0.1:8000".into()),
            create: true,
        };
        assert_eq!(table, Ok(Url::DynamoDb(expected)));
        assert!(
            matches!(Url::parse("dynamodb:"), Ok(Url::DynamoDb(table)) if table.table == Table::USUAL)
        );
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
            (
                "postgres://me@db/x?password=p&sslmode=require",
                "postgres://me@db/x?…",
            ),
            ("postgres://me:pa?ss@db/x?a=b", "postgres://me:…@db/x?…"),
            ("postgres://me@db/x?password=pa@ss", "postgres://me@db/x?…"),
            (
                "postgres://me@db:5432?sslmode=require&password=pa@ss@w",
                "postgres://me@db:5432?…",
            ),
            (
                "postgres://db,[::1]:5433/x?password=pa@ss",
                "postgres://db,[::1]:5433/x?…",
            ),
            (
                "postgresql://%2Frun/x?user=me&password=pa@ss",
                "postgresql://%2Frun/x?…",
            ),
            ("postgres://me:pa/ss@db/x", "postgres://me:…@db/x"),
            ("postgres://me:pass", "postgres://…"),
            // What can be understood in several ways is not shown.
            ("postgres://me:pa/s?password=s@db/x", "postgres://me:…@db/x"),
            ("postgres://me:pa@s/s@db/x", "postgres://…"),
            ("postgres://me:pa@s/s?w=d@db/x", "postgres://…"),
            ("postgres://db/x?pass=pa@ss", "postgres://…"),
            ("postgres:me:pass@db/x", "postgres:…"),
            ("mysql://me:pass@db/x", "mysql://me:…@db/x"),
            ("dynamodb:t?endpoint=http://me:pa@ss", "dynamodb:t?…"),
            ("dynamodb://me:pass@db/t", "dynamodb://me:…@db/t"),
            ("sqlite:///home/me@work:/a?b", "sqlite:///home/me@work:/a?b"),
        ] {
            assert_eq!(redacted(url), seen);
        }
    }
}
