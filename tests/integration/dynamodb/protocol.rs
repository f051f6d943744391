//! What happens between the commit point and the application of what was committed, and after.

use std::sync::Arc;

use bytes::Bytes;
use mcp_sessiond_daemon::storage::{
    Change, DynamoDb, Head, Item, RecordId, Scan, Storage as _, StorageError, Version,
};

use super::{Server, Table};

super::cases! {
    a_crash_before_application_is_invisible
    a_crash_before_application_is_made_good
    a_slow_helper_overwrites_nothing
    a_slow_helper_brings_nothing_back
    two_daemons_take_turns
    a_clear_leaves_nothing
    a_clear_that_was_cut_short_is_completed
    a_delete_leaves_nothing
    a_delete_that_was_cut_short_is_completed
    a_delete_that_was_cut_short_is_created_over
    what_is_replaced_leaves_no_parts
    what_is_refused_leaves_no_parts
    what_is_forgotten_is_gone
}

fn place() -> RecordId {
    RecordId {
        owner: "owner".into(),
        name: "name".into(),
    }
}

fn item(key: &'static str, value: &'static str) -> Item {
    Item {
        key: Bytes::from_static(key.as_bytes()),
        tag: "tag".into(),
        value: Bytes::from_static(value.as_bytes()),
    }
}

/// An item in three parts.
fn large(key: &'static str) -> Item {
    Item {
        value: vec![7; 1_000_000].into(),
        ..item(key, "")
    }
}

fn puts(items: impl Into<Vec<Item>>) -> Change {
    let head = Some(Head {
        bytes: Bytes::from_static(b"head"),
        due_ms: u64::MAX,
    });
    Change {
        head,
        puts: items.into(),
        ..Change::default()
    }
}

async fn commit(store: &DynamoDb, expected: Option<Version>, change: Change) -> Version {
    let next = Version(fastrand::u64(..));
    store
        .commit(&place(), expected, next, change)
        .await
        .expect("committed");
    next
}

/// The keys and values of all items.
async fn items(store: &DynamoDb) -> String {
    let range = Bytes::new()..Bytes::from_static(&[0xFF]);
    let items = store
        .scan(&place(), &Scan::of(range, usize::MAX, usize::MAX))
        .await
        .expect("readable");
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    items
        .iter()
        .map(|item| format!("{}={} ", text(&item.key), text(&item.value)))
        .collect()
}

/// How many rows there are, heads and all, tombstones not counted.
async fn rows(store: &DynamoDb) -> usize {
    store
        .rows_by_partition()
        .await
        .expect("readable")
        .iter()
        .map(|(_, rows)| rows)
        .sum()
}

/// A record with the items a and b, and a handle whose commits end at the commit point.
async fn begun<S: Server>(table: &Table<S>) -> (Arc<DynamoDb>, Arc<DynamoDb>, Version) {
    let (store, dying) = (table.connected().await, table.connected().await);
    let version = commit(&store, None, puts([item("a", "1"), item("b", "2")])).await;
    dying.abandon();
    (store, dying, version)
}

async fn a_crash_before_application_is_invisible<S: Server>(table: Table<S>) {
    let (store, dying, first) = begun(&table).await;
    let removes = vec![Bytes::from_static(b"b"), Bytes::from_static(b"none")];
    let other = Item {
        tag: "other".into(),
        ..item("a", "new")
    };
    let change = Change {
        removes,
        ..puts([other.clone(), item("c", "3"), large("d")])
    };
    let second = commit(&dying, Some(first), change).await;
    assert_eq!(
        rows(&store).await,
        1 + 2 + 3,
        "the head, both items as they were, and three parts"
    );
    for store in [&store, &dying] {
        let keys = ["a", "b", "c", "d", "none"].map(|key| Bytes::from_static(key.as_bytes()));
        let found = store
            .read(&place(), &keys)
            .await
            .expect("readable")
            .expect("a record");
        assert_eq!(found.version, second);
        assert_eq!(
            found.items,
            [
                Some(other.clone()),
                None,
                Some(item("c", "3")),
                Some(large("d")),
                None
            ]
        );
        let range = Bytes::new()..Bytes::from_static(b"d");
        let scan = |tag: &str, most| {
            let (range, tags) = (range.clone(), vec![tag.to_owned()]);
            async move {
                store
                    .scan(
                        &place(),
                        &Scan {
                            tags,
                            ..Scan::of(range, most, 1000)
                        },
                    )
                    .await
                    .expect("readable")
            }
        };
        assert_eq!(scan("tag", 9).await, [item("c", "3")]);
        assert!(matches!(&scan("other", 9).await[..], [found] if *found == other));
        assert_eq!(
            store
                .scan(&place(), &Scan::of(range.clone(), 1, 1000))
                .await,
            Ok(vec![other.clone()])
        );
    }
}

