//! The tables of `sessions.db`, and how records become rows.

mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use mcp_sessiond_process::{
    Conversation, Former, Key, KeyDoubt, PinnedProcess, ProcessId, SelfDescription, StartTime,
    Traits,
};
use mcp_sessiond_proto::backends::KeeperName;
use mcp_sessiond_proto::facts::ServerDigest;
use mcp_sessiond_proto::{
    BackendName, ClientName, Epoch, Label, Loss, LossId, LossRecord, RequestId, Resume,
    ServiceName, SessionId, Siblings,
};
use mcp_sessiond_registry::{
    BackendOf, Claimant, Digest, Effect, HostRule, KeeperRecord, LostRecords, OwnerRecord,
    ProgramDir, Rule, ServerRecord, ServiceRecord, SessionRecord, Snapshot, TokenFile,
};
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row, Transaction, params};

use values::{
    Process, conversation_bytes, conversation_of, optional, parsed, record_bytes, records_of, rows,
    rule_bytes, rule_of,
};

use crate::writer::{begin, check, check_format};

/// Grows with every change of the tables. A database of another version is discarded.
const VERSION: i64 = 15;

/// Why the records of a former boot are discarded.
pub(super) const REBOOTED: &str = "it is from before the last reboot";

/// The tables, in one piece: SQLite reads all of them again at each change.
const TABLES: &str = "
    CREATE TABLE boot (id TEXT NOT NULL) STRICT;
    CREATE TABLE owner (
        host TEXT PRIMARY KEY, name TEXT NOT NULL, row TEXT, multiplexed_keys BLOB NOT NULL, doubles BLOB NOT NULL,
        losses BLOB NOT NULL, rules BLOB NOT NULL, conversations_at_once INTEGER NOT NULL, names BLOB NOT NULL
    ) STRICT;
    CREATE TABLE claimant (
        process TEXT PRIMARY KEY, host TEXT NOT NULL, program TEXT NOT NULL, core BLOB, place BLOB, directory BLOB,
        conversation BLOB NOT NULL, doubt TEXT, former_base BLOB, former_place BLOB, keys BLOB NOT NULL, resume TEXT NOT NULL,
        users INTEGER NOT NULL, started_ms INTEGER
    ) STRICT;
    CREATE TABLE session (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, key BLOB, program TEXT NOT NULL, label TEXT, opened INTEGER NOT NULL,
        opened_ms INTEGER NOT NULL, epoch INTEGER NOT NULL, holder TEXT, file INTEGER NOT NULL, digest BLOB, former BLOB,
        offered INTEGER NOT NULL, name TEXT, made_by TEXT, entry TEXT, client TEXT, spot BLOB, asked TEXT,
        freed INTEGER NOT NULL, rule TEXT NOT NULL, closed_ms INTEGER
    ) STRICT;
    CREATE TABLE keeper (
        process TEXT PRIMARY KEY, session TEXT, name INTEGER NOT NULL, program TEXT NOT NULL, backend TEXT,
        ending INTEGER NOT NULL, service TEXT, backend_name TEXT
    ) STRICT;
    CREATE TABLE service (
        name TEXT PRIMARY KEY, epoch INTEGER NOT NULL, holder TEXT, since_ms INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE service_loss (id INTEGER PRIMARY KEY, service TEXT NOT NULL, session TEXT NOT NULL, loss TEXT NOT NULL) STRICT;
    CREATE TABLE server (digest TEXT PRIMARY KEY, discover TEXT NOT NULL, used_ms INTEGER NOT NULL, version TEXT) STRICT;
    CREATE TABLE lost_records (since INTEGER NOT NULL) STRICT;
    CREATE TABLE lost_told (host TEXT NOT NULL, key BLOB NOT NULL, PRIMARY KEY (host, key)) STRICT;";

/// What the database held.
pub(super) enum State {
    Empty,
    Current(Box<Snapshot>),
    Discarded(String),
}

/// `was_there`: whether an earlier daemon has made a database here.
pub(super) fn open(
    path: &Path,
    boot: &str,
    was_there: bool,
) -> rusqlite::Result<(Connection, State)> {
    let mut connection = Connection::open(path)?;
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
            match connection.query_row("SELECT id FROM boot", [], |row| row.get::<_, String>(0)) {
                Ok(recorded) if recorded == boot => {
                    check(&connection)?;
                    State::Current(Box::new(snapshot(&connection)?))
                }
                Ok(_) => State::Discarded(REBOOTED.into()),
                Err(error) => return Err(error),
            }
        }
        other => State::Discarded(format!(
            "its version is {other}, and this daemon's is {VERSION}"
        )),
    };
    let is_lost = match &state {
        State::Current(_) => return Ok((connection, state)),
        State::Empty => was_there,
        State::Discarded(why) => why != REBOOTED,
    };
    create(&mut connection, boot, is_lost)?;
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

