//! Damaged `sessions.db` and `contents.db`: the daemon opens them or makes them anew, and goes on.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use mcp_sessiond_process::{
    Conversation, Key, KeyDoubt, ProcessId, SelfDescription, StartTime, Traits,
};
use mcp_sessiond_proto::sessions::{CreateRequest, SessionRef};
use mcp_sessiond_proto::state::{ReadStateRequest, StateWrite, WriteStateRequest};
use mcp_sessiond_proto::streams::{AppendRequest, Cursor, ReplayRequest};
use mcp_sessiond_proto::{Epoch, Json, SessionId, StreamId};
use mcp_sessiond_registry::{
    Claim, Claimant, Effect, OwnerRecord, Record, Registry, Rule, SessionRecord, Ticket, TokenFile,
    Wants,
};
use tokio::runtime::{Builder, Runtime};

use super::damage::Files;
use super::directory;
use crate::config::Config;
use crate::contents::{Access, Bounds, Clock, Contents, OwnerStatus};
use crate::counters::Meters;
use crate::ledger::Ledger;
use crate::storage::{Durability, Sqlite, Storage as _, Store};

/// Runs a future to its end on this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
        Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime")
    });
    RUNTIME.block_on(future)
}

const BOOT: &str = "00000000-0000-0000-0000-000000000001";

fn process(pid: u32) -> ProcessId {
    ProcessId {
        pid,
        start: StartTime(1_000 + u64::from(pid)),
        inode: Some(pid.into()),
    }
}

/// The hosts, each with the numbers of its sessions.
fn numbers() -> impl Iterator<Item = (ProcessId, u8)> {
    [
        (process(100), 1),
        (process(100), 2),
        (process(200), 3),
        (process(200), 4),
    ]
    .into_iter()
}

fn key(number: u8) -> Key {
    Key {
        what: [number; 32],
        conversation: Conversation::None,
        client: None,
    }
}

/// The digit of this number, so often that no few damaged bytes make it another one's.
fn mark(number: u8) -> String {
    number.to_string().repeat(64)
}

fn id(number: u8) -> SessionId {
    format!("session-of-{}", mark(number))
        .parse()
        .expect("an id")
}

fn session(owner: ProcessId, number: u8) -> SessionRecord {
    SessionRecord {
        id: id(number),
        owner,
        key: Some(key(number)),
        program: "server".into(),
        description: SelfDescription::default(),
        program_dir: Some([number + 10; 32]),
        asked: None,
        rule: Rule::default(),
        opened: number.into(),
        freed: 0,
        opened_ms: 2,
        epoch: Epoch(number.into()),
        holder: None,
        closed_ms: None,
        file: TokenFile {
            host: owner,
            number: number.into(),
        },
        digest: Some([number + 100; 32]),
        former: None,
        offered: false,
        name: None,
        made_by: None,
    }
}

/// A daemon's records after an orderly end, and after a crash that left some of them in the log.
fn records(directory: &Path) -> [Files; 2] {
    let path = directory.join("sessions.db");
    let mut ledger = Ledger::open(directory, BOOT).expect("made").ledger;
    for (host, number) in numbers() {
        let owner = OwnerRecord::new(host, "host".into(), None);
        ledger.record(Effect::Save(Record::Owner(owner)));
        let traits = Traits::unknown("server".into(), KeyDoubt::Executable);
        let claimant = Claimant {
            keys: vec![key(number)],
            ..Claimant::new(host, traits)
        };
        ledger.record(Effect::Save(Record::Claimant(
            process(number.into()),
            claimant,
        )));
        ledger.record(Effect::Save(session(host, number).into()));
        block_on(ledger.waiter().kept()).expect("it is kept");
    }
    let killed = Files::of(&path);
    block_on(ledger.close());
    [Files::of(&path), killed]
}

/// A claim by this key.
fn claim(host: ProcessId, number: u8) -> Claim {
    Claim {
        ticket: Ticket(number.into()),
        id: "fresh".parse().expect("an id"),
        process: process(u32::from(number) + 1_000),
        host,
        host_name: "host".into(),
        host_rule: None,
        key: Some(key(number)),
        unnamed: None,
        description: SelfDescription::default(),
        program_dir: None,
        program: "server".into(),
        siblings: None,
        rule: Rule::default(),
        started_ms: None,
        deadline: 0,
        expires: u64::MAX,
        opened_ms: 0,
        confirms_loss: false,
        wants: Wants::Keyed,
        own: None,
    }
}

