//! What is SQLite's own: the file, and what is told before it is kept. What all backends have in
//! common is in the contract suite.

use bytes::Bytes;

use super::*;
use crate::storage::Head;
use crate::tmpfs::Tmpfs;

fn place(name: &str) -> RecordId {
    RecordId {
        owner: "service test".into(),
        name: name.into(),
    }
}

fn head(text: &str) -> Change {
    Change {
        head: Some(Head {
            bytes: text.to_owned().into(),
            due_ms: u64::MAX,
        }),
        ..Change::default()
    }
}

#[tokio::test]
async fn a_newer_database_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("contents.db");
    let database = Connection::open(&path).expect("a database");
    database
        .pragma_update(None, "user_version", 99)
        .expect("written");
    drop(database);
    let error = Sqlite::open(&path, Durability::Process)
        .expect_err("refused")
        .to_string();
    assert!(
        error.contains("version 99") && error.contains("upgrade"),
        "{error}"
    );
    let database = Connection::open(&path).expect("a database");
    let version: i64 = database
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .expect("read");
    assert_eq!(version, 99);
}

#[tokio::test]
async fn another_program_s_database_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("theirs.db");
    let database = Connection::open(&path).expect("a database");
    database
        .execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
        .expect("written");
    drop(database);
    let before = std::fs::read(&path).expect("read");
    let error = Sqlite::open(&path, Durability::Process).expect_err("refused");
    assert!(matches!(error, SqliteError::Foreign { .. }), "{error}");
    assert_eq!(std::fs::read(&path).expect("read"), before);
}

#[tokio::test]
async fn a_file_is_one_daemon_s() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("contents.db");
    let one = Sqlite::open_alone(&path, Durability::Process).expect("opened");
    let other = Sqlite::open_alone(&path, Durability::Process).expect_err("it is taken");
    assert!(matches!(other, SqliteError::Locked { .. }), "{other}");
    one.closed().await;
    Sqlite::open_alone(&path, Durability::Process).expect("it is free again");
}

#[tokio::test]
#[ignore = "needs root"]
async fn a_full_disk_is_unavailable_and_then_everything_is_kept() {
    let disk = Tmpfs::mount(1_024);
    let path = disk.path().join("contents.db");
    let sqlite = Sqlite::open(&path, Durability::Process).expect("opened");
    let committed = sqlite
        .commit(&place("a"), None, Version(1), head("one"))
        .await;
    committed.expect("committed").kept().await.expect("kept");
    let filler = disk.fill();
    let change = Change {
        puts: vec![Item {
            key: "k".into(),
            tag: String::new(),
            value: vec![7; 300_000].into(),
        }],
        ..head("two")
    };
    let committed = sqlite
        .commit(&place("a"), Some(Version(1)), Version(2), change)
        .await
        .expect("committed");
    assert!(matches!(
        committed.kept().await,
        Err(StorageError::Unknown { passes: false, .. })
    ));
    assert!(matches!(sqlite.check(), Err(StorageError::Unusable { .. })));
    // It is in memory, and may not be told.
    assert!(matches!(
        sqlite.settled(&place("a")).kept().await,
        Err(StorageError::Unusable { .. })
    ));
    assert!(matches!(sqlite.settled(&place("b")), Durable::Now));
    std::fs::remove_file(filler).expect("deleted");
    // Whatever is recorded now waits for the next attempt, which tells how it went.
    for number in 10.. {
        let place = place(&number.to_string());
        let committed = sqlite
            .commit(&place, None, Version(number), head("more"))
            .await
            .expect("committed");
        if committed.kept().await.is_ok() {
            break;
        }
    }
    sqlite
        .settled(&place("a"))
        .kept()
        .await
        .expect("kept by now");
    sqlite.closed().await;
    let again = Sqlite::open(&path, Durability::Process).expect("opened");
    let record = again
        .read(&place("a"), &["k".into()])
        .await
        .expect("read")
        .expect("there");
    assert_eq!(
        (record.version, &record.head[..]),
        (Version(2), &b"two"[..])
    );
    assert_eq!(
        record.items[0].as_ref().map(|item| item.value.len()),
        Some(300_000)
    );
}

/// One on a small disk, which is in the machine's memory, so that it has a redo log.
fn with_redo(disk: &Tmpfs) -> (Sqlite, PathBuf) {
    let path = disk.path().join("contents.db");
    let sqlite = Sqlite::open_alone(&path, Durability::Process).expect("opened");
    (sqlite, disk.path().join("contents.db-redo"))
}

