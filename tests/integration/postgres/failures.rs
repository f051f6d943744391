//! Connections that end, answers that are lost, and a server that is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use mcp_sessiond_daemon::storage::postgres::Options;
use mcp_sessiond_daemon::storage::{
    Change, Head, Item, Postgres, RecordId, Scan, Storage, StorageError, Version,
};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::{Schema, connect, server};

fn place(name: &str) -> RecordId {
    RecordId {
        owner: "owner".into(),
        name: name.into(),
    }
}

/// A change of the head to a number, with an item of this key.
fn counted(count: usize, key: &str) -> Change {
    let head = Head {
        bytes: count.to_string().into(),
        due_ms: u64::MAX,
    };
    let item = Item {
        key: key.to_owned().into(),
        tag: String::new(),
        value: "value".into(),
    };
    Change {
        head: Some(head),
        puts: vec![item],
        ..Change::default()
    }
}

async fn open(url: &str) -> Arc<Postgres> {
    Arc::new(
        Postgres::open(url, Options::default())
            .await
            .expect("opened"),
    )
}

fn count_of(head: &[u8]) -> usize {
    std::str::from_utf8(head)
        .expect("UTF-8")
        .parse()
        .expect("a number")
}

/// What a writer was told of its changes.
#[derive(Default)]
struct Outcomes {
    kept: Vec<String>,
    unavailable: Vec<String>,
}

/// Adds items to a record until it is told to stop.
async fn write(
    store: Arc<Postgres>,
    place: RecordId,
    writer: usize,
    stop: Arc<AtomicBool>,
    progress: watch::Sender<usize>,
) -> Outcomes {
    let mut told = Outcomes::default();
    while !stop.load(Ordering::Relaxed) {
        let key = format!("{writer}-{}", told.kept.len() + told.unavailable.len());
        let found = match store.read(&place, &[]).await {
            Ok(found) => found.expect("a record"),
            Err(StorageError::Unavailable(_)) => continue,
            Err(error) => panic!("{error}"),
        };
        let change = counted(count_of(&found.head) + 1, &key);
        match store
            .commit(
                &place,
                Some(found.version),
                Version(fastrand::u64(..)),
                change,
            )
            .await
        {
            Ok(kept) => {
                kept.kept().await.expect("kept");
                told.kept.push(key);
                progress.send_modify(|kept| *kept += 1);
            }
            Err(StorageError::Conflict) => {}
            Err(StorageError::Unavailable(_) | StorageError::Unknown { .. }) => {
                told.unavailable.push(key);
            }
            Err(error) => panic!("{error}"),
        }
    }
    told
}

