//! Answers that are lost, and a service that is busy or away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mcp_sessiond_daemon::storage::{
    Change, DynamoDb, Head, Item, RecordId, Scan, Storage as _, StorageError, Version,
};
use tokio::sync::Notify;

use super::proxy::{Fate, Proxy, Request};
use super::{Server, Table};

super::cases! {
    a_lost_answer_is_no_conflict
    a_lost_answer_of_what_was_overtaken_is_no_conflict
    a_busy_service_is_asked_again
    a_batch_that_was_left_undone_is_asked_again
    a_failing_service_is_unavailable
    what_a_commit_makes_is_read_whole_or_not_at_all
    nothing_is_lost_nor_made_twice
}

fn place() -> RecordId {
    RecordId {
        owner: "owner".into(),
        name: "name".into(),
    }
}

fn drawn() -> Version {
    Version(fastrand::u64(..))
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

async fn version(store: &DynamoDb) -> Option<Version> {
    store
        .read(&place(), &[])
        .await
        .expect("readable")
        .map(|record| record.version)
}

/// A handle whose requests have this fate where they are chosen, from when they are armed and so
/// often.
async fn fated<S: Server>(
    table: &Table<S>,
    chosen: impl Fn(&Request) -> bool + Send + Sync + 'static,
    fate: impl Fn() -> Fate + Send + Sync + 'static,
) -> (Proxy, Arc<DynamoDb>, Arc<AtomicUsize>) {
    let times = Arc::new(AtomicUsize::new(0));
    let left = times.clone();
    let proxy = Proxy::new(Table::<S>::server(), move |request| {
        let one_less = |left: usize| left.checked_sub(1);
        if chosen(request)
            && left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
                .is_ok()
        {
            return fate();
        }
        Fate::Pass
    })
    .await;
    let store = table.through(&proxy).await;
    (proxy, store, times)
}

async fn a_lost_answer_is_no_conflict<S: Server>(table: Table<S>) {
    let (_proxy, store, times) = fated(&table, Request::is_commit, || Fate::Lose).await;
    let mut expected = None;
    for change in [
        counted(1, "a"),
        counted(2, "b"),
        Change {
            clear: true,
            ..counted(3, "c")
        },
    ] {
        times.store(2, Ordering::SeqCst);
        let next = drawn();
        store
            .commit(&place(), expected, next, change)
            .await
            .expect("committed");
        assert_eq!(
            (version(&store).await, times.load(Ordering::SeqCst)),
            (Some(next), 0)
        );
        expected = Some(next);
    }
    times.store(2, Ordering::SeqCst);
    store
        .commit(&place(), expected, drawn(), Change::default())
        .await
        .expect("deleted");
    assert_eq!(
        (version(&store).await, times.load(Ordering::SeqCst)),
        (None, 0)
    );
    assert_eq!(store.rows_by_partition().await, Ok(Vec::new()));
}

async fn a_lost_answer_of_what_was_overtaken_is_no_conflict<S: Server>(table: Table<S>) {
    let (done, found_out) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let hold = (done.clone(), found_out.clone());
    let (_proxy, store, times) = fated(&table, Request::is_commit, move || {
        Fate::Hold(hold.0.clone(), hold.1.clone())
    })
    .await;
    let other = table.connected().await;
    let first = drawn();
    store
        .commit(&place(), None, first, counted(1, "a"))
        .await
        .expect("committed");
    times.store(1, Ordering::SeqCst);
    let second = drawn();
    let (own, place) = (store.clone(), place());
    let held = tokio::spawn(async move {
        own.commit(&place, Some(first), second, counted(2, "b"))
            .await
            .map(|_| ())
    });
    done.notified().await;
    let (third, fourth) = (drawn(), drawn());
    other
        .commit(&self::place(), Some(second), third, counted(3, "c"))
        .await
        .expect("committed");
    other
        .commit(&self::place(), Some(third), fourth, counted(4, "d"))
        .await
        .expect("committed");
    found_out.notify_one();
    assert_eq!(held.await.expect("no panic"), Ok(()));
    assert_eq!(version(&store).await, Some(fourth));
    assert_eq!(keys(&store).await, ["a", "b", "c", "d"]);
}

async fn a_busy_service_is_asked_again<S: Server>(table: Table<S>) {
    let (_proxy, store, times) = fated(&table, |_| true, || Fate::Throttle).await;
    times.store(3, Ordering::SeqCst);
    let first = drawn();
    store
        .commit(&place(), None, first, counted(1, "a"))
        .await
        .expect("committed");
    times.store(3, Ordering::SeqCst);
    assert_eq!(
        (version(&store).await, store.check()),
        (Some(first), Ok(()))
    );
}

async fn a_batch_that_was_left_undone_is_asked_again<S: Server>(table: Table<S>) {
    let is_batch = |request: &Request| request.operation.starts_with("Batch");
    let (_proxy, store, times) = fated(&table, is_batch, || Fate::LeaveUndone).await;
    times.store(2, Ordering::SeqCst);
    let mut change = counted(1, "a");
    change.puts[0].value = vec![7; 1_000_000].into();
    let large = change.puts[0].clone();
    store
        .commit(&place(), None, drawn(), change)
        .await
        .expect("committed");
    assert_eq!(times.swap(2, Ordering::SeqCst), 0);
    let found = store
        .read(&place(), std::slice::from_ref(&large.key))
        .await
        .expect("readable")
        .expect("a record");
    assert_eq!(
        (found.items, times.load(Ordering::SeqCst)),
        (vec![Some(large)], 0)
    );
}

async fn a_failing_service_is_unavailable<S: Server>(table: Table<S>) {
    let (_proxy, store, times) = fated(&table, |_| true, || Fate::Fail).await;
    times.store(usize::MAX, Ordering::SeqCst);
    let begun = Instant::now();
    let outcome = store
        .commit(&place(), None, drawn(), counted(1, "a"))
        .await
        .map(|_| ());
    let failed = StorageError::Unavailable("DynamoDB: InternalServerError".into());
    assert_eq!(outcome, Err(failed.clone().unknown()));
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "after {:?}",
        begun.elapsed()
    );
    assert_eq!(store.check(), Err(failed), "until it works again");
    times.store(0, Ordering::SeqCst);
    assert_eq!((version(&store).await, store.check()), (None, Ok(())));
}

