//! One round of tests/bench's work by turul-mcp-session-storage, in this process: prints, as JSON,
//! for each part its name, what a call took in µs (p50), and how many a second fifty callers came
//! to. tests/bench/run runs it.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use turul_mcp_session_storage::{
    BoxedSessionStorage, InMemorySessionStorage, SessionStorageError, SqliteConfig,
    SqliteSessionStorage, SseEvent,
};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const MANY: usize = 50;

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Set,
    Get,
    Store,
    Replay,
}

const PARTS: [(Part, &str, usize); 4] = [
    (Part::Set, "state set", 500),
    (Part::Get, "state get", 500),
    (Part::Store, "event stored", 500),
    (Part::Replay, "100 events replayed", 100),
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("a directory, please")?);
    let database = directory.join(format!("turul-{}.db", std::process::id()));
    let config = SqliteConfig {
        database_path: database.clone(),
        verify_tables: true,
        create_tables: true,
        ..SqliteConfig::default()
    };
    let mut round: Vec<(String, f64, f64)> = Vec::new();
    let storages: [(&str, Arc<BoxedSessionStorage>, usize); 2] = [
        ("memory", Arc::new(InMemorySessionStorage::new()), 1),
        // It syncs the disk for every change: fewer are enough.
        (
            "SQLite",
            Arc::new(SqliteSessionStorage::with_config(config).await?),
            5,
        ),
    ];
    for (name, storage, fewer) in storages {
        for (part, what, calls) in PARTS {
            let calls = calls / fewer;
            let mut sessions = Vec::new();
            for _ in 0..MANY {
                let session = storage.create_session(Default::default()).await?.session_id;
                storage.set_session_state(&session, "k", value()).await?;
                for _ in 0..if part == Part::Replay && sessions.len() < MANY / fewer {
                    100
                } else {
                    0
                } {
                    call(&storage, Part::Store, &session, &value()).await?;
                }
                sessions.push(session);
            }
            let value = value();
            let mut took = Vec::with_capacity(calls);
            for _ in 0..calls {
                let began = Instant::now();
                call(&storage, part, &sessions[0], &value).await?;
                took.push(began.elapsed());
            }
            took.sort();
            // Those that are set up; a replay changes nothing, so callers may share.
            let ready = if part == Part::Replay {
                MANY / fewer
            } else {
                MANY
            };
            let each = calls / 10;
            let began = Instant::now();
            let mut tasks = JoinSet::new();
            for index in 0..MANY {
                let (storage, value) = (storage.clone(), value.clone());
                let session = sessions[index % ready].clone();
                tasks.spawn(async move {
                    for _ in 0..each {
                        call(&storage, part, &session, &value).await?;
                    }
                    Outcome::Ok(())
                });
            }
            while let Some(done) = tasks.join_next().await {
                done??;
            }
            let rate = (MANY * each) as f64 / began.elapsed().as_secs_f64();
            round.push((
                format!("{what}, {name}"),
                micros(took[took.len() / 2]),
                rate,
            ));
        }
    }
    std::fs::remove_file(database)?;
    println!("{}", serde_json::to_string(&round)?);
    Ok(())
}

fn micros(span: Duration) -> f64 {
    span.as_secs_f64() * 1e6
}

/// 100 bytes as JSON, as in the main program.
fn value() -> Value {
    json!({ "text": "v".repeat(89) })
}

async fn call(
    storage: &Arc<BoxedSessionStorage>,
    part: Part,
    session: &str,
    value: &Value,
) -> Result<(), SessionStorageError> {
    match part {
        Part::Set => {
            storage
                .set_session_state(session, "k", value.clone())
                .await?
        }
        Part::Get => drop(
            storage
                .get_session_state(session, "k")
                .await?
                .ok_or(missing())?,
        ),
        Part::Store => drop(
            storage
                .store_event(session, SseEvent::new("message".into(), value.clone()))
                .await?,
        ),
        Part::Replay => {
            if storage.get_events_after(session, 0).await?.len() != 100 {
                return Err(missing());
            }
        }
    }
    Ok(())
}

fn missing() -> SessionStorageError {
    SessionStorageError::Generic("something is missing".into())
}