async fn a_crash_before_application_is_made_good<S: Server>(table: Table<S>) {
    let (store, dying, first) = begun(&table).await;
    let change = Change {
        removes: vec![Bytes::from_static(b"b")],
        ..puts([item("c", "3")])
    };
    let second = commit(&dying, Some(first), change).await;
    let third = commit(&store, Some(second), puts([item("d", "4")])).await;
    assert_eq!(items(&store).await, "a=1 c=3 d=4 ");
    assert_eq!(rows(&store).await, 4);
    commit(&store, Some(third), puts([])).await;
    assert_eq!(
        items(&store).await,
        "a=1 c=3 d=4 ",
        "with nothing pending, either"
    );
}

async fn a_slow_helper_overwrites_nothing<S: Server>(table: Table<S>) {
    let (store, dying, first) = begun(&table).await;
    let second = commit(
        &dying,
        Some(first),
        puts([item("a", "old"), item("c", "old")]),
    )
    .await;
    let late = dying.late(&place()).await.expect("a head");
    let third = commit(
        &store,
        Some(second),
        puts([item("a", "new"), item("d", "new")]),
    )
    .await;
    late.apply().await.expect("in vain");
    assert_eq!(items(&store).await, "a=new b=2 c=old d=new ");
    // With nothing pending that would cover it up.
    commit(&store, Some(third), puts([])).await;
    assert_eq!(items(&store).await, "a=new b=2 c=old d=new ");
}

async fn a_slow_helper_brings_nothing_back<S: Server>(table: Table<S>) {
    let (store, dying, first) = begun(&table).await;
    let second = commit(
        &dying,
        Some(first),
        puts([item("a", "old"), item("c", "old")]),
    )
    .await;
    let (late, later) = (
        dying.late(&place()).await.expect("a head"),
        store.late(&place()).await.expect("a head"),
    );
    let removes = [b"a", b"c"].map(|key| Bytes::from_static(key)).into();
    let third = commit(
        &store,
        Some(second),
        Change {
            removes,
            ..puts([])
        },
    )
    .await;
    late.apply().await.expect("in vain");
    assert_eq!(items(&store).await, "b=2 ");
    let fourth = commit(&store, Some(third), puts([])).await;
    assert_eq!(items(&store).await, "b=2 ");
    commit(
        &store,
        Some(fourth),
        Change {
            clear: true,
            ..puts([item("e", "5")])
        },
    )
    .await;
    later.apply().await.expect("in vain");
    assert_eq!(items(&store).await, "e=5 ", "and not after a clear, either");
}

async fn two_daemons_take_turns<S: Server>(table: Table<S>) {
    let stores = [table.connected().await, table.connected().await];
    let mut version = commit(&stores[0], None, puts([item("turn", "none")])).await;
    for turn in 0..10 {
        let (mine, other) = (&stores[turn % 2], &stores[(turn + 1) % 2]);
        let key = Bytes::from(format!("{turn}"));
        let mut change = puts([
            Item {
                key,
                ..item("", "turn")
            },
            item("turn", ["even", "odd"][turn % 2]),
        ]);
        change
            .removes
            .push(Bytes::from(format!("{}", turn.saturating_sub(3))));
        let former = version;
        version = commit(mine, Some(former), change).await;
        let stale = other
            .commit(&place(), Some(former), Version(fastrand::u64(..)), puts([]))
            .await;
        assert!(matches!(stale, Err(StorageError::Conflict)));
        assert_eq!(items(mine).await, items(other).await);
    }
    assert_eq!(items(&stores[0]).await, "7=turn 8=turn 9=turn turn=odd ");
}

async fn a_clear_leaves_nothing<S: Server>(table: Table<S>) {
    let (store, _, first) = begun(&table).await;
    let second = commit(
        &store,
        Some(first),
        Change {
            clear: true,
            ..puts([large("c")])
        },
    )
    .await;
    assert_eq!(rows(&store).await, 1 + 1 + 3);
    commit(
        &store,
        Some(second),
        Change {
            clear: true,
            ..puts([])
        },
    )
    .await;
    assert_eq!(rows(&store).await, 1);
}

