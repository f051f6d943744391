//! Everything in a PostgreSQL, which other daemons may use as well.
//!
//! **A commit is one statement**, and so a transaction of its own in one round trip: the record is
//! changed if it has the version that was named, and its items only with it. No connection is ever
//! inside a transaction, and one that is lost leaves nothing half done.

mod address;
mod failure;
mod pool;
mod rows;
mod schema;
mod statements;

use std::fmt;

use futures::FutureExt as _;
use futures::future::{self, BoxFuture};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use self::address::Address;
use self::pool::{Pool, answered, damaged};
use self::rows::{Arrays, limit, to_due, to_ms, to_version};
use self::schema::Failed;
use self::statements::Statements;
use super::retry::{Failure, Health, Patience, patiently};
use super::{
    Answer, Change, Durable, Item, Key, Listed, MemoryUsage, Record, RecordId, Scan, Storage,
    StorageError, Version,
};

/// Records in a PostgreSQL.
pub struct Postgres {
    pool: Pool,
    health: Health,
}

/// What the URL does not say.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many connections there may be at once.
    pub connections: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { connections: 8 }
    }
}

/// Why a database can't be used. None of the sentences has anything of the URL's in it but the
/// schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The URL is not understood.
    #[error(
        "this is not the URL of a PostgreSQL database: postgres://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE; percent-encode what has a meaning in a URL"
    )]
    Url,
    /// The schema can't be named so.
    #[error(
        "schema={0:?} is not a name of a-z, 0-9 and _, at most 63 characters, which doesn't start as pg_ or a digit"
    )]
    Schema(String),
    /// TLS is demanded, and there is nobody to trust.
    #[error(
        "sslmode demands TLS, but this machine has no certificates that it trusts; SSL_CERT_FILE can name some"
    )]
    Certificates,
    /// The database can't hold every text.
    #[error("the database's encoding is {0}, not UTF8: create another with ENCODING 'UTF8'")]
    Encoding(String),
    /// A newer daemon has changed the tables.
    #[error(
        "the database was migrated by a newer daemon: it is at {found}, and this daemon knows {known}"
    )]
    Newer {
        /// How many migrations were made.
        found: usize,
        /// How many this daemon knows.
        known: usize,
    },
    /// It does not answer, or refuses us.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Postgres {
    /// Connects to the database of a URL and brings its schema up to date. `schema=` in the URL's
    /// query names the schema; everything else is as libpq has it, but that TLS always verifies the
    /// server.
    ///
    /// # Errors
    /// When the database can't be used as it is, or can't be had for the moment.
    pub async fn open(url: &str, options: Options) -> Result<Self, OpenError> {
        let address = Address::parse(url)?;
        let tls = address.tls()?;
        let pool = Pool::new(address.config, tls, address.schema, options.connections);
        let refused = patiently(|| migrate(&pool)).await?;
        refused.map_or(
            Ok(Self {
                pool,
                health: Health::default(),
            }),
            Err,
        )
    }

    /// Asks until there is an answer.
    async fn rows(
        &self,
        statement: fn(&Statements) -> &Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StorageError> {
        patiently(|| async {
            let lent = self.pool.lend().await?;
            let rows = answered(
                lent.client()
                    .query(statement(lent.statements()), parameters),
            )
            .await;
            lent.settle(rows)
        })
        .await
    }

    async fn listed(
        &self,
        statement: fn(&Statements) -> &Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Listed>, StorageError> {
        let rows = self.rows(statement, parameters).await?;
        rows.iter()
            .map(rows::listed)
            .collect::<Result<_, _>>()
            .map_err(damaged)
    }

    /// The record is read before its items, both in one round trip: its version is the older one
    /// where they differ.
    async fn read_once(
        &self,
        place: &RecordId,
        keys: &[Key],
    ) -> Result<(Option<Row>, Vec<Row>), Failure> {
        let lent = self.pool.lend().await?;
        let (client, statements) = (lent.client(), lent.statements());
        let wanted: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let items = async {
            if wanted.is_empty() {
                return Ok(Vec::new());
            }
            client
                .query(&statements.items, &[&place.owner, &place.name, &wanted])
                .await
        };
        let of: [&(dyn ToSql + Sync); 2] = [&place.owner, &place.name];
        let record = client.query_opt(&statements.record, &of);
        let found = answered(future::try_join(record, items)).await;
        lent.settle(found)
    }

    async fn version(&self, place: &RecordId) -> Result<Option<Version>, StorageError> {
        let rows = self
            .rows(|all| &all.version, &[&place.owner, &place.name])
            .await?;
        rows.first().map(rows::version).transpose().map_err(damaged)
    }

    /// Whether the record had the version, and so was changed.
    async fn commit_once(
        &self,
        place: &RecordId,
        expected: Option<Version>,
        next: Version,
        change: &Change,
    ) -> Result<bool, Failure> {
        let lent = self.pool.lend().await?;
        let (client, statements) = (lent.client(), lent.statements());
        let (next, expected) = (to_version(next), expected.map(to_version));
        let arrays = Arrays::of(change);
        let Arrays {
            low,
            high,
            keys,
            tags,
            values,
        } = &arrays;
        let RecordId { owner, name } = place;
        let (head, due_ms) = change.head.as_ref().map_or((&[][..], None), |head| {
            (&head.bytes[..], to_due(head.due_ms))
        });
        let mut parameters: Vec<&(dyn ToSql + Sync)> =
            vec![owner, name, &next, &head, &due_ms, keys, tags, values];
        let statement = match (&change.head, &expected) {
            (Some(_), None) => &statements.create,
            (Some(_), Some(expected)) => {
                parameters.extend::<[&(dyn ToSql + Sync); 3]>([expected, low, high]);
                &statements.update
            }
            (None, expected) => {
                parameters = vec![owner, name, expected];
                &statements.delete
            }
        };
        let changed = answered(client.query_one(statement, &parameters)).await;
        let changed: i64 = lent
            .settle(changed)?
            .try_get(0)
            .map_err(|error| Failure::Final(damaged(error)))?;
        Ok(changed == 1)
    }

    /// Commits until it is known what became of it.
    async fn commit_surely(
        &self,
        place: &RecordId,
        expected: Option<Version>,
        next: Version,
        change: &Change,
    ) -> Result<(), StorageError> {
        if change.head.is_none() && expected.is_none() {
            // Nothing becomes of nothing, if that is what is there.
            return self
                .version(place)
                .await?
                .map_or(Ok(()), |_| Err(StorageError::Conflict));
        }
        let mut patience = Patience::new();
        loop {
            match self.commit_once(place, expected, next, change).await {
                Ok(true) => return Ok(()),
                Ok(false) if !patience.is_unknown() => return Err(StorageError::Conflict),
                Ok(false) => break,
                Err(failure) => patience.pause(failure).await?,
            }
        }
        // An earlier attempt, whose answer was lost, may have been what changed the record.
        let found = self.version(place).await.map_err(StorageError::unknown)?;
        if found == change.head.as_ref().map(|_| next) {
            return Ok(());
        }
        // Its successor may have been somebody else's. To call that a conflict would have the
        // change made twice.
        Err(StorageError::Unavailable("PostgreSQL: the answer was lost".into()).unknown())
    }
}

/// One attempt. What a further one would not change is returned.
async fn migrate(pool: &Pool) -> Result<Option<OpenError>, Failure> {
    let mut client = pool.connect().await?;
    match schema::migrate(&mut client, pool.schema()).await {
        Ok(()) => Ok(None),
        Err(Failed::Refused(why)) => Ok(Some(why)),
        Err(Failed::Sql(error)) => Err(failure::of_statement(&error).failure),
    }
}

impl Storage for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), StorageError> {
        self.health.check()
    }

    /// There is nothing that others could take away.
    fn look_after(&self) {}

    fn file(&self) -> Option<std::path::PathBuf> {
        None
    }

    /// There is nothing to finish.
    fn close(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    fn read<'a>(&'a self, place: &'a RecordId, keys: &'a [Key]) -> Answer<'a, Option<Record>> {
        let read = async move {
            let (record, items) = patiently(|| self.read_once(place, keys)).await?;
            record
                .map(|record| rows::record(&record, &items, keys))
                .transpose()
                .map_err(damaged)
        };
        read.map(|read| self.health.note(read)).boxed()
    }

    fn scan<'a>(&'a self, place: &'a RecordId, scan: &'a Scan) -> Answer<'a, Vec<Item>> {
        let found = async move {
            let RecordId { owner, name } = place;
            let Scan {
                range,
                tags,
                most,
                bytes,
            } = scan;
            let (low, high, most, bytes) = (
                &range.start[..],
                &range.end[..],
                limit(*most),
                limit(*bytes),
            );
            let parameters: [&(dyn ToSql + Sync); 7] =
                [owner, name, &low, &high, &tags, &most, &bytes];
            let rows = self.rows(|all| &all.scan, &parameters).await?;
            rows.iter()
                .map(rows::item)
                .collect::<Result<_, _>>()
                .map_err(damaged)
        };
        found.map(|found| self.health.note(found)).boxed()
    }

    fn commit<'a>(
        &'a self,
        place: &'a RecordId,
        expected: Option<Version>,
        next: Version,
        change: Change,
    ) -> Answer<'a, Durable> {
        let commit = async move { self.commit_surely(place, expected, next, &change).await };
        commit
            .map(|commit| self.health.note(commit).map(|()| Durable::Now))
            .boxed()
    }

    fn settled(&self, _: &RecordId) -> Durable {
        Durable::Now
    }

    fn list<'a>(&'a self, owner: &'a str, after: &'a str, most: usize) -> Answer<'a, Vec<Listed>> {
        let list = async move {
            self.listed(|all| &all.list, &[&owner, &after, &limit(most)])
                .await
        };
        list.map(|list| self.health.note(list)).boxed()
    }

    fn list_all<'a>(&'a self, after: Option<&'a RecordId>, most: usize) -> Answer<'a, Vec<Listed>> {
        let list = async move {
            let (owner, name) = after.map_or(("", ""), |place| (&place.owner, &place.name));
            self.listed(|all| &all.list_all, &[&owner, &name, &limit(most)])
                .await
        };
        list.map(|list| self.health.note(list)).boxed()
    }

    fn due<'a>(&'a self, now_ms: u64, most: usize) -> Answer<'a, Vec<Listed>> {
        let due = async move {
            self.listed(|all| &all.due, &[&to_ms(now_ms), &limit(most)])
                .await
        };
        due.map(|due| self.health.note(due)).boxed()
    }

    fn count<'a>(&'a self, owner: &'a str, most: usize) -> Answer<'a, usize> {
        let count = async move {
            let rows = self.rows(|all| &all.count, &[&owner, &limit(most)]).await?;
            let count: i64 = rows
                .first()
                .map_or(Ok(0), |row| row.try_get(0))
                .map_err(damaged)?;
            Ok(usize::try_from(count).unwrap_or_default())
        };
        count.map(|count| self.health.note(count)).boxed()
    }

    fn usage(&self, _: &str) -> Option<MemoryUsage> {
        None
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Postgres({})", self.pool.schema())
    }
}

/// The password that is used to connect, and the other parameters. None: the text is no URL.
#[cfg(test)]
pub(crate) fn password(url: &str) -> Option<(String, String)> {
    let config = Address::parse(url).ok()?.config;
    let password = String::from_utf8_lossy(config.get_password()?).into_owned();
    let names = (
        config.get_user(),
        config.get_dbname(),
        config.get_options(),
        config.get_application_name(),
    );
    Some((
        password,
        format!(
            "{names:?} {:?} {:?}",
            config.get_hosts(),
            config.get_hostaddrs()
        ),
    ))
}