async fn committed(sqlite: &Sqlite, expected: Option<u64>, next: u64, change: Change) -> Durable {
    let committed = sqlite
        .commit(&place("a"), expected.map(Version), Version(next), change)
        .await;
    committed.expect("committed")
}

fn large() -> Change {
    let item = Item {
        key: "k".into(),
        tag: String::new(),
        value: vec![7; 100_000].into(),
    };
    Change {
        puts: vec![item],
        ..head("large")
    }
}

async fn found(sqlite: &Sqlite) -> Option<(u64, Bytes)> {
    let record = sqlite.read(&place("a"), &[]).await.expect("read")?;
    Some((record.version.0, record.head))
}

/// Another program that writes, until it is dropped.
fn other(disk: &Tmpfs) -> Connection {
    let other = Connection::open(disk.path().join("contents.db")).expect("opened");
    other.execute_batch("BEGIN IMMEDIATE").expect("begun");
    other
}

#[tokio::test]
async fn what_follows_on_a_change_that_waits_for_the_file_waits_too() {
    let disk = Tmpfs::shared();
    let (sqlite, _) = with_redo(&disk);
    assert!(matches!(
        committed(&sqlite, None, 1, head("small")).await,
        Durable::Now
    ));
    let other = other(&disk);
    let first = committed(&sqlite, Some(1), 2, large()).await;
    assert!(
        matches!(first, Durable::Later(_)),
        "the log does not take it"
    );
    let second = committed(&sqlite, Some(2), 3, head("small")).await;
    assert!(
        matches!(second, Durable::Later(_)),
        "whoever is killed now finds both or neither"
    );
    assert!(matches!(sqlite.settled(&place("a")), Durable::Later(_)));
    drop(other);
    second.kept().await.expect("kept");
    assert!(matches!(sqlite.settled(&place("a")), Durable::Now));
    assert!(matches!(
        committed(&sqlite, Some(3), 4, head("small")).await,
        Durable::Now
    ));
}

/// Nothing has to be written for a start, where the log has nothing.
#[tokio::test]
async fn it_is_opened_while_another_program_writes() {
    let disk = Tmpfs::shared();
    let (sqlite, _) = with_redo(&disk);
    committed(&sqlite, None, 1, head("one"))
        .await
        .kept()
        .await
        .expect("kept");
    sqlite.closed().await;
    let other = other(&disk);
    let (sqlite, _) = with_redo(&disk);
    assert_eq!(found(&sqlite).await, Some((1, "one".into())));
    drop(other);
    assert!(matches!(
        committed(&sqlite, Some(1), 2, head("two")).await,
        Durable::Now
    ));
}

/// As an orderly end finds it: what it can't commit stays in the log.
#[tokio::test]
async fn what_could_not_be_committed_at_the_end_is_in_the_log() {
    let disk = Tmpfs::shared();
    let (sqlite, _) = with_redo(&disk);
    committed(&sqlite, None, 1, large())
        .await
        .kept()
        .await
        .expect("kept");
    let other = other(&disk);
    assert!(matches!(
        committed(&sqlite, Some(1), 2, head("two")).await,
        Durable::Now
    ));
    sqlite.closed().await;
    drop(other);
    let (sqlite, _) = with_redo(&disk);
    assert_eq!(found(&sqlite).await, Some((2, "two".into())));
}

#[tokio::test]
async fn what_nobody_waits_for_is_committed_all_the_same() {
    let disk = Tmpfs::shared();
    let (sqlite, log) = with_redo(&disk);
    let mut changes =
        mcp_sessiond_process::changes::Changes::new().expect("the system reports changes");
    changes.watch_file(&log).expect("watched");
    assert!(matches!(
        committed(&sqlite, None, 1, head("one")).await,
        Durable::Now
    ));
    while std::fs::metadata(&log).expect("a log").len() > 16 {
        changes.wait().await.expect("reported");
        changes.take();
    }
    let database = Connection::open(disk.path().join("contents.db")).expect("opened");
    let records: i64 = database
        .query_row("SELECT count(*) FROM record", [], |row| row.get(0))
        .expect("read");
    assert_eq!(records, 1);
}

