mod strategies;

use futures::FutureExt;
use mcp_sessiond_process::{
    Conversation, Key, KeyDoubt, ProcessId, SelfDescription, StartTime, Traits,
};
use mcp_sessiond_proto::backends::KeeperName;
use mcp_sessiond_proto::{Epoch, Label, Loss, RequestId, Resume, SessionId, Siblings};
use mcp_sessiond_registry::{
    Claimant, HostRule, KeeperRecord, LostRecords, OwnerRecord, Record, RecordKey, Rule,
    RuleSource, ServiceRecord, SessionRecord, TokenFile,
};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use rusqlite::Connection;
use tempfile::TempDir;

use strategies::effect;

use super::*;
use crate::tmpfs::Tmpfs;

const BOOT: &str = "00000000-0000-0000-0000-000000000001";

/// A database, and what ought to be in it.
struct Bench {
    directory: TempDir,
    ledger: Ledger,
    records: Records,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let Opened {
            ledger,
            records,
            discarded,
        } = open(directory.path(), BOOT);
        assert_eq!((records, discarded), (Records::default(), None));
        Self {
            directory,
            ledger,
            records: Records::default(),
        }
    }

    fn record(&mut self, effect: Effect) {
        self.records.apply(effect.clone());
        self.ledger.record(effect);
    }

    /// Records something that no other test looks at, and keeps it with all that came before.
    async fn keep(&mut self) -> Result<(), Error> {
        self.record(Effect::Save(session("kept", 1).into()));
        self.ledger.waiter().kept().await
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join(FILE)
    }

    /// What the next daemon finds.
    async fn reopen(self, boot: &str) -> (Records, Option<String>) {
        self.ledger.writer.close().await;
        let Opened {
            records, discarded, ..
        } = open(self.directory.path(), boot);
        (records, discarded)
    }
}

fn execute(path: &Path, sql: &str) {
    Connection::open(path)
        .and_then(|database| database.execute_batch(sql))
        .expect("it is done");
}

fn open(directory: &Path, boot: &str) -> Opened {
    Ledger::open(directory, boot).expect("it can be opened")
}

