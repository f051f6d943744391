//! What is SQLite's own: the file, and what is told before it is kept. What all backends have in common is in the
//! contract suite.

use super::*;
use crate::small_disk::SmallDisk;
use crate::storage::Head;

fn place(name: &str) -> Place {
    Place { owner: "service test".into(), name: name.into() }
}

fn head(text: &str) -> Change {
    Change { head: Some(Head { bytes: text.to_owned().into(), due_ms: u64::MAX }), ..Change::default() }
}

#[tokio::test]
async fn a_newer_database_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("contents.db");
    let database = rusqlite::Connection::open(&path).expect("a database");
    database.pragma_update(None, "user_version", 99).expect("written");
    drop(database);
    let error = Sqlite::open(&path, Durability::Process).expect_err("refused").to_string();
    assert!(error.contains("version 99") && error.contains("upgrade"), "{error}");
    let database = rusqlite::Connection::open(&path).expect("a database");
    let version: i64 = database.pragma_query_value(None, "user_version", |row| row.get(0)).expect("read");
    assert_eq!(version, 99);
}

#[tokio::test]
async fn another_program_s_database_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("theirs.db");
    let database = rusqlite::Connection::open(&path).expect("a database");
    database.execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)").expect("written");
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
    drop(one);
    Sqlite::open_alone(&path, Durability::Process).expect("it is free again");
}

#[tokio::test]
async fn a_full_disk_is_unavailable_and_then_everything_is_kept() {
    let disk = SmallDisk::mount(1_024);
    let path = disk.path().join("contents.db");
    let sqlite = Sqlite::open(&path, Durability::Process).expect("opened");
    let committed = sqlite.commit(&place("a"), None, Version(1), head("one")).await;
    committed.expect("committed").kept().await.expect("kept");
    let filler = disk.fill();
    let change = Change {
        puts: vec![Item { key: "k".into(), tag: String::new(), value: vec![7; 300_000].into() }],
        ..head("two")
    };
    let committed =
        sqlite.commit(&place("a"), Some(Version(1)), Version(2), change).await.expect("committed");
    assert!(matches!(committed.kept().await, Err(StorageError::Unknown { passes: false, .. })));
    assert!(matches!(sqlite.check(), Err(StorageError::Unusable { .. })));
    // It is in memory, and may not be told.
    assert!(matches!(sqlite.settled(&place("a")).kept().await, Err(StorageError::Unusable { .. })));
    assert!(matches!(sqlite.settled(&place("b")), Durable::Now));
    std::fs::remove_file(filler).expect("deleted");
    // Whatever is recorded now waits for the next attempt, which tells how it went.
    for number in 10.. {
        let place = place(&number.to_string());
        let committed = sqlite.commit(&place, None, Version(number), head("more")).await.expect("committed");
        if committed.kept().await.is_ok() {
            break;
        }
    }
    sqlite.settled(&place("a")).kept().await.expect("kept by now");
    sqlite.closed().await;
    let again = Sqlite::open(&path, Durability::Process).expect("opened");
    let record = again.read(&place("a"), &["k".into()]).await.expect("read").expect("there");
    assert_eq!((record.version, &record.head[..]), (Version(2), &b"two"[..]));
    assert_eq!(record.items[0].as_ref().map(|item| item.value.len()), Some(300_000));
}