/// That records were lost is there with the first ones: this process may be killed before it has said
/// so, and nobody would find out a second time.
fn create(connection: &mut Connection, boot: &str, is_lost: bool) -> rusqlite::Result<()> {
    let transaction = begin(connection)?;
    let mut tables = transaction.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
    let names = tables
        .query_map([], |row| row.get::<_, String>(0))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    drop(tables);
    for name in names {
        transaction.execute(&format!("DROP TABLE \"{}\"", name.replace('"', "\"\"")), [])?;
    }
    transaction.execute_batch(TABLES)?;
    transaction.execute("INSERT INTO boot VALUES (?1)", [boot])?;
    if is_lost && let Ok(own) = PinnedProcess::own() {
        apply(&transaction, &Effect::SaveLostRecords(own.id().start))?;
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
    let execute = |sql: &str, parameters: &[&dyn ToSql]| {
        transaction
            .prepare_cached(sql)?
            .execute(parameters)
            .map(drop)
    };
    match effect {
        Effect::SaveOwner(OwnerRecord {
            host,
            name,
            host_rule,
            multiplexed_keys,
            conversations_at_once,
            ambiguous,
            losses,
            rules,
            names,
        }) => {
            let losses: Vec<u8> = losses.iter().flat_map(record_bytes).collect();
            let rules: Vec<u8> = rules.iter().flat_map(|(key, rule)| rule_bytes(key, *rule)).collect();
            execute(
                "INSERT OR REPLACE INTO owner (
                    host, name, row, multiplexed_keys, doubles, losses, rules, conversations_at_once, names
                ) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                params![
                    Process(*host),
                    name,
                    host_rule.map(Siblings::as_str),
                    multiplexed_keys.iter().flat_map(Key::to_bytes).collect::<Vec<u8>>(),
                    ambiguous.iter().flatten().copied().collect::<Vec<u8>>(),
                    losses,
                    rules,
                    conversations_at_once,
                    names.iter().flat_map(Key::to_bytes).collect::<Vec<u8>>(),
                ],
            )
        }
        Effect::DropOwner(host) => execute("DELETE FROM owner WHERE host = ?1", params![Process(*host)]),
        Effect::SaveClaimant(process, Claimant { host, rule, started_ms, traits, keys }) => execute(
            "INSERT OR REPLACE INTO claimant (
                process, host, program, core, place, directory, conversation, doubt, former_base, former_place, keys,
                resume, users, started_ms
            ) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
            params![
                Process(*process),
                Process(*host),
                traits.program,
                traits.core,
                traits.place,
                traits.directory,
                conversation_bytes(traits.conversation),
                traits.doubt.map(KeyDoubt::code),
                traits.former.base,
                traits.former.place,
                keys.iter().flat_map(Key::to_bytes).collect::<Vec<u8>>(),
                rule.resume.as_str(),
                rule.is_users,
                started_ms.map(u64::cast_signed),
            ],
        ),
        Effect::DropClaimant(process) => {
            execute("DELETE FROM claimant WHERE process = ?1", params![Process(*process)])
        }
        Effect::SaveSession(session) => execute(
            "INSERT OR REPLACE INTO session (
                id, owner, key, program, label, opened, opened_ms, epoch, holder, file, digest, former, offered, name, made_by,
                entry, client, spot, asked, freed, rule, closed_ms
            ) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)",
            params![
                session.id.as_str(),
                Process(session.owner),
                session.key.map(|key| key.to_bytes()),
                session.program,
                session.description.label.as_ref().map(Label::as_str),
                session.opened.cast_signed(),
                session.opened_ms.cast_signed(),
                session.epoch.0.cast_signed(),
                session.holder.map(Process),
                session.file.number,
                session.digest,
                session.former,
                session.offered,
                session.name.as_ref().map(SessionId::as_str),
                session.made_by.as_ref().map(RequestId::as_str),
                session.description.entry.as_ref().map(Label::as_str),
                session.description.client.as_ref().map(ClientName::as_str),
                session.program_dir,
                session.asked.map(Siblings::as_str),
                session.freed.cast_signed(),
                session.rule.to_text(),
                session.closed_ms.map(u64::cast_signed),
            ],
        ),
        Effect::DropSession(id) => execute("DELETE FROM session WHERE id = ?1", params![id.as_str()]),
        Effect::SaveService(service) => execute(
            "INSERT OR REPLACE INTO service (name, epoch, holder, since_ms) VALUES (?1, ?2, ?3, ?4)",
            params![
                service.name.as_str(),
                service.epoch.0.cast_signed(),
                service.holder.map(Process),
                service.since_ms.cast_signed(),
            ],
        ),
        Effect::DropService(name) => execute("DELETE FROM service WHERE name = ?1", params![name.as_str()]),
        Effect::SaveServiceLoss((service, session), loss) => execute(
            "INSERT OR REPLACE INTO service_loss (id, service, session, loss) VALUES (?1, ?2, ?3, ?4)",
            params![
                loss.id.0.cast_signed(),
                service.as_str(),
                session.as_str(),
                serde_json::to_string(loss).unwrap_or_default(),
            ],
        ),
        Effect::DropServiceLoss(id) => {
            execute("DELETE FROM service_loss WHERE id = ?1", params![id.0.cast_signed()])
        }
        Effect::SaveKeeper(of, keeper) => execute(
            "INSERT OR REPLACE INTO keeper (process, session, name, program, backend, ending, service, backend_name)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                Process(keeper.process),
                of.as_ref().map(|of| match of {
                    BackendOf::Session(session) | BackendOf::Service((_, session)) => session.as_str(),
                }),
                keeper.name.0,
                keeper.program,
                keeper.backend.map(Process),
                keeper.ending,
                of.as_ref().and_then(BackendOf::service).map(|(service, _)| service.as_str()),
                keeper.of.as_ref().map(BackendName::as_str),
            ],
        ),
        Effect::DropKeeper(process) => {
            execute("DELETE FROM keeper WHERE process = ?1", params![Process(*process)])
        }
        Effect::SaveServer(server) => execute(
            "INSERT OR REPLACE INTO server (digest, discover, used_ms, version) VALUES (?1, ?2, ?3, ?4)",
            params![
                server.server.as_str(),
                serde_json::to_string(&server.discover).unwrap_or_default(),
                server.used_ms.cast_signed(),
                server.version,
            ],
        ),
        Effect::DropServer(server) => execute("DELETE FROM server WHERE digest = ?1", params![server.as_str()]),
        Effect::SaveLostRecords(since) => {
            execute("DELETE FROM lost_records", params![])?;
            execute("DELETE FROM lost_told", params![])?;
            execute("INSERT INTO lost_records (since) VALUES (?1)", params![since.0.cast_signed()])
        }
        Effect::SaveLostTold(host, key) => execute(
            "INSERT OR REPLACE INTO lost_told (host, key) VALUES (?1, ?2)",
            params![Process(*host), key.to_bytes()],
        ),
        Effect::DeleteToken(_)
        | Effect::Unreachable { .. }
        | Effect::EndContents(..)
        | Effect::EndKeeper(_)
        | Effect::SweepBackend(_)
        | Effect::Answer(..) => Ok(()),
    }
}