#[tokio::test]
async fn a_log_that_can_not_be_read_is_named() {
    let disk = Tmpfs::shared();
    let (sqlite, log) = with_redo(&disk);
    sqlite.closed().await;
    std::fs::remove_file(&log).expect("deleted");
    std::os::unix::fs::symlink("elsewhere", &log).expect("a link");
    let path = disk.path().join("contents.db");
    let refused = Sqlite::open_alone(&path, Durability::Process)
        .expect_err("it may be what was acknowledged");
    assert!(
        refused.to_string().contains("contents.db-redo: "),
        "{refused}"
    );
    std::fs::remove_file(&log).expect("deleted");
    std::fs::write(&log, b"mcpsred0, and what another version has in its log").expect("written");
    let refused =
        Sqlite::open_alone(&path, Durability::Process).expect_err("nobody here can read it");
    let told = crate::storage::OpenError::from(refused).to_string();
    assert!(
        told.contains("contents.db-redo: another version") && told.ends_with("lose what it has"),
        "{told}"
    );
}

/// As when it is killed after the commit and before the log is emptied.
#[tokio::test]
async fn nothing_comes_back_from_a_log_that_the_file_is_ahead_of() {
    let disk = Tmpfs::shared();
    let (sqlite, log) = with_redo(&disk);
    let mut version = 0;
    // It is emptied within some ms, perhaps before it is read.
    let left = loop {
        version += 2;
        assert!(matches!(
            committed(&sqlite, None, version - 1, head("made")).await,
            Durable::Now
        ));
        let left = std::fs::read(&log).expect("read");
        committed(&sqlite, Some(version - 1), version, Change::default())
            .await
            .kept()
            .await
            .expect("kept");
        if left.len() > 16 {
            break left;
        }
    };
    sqlite.closed().await;
    std::fs::write(&log, left).expect("written");
    let (sqlite, _) = with_redo(&disk);
    assert_eq!(found(&sqlite).await, None);
}

/// As when it is killed before the commit.
#[tokio::test]
async fn what_the_file_misses_comes_from_the_log_once() {
    let disk = Tmpfs::shared();
    let (sqlite, log) = with_redo(&disk);
    sqlite.closed().await;
    let path = disk.path().join("contents.db");
    let id = u64::from_le_bytes(
        std::fs::read(&log).expect("read")[8..16]
            .try_into()
            .expect("eight bytes"),
    );
    let fill = || {
        let mut redo = Redo::begin(&path, LogId(id), Number::default()).expect("begun");
        redo.append(&place("a"), None, Version(1), &head("one"))
            .expect("appended");
        redo.append(&place("a"), Some(Version(1)), Version(2), &head("two"))
            .expect("appended");
    };
    fill();
    let (sqlite, _) = with_redo(&disk);
    assert_eq!(found(&sqlite).await, Some((2, "two".into())));
    committed(&sqlite, Some(2), 3, Change::default())
        .await
        .kept()
        .await
        .expect("kept");
    sqlite.closed().await;
    // It has these by their numbers, although nothing else says so any more.
    fill();
    let (sqlite, _) = with_redo(&disk);
    assert_eq!(found(&sqlite).await, None);
    committed(&sqlite, None, 4, head("four"))
        .await
        .kept()
        .await
        .expect("kept");
    sqlite.closed().await;
    let sqlite = Sqlite::open(&path, Durability::Process).expect("opened");
    assert_eq!(
        found(&sqlite).await,
        Some((4, "four".into())),
        "it is in the file"
    );
}

#[tokio::test]
async fn nothing_is_acknowledged_from_the_log_while_the_file_is_gone() {
    let disk = Tmpfs::shared();
    let (sqlite, _) = with_redo(&disk);
    let path = disk.path().join("contents.db");
    assert!(matches!(
        committed(&sqlite, None, 1, head("one")).await,
        Durable::Now
    ));
    std::fs::remove_file(&path).expect("deleted");
    committed(&sqlite, Some(1), 2, head("two"))
        .await
        .kept()
        .await
        .expect("made again");
    assert!(path.exists());
    assert!(matches!(
        committed(&sqlite, Some(2), 3, head("three")).await,
        Durable::Now
    ));
    let other = disk.path().join("other.db");
    std::fs::write(&other, "another").expect("written");
    std::fs::rename(other, &path).expect("replaced");
    let refused = committed(&sqlite, Some(3), 4, head("four"))
        .await
        .kept()
        .await;
    assert!(
        matches!(refused, Err(StorageError::Unknown { .. })),
        "{refused:?}"
    );
}