/// Sixteen writers, two to a record, while every connection of theirs is ended again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgresql"]
async fn connections_that_end_lose_nothing_that_was_acknowledged() {
    let schema = Schema::new();
    let store = open(&schema.url()).await;
    let places: Vec<RecordId> = (0..8).map(|n| place(&format!("{n}"))).collect();
    for place in &places {
        store
            .commit(place, None, Version(0), counted(1, "first"))
            .await
            .expect("committed");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (progress, mut made) = watch::channel(0);
    let writers: Vec<_> = (0..16)
        .map(|n| {
            let (place, progress) = (places[n / 2].clone(), progress.clone());
            tokio::spawn(write(store.clone(), place, n, stop.clone(), progress))
        })
        .collect();
    let client = connect().await;
    let mut ended = 0;
    for _ in 0..40 {
        let of =
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
        ended += client.query(of, &[&schema.0]).await.expect("ended").len();
        // Another moment of the writers' work: after some more of it.
        let enough = *made.borrow_and_update() + fastrand::usize(3..40);
        made.wait_for(|kept| *kept >= enough)
            .await
            .expect("writers");
    }
    stop.store(true, Ordering::Relaxed);
    let mut told = Vec::new();
    for writer in writers {
        told.push(writer.await.expect("a writer that ends well"));
    }
    let kept: usize = told.iter().map(|told| told.kept.len()).sum();
    let unavailable: usize = told.iter().map(|told| told.unavailable.len()).sum();
    assert!(
        ended >= 40 && kept >= 100,
        "{ended} connections ended, {kept} changes kept"
    );
    for (n, place) in places.iter().enumerate() {
        let found = store
            .read(place, &[])
            .await
            .expect("readable")
            .expect("a record");
        let all = store
            .scan(
                place,
                &Scan::of("0".into().."z".into(), usize::MAX, usize::MAX),
            )
            .await
            .expect("readable");
        assert_eq!(count_of(&found.head), all.len(), "none was made twice");
        let (one, other) = (&told[2 * n], &told[2 * n + 1]);
        let has = |key: &String| all.iter().any(|item| item.key == key.as_bytes());
        assert!(
            one.kept.iter().chain(&other.kept).all(has),
            "all that were acknowledged are there"
        );
        let doubtful = one
            .unavailable
            .iter()
            .chain(&other.unavailable)
            .filter(|key| has(key))
            .count();
        assert_eq!(
            all.len(),
            1 + one.kept.len() + other.kept.len() + doubtful,
            "and none that was refused"
        );
    }
    assert!(
        unavailable * 10 <= kept,
        "{unavailable} unavailable, {kept} kept"
    );
    assert_eq!(store.check(), Ok(()));
}

/// Between the daemon and the server: a socket that can lose answers, and be shut.
struct Proxy {
    directory: TempDir,
    /// Whether the next answer is to be lost.
    losing: Arc<AtomicBool>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let losing = Arc::new(AtomicBool::new(false));
        let accepting = Self::accepting(&directory, &losing);
        Self {
            directory,
            losing,
            accepting,
        }
    }

    fn accepting(directory: &TempDir, losing: &Arc<AtomicBool>) -> JoinHandle<()> {
        let listener = UnixListener::bind(directory.path().join(".s.PGSQL.5432")).expect("bound");
        let losing = losing.clone();
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.expect("accepted");
                let losing = losing.clone();
                let config: Config = server().parse().expect("a URL");
                tokio::spawn(async move {
                    let port = config.get_ports().first().copied().unwrap_or(5432);
                    match &config.get_hosts()[0] {
                        Host::Unix(path) => {
                            let path = path.join(format!(".s.PGSQL.{port}"));
                            pass(
                                client,
                                UnixStream::connect(path).await.expect("connected"),
                                &losing,
                            )
                            .await;
                        }
                        Host::Tcp(host) => {
                            let server = TcpStream::connect((host.as_str(), port))
                                .await
                                .expect("connected");
                            pass(client, server, &losing).await;
                        }
                    }
                });
            }
        })
    }

    /// The server's URL, by way of this.
    fn url(&self, schema: &Schema) -> String {
        let path = self
            .directory
            .path()
            .to_str()
            .expect("UTF-8")
            .replace('/', "%2F");
        let config: Config = server().parse().expect("a URL");
        let user = config.get_user().expect("a user");
        let base = config.get_dbname().unwrap_or(user);
        format!("postgres://{user}@{path}/{base}?{}", schema.options())
    }

    /// From now on the next answer is lost, and the connection with it.
    fn lose_an_answer(&self) {
        self.losing.store(true, Ordering::SeqCst);
    }

    fn shut(&mut self) {
        self.accepting.abort();
        std::fs::remove_file(self.directory.path().join(".s.PGSQL.5432")).expect("removed");
    }

    fn open_again(&mut self) {
        self.accepting = Self::accepting(&self.directory, &self.losing);
    }
}

/// Passes everything on, until an answer is to be lost: it has come, so the server has done what it
/// was asked.
async fn pass(client: UnixStream, server: impl AsyncRead + AsyncWrite, losing: &AtomicBool) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let requests = async {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    };
    let answers = async {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            if losing.swap(false, Ordering::SeqCst)
                || to_client.write_all(&buffer[..length]).await.is_err()
            {
                return;
            }
        }
    };
    tokio::select! { () = requests => (), () = answers => () }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgresql"]
