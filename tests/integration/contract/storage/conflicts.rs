//! Changes apply to the version that they name, or not at all.

use std::sync::Arc;

use mcp_sessiond_daemon::storage::{Change, Head, Item, Storage, StorageError, Version};

use super::{
    bytes, commit, create, delete, drawn, everything, item, items, only, pairs, place, puts, read,
    try_commit,
};
use crate::contract::backends::Backend;

pub(crate) async fn create_twice<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("twice"));
    let first = create(&*store, &place, puts(&[("a", "first")])).await;
    let second = try_commit(&*store, &place, None, puts(&[("a", "second")])).await;
    assert_eq!(second, Err(StorageError::Conflict));
    let found = read(&*store, &place, &["a"]).await;
    assert_eq!(
        (found.version, &found.items),
        (first, &vec![Some(item("a", "first"))])
    );
}

pub(crate) async fn update_of_the_missing<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("missing"));
    let updated = try_commit(&*store, &place, Some(drawn()), only("head")).await;
    assert_eq!(updated, Err(StorageError::Conflict));
    assert_eq!(store.read(&place, &[]).await, Ok(None));
}

pub(crate) async fn update_of_the_stale<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("stale"));
    let first = create(&*store, &place, only("1")).await;
    let second = commit(&*store, &place, Some(first), only("2")).await;
    assert_eq!(
        try_commit(&*store, &place, Some(first), only("3")).await,
        Err(StorageError::Conflict)
    );
    let found = read(&*store, &place, &[]).await;
    assert_eq!((found.version, found.head), (second, bytes("2")));
}

pub(crate) async fn update_after_a_delete<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("deleted"));
    let first = create(&*store, &place, only("1")).await;
    delete(&*store, &place, first).await;
    assert_eq!(store.read(&place, &[]).await, Ok(None));
    assert_eq!(
        try_commit(&*store, &place, Some(first), only("2")).await,
        Err(StorageError::Conflict)
    );
    assert_eq!(store.read(&place, &[]).await, Ok(None));
}

pub(crate) async fn delete_of_the_stale<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("stale"));
    let first = create(&*store, &place, puts(&[("a", "1")])).await;
    let second = commit(&*store, &place, Some(first), only("2")).await;
    assert_eq!(
        try_commit(&*store, &place, Some(first), Change::default()).await,
        Err(StorageError::Conflict)
    );
    assert_eq!(read(&*store, &place, &["a"]).await.version, second);
    assert_eq!(items(&*store, &place).await, pairs(&[("a", "1")]));
}

pub(crate) async fn delete_of_the_missing<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("missing"));
    let deleted = try_commit(&*store, &place, Some(drawn()), Change::default()).await;
    assert_eq!(deleted, Err(StorageError::Conflict));
}

pub(crate) async fn a_conflict_changes_nothing<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("unchanged"));
    let change = Change {
        head: Some(Head {
            bytes: bytes("before"),
            due_ms: 5,
        }),
        ..puts(&[("a", "1"), ("b", "2")])
    };
    let version = create(&*store, &place, change).await;
    let refused = [
        Change {
            clear: true,
            ..only("after")
        },
        Change {
            removes: vec![bytes("a")],
            ..only("after")
        },
        Change {
            forget: vec![everything()],
            ..only("after")
        },
        puts(&[("a", "new"), ("c", "new")]),
        only("after"),
        Change::default(),
    ];
    for change in refused {
        for expected in [None, Some(drawn())] {
            let refused = try_commit(&*store, &place, expected, change.clone()).await;
            assert_eq!(refused, Err(StorageError::Conflict), "{change:?}");
        }
    }
    let found = read(&*store, &place, &[]).await;
    assert_eq!((found.version, found.head), (version, bytes("before")));
    assert_eq!(
        items(&*store, &place).await,
        pairs(&[("a", "1"), ("b", "2")])
    );
    let due = store.due(5, 10).await.expect("readable");
    assert_eq!(due.len(), 1, "it is due as before");
}

pub(crate) async fn two_hundred_at_once<B: Backend>(backend: B) {
    write_at_once(B::WRITERS, &[backend.store()]).await;
}

pub(crate) async fn two_daemons_at_once<B: Backend>(backend: B) {
    write_at_once(B::WRITERS, &[backend.store(), backend.beside().await]).await;
}

/// Every writer adds an item and counts in the head, until no other was faster.
async fn write_at_once(count: usize, stores: &[Arc<dyn Storage>]) {
    let place = place("counter");
    create(&*stores[0], &place, only("0")).await;
    let writers: Vec<_> = (0..count)
        .map(|writer| {
            let (store, place) = (stores[writer % stores.len()].clone(), place.clone());
            tokio::spawn(async move {
                let mine = Item {
                    value: bytes(&writer.to_string()),
                    ..item(&format!("writer-{writer:03}"), "")
                };
                loop {
                    let found = read(&*store, &place, &[]).await;
                    let count: usize = super::text(&found.head).parse().expect("a number");
                    let change = Change {
                        puts: vec![mine.clone()],
                        ..only(&(count + 1).to_string())
                    };
                    match try_commit(&*store, &place, Some(found.version), change).await {
                        Ok(_) => return,
                        Err(error) => assert_eq!(error, StorageError::Conflict),
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("a writer that ends well");
    }
    for store in stores {
        assert_eq!(
            read(&**store, &place, &[]).await.head,
            bytes(&count.to_string())
        );
        let expected: Vec<_> = (0..count)
            .map(|writer| (format!("writer-{writer:03}"), writer.to_string()))
            .collect();
        assert_eq!(items(&**store, &place).await, expected);
    }
}

pub(crate) async fn the_version_is_the_one_that_was_drawn<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("drawn"));
    let mut expected = None;
    for next in [0, u64::MAX, 1, i64::MAX as u64, 1 << 63] {
        let next = Version(next);
        let kept = store
            .commit(&place, expected, next, only("head"))
            .await
            .expect("committed");
        kept.kept().await.expect("kept");
        assert_eq!(read(&*store, &place, &[]).await.version, next);
        assert_eq!(
            store.list("owner", "", 1).await.expect("readable")[0].version,
            next
        );
        expected = Some(next);
    }
}