fn session(id: &str, epoch: u64) -> SessionRecord {
    let owner = ProcessId {
        pid: 7,
        start: StartTime(42),
        inode: Some(1),
    };
    SessionRecord {
        id: id.parse().expect("an id"),
        owner,
        key: Some(Key {
            what: [1; 32],
            conversation: Conversation::None,
            client: None,
        }),
        program: "server".into(),
        description: SelfDescription::default(),
        program_dir: None,
        asked: None,
        rule: Rule::default(),
        opened: 1,
        freed: 0,
        opened_ms: 2,
        epoch: Epoch(epoch),
        closed_ms: None,
        holder: None,
        file: TokenFile {
            host: owner,
            number: 1,
        },
        digest: None,
        former: None,
        offered: false,
        name: None,
        made_by: None,
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
        .block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// However the writer groups them: one after the other, every field of every record.
    #[test]
    fn what_was_recorded_is_found(effects in proptest::collection::vec(effect(), 0..40), pause in 0..40_usize) {
        let mut bench = Bench::new();
        for (number, effect) in effects.into_iter().enumerate() {
            bench.record(effect);
            if number == pause {
                block_on(bench.ledger.waiter().kept()).expect("it is kept");
            }
        }
        block_on(bench.ledger.waiter().kept()).expect("it is kept");
        let expected = bench.records.clone();
        prop_assert_eq!(block_on(bench.reopen(BOOT)), (expected, None));
    }
}

#[tokio::test]
async fn what_is_from_before_a_reboot_is_discarded() {
    let mut bench = Bench::new();
    bench.keep().await.expect("it is kept");
    let (found, discarded) = bench.reopen("another boot").await;
    assert_eq!(found, Records::default());
    assert!(discarded.is_some_and(|why| why.contains("reboot")));
}

#[tokio::test]
async fn what_cannot_be_read_is_discarded_and_written_anew() {
    let spoil: [fn(&Path); 5] = [
        |path| execute(path, "PRAGMA user_version = 99"),
        |path| execute(path, "DELETE FROM boot"),
        |path| {
            execute(
                path,
                "UPDATE record SET value = replace(value, 'start', 'begin')",
            );
        },
        |path| execute(path, "DROP TABLE record"),
        |path| {
            for suffix in ["-wal", "-shm"] {
                let _ = std::fs::remove_file(path.with_file_name(format!("{FILE}{suffix}")));
            }
            std::fs::write(
                path,
                "no database at all, and longer than a header of SQLite's is: ".repeat(99),
            )
            .expect("it is ours");
        },
    ];
    for spoil in spoil {
        let mut bench = Bench::new();
        bench.keep().await.expect("it is kept");
        let Bench {
            directory, ledger, ..
        } = bench;
        ledger.writer.close().await;
        spoil(&directory.path().join(FILE));

        let Opened {
            mut ledger,
            records,
            discarded,
        } = open(directory.path(), BOOT);
        assert_eq!((records, discarded.is_some()), (Records::default(), true));
        let kept = session("kept", 2);
        ledger.record(Effect::Save(kept.clone().into()));
        ledger.waiter().kept().await.expect("it is kept");
        ledger.writer.close().await;
        let Opened {
            records, discarded, ..
        } = open(directory.path(), BOOT);
        assert!(records.lost.is_some());
        let sessions: Vec<SessionRecord> = records.sessions.into_values().collect();
        assert_eq!((sessions, discarded), (vec![kept], None));
    }
}

/// A daemon that finds no database may be killed before it has recorded anything.
#[tokio::test]
async fn that_records_were_lost_is_there_with_the_first_new_ones() {
    let mut bench = Bench::new();
    bench.keep().await.expect("it is kept");
    let Bench {
        directory, ledger, ..
    } = bench;
    ledger.writer.close().await;
    let reopened = open(directory.path(), BOOT);
    assert_eq!(reopened.records.lost, None);
    reopened.ledger.writer.close().await;
    remove(directory.path(), FILE);
    open(directory.path(), BOOT).ledger.writer.close().await;
    assert!(open(directory.path(), BOOT).records.lost.is_some());
}

#[tokio::test]
async fn a_waiter_waits_until_it_is_kept() {
    let mut bench = Bench::new();
    bench.keep().await.expect("it is kept");
    // A curious sqlite3 holds the writer up.
    let curious = Connection::open(bench.path()).expect("it is there");
    curious
        .execute_batch("BEGIN IMMEDIATE")
        .expect("nobody is writing");
    bench.record(Effect::Save(session("a", 1).into()));
    let mut kept = std::pin::pin!(bench.ledger.waiter().kept());
    assert_eq!(kept.as_mut().now_or_never(), None);
    curious.execute_batch("COMMIT").expect("it was begun");
    kept.await.expect("it is kept");
    let count: i64 = curious
        .query_row("SELECT count(*) FROM record WHERE key = 'a'", [], |row| {
            row.get(0)
        })
        .expect("it can be read");
    assert_eq!(count, 1);
}

#[tokio::test]
async fn what_could_not_be_written_is_written_later_and_in_order() {
    let mut bench = Bench::new();
    bench.keep().await.expect("it is kept");
    execute(
        &bench.path(),
        "CREATE TRIGGER refuse BEFORE INSERT ON record WHEN new.key = 'refused'
         BEGIN SELECT RAISE(ABORT, 'refused'); END",
    );
    let before = bench.ledger.waiter();
    for epoch in 1..4 {
        bench.record(Effect::Save(session("a", epoch).into()));
        bench.record(Effect::Save(session("refused", epoch).into()));
        bench.record(Effect::Drop(RecordKey::Session(
            "kept".parse().expect("an id"),
        )));
    }
    for _ in 0..2 {
        let refused = bench.keep().await.expect_err("it is not kept");
        assert!(
            matches!(
                refused,
                Error::Unavailable {
                    retry_after_ms: 1..,
                    ..
                }
            ),
            "{refused}"
        );
    }
    before
        .kept()
        .await
        .expect("what was kept before is still kept");
    let read = Connection::open(bench.path()).expect("it is there");
    let refused: i64 = read
        .query_row(
            "SELECT count(*) FROM record WHERE key = 'refused'",
            [],
            |row| row.get(0),
        )
        .expect("it can be read");
    assert_eq!(refused, 0);

    execute(&bench.path(), "DROP TRIGGER refuse");
    // The attempt that is under way may be the last that fails.
    while bench.keep().await.is_err() {}
    let expected = bench.records.clone();
    assert_eq!(bench.reopen(BOOT).await, (expected, None));
}

#[tokio::test]
#[ignore = "needs root"]
async fn a_full_disk_is_said_and_got_over() {
    let disk = Tmpfs::mount(512);
    let Opened { mut ledger, .. } = open(disk.path(), BOOT);
    let filler = disk.fill();
    let mut records = Records::default();
    let mut record = |ledger: &mut Ledger, number: u64| {
        let large = SessionRecord {
            program: "x".repeat(10_000),
            ..session(&number.to_string(), number)
        };
        records.apply(Effect::Save(large.clone().into()));
        ledger.record(Effect::Save(large.into()));
        ledger.waiter().kept()
    };
    let mut number = 0;
    while record(&mut ledger, number).await.is_ok() {
        number += 1;
        assert!(number < 100, "the disk is not full");
    }
    std::fs::remove_file(filler).expect("it is ours");
    while record(&mut ledger, number).await.is_err() {}
    ledger.writer.close().await;
    let Opened {
        records: found,
        discarded,
        ..
    } = open(disk.path(), BOOT);
    assert_eq!((found, discarded), (records, None));
}

#[tokio::test]
async fn a_keeper_that_is_to_end_is_on_record_without_its_session() {
    let mut bench = Bench::new();
    let process = ProcessId {
        pid: 9,
        start: StartTime(42),
        inode: None,
    };
    let keeper = KeeperRecord {
        ending: true,
        ..KeeperRecord::new(process, KeeperName(7), "server".into())
    };
    bench.record(Effect::Save(Record::Keeper(None, keeper)));
    bench.keep().await.expect("it is kept");
    let records = bench.records.clone();
    assert_eq!(bench.reopen(BOOT).await, (records, None));
}

/// A flipped byte makes one id another's, or an index entry that leads nowhere: reads alone notice
/// neither.
#[tokio::test]
async fn a_flipped_byte_makes_no_other_session() {
    let mut bench = Bench::new();
    bench.record(Effect::Save(session("a-session-by-this-name", 1).into()));
    bench.ledger.waiter().kept().await.expect("it is kept");
    let Bench {
        directory, ledger, ..
    } = bench;
    ledger.writer.close().await;
    let path = directory.path().join(FILE);
    let whole = std::fs::read(&path).expect("the file");
    let id = b"a-session-by-this-name";
    let places = whole
        .windows(id.len())
        .enumerate()
        .filter(|(_, bytes)| bytes == id);
    let flips: Vec<(usize, u8)> = places.map(|(at, _)| (at, 1)).chain([(18, 1)]).collect();
    assert!(
        flips.len() > 2,
        "in the table, in the index, and the format in the header"
    );
    for (at, bit) in flips {
        let mut bytes = whole.clone();
        bytes[at] ^= bit;
        std::fs::write(&path, bytes).expect("written");
        let Opened {
            mut ledger,
            records,
            discarded,
        } = open(directory.path(), BOOT);
        assert!(
            discarded.is_some() && records.sessions.is_empty(),
            "{at}: {:?}",
            records.sessions
        );
        ledger.record(Effect::Save(session("kept", 1).into()));
        ledger
            .waiter()
            .kept()
            .await
            .expect("what is recorded from now on is kept");
        ledger.writer.close().await;
    }
}
