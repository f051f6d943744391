//! The tables, and how changes become rows.

use std::path::Path;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use super::redo::{LogId, Number};
use super::{Durability, Entry};
use crate::storage::{Change, Head, Item, Memory, RecordId, Version};
use crate::writer::{self, begin};

/// Grows with every change of the tables.
pub(super) const VERSION: i64 = 1;

/// Tells this file from any other program's ("mcps" in ASCII).
const APPLICATION_ID: i64 = 0x6d63_7073;

const TABLES: &str = "
    CREATE TABLE record (
        id INTEGER PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,
        head BLOB NOT NULL, due_ms INTEGER NOT NULL, UNIQUE (owner, name)
    ) STRICT;
    CREATE TABLE item (
        record INTEGER NOT NULL REFERENCES record ON DELETE CASCADE, key BLOB NOT NULL, tag TEXT NOT NULL,
        value BLOB NOT NULL, PRIMARY KEY (record, key)
    ) STRICT, WITHOUT ROWID;";

/// Which redo log the database has, and up to where it has what is in there. Databases of former
/// versions lack it.
const REDO_TABLE: &str = "
    CREATE TABLE IF NOT EXISTS redo (id INTEGER PRIMARY KEY CHECK (id = 1), log INTEGER NOT NULL, number INTEGER NOT NULL)
    STRICT;";

pub(super) enum Opened {
    Ready(Connection),
    Newer(i64),
    Foreign,
}

pub(super) fn open(path: &Path, durability: Durability) -> rusqlite::Result<Opened> {
    let mut connection = Connection::open(path)?;
    // Before anything is changed: it may be somebody else's.
    let application: i64 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application != APPLICATION_ID && (application != 0 || tables != 0) {
        return Ok(Opened::Foreign);
    }
    if tables == 0 {
        // Before the first page is written; later it takes a VACUUM.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    set_up(&connection, durability)?;
    connection.pragma_update(None, "cache_size", CACHE_TO_LOAD)?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    writer::check_format(&connection, path)?;
    match version {
        VERSION => writer::check(&connection)?,
        0 => create(&mut connection)?,
        newer => return Ok(Opened::Newer(newer)),
    }
    Ok(Opened::Ready(connection))
}

/// Sets a connection up.
pub(super) fn set_up(connection: &Connection, durability: Durability) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // In WAL mode NORMAL leaves a commit in the page cache, which outlives this process, and FULL
    // syncs it.
    let synchronous = match durability {
        Durability::Process => "NORMAL",
        Durability::Power => "FULL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    // On macOS a sync reaches the disk itself only so. Elsewhere this does nothing.
    connection.pragma_update(None, "fullfsync", durability == Durability::Power)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // What is deleted is overwritten, and nothing of it is ever in a file elsewhere.
    connection.pragma_update(None, "secure_delete", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "journal_size_limit", LOG_LIMIT)
}

/// Rebuilds a file of a former version, which can't shrink, as one that can.
pub(super) fn may_shrink(connection: &Connection) -> rusqlite::Result<()> {
    let auto_vacuum: i64 = connection.pragma_query_value(None, "auto_vacuum", |row| row.get(0))?;
    if auto_vacuum != 0 {
        return Ok(());
    }
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.execute_batch("VACUUM")
}

/// Bytes that the log keeps once what is in it is in the database.
const LOG_LIMIT: i64 = 4 * 1024 * 1024;

fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = begin(connection)?;
    transaction.execute_batch(TABLES)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

/// Reads everything, in two passes side by side: records and items are in the same order.
pub(super) fn load(connection: &Connection, memory: &Memory) -> rusqlite::Result<()> {
    let mut records = connection
        .prepare("SELECT id, owner, name, version, head, due_ms FROM record ORDER BY id")?;
    let mut items =
        connection.prepare("SELECT record, key, tag, value FROM item ORDER BY record, key")?;
    let (mut rows, mut items) = (records.query([])?, items.query([])?);
    let mut tables = memory.lock();
    let mut next = items.next()?;
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        let mut own = Vec::new();
        while let Some(item) = next {
            let of: i64 = item.get(0)?;
            if of > id {
                break;
            }
            // Of a record that is not there it is nobody's.
            if of == id {
                own.push(Item {
                    key: bytes(item, 1)?,
                    tag: item.get(2)?,
                    value: bytes(item, 3)?,
                });
            }
            next = items.next()?;
        }
        let place = RecordId {
            owner: row.get(1)?,
            name: row.get(2)?,
        };
        let version = Version(row.get::<_, i64>(3)?.cast_unsigned());
        let head = Head {
            bytes: bytes(row, 4)?,
            due_ms: due_from(row.get(5)?),
        };
        tables.insert(&place, version, head, own);
    }
    Ok(())
}