/// A pair of signals: that something has come, and that it may go on.
fn signals() -> [Arc<Notify>; 2] {
    std::array::from_fn(|_| Arc::new(Notify::new()))
}

/// Between a reader's look at the head and its look at two items, a commit has made the first of
/// them, and not yet the second.
async fn what_a_commit_makes_is_read_whole_or_not_at_all<S: Server>(table: Table<S>) {
    let ([looks, look], [made, told], [waits, make]) = (signals(), signals(), signals());
    let delay = (looks.clone(), look.clone());
    let is_batch = |request: &Request| request.operation == "BatchGetItem";
    let (_reading, reader, times) = fated(&table, is_batch, move || {
        Fate::Delay(delay.0.clone(), delay.1.clone())
    })
    .await;
    let (hold, delay) = ((made.clone(), told.clone()), (waits.clone(), make.clone()));
    let is_first = AtomicBool::new(true);
    let writing = Proxy::new(Table::<S>::server(), move |request| {
        // The sort keys of the items a and b.
        if request.puts("AWE=") && is_first.swap(false, Ordering::SeqCst) {
            Fate::Hold(hold.0.clone(), hold.1.clone())
        } else if request.puts("AWI=") {
            Fate::Delay(delay.0.clone(), delay.1.clone())
        } else {
            Fate::Pass
        }
    })
    .await;
    let writer = table.through(&writing).await;
    let first = drawn();
    let nothing = Change {
        puts: Vec::new(),
        ..counted(1, "")
    };
    reader
        .commit(&place(), None, first, nothing)
        .await
        .expect("committed");
    times.store(1, Ordering::SeqCst);
    let read = tokio::spawn(async move {
        let keys = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];
        reader.read(&place(), &keys).await
    });
    looks.notified().await;
    let committed = tokio::spawn(async move {
        let mut change = counted(2, "a");
        change.puts.extend(counted(2, "b").puts);
        writer.commit(&place(), Some(first), drawn(), change).await
    });
    tokio::join!(made.notified(), waits.notified());
    look.notify_one();
    let read = read.await.expect("no panic").expect("readable");
    let items = read.expect("a record").items;
    assert_eq!(items.iter().flatten().count(), 2, "{items:?}");
    told.notify_one();
    make.notify_one();
    committed.await.expect("no panic").expect("committed");
}

/// All keys.
async fn keys(store: &DynamoDb) -> Vec<Bytes> {
    let range = Bytes::new()..Bytes::from_static(&[0xFF]);
    let items = store
        .scan(&place(), &Scan::of(range, usize::MAX, usize::MAX))
        .await
        .expect("readable");
    items.into_iter().map(|item| item.key).collect()
}

/// Two daemons with three writers each, on a way where one request in eight comes to grief.
async fn nothing_is_lost_nor_made_twice<S: Server>(table: Table<S>) {
    let is_calm = Arc::new(AtomicBool::new(true));
    let calm = is_calm.clone();
    let proxy = Proxy::new(Table::<S>::server(), move |_| {
        if calm.load(Ordering::SeqCst) {
            return Fate::Pass;
        }
        match fastrand::u8(..24) {
            0 => Fate::Lose,
            1 => Fate::Throttle,
            2 => Fate::Fail,
            _ => Fate::Pass,
        }
    })
    .await;
    let stores = [table.through(&proxy).await, table.through(&proxy).await];
    stores[0]
        .commit(&place(), None, drawn(), counted(1, "first"))
        .await
        .expect("committed");
    is_calm.store(false, Ordering::SeqCst);
    let write = |writer: usize| {
        let store = stores[writer % 2].clone();
        async move {
            let mut kept = Vec::new();
            while kept.len() < 10 {
                let key = format!("{writer}-{}", kept.len());
                let found = store
                    .read(&place(), &[])
                    .await
                    .expect("readable")
                    .expect("a record");
                let count: usize = std::str::from_utf8(&found.head)
                    .expect("UTF-8")
                    .parse()
                    .expect("a number");
                let change = counted(count + 1, &key);
                match store
                    .commit(&place(), Some(found.version), drawn(), change)
                    .await
                {
                    Ok(_) => kept.push(key),
                    // Its answer was lost, and then the others committed more often than a head
                    // remembers. Whether this was committed is unknown only to the caller: no
                    // request is under way any more.
                    Err(StorageError::Unknown { .. })
                        if keys(&store).await.contains(&key.clone().into()) =>
                    {
                        kept.push(key);
                    }
                    Err(StorageError::Unknown { .. }) => {}
                    Err(error) => assert_eq!(error, StorageError::Conflict),
                }
            }
            kept
        }
    };
    let kept = futures::future::join_all((0..6).map(write)).await.concat();
    is_calm.store(true, Ordering::SeqCst);
    for store in &stores {
        let found = store
            .read(&place(), &[])
            .await
            .expect("readable")
            .expect("a record");
        assert_eq!(
            found.head, "61",
            "each was counted once, and whoever got a conflict was not"
        );
        let keys = keys(store).await;
        assert!(
            kept.iter()
                .all(|key| keys.contains(&Bytes::from(key.clone())))
        );
        assert_eq!(keys.len(), 61);
    }
}
