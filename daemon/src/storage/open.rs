//! From a `storage.url` to the backend that it names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::sqlite::SqliteError;
use super::{Durability, Memory, Sqlite, Storage, StorageError, Store, Url, UrlError};
use crate::counters::Meters;

/// The database of the default backend, in the runtime directory.
const FILE: &str = "contents.db";

/// A storage that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL is none.
    #[error("storage.url: {0}; correct it, and restart the daemon or send it SIGHUP")]
    Url(#[from] UrlError),
    /// The configuration file can't be read, and so nobody knows where they are.
    #[error("{0}; correct it, and restart the daemon or send it SIGHUP")]
    Configuration(String),
    /// SQLite.
    #[error("{0}{advice}", advice = advice(.0))]
    Sqlite(#[from] SqliteError),
    /// The thread that opened it has failed.
    #[error("the database could not be opened: {0}")]
    Thread(#[from] tokio::task::JoinError),
    /// PostgreSQL.
    #[cfg(feature = "postgres")]
    #[error("storage.url: {0}")]
    Postgres(#[from] super::postgres::OpenError),
    /// DynamoDB.
    #[cfg(feature = "dynamodb")]
    #[error("storage.url: {0}")]
    DynamoDb(#[from] super::dynamodb::OpenError),
    /// This build does not have it.
    #[error(
        "this build of mcp-sessiond has no {backend}; build it with `--features {backend}`, or choose another storage.url, and restart the daemon"
    )]
    Absent {
        /// The backend, which is the name of the feature too.
        backend: &'static str,
    },
}

impl From<OpenError> for StorageError {
    fn from(error: OpenError) -> Self {
        Self::Unusable {
            why: error.to_string(),
            passes: error.passes(),
        }
    }
}

impl OpenError {
    /// Whether it may well be over soon, with nobody doing anything about it.
    fn passes(&self) -> bool {
        match self {
            Self::Sqlite(SqliteError::Locked { .. }) => true,
            #[cfg(feature = "postgres")]
            Self::Postgres(super::postgres::OpenError::Storage(_)) => true,
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(super::dynamodb::OpenError::Storage(_)) => true,
            _ => false,
        }
    }
}

/// What to do about a database, where its own sentence does not say so.
fn advice(error: &SqliteError) -> &'static str {
    use rusqlite::ErrorCode::{DatabaseCorrupt, DiskFull, NotADatabase};
    match error {
        SqliteError::Database { error, .. } => match error.sqlite_error_code() {
            Some(DatabaseCorrupt | NotADatabase) => {
                "; move the file away, and within some seconds an empty one takes its place"
            }
            Some(DiskFull) => "; free some space there",
            _ => "; see that the daemon may read and write there",
        },
        // A redo log of another version: its sentence says so.
        SqliteError::Thread { error, .. } if error.kind() == std::io::ErrorKind::InvalidData => "",
        SqliteError::Thread { .. } => "; see that the daemon may read and write there",
        SqliteError::Newer { .. } | SqliteError::Foreign { .. } | SqliteError::Locked { .. } => "",
    }
}

/// Opens the storage that a URL names. One that can't be used at the moment is tried again and
/// again, behind what is returned. `directory` is the runtime directory.
///
/// `url` is an error where the configuration does not tell: then nothing is opened, until a URL is
/// wanted.
pub async fn open(
    url: Result<&str, String>,
    durability: Durability,
    directory: &Path,
    meters: Arc<Meters>,
) -> Arc<Store> {
    let directory = directory.to_owned();
    let unknown = url.as_ref().err().cloned();
    let url = url.unwrap_or_default();
    Store::open(url, meters, move |url| {
        let (directory, unknown) = (directory.clone(), unknown.clone());
        async move {
            let opened = match unknown {
                Some(why) if url.is_empty() => Err(OpenError::Configuration(why)),
                _ => open_once(&url, durability, directory).await,
            };
            opened.map_err(StorageError::from)
        }
    })
    .await
}

async fn open_once(
    url: &str,
    durability: Durability,
    directory: PathBuf,
) -> Result<Arc<dyn Storage>, OpenError> {
    match Url::parse(url)? {
        Url::Memory => Ok(Arc::new(Memory::default())),
        Url::Sqlite(path) => {
            let path = path.unwrap_or_else(|| directory.join(FILE));
            // It reads all of the file, from a disk that may be slow.
            let opening =
                tokio::task::spawn_blocking(move || Sqlite::open_alone(&path, durability));
            Ok(Arc::new(opening.await??))
        }
        #[cfg(feature = "postgres")]
        Url::Postgres(url) => Ok(Arc::new(
            super::Postgres::open(&url, super::postgres::Options::default()).await?,
        )),
        #[cfg(not(feature = "postgres"))]
        Url::Postgres(_) => Err(OpenError::Absent {
            backend: "postgres",
        }),
        #[cfg(feature = "dynamodb")]
        Url::DynamoDb(super::Table {
            table,
            region,
            endpoint,
            create,
        }) => {
            let options = super::dynamodb::Options {
                table,
                endpoint,
                region,
                create,
            };
            Ok(Arc::new(super::DynamoDb::open(options).await?))
        }
        #[cfg(not(feature = "dynamodb"))]
        Url::DynamoDb(_) => Err(OpenError::Absent {
            backend: "dynamodb",
        }),
    }
}