fn bytes(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Bytes> {
    Ok(Bytes::copy_from_slice(row.get_ref(column)?.as_blob()?))
}

/// Pages that SQLite keeps in memory, in KiB, while everything is checked and read, which it does
/// several times; and its own default, for the writes after that.
const CACHE_TO_LOAD: i64 = -64 * 1024;
const CACHE_TO_WRITE: i64 = -2_000;

/// Everything has been read.
pub(super) fn loaded(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "cache_size", CACHE_TO_WRITE)?;
    connection.execute_batch("PRAGMA shrink_memory")
}

/// Never is the greatest number there is.
fn due_to(due_ms: u64) -> i64 {
    i64::try_from(due_ms).unwrap_or(i64::MAX)
}

fn due_from(due_ms: i64) -> u64 {
    if due_ms == i64::MAX {
        u64::MAX
    } else {
        due_ms.cast_unsigned()
    }
}

/// Writes all the changes or none, and up to which entry of the redo log they go. They were found
/// to be right in memory, in this order.
pub(super) fn commit(
    connection: &mut Connection,
    entries: &[Entry],
    redone: Option<Number>,
) -> rusqlite::Result<()> {
    let transaction = begin(connection)?;
    for entry in entries {
        apply(&transaction, entry)?;
    }
    if let Some(Number(number)) = redone {
        transaction
            .prepare_cached("UPDATE redo SET number = ?1")?
            .execute([number.cast_signed()])?;
    }
    transaction.commit()
}

/// The redo log of the database, and the last of its entries that are in the database. None: it had
/// none so far.
pub(super) fn redone(connection: &Connection) -> rusqlite::Result<Option<(LogId, Number)>> {
    if !connection.table_exists(None, "redo")? {
        return Ok(None);
    }
    let row = |row: &rusqlite::Row<'_>| {
        let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
        Ok((LogId(number(0)?), Number(number(1)?)))
    };
    connection
        .query_row("SELECT log, number FROM redo", [], row)
        .optional()
}

/// Notes the log that a database has from now on.
pub(super) fn name_redo(connection: &mut Connection, LogId(log): LogId) -> rusqlite::Result<()> {
    let transaction = begin(connection)?;
    transaction.execute_batch(REDO_TABLE)?;
    transaction.execute(
        "INSERT OR REPLACE INTO redo VALUES (1, ?1, 0)",
        [log.cast_signed()],
    )?;
    transaction.commit()
}

fn apply(transaction: &Transaction<'_>, entry: &Entry) -> rusqlite::Result<()> {
    let Entry {
        place,
        next,
        change:
            Change {
                head,
                clear,
                removes,
                puts,
                forget,
            },
        ..
    } = entry;
    let execute = |sql: &str, parameters: &[&dyn rusqlite::ToSql]| {
        transaction
            .prepare_cached(sql)?
            .execute(parameters)
            .map(drop)
    };
    let Some(head) = head else {
        return execute(
            "DELETE FROM record WHERE owner = ?1 AND name = ?2",
            params![place.owner, place.name],
        );
    };
    // Not one statement with RETURNING: for that, SQLite makes and frees a savepoint each time.
    let mut known =
        transaction.prepare_cached("SELECT id FROM record WHERE owner = ?1 AND name = ?2")?;
    let known: Option<i64> = known
        .query_row([&place.owner, &place.name], |row| row.get(0))
        .optional()?;
    let (version, due_ms) = (next.0.cast_signed(), due_to(head.due_ms));
    let id = match known {
        Some(id) => {
            execute(
                "UPDATE record SET version = ?2, head = ?3, due_ms = ?4 WHERE id = ?1",
                params![id, version, &head.bytes[..], due_ms],
            )?;
            id
        }
        None => {
            execute(
                "INSERT INTO record (owner, name, version, head, due_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![place.owner, place.name, version, &head.bytes[..], due_ms],
            )?;
            transaction.last_insert_rowid()
        }
    };
    if *clear {
        execute("DELETE FROM item WHERE record = ?1", params![id])?;
    }
    for key in removes {
        execute(
            "DELETE FROM item WHERE record = ?1 AND key = ?2",
            params![id, &key[..]],
        )?;
    }
    for Item { key, tag, value } in puts {
        execute(
            "INSERT OR REPLACE INTO item (record, key, tag, value) VALUES (?1, ?2, ?3, ?4)",
            params![id, &key[..], tag, &value[..]],
        )?;
    }
    for range in forget {
        execute(
            "DELETE FROM item WHERE record = ?1 AND key >= ?2 AND key < ?3",
            params![id, &range.start[..], &range.end[..]],
        )?;
    }
    Ok(())
}
