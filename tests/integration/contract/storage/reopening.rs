//! What is there when the daemon has crashed and started again: everything that was kept, or
//! nothing where the backend says that it keeps nothing.

use mcp_sessiond_daemon::storage::{Change, Head, Item, Scan};

use super::{
    bytes, commit, create, delete, due, everything, item, only, place, puts, read, tagged,
};
use crate::contract::backends::Backend;

pub(crate) async fn reopened_with_everything<B: Backend>(mut backend: B) {
    let store = backend.store();
    let (one, other) = (place("one"), place("other"));
    let large = Item {
        value: vec![7; 1 << 20].into(),
        ..item("large", "")
    };
    let head = Some(Head {
        bytes: bytes("one's"),
        due_ms: 10,
    });
    let change = Change {
        head,
        puts: vec![tagged("a", "tag", "1"), large.clone()],
        ..Change::default()
    };
    let first = create(&*store, &one, change).await;
    let change = Change {
        head: due(20).head,
        removes: vec![bytes("b")],
        ..puts(&[("c", "3")])
    };
    let second = commit(&*store, &one, Some(first), change).await;
    create(&*store, &other, puts(&[("a", "other's")])).await;
    drop(store);
    backend.reopen().await;
    let store = backend.store();
    if !B::DURABLE {
        assert_eq!(
            store.list_all(None, 10).await,
            Ok(Vec::new()),
            "it keeps nothing"
        );
        return;
    }
    assert_eq!(store.list_all(None, 10).await.expect("readable").len(), 2);
    let found = read(&*store, &one, &["a", "b"]).await;
    assert_eq!((found.version, found.head), (second, bytes("due")));
    assert_eq!(found.items, [Some(tagged("a", "tag", "1")), None]);
    let all = store
        .scan(&one, &Scan::of(everything(), 10, usize::MAX))
        .await
        .expect("readable");
    assert!(all == [tagged("a", "tag", "1"), item("c", "3"), large]);
    assert_eq!(store.due(19, 10).await.expect("readable").len(), 0);
    assert_eq!(store.due(20, 10).await.expect("readable").len(), 1);
    commit(&*store, &one, Some(second), only("after")).await;
}

pub(crate) async fn reopened_without_the_deleted<B: Backend>(mut backend: B) {
    let (store, place) = (backend.store(), place("deleted"));
    let first = create(&*store, &place, puts(&[("a", "1"), ("b", "2")])).await;
    delete(&*store, &place, first).await;
    drop(store);
    backend.reopen().await;
    let store = backend.store();
    assert_eq!(store.read(&place, &[]).await, Ok(None));
    create(&*store, &place, puts(&[("c", "3")])).await;
    drop(store);
    backend.reopen().await;
    let found = backend
        .store()
        .scan(&place, &Scan::of(everything(), 10, 100))
        .await
        .expect("readable");
    let expected = if B::DURABLE {
        vec![item("c", "3")]
    } else {
        Vec::new()
    };
    assert_eq!(found, expected);
}

pub(crate) async fn works_when_asked<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("settled"));
    assert_eq!(store.check(), Ok(()));
    store
        .settled(&place)
        .kept()
        .await
        .expect("nothing to wait for");
    create(&*store, &place, only("head")).await;
    store.settled(&place).kept().await.expect("kept");
    assert_eq!(store.check(), Ok(()));
    assert!(["memory", "sqlite", "postgres", "dynamodb"].contains(&store.name()));
}
