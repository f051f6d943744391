//! From a `storage.url` to the backend that it names.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::sqlite::SqliteError;
use super::{Durability, Memory, Sqlite, Storage, Url, UrlError};

/// The database of the default backend, in the runtime directory.
const FILE: &str = "contents.db";

/// How long a daemon waits for another one to be done with its file: one that was replaced still drains.
const HANDED_OVER: Duration = Duration::from_secs(10);
const LOCKED_PAUSE: Duration = Duration::from_millis(50);

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
    /// DynamoDB.
    #[cfg(feature = "dynamodb")]
    #[error("storage.url: {0}")]
    DynamoDb(#[from] super::dynamodb::OpenError),
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
    fn passes(&self) -> Option<String> {
        use super::StorageError::Unavailable;
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(super::postgres::OpenError::Storage(Unavailable(why))) => Some(why.clone()),
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(super::dynamodb::OpenError::Storage(Unavailable(why))) => Some(why.clone()),
            _ => None,
        }
    }
}

/// Opens the storage that a URL names. A database that does not answer at the moment is asked again and again, behind
/// what is returned. `directory` is the runtime directory.
///
/// # Errors
/// [`OpenError`].
pub async fn open(
    url: &str,
    durability: Durability,
    directory: &Path,
) -> Result<Arc<dyn Storage>, OpenError> {
    match Url::parse(url)? {
        Url::Memory => Ok(Arc::new(Memory::default())),
        Url::Sqlite(path) => {
            let path = path.unwrap_or_else(|| directory.join(FILE));
            let deadline = Instant::now() + HANDED_OVER;
            loop {
                match Sqlite::open_alone(&path, durability) {
                    Err(SqliteError::Locked { .. }) if Instant::now() < deadline => sleep(LOCKED_PAUSE).await,
                    opened => return Ok(Arc::new(opened?)),
                }
            }
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
            super::awaited::open("postgres", OpenError::passes, attempt).await
        }
        #[cfg(not(feature = "postgres"))]
        Url::Postgres(_) => Err(OpenError::Absent { backend: "postgres" }),
        #[cfg(feature = "dynamodb")]
        Url::DynamoDb(options) => {
            let attempt = move || {
                let options = super::dynamodb::Options {
                    table: options.table.clone(),
                    endpoint: options.endpoint.clone(),
                    region: options.region.clone(),
                    create: options.create,
                };
                async move {
                    let opened = super::DynamoDb::open(options).await?;
                    Ok(Arc::new(opened) as Arc<dyn Storage>)
                }
            };
            super::awaited::open("dynamodb", OpenError::passes, attempt).await
        }
        #[cfg(not(feature = "dynamodb"))]
        Url::DynamoDb(_) => Err(OpenError::Absent { backend: "dynamodb" }),
    }
}