async fn a_clear_that_was_cut_short_is_completed<S: Server>(table: Table<S>) {
    let (store, dying, first) = begun(&table).await;
    let second = commit(
        &dying,
        Some(first),
        Change {
            clear: true,
            ..puts([item("c", "3")])
        },
    )
    .await;
    assert_eq!(items(&store).await, "c=3 ");
    assert_eq!(rows(&store).await, 1 + 2);
    commit(&store, Some(second), puts([])).await;
    assert_eq!(items(&store).await, "c=3 ");
    assert_eq!(rows(&store).await, 1 + 1);
}

async fn a_delete_leaves_nothing<S: Server>(table: Table<S>) {
    let (store, _, first) = begun(&table).await;
    let second = commit(&store, Some(first), puts([large("c")])).await;
    commit(&store, Some(second), Change::default()).await;
    assert_eq!(store.rows_by_partition().await, Ok(Vec::new()));
}

async fn a_delete_that_was_cut_short_is_completed<S: Server>(table: Table<S>) {
    let (store, dying, first) = begun(&table).await;
    commit(&dying, Some(first), Change::default()).await;
    assert_eq!(store.read(&place(), &[]).await, Ok(None));
    assert_eq!(items(&store).await, "");
    assert_eq!(
        (
            store.count("owner", 9).await,
            store.list("owner", "", 9).await
        ),
        (Ok(0), Ok(Vec::new()))
    );
    assert_eq!(store.list_all(None, 9).await, Ok(Vec::new()));
    assert_eq!(rows(&store).await, 1 + 2);
    assert_eq!(
        store.due(u64::MAX - 1, 9).await,
        Ok(Vec::new()),
        "it is not due, but that buries it"
    );
    assert_eq!(rows(&store).await, 0);
}

async fn a_delete_that_was_cut_short_is_created_over<S: Server>(table: Table<S>) {
    let (store, dying, first) = begun(&table).await;
    commit(&dying, Some(first), Change::default()).await;
    let stale = store
        .commit(&place(), Some(first), Version(1), puts([]))
        .await;
    assert!(matches!(stale, Err(StorageError::Conflict)));
    commit(&store, None, puts([item("b", "new")])).await;
    assert_eq!(items(&store).await, "b=new ");
    assert_eq!(rows(&store).await, 1 + 1);
    assert_eq!(store.due(u64::MAX - 1, 9).await, Ok(Vec::new()));
    assert_eq!(items(&store).await, "b=new ", "nobody is buried alive");
}

async fn what_is_replaced_leaves_no_parts<S: Server>(table: Table<S>) {
    let store = table.connected().await;
    let first = commit(&store, None, puts([large("a"), large("b")])).await;
    assert_eq!(rows(&store).await, 1 + 2 + 6);
    let second = commit(&store, Some(first), puts([large("a")])).await;
    assert_eq!(rows(&store).await, 1 + 2 + 6);
    let removes = vec![Bytes::from_static(b"b")];
    commit(
        &store,
        Some(second),
        Change {
            removes,
            ..puts([item("a", "small")])
        },
    )
    .await;
    assert_eq!(rows(&store).await, 1 + 1);
}

async fn what_is_refused_leaves_no_parts<S: Server>(table: Table<S>) {
    let (store, other, first) = begun(&table).await;
    commit(&other, Some(first), puts([])).await;
    let refused = store
        .commit(&place(), Some(first), Version(1), puts([large("c")]))
        .await;
    assert!(matches!(refused, Err(StorageError::Conflict)));
    let refused = store
        .commit(&place(), None, Version(1), puts([large("c")]))
        .await;
    assert!(matches!(refused, Err(StorageError::Conflict)));
    assert_eq!(rows(&store).await, 1 + 2);
}

async fn what_is_forgotten_is_gone<S: Server>(table: Table<S>) {
    let (store, _, first) = begun(&table).await;
    let second = commit(&store, Some(first), puts([large("a1"), item("c", "3")])).await;
    let forget = vec![Bytes::from_static(b"a")..Bytes::from_static(b"b")];
    commit(
        &store,
        Some(second),
        Change {
            forget,
            ..puts([item("a2", "new")])
        },
    )
    .await;
    assert_eq!(items(&store).await, "b=2 c=3 ");
    assert_eq!(rows(&store).await, 1 + 2);
}
