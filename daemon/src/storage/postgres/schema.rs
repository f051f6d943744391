//! The tables, and how a database gets them.

use std::time::Duration;

use tokio_postgres::{Client, Error, Transaction};

use super::OpenError;

/// What was ever done to the schema, in order. One that a release has made is never changed:
/// another one follows it.
const MIGRATIONS: [&str; 1] = ["
    CREATE TABLE {schema}.record (
        owner text COLLATE \"C\" NOT NULL,
        name text COLLATE \"C\" NOT NULL,
        version bigint NOT NULL,
        head bytea NOT NULL,
        due_ms bigint,
        PRIMARY KEY (owner, name)
    );
    COMMENT ON COLUMN {schema}.record.due_ms IS 'ms since 1970, or null: never';
    CREATE INDEX record_due ON {schema}.record (due_ms, owner, name) WHERE due_ms IS NOT NULL;
    CREATE TABLE {schema}.item (
        owner text COLLATE \"C\" NOT NULL,
        name text COLLATE \"C\" NOT NULL,
        key bytea NOT NULL,
        tag text COLLATE \"C\" NOT NULL,
        value bytea NOT NULL,
        PRIMARY KEY (owner, name, key),
        FOREIGN KEY (owner, name) REFERENCES {schema}.record ON DELETE CASCADE
    );
"];

/// The table of what was done.
const LIST: &str = "CREATE TABLE {schema}.migration (
    number integer PRIMARY KEY,
    made timestamptz NOT NULL DEFAULT now()
)";

/// Daemons that start together wait for each other at this lock. With it goes the schema's name.
const LOCK: i32 = 0x6d63_7073;

/// How long that, or a migration, may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Puts the name of the schema into a statement.
pub(super) fn in_schema(statement: &str, schema: &str) -> String {
    statement.replace("{schema}", schema)
}

/// Why a migration failed.
pub(super) enum Failed {
    Sql(Error),
    Refused(OpenError),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Sql(error)
    }
}

/// Brings the schema up to date, as a whole or not at all. What is up to date needs no right to
/// create anything.
pub(super) async fn migrate(client: &mut Client, schema: &str) -> Result<(), Failed> {
    let transaction = client.transaction().await?;
    transaction
        .batch_execute(&format!(
            "SET LOCAL statement_timeout = {}",
            TIMEOUT.as_millis()
        ))
        .await?;
    transaction
        .execute(
            "SELECT pg_advisory_xact_lock($1, hashtext($2))",
            &[&LOCK, &schema],
        )
        .await?;
    let encoding: String = transaction
        .query_one("SELECT current_setting('server_encoding')", &[])
        .await?
        .try_get(0)?;
    if encoding != "UTF8" {
        return Err(Failed::Refused(OpenError::Encoding(encoding)));
    }
    let known = MIGRATIONS.len();
    let found = found(&transaction, schema).await?;
    if found > known {
        return Err(Failed::Refused(OpenError::Newer { found, known }));
    }
    for (number, migration) in (1_i32..).zip(MIGRATIONS).skip(found) {
        transaction
            .batch_execute(&in_schema(migration, schema))
            .await?;
        let done = in_schema(
            "INSERT INTO {schema}.migration (number) VALUES ($1)",
            schema,
        );
        transaction.execute(&done, &[&number]).await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// How many migrations were made, in a schema that is there from now on.
async fn found(transaction: &Transaction<'_>, schema: &str) -> Result<usize, Error> {
    if transaction
        .query_opt("SELECT 1 FROM pg_namespace WHERE nspname = $1", &[&schema])
        .await?
        .is_none()
    {
        transaction
            .batch_execute(&in_schema("CREATE SCHEMA {schema}", schema))
            .await?;
    }
    let table = in_schema("{schema}.migration", schema);
    let is_there = transaction
        .query_one("SELECT to_regclass($1) IS NOT NULL", &[&table])
        .await?;
    if !is_there.try_get::<_, bool>(0)? {
        transaction.batch_execute(&in_schema(LIST, schema)).await?;
    }
    let last = in_schema(
        "SELECT coalesce(max(number), 0) FROM {schema}.migration",
        schema,
    );
    let last: i32 = transaction.query_one(&last, &[]).await?.try_get(0)?;
    Ok(usize::try_from(last).unwrap_or_default())
}