#[test]
fn sessions_db() {
    let directory = directory();
    let path = directory.path().join("sessions.db");
    let files = records(directory.path());
    bolero::check!().for_each(|input: &[u8]| {
        let Some((which, mishaps)) = input.split_first() else {
            return;
        };
        files[usize::from(which % 2)].put(&path, mishaps);
        let opened = Ledger::open(directory.path(), BOOT).expect("opened, or made anew");
        let is_whole = mishaps.len() < 5;
        assert!(!is_whole || opened.discarded.is_none() && opened.records.sessions.len() == 4);
        let (mut ledger, found) = (opened.ledger, opened.records);
        for (host, number) in numbers() {
            // Each claim gets a registry of its own: a session that was given away is not free for
            // the next.
            let mut registry = Registry::restore(Config::default().policy(), found.clone());
            let traits = Traits::unknown("server".into(), KeyDoubt::Executable);
            let claim = claim(host, number);
            registry.introduce(claim.process, Claimant::new(host, traits));
            registry.claim(claim, 1);
            for effect in registry.take_effects() {
                if let Effect::Answer(_, Ok(lease)) = &effect {
                    let record = registry.session(&lease.session).expect("there");
                    let is_others = |owner: ProcessId, other: u8| {
                        let file = TokenFile {
                            host: owner,
                            number: other.into(),
                        };
                        other != number
                            && record.file == file
                            && record.digest == Some([other + 100; 32])
                    };
                    let gets = numbers().find(|(owner, other)| is_others(*owner, *other));
                    assert_eq!(gets, None, "{number} gets another one's token");
                    let named = numbers()
                        .find(|(_, other)| *other != number && id(*other) == lease.session);
                    assert_eq!(named, None, "{number} gets another one's session");
                }
                if number == 1 {
                    ledger.record(effect);
                }
            }
            let _ = registry.processes();
            registry.exited(&[process(number.into()), host]);
        }
        block_on(ledger.waiter().kept()).expect("what is recorded from now on is kept");
        assert!(ledger.is_alive(), "the writer has panicked");
        block_on(ledger.close());
    });
}

fn access(number: u8) -> Access {
    let service = format!("service-{}", number % 2).parse().expect("a name");
    Access::service(&service, &id(number), None)
}

fn of(number: u8) -> SessionRef {
    SessionRef {
        session: id(number),
        service: None,
        epoch: None,
        caller: None,
    }
}

fn contents(sqlite: Arc<Sqlite>) -> Contents {
    let bounds = Bounds::of(&Config::default());
    let meters = Arc::<Meters>::default();
    let store = Store::over(sqlite, meters.clone());
    Contents::new(store, Arc::new(Clock::manual(1_000)), bounds, meters)
}

/// A value that names its session.
fn value(number: u8) -> Json {
    Json::trusted(format!("\"of {}\"", mark(number)))
}

fn write(number: u8) -> WriteStateRequest {
    let value = Some(value(number));
    let write = StateWrite {
        key: "k".parse().expect("a key"),
        value,
        expected: None,
        expires_ms: None,
    };
    WriteStateRequest {
        of: of(number),
        writes: vec![write],
        request: None,
    }
}

fn append(number: u8) -> AppendRequest {
    let messages = vec![Some(value(number)), None, Some(value(number))];
    AppendRequest {
        of: of(number),
        stream: StreamId::standalone(),
        request: None,
        messages,
        close: false,
    }
}

/// As [`records`], for the contents of sessions.
async fn kept(path: &Path) -> [Files; 2] {
    let sqlite = Arc::new(Sqlite::open(path, Durability::Process).expect("made"));
    let contents = contents(sqlite.clone());
    for (_, number) in numbers() {
        let access = access(number);
        contents
            .create(&access, &CreateRequest::default())
            .await
            .expect("created");
        contents
            .write_state(&access, &write(number))
            .await
            .expect("written");
        contents
            .append(&access, &append(number))
            .await
            .expect("appended");
    }
    let killed = Files::of(path);
    sqlite.close().await;
    [Files::of(path), killed]
}

/// Reads and writes all of a session's contents, and checks that they are its own.
async fn use_all(contents: &Contents, number: u8) {
    let access = access(number);
    let read = ReadStateRequest {
        of: of(number),
        keys: vec!["k".parse().expect("a key")],
    };
    for entry in contents
        .read_state(&access, &read)
        .await
        .into_iter()
        .flatten()
    {
        assert!(
            is_own(entry.value.as_ref(), number),
            "{number} reads {:?}",
            entry.value
        );
    }
    let after = Cursor::Number(0);
    let replay = ReplayRequest {
        of: of(number),
        after,
        most: None,
    };
    let replayed = contents.replay(&access, &replay).await;
    for event in replayed.into_iter().flat_map(|replayed| replayed.events) {
        assert!(
            is_own(Some(&event.message), number),
            "{number} is told {:?}",
            event.message
        );
    }
    let _ = contents.get(&access).await;
    let _ = contents.inspect(&access.place).await;
    let _ = contents.append(&access, &append(number)).await;
    let _ = contents.write_state(&access, &write(number)).await;
    let _ = contents.reset(&access, None).await;
}

/// Whether the value is not another session's. The session's own bytes may be damaged.
fn is_own(found: Option<&Json>, number: u8) -> bool {
    numbers().all(|(_, other)| other == number || found != Some(&value(other)))
}

#[test]
fn contents_db() {
    let directory = directory();
    let path = directory.path().join("contents.db");
    let files = block_on(kept(&path));
    bolero::check!().for_each(|input: &[u8]| {
        let Some((which, mishaps)) = input.split_first() else {
            return;
        };
        files[usize::from(which % 2)].put(&path, mishaps);
        let Ok(sqlite) = Sqlite::open(&path, Durability::Process) else {
            assert!(mishaps.len() >= 5);
            return;
        };
        let sqlite = Arc::new(sqlite);
        let contents = contents(sqlite.clone());
        block_on(async {
            for (_, number) in numbers() {
                use_all(&contents, number).await;
            }
            let _ = contents.sweep(|_| OwnerStatus::Gone).await;
            let _ = contents.end_owner("service-1").await;
            sqlite.close().await;
        });
    });
}
