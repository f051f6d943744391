//! The table of `sessions.db`: a row for each record, which is JSON.

use std::collections::BTreeSet;
use std::path::Path;

use mcp_sessiond_process::PinnedProcess;
use mcp_sessiond_registry::{Effect, LostRecords, Record, RecordKey, Records};
use rusqlite::types::FromSqlError;
use rusqlite::{Connection, Row, Transaction, params};
use serde::Serialize;

use crate::writer::{begin, check, check_format};

/// Grows with every change of the records. A database of another version is set aside.
pub(super) const VERSION: i64 = 16;

/// The tables, in the place of those of a former boot.
const TABLES: &str = "
    DROP TABLE IF EXISTS boot;
    DROP TABLE IF EXISTS record;
    CREATE TABLE boot (id TEXT NOT NULL) STRICT;
    CREATE TABLE record (kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, key)) STRICT, WITHOUT ROWID;";

/// What the database holds.
pub(super) enum State {
    Empty,
    Current(Box<Records>),
    /// The records of a former boot.
    Rebooted,
    /// Those of another version.
    Other(i64),
}

/// Opens the database, and makes the file if there is none.
pub(super) fn open(path: &Path, boot: &str) -> rusqlite::Result<(Connection, State)> {
    let connection = Connection::open(path)?;
    set_up(&connection)?;
    let user_version = |connection: &Connection| {
        connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))
    };
    user_version(&connection)?;
    check_format(&connection, path)?;
    let version = user_version(&connection)?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let state = match version {
        0 if tables == 0 => State::Empty,
        VERSION => {
            let recorded: String =
                connection.query_row("SELECT id FROM boot", [], |row| row.get(0))?;
            if recorded == boot {
                check(&connection)?;
                State::Current(Box::new(records(&connection)?))
            } else {
                State::Rebooted
            }
        }
        other => State::Other(other),
    };
    Ok((connection, state))
}

/// Sets a connection up.
pub(super) fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    // NORMAL: a commit is in the page cache, which outlives this process; a power loss ends every
    // session anyway.
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // The directory's lock keeps other daemons out; this keeps an sqlite3 that a user runs from
    // seeing half a write.
    connection.pragma_update(None, "locking_mode", "NORMAL")?;
    // Overwrites what is deleted, and keeps temporary data out of other files.
    connection.pragma_update(None, "secure_delete", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")
}

/// Whether the database is not what a daemon of this version wrote. Anything else may pass.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, Unknown};
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => {
            matches!(failure.code, DatabaseCorrupt | NotADatabase | Unknown)
        }
        // A row that can't be read, a table that is not there.
        _ => true,
    }
}

/// Makes the tables. That records were lost is there with the first ones: this process may be killed
/// before it has said so, and nobody would find out a second time.
pub(super) fn create(
    connection: &mut Connection,
    boot: &str,
    is_lost: bool,
) -> rusqlite::Result<()> {
    let transaction = begin(connection)?;
    transaction.execute_batch(TABLES)?;
    transaction.execute("INSERT INTO boot VALUES (?1)", [boot])?;
    if is_lost && let Ok(own) = PinnedProcess::own() {
        let (since, told) = (own.id().start, BTreeSet::new());
        let lost = Record::LostRecords(LostRecords { since, told });
        apply(&transaction, &Effect::Save(lost))?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

/// Writes all the effects or none.
pub(super) fn commit<'a>(
    connection: &mut Connection,
    effects: impl Iterator<Item = &'a Effect>,
) -> rusqlite::Result<()> {
    let transaction = begin(connection)?;
    for effect in effects {
        apply(&transaction, effect)?;
    }
    transaction.commit()
}

fn apply(transaction: &Transaction<'_>, effect: &Effect) -> rusqlite::Result<()> {
    match effect {
        Effect::Save(record) => {
            let (kind, key) = columns(&record.key())?;
            transaction
                .prepare_cached("INSERT OR REPLACE INTO record VALUES (?1, ?2, ?3)")?
                .execute(params![kind, key, json(record)?])
                .map(drop)
        }
        Effect::Drop(key) => {
            let (kind, key) = columns(key)?;
            transaction
                .prepare_cached("DELETE FROM record WHERE kind = ?1 AND key = ?2")?
                .execute(params![kind, key])
                .map(drop)
        }
        Effect::DeleteToken(_)
        | Effect::Unreachable { .. }
        | Effect::EndContents(..)
        | Effect::EndKeeper(_)
        | Effect::SweepBackend(_)
        | Effect::Answer(..) => Ok(()),
    }
}

/// The kind of a record, and its key: of a process as JSON, of everything else its name.
fn columns(key: &RecordKey) -> rusqlite::Result<(&'static str, String)> {
    Ok(match key {
        RecordKey::Owner(host) => ("owner", json(host)?),
        RecordKey::Claimant(process) => ("claimant", json(process)?),
        RecordKey::Session(id) => ("session", id.to_string()),
        RecordKey::Keeper(process) => ("keeper", json(process)?),
        RecordKey::Service(name) => ("service", name.to_string()),
        RecordKey::ServiceLoss(id) => ("service_loss", id.0.to_string()),
        RecordKey::Server(server) => ("server", server.as_str().to_owned()),
        RecordKey::LostRecords => ("lost_records", String::new()),
    })
}

fn json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

fn records(connection: &Connection) -> rusqlite::Result<Records> {
    let mut all = connection.prepare("SELECT kind, key, value FROM record")?;
    let record = |row: &Row<'_>| {
        let record: Record = serde_json::from_str(row.get_ref(2)?.as_str()?)
            .map_err(|_| FromSqlError::InvalidType)?;
        let (kind, key) = columns(&record.key())?;
        // A damaged byte makes no other session.
        let is_its = row.get_ref(0)?.as_str()? == kind && row.get_ref(1)?.as_str()? == key;
        is_its
            .then_some(record)
            .ok_or(FromSqlError::InvalidType.into())
    };
    all.query_map([], record)?.collect()
}
