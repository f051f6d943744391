//! Where the cases find a backend that nobody else uses.

use std::sync::Arc;

use mcp_sessiond_daemon::storage::{Durability, Memory, Sqlite, Storage};
use tempfile::TempDir;

/// A backend with nothing in it, for one case alone. What it has made elsewhere goes when it is
/// dropped.
pub(crate) trait Backend: Sized {
    /// Whether what was kept is there when the backend is opened again.
    const DURABLE: bool;

    /// How many writers change one record at once. Each asks anew whenever another was faster, so
    /// the requests are as many as the square.
    const WRITERS: usize = 200;

    /// Makes a place of its own for the case.
    async fn open() -> Self;

    /// The handle of the daemon that the case stands for.
    fn store(&self) -> Arc<dyn Storage>;

    /// The handle of another daemon, to the same data: a second one where the backend is shared,
    /// else the same.
    async fn beside(&self) -> Arc<dyn Storage>;

    /// Lets the daemon crash and start again: from now on `store` is a new handle to the same data.
    async fn reopen(&mut self);
}

/// [`Memory`].
pub(crate) struct InMemory(Arc<Memory>);

impl Backend for InMemory {
    const DURABLE: bool = false;

    async fn open() -> Self {
        Self(Arc::default())
    }

    fn store(&self) -> Arc<dyn Storage> {
        self.0.clone()
    }

    async fn beside(&self) -> Arc<dyn Storage> {
        self.store()
    }

    async fn reopen(&mut self) {
        self.0 = Arc::default();
    }
}

/// [`Sqlite`], in a directory of its own. With a redo log that is in the machine's memory, as most
/// runtime directories are.
pub(crate) struct InSqlite<const REDO: bool> {
    store: Arc<Sqlite>,
    directory: TempDir,
}

impl<const REDO: bool> InSqlite<REDO> {
    fn directory() -> TempDir {
        let parent = if REDO {
            "/dev/shm".into()
        } else {
            std::env::temp_dir()
        };
        tempfile::tempdir_in(parent).expect("a directory")
    }

    fn opened(directory: TempDir) -> Self {
        let path = directory.path().join("contents.db");
        let opened = if REDO {
            Sqlite::open_alone
        } else {
            Sqlite::open
        };
        let store = Arc::new(opened(&path, Durability::Process).expect("opened"));
        assert_eq!(
            directory.path().join("contents.db-redo").exists(),
            REDO,
            "/dev/shm is a tmpfs"
        );
        Self { store, directory }
    }
}

impl<const REDO: bool> Backend for InSqlite<REDO> {
    const DURABLE: bool = true;

    async fn open() -> Self {
        Self::opened(Self::directory())
    }

    fn store(&self) -> Arc<dyn Storage> {
        self.store.clone()
    }

    async fn beside(&self) -> Arc<dyn Storage> {
        self.store()
    }

    async fn reopen(&mut self) {
        let directory = Self::directory();
        if REDO {
            // The case may hold the former handle, and with it the lock. Daemons that are killed
            // with something in the log are in `contents_kill`.
            self.store.close().await;
            for file in ["contents.db", "contents.db-redo"] {
                std::fs::copy(
                    self.directory.path().join(file),
                    directory.path().join(file),
                )
                .expect("copied");
            }
            *self = Self::opened(directory);
        } else {
            // What was kept is in the file, whatever its thread is doing: SQLite lets another in.
            *self = Self::opened(std::mem::replace(&mut self.directory, directory));
        }
    }
}

pub(crate) use in_postgres::InPostgres;

mod in_postgres {
    use std::sync::Arc;

    use mcp_sessiond_daemon::storage::postgres::Options;
    use mcp_sessiond_daemon::storage::{Postgres, Storage};

    use super::Backend;
    use crate::postgres::Schema;

    /// [`Postgres`], in a schema of its own.
    pub(crate) struct InPostgres {
        store: Arc<Postgres>,
        schema: Schema,
    }

    impl InPostgres {
        async fn connected(schema: &Schema) -> Arc<Postgres> {
            Arc::new(
                Postgres::open(&schema.url(), Options::default())
                    .await
                    .expect("opened"),
            )
        }
    }

    impl Backend for InPostgres {
        const DURABLE: bool = true;

        async fn open() -> Self {
            let schema = Schema::new();
            Self {
                store: Self::connected(&schema).await,
                schema,
            }
        }

        fn store(&self) -> Arc<dyn Storage> {
            self.store.clone()
        }

        async fn beside(&self) -> Arc<dyn Storage> {
            Self::connected(&self.schema).await
        }

        async fn reopen(&mut self) {
            self.store = Self::connected(&self.schema).await;
        }
    }
}

#[cfg(feature = "dynamodb")]
pub(crate) use in_dynamodb::InDynamoDb;

#[cfg(feature = "dynamodb")]
mod in_dynamodb {
    use std::sync::Arc;

    use mcp_sessiond_daemon::storage::{DynamoDb, Storage};

    use super::Backend;
    use crate::dynamodb::{Server, Table};

    /// [`DynamoDb`], in a table of its own.
    pub(crate) struct InDynamoDb<S> {
        store: Arc<DynamoDb>,
        table: Table<S>,
    }

    impl<S: Server> Backend for InDynamoDb<S> {
        const DURABLE: bool = true;
        const WRITERS: usize = S::WRITERS;

        async fn open() -> Self {
            let table = Table::<S>::new();
            Self {
                store: table.connected().await,
                table,
            }
        }

        fn store(&self) -> Arc<dyn Storage> {
            self.store.clone()
        }

        async fn beside(&self) -> Arc<dyn Storage> {
            self.table.connected().await
        }

        async fn reopen(&mut self) {
            self.store = self.table.connected().await;
        }
    }
}
