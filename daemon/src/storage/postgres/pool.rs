//! Connections, lent to one statement at a time.

use std::fmt::Write as _;
use std::future::Future;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use mcp_sessiond_proto::Lock as _;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time;
use tokio_postgres::{Client, Config, Error};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure;
use super::statements::Statements;
use crate::storage::StorageError;
use crate::storage::retry::Failure;

/// How long the server may work on a statement.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an answer may take altogether, after which the connection is taken for dead. It is
/// longer than the server's own limit, which leaves no doubt about what was done.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(6);

/// How long it may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a statement waits for a connection while all are lent.
const LEND_TIMEOUT: Duration = Duration::from_secs(6);

/// At most so many connections as it was made for.
pub(super) struct Pool {
    config: Config,
    tls: MakeRustlsConnect,
    schema: String,
    idle: Mutex<Vec<Connection>>,
    places: Semaphore,
}

struct Connection {
    client: Client,
    statements: Statements,
}

/// A connection, for one statement. It goes back only when the statement was answered: one that is
/// dropped in between is closed.
pub(super) struct Lent<'a> {
    pool: &'a Pool,
    connection: Connection,
    _place: SemaphorePermit<'a>,
}

impl Pool {
    pub(super) fn new(
        config: Config,
        tls: MakeRustlsConnect,
        schema: String,
        connections: usize,
    ) -> Self {
        let places = Semaphore::new(connections.max(1));
        Self {
            config,
            tls,
            schema,
            idle: Mutex::default(),
            places,
        }
    }

    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    /// Lends a connection: the one that was used last, or a new one.
    pub(super) async fn lend(&self) -> Result<Lent<'_>, Failure> {
        let place = match time::timeout(LEND_TIMEOUT, self.places.acquire()).await {
            Ok(Ok(place)) => place,
            Ok(Err(_)) | Err(_) => {
                return Err(Failure::Passing(
                    "PostgreSQL: no connection was free in time".into(),
                ));
            }
        };
        let idle = self.idle_one();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect_and_prepare().await?,
        };
        Ok(Lent {
            pool: self,
            connection,
            _place: place,
        })
    }

    fn idle_one(&self) -> Option<Connection> {
        let mut idle = self.idle();
        idle.retain(|connection| !connection.client.is_closed());
        idle.pop()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.locked()
    }

    async fn connect_and_prepare(&self) -> Result<Connection, Failure> {
        let client = self.connect().await?;
        match answered(Statements::prepare(&client, &self.schema)).await {
            Ok(Ok(statements)) => Ok(Connection { client, statements }),
            Ok(Err(error)) => Err(failure::of_statement(&error).failure.known()),
            Err(Unanswered) => Err(Failure::Passing(UNANSWERED.into())),
        }
    }

    /// Connects, with what we count on whatever the server's configuration says.
    pub(super) async fn connect(&self) -> Result<Client, Failure> {
        let mut settings = format!("SET statement_timeout = {}", STATEMENT_TIMEOUT.as_millis());
        // Every statement has its index, which the planner doubts while a table is small. It keeps
        // its plans, though.
        for setting in [
            "enable_seqscan = off",
            "default_transaction_isolation = 'read committed'",
        ] {
            let _ = write!(settings, "; SET {setting}");
        }
        let connecting = async {
            let (client, connection) = self.config.connect(self.tls.clone()).await?;
            // It ends with the client, or with an error that the client is told as well.
            tokio::spawn(async move { drop(connection.await) });
            client.batch_execute(&settings).await?;
            Ok(client)
        };
        match time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(failure::of_connecting(&error)),
            Err(_) => Err(Failure::Passing(
                "PostgreSQL: no connection was made in time".into(),
            )),
        }
    }
}

impl Lent<'_> {
    pub(super) fn client(&self) -> &Client {
        &self.connection.client
    }

    pub(super) fn statements(&self) -> &Statements {
        &self.connection.statements
    }

    /// Ends the lending with what the statement came to.
    pub(super) fn settle<T>(
        self,
        answer: Result<Result<T, Error>, Unanswered>,
    ) -> Result<T, Failure> {
        let Self {
            pool,
            connection,
            _place,
        } = self;
        let (outcome, is_lost) = match answer {
            Ok(Ok(answer)) => (Ok(answer), false),
            Ok(Err(error)) => {
                let verdict = failure::of_statement(&error);
                (Err(verdict.failure), verdict.is_lost)
            }
            Err(Unanswered) => (Err(Failure::Unknown(UNANSWERED.into())), true),
        };
        // What ended one connection has often ended the others, or will.
        if is_lost {
            pool.idle().clear();
        } else {
            pool.idle().push(connection);
        }
        outcome
    }
}

/// There was no answer in time.
pub(super) struct Unanswered;

const UNANSWERED: &str = "PostgreSQL: no answer in time";

/// Waits for an answer, not forever.
pub(super) async fn answered<T>(
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<Result<T, Error>, Unanswered> {
    time::timeout(ANSWER_TIMEOUT, answer)
        .await
        .map_err(|_| Unanswered)
}

/// What a row that can't be understood is.
pub(super) fn damaged(_: Error) -> StorageError {
    StorageError::Damaged("PostgreSQL: a row has other columns than this daemon writes".into())
}