fn snapshot(connection: &Connection) -> rusqlite::Result<Snapshot> {
    let owners = rows(
        connection,
        "SELECT host, name, row, multiplexed_keys, doubles, losses, rules, conversations_at_once, names FROM owner",
        |row| {
            let ambiguous: BTreeSet<ProgramDir> = row
                .get::<_, Vec<u8>>(4)?
                .as_chunks()
                .0
                .iter()
                .copied()
                .collect();
            let losses = records_of(&row.get::<_, Vec<u8>>(5)?);
            let rules = row.get::<_, Vec<u8>>(6)?;
            let rules: Option<BTreeMap<Key, Option<Loss>>> =
                rules.chunks(Key::BYTES + 1).map(rule_of).collect();
            let multiplexed_keys = row.get::<_, Vec<u8>>(3)?;
            let multiplexed_keys: Option<BTreeSet<Key>> = multiplexed_keys
                .chunks(Key::BYTES)
                .map(Key::from_bytes)
                .collect();
            let names = row.get::<_, Vec<u8>>(8)?;
            let names: Option<BTreeSet<Key>> =
                names.chunks(Key::BYTES).map(Key::from_bytes).collect();
            Ok(OwnerRecord {
                host: row.get::<_, Process>(0)?.0,
                name: row.get(1)?,
                host_rule: optional::<Siblings>(row, 2)?,
                multiplexed_keys: multiplexed_keys.ok_or(FromSqlError::InvalidType)?,
                conversations_at_once: row.get(7)?,
                ambiguous,
                losses: losses.ok_or(FromSqlError::InvalidType)?,
                rules: rules.ok_or(FromSqlError::InvalidType)?,
                names: names.ok_or(FromSqlError::InvalidType)?,
            })
        },
    )?;
    let columns = "process, host, program, core, place, directory, conversation, doubt, former_base, former_place, keys, resume, users, started_ms";
    let claimants = rows(
        connection,
        &format!("SELECT {columns} FROM claimant"),
        |row| {
            let traits = Traits {
                program: row.get(2)?,
                core: row.get(3)?,
                place: row.get(4)?,
                directory: row.get(5)?,
                conversation: conversation_of(&row.get::<_, Vec<u8>>(6)?)
                    .ok_or(FromSqlError::InvalidType)?,
                doubt: optional::<KeyDoubt>(row, 7)?,
                former: Former {
                    base: row.get(8)?,
                    place: row.get(9)?,
                },
            };
            let keys: Option<Vec<Key>> = row
                .get::<_, Vec<u8>>(10)?
                .chunks(Key::BYTES)
                .map(Key::from_bytes)
                .collect();
            let keys = keys.ok_or(FromSqlError::InvalidType)?;
            Ok((
                row.get::<_, Process>(0)?.0,
                Claimant {
                    host: row.get::<_, Process>(1)?.0,
                    rule: HostRule {
                        resume: parsed::<Resume>(row, 11)?,
                        is_users: row.get(12)?,
                    },
                    started_ms: row.get::<_, Option<i64>>(13)?.map(i64::cast_unsigned),
                    traits,
                    keys,
                },
            ))
        },
    )?;
    let columns = "id, owner, key, program, label, opened, opened_ms, epoch, holder, file, digest, former, offered, name, \
                   made_by, entry, client, spot, asked, freed, rule, closed_ms";
    let (kept, ending) = keepers(connection)?;
    let sessions = rows(
        connection,
        &format!("SELECT {columns} FROM session"),
        |row| {
            let id = parsed::<SessionId>(row, 0)?;
            let owner = row.get::<_, Process>(1)?.0;
            let key = row.get::<_, Option<Vec<u8>>>(2)?;
            let key = key
                .map(|bytes| Key::from_bytes(&bytes).ok_or(FromSqlError::InvalidType))
                .transpose()?;
            let description = SelfDescription {
                label: optional::<Label>(row, 4)?,
                entry: optional::<Label>(row, 15)?,
                client: optional::<ClientName>(row, 16)?,
            };
            Ok(SessionRecord {
                id,
                owner,
                key,
                program: row.get(3)?,
                description,
                program_dir: row.get(17)?,
                asked: optional::<Siblings>(row, 18)?,
                rule: Rule::from_text(&row.get::<_, String>(20)?)
                    .ok_or(FromSqlError::InvalidType)?,
                opened: row.get::<_, i64>(5)?.cast_unsigned(),
                freed: row.get::<_, i64>(19)?.cast_unsigned(),
                opened_ms: row.get::<_, i64>(6)?.cast_unsigned(),
                epoch: Epoch(row.get::<_, i64>(7)?.cast_unsigned()),
                holder: row.get::<_, Option<Process>>(8)?.map(|process| process.0),
                closed_ms: row.get::<_, Option<i64>>(21)?.map(i64::cast_unsigned),
                file: TokenFile {
                    host: owner,
                    number: row.get(9)?,
                },
                digest: row.get::<_, Option<Digest>>(10)?,
                former: row.get(11)?,
                offered: row.get(12)?,
                name: optional::<SessionId>(row, 13)?,
                made_by: optional::<RequestId>(row, 14)?,
            })
        },
    )?;
    let services = rows(
        connection,
        "SELECT name, epoch, holder, since_ms FROM service",
        |row| {
            Ok(ServiceRecord {
                name: parsed::<ServiceName>(row, 0)?,
                epoch: Epoch(row.get::<_, i64>(1)?.cast_unsigned()),
                holder: row.get::<_, Option<Process>>(2)?.map(|process| process.0),
                since_ms: row.get::<_, i64>(3)?.cast_unsigned(),
            })
        },
    )?;
    let service_losses = rows(
        connection,
        "SELECT service, session, loss FROM service_loss",
        |row| {
            let of = (parsed::<ServiceName>(row, 0)?, parsed::<SessionId>(row, 1)?);
            let loss = serde_json::from_str(&row.get::<_, String>(2)?);
            Ok((of, loss.map_err(|_| FromSqlError::InvalidType)?))
        },
    )?;
    let servers = rows(
        connection,
        "SELECT digest, discover, used_ms, version FROM server",
        |row| {
            let discover = serde_json::from_str(&row.get::<_, String>(1)?);
            Ok(ServerRecord {
                server: parsed::<ServerDigest>(row, 0)?,
                discover: discover.map_err(|_| FromSqlError::InvalidType)?,
                used_ms: row.get::<_, i64>(2)?.cast_unsigned(),
                version: row.get(3)?,
            })
        },
    )?;
    Ok(Snapshot {
        owners,
        claimants,
        sessions,
        ending,
        services,
        service_losses,
        kept,
        servers,
        lost: lost_records(connection)?,
    })
}