async fn changes_whose_answer_was_lost_are_made_once() {
    let (schema, proxy) = (Schema::new(), Proxy::new());
    let store = open(&proxy.url(&schema)).await;
    let place = place("lost");
    // So that there is a connection, and the next answer is that to a commit.
    store.read(&place, &[]).await.expect("readable");
    let mut expected = None;
    for count in 0..5 {
        let next = Version(fastrand::u64(..));
        proxy.lose_an_answer();
        store
            .commit(&place, expected, next, counted(count, &format!("{count}")))
            .await
            .expect("committed");
        assert!(!proxy.losing.load(Ordering::SeqCst), "an answer was lost");
        let found = store
            .read(&place, &[])
            .await
            .expect("readable")
            .expect("a record");
        assert_eq!((found.version, count_of(&found.head)), (next, count));
        expected = Some(next);
    }
    proxy.lose_an_answer();
    store
        .commit(&place, expected, Version(0), Change::default())
        .await
        .expect("deleted");
    assert_eq!(store.read(&place, &[]).await, Ok(None));
    let conflict = store
        .commit(&place, expected, Version(0), Change::default())
        .await;
    assert_eq!(
        conflict.err(),
        Some(StorageError::Conflict),
        "a delete that was told is told once"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgresql"]
async fn conflicts_are_told_though_their_answer_was_lost_or_not_told_for_certain() {
    let (schema, proxy) = (Schema::new(), Proxy::new());
    let store = open(&proxy.url(&schema)).await;
    let place = place("conflict");
    store
        .commit(&place, None, Version(1), counted(1, "a"))
        .await
        .expect("committed");
    proxy.lose_an_answer();
    let lost = store
        .commit(&place, Some(Version(5)), Version(6), counted(2, "b"))
        .await;
    // Whether this was made and then overwritten by the version in place can't be known.
    let Some(StorageError::Unknown { .. }) = lost.err() else {
        panic!("it is not known")
    };
    let found = store
        .read(&place, &[])
        .await
        .expect("readable")
        .expect("a record");
    assert_eq!((found.version, count_of(&found.head)), (Version(1), 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgresql"]
async fn reads_whose_answer_was_lost_are_made_again() {
    let (schema, proxy) = (Schema::new(), Proxy::new());
    let store = open(&proxy.url(&schema)).await;
    let place = place("read");
    store
        .commit(&place, None, Version(1), counted(1, "a"))
        .await
        .expect("committed");
    for _ in 0..3 {
        proxy.lose_an_answer();
        let found = store
            .read(&place, &["a".into()])
            .await
            .expect("readable")
            .expect("a record");
        assert!(found.items[0].is_some());
        proxy.lose_an_answer();
        assert_eq!(store.count("owner", 10).await, Ok(1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgresql"]
async fn a_server_that_is_away_is_told_within_a_bound_and_had_again() {
    let (schema, mut proxy) = (Schema::new(), Proxy::new());
    let store = open(&proxy.url(&schema)).await;
    let place = place("away");
    proxy.shut();
    // The connections that there are end with the server, too.
    let client = connect().await;
    let of = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
    client.query(of, &[&schema.0]).await.expect("ended");
    let started = Instant::now();
    let away = store
        .commit(&place, None, Version(1), counted(1, "secret"))
        .await
        .err();
    let Some(StorageError::Unavailable(why)) = &away else {
        panic!("{away:?}")
    };
    assert!(
        !why.contains("secret") && why.starts_with("PostgreSQL: "),
        "{why}"
    );
    let taken = started.elapsed();
    assert!((2..10).contains(&taken.as_secs()), "{taken:?}");
    assert_eq!(store.check().err(), away);
    proxy.open_again();
    store
        .commit(&place, None, Version(1), counted(1, "secret"))
        .await
        .expect("committed");
    assert_eq!(store.check(), Ok(()));
}

/// A record that somebody has locked for good delays nobody else, and is given up after a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgresql"]
async fn a_record_that_is_locked_is_given_up() {
    let schema = Schema::new();
    let store = open(&schema.url()).await;
    let (locked, free) = (place("locked"), place("free"));
    for place in [&locked, &free] {
        store
            .commit(place, None, Version(1), counted(1, "a"))
            .await
            .expect("committed");
    }
    let mut client = connect().await;
    let transaction = client.transaction().await.expect("begun");
    let lock = format!(
        "SELECT 1 FROM {}.record WHERE name = 'locked' FOR UPDATE",
        schema.0
    );
    transaction.batch_execute(&lock).await.expect("locked");
    let waiting = {
        let (store, locked) = (store.clone(), locked.clone());
        tokio::spawn(async move {
            store
                .commit(&locked, Some(Version(1)), Version(2), counted(2, "b"))
                .await
        })
    };
    store
        .commit(&free, Some(Version(1)), Version(2), counted(2, "b"))
        .await
        .expect("committed");
    let given_up = waiting.await.expect("no panic").err();
    let Some(StorageError::Unavailable(why)) = given_up else {
        panic!("{given_up:?}")
    };
    assert!(why.contains("57014") && !why.contains("unknown"), "{why}");
    transaction.rollback().await.expect("unlocked");
    store
        .commit(&locked, Some(Version(1)), Version(2), counted(2, "b"))
        .await
        .expect("committed");
}