/// Whether earlier records were lost.
fn lost_records(connection: &Connection) -> rusqlite::Result<Option<LostRecords>> {
    let since = rows(connection, "SELECT since FROM lost_records", |row| {
        Ok(StartTime(row.get::<_, i64>(0)?.cast_unsigned()))
    })?;
    let told = rows(connection, "SELECT host, key FROM lost_told", |row| {
        let key = Key::from_bytes(&row.get::<_, Vec<u8>>(1)?);
        Ok((
            row.get::<_, Process>(0)?.0,
            key.ok_or(FromSqlError::InvalidType)?,
        ))
    })?;
    let since = since.into_iter().next();
    Ok(since.map(|since| LostRecords {
        since,
        told: told.into_iter().collect(),
    }))
}

/// The keepers, with whose backends they hold, and those that hold none.
type Recorded = (Vec<(BackendOf, KeeperRecord)>, Vec<KeeperRecord>);

fn keepers(connection: &Connection) -> rusqlite::Result<Recorded> {
    let columns = "process, session, name, program, backend, ending, service, backend_name";
    let all = rows(
        connection,
        &format!("SELECT {columns} FROM keeper"),
        |row| {
            let session = optional::<SessionId>(row, 1)?;
            let service = optional::<ServiceName>(row, 6)?;
            let keeper = KeeperRecord {
                process: row.get::<_, Process>(0)?.0,
                name: KeeperName(row.get(2)?),
                program: row.get(3)?,
                backend: row.get::<_, Option<Process>>(4)?.map(|process| process.0),
                ending: row.get(5)?,
                of: optional::<BackendName>(row, 7)?,
            };
            let of = session.map(|session| match service {
                Some(service) => BackendOf::Service((service, session)),
                None => BackendOf::Session(session),
            });
            Ok((of, keeper))
        },
    )?;
    let (mut kept, mut ending) = (Vec::new(), Vec::new());
    for (of, keeper) in all {
        match of {
            Some(of) => kept.push((of, keeper)),
            None => ending.push(keeper),
        }
    }
    Ok((kept, ending))
}
