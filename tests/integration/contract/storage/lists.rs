//! Records in order: of their names, and of the time when they are due.

use mcp_sessiond_daemon::storage::{Change, Listed, RecordId};

use super::{bytes, commit, create, delete, due, only, place, puts};
use crate::contract::backends::Backend;

fn names(listed: &[Listed]) -> String {
    listed
        .iter()
        .map(|record| record.place.name.as_str())
        .collect::<Vec<_>>()
        .join(" ")
}

pub(crate) async fn list_in_pages<B: Backend>(backend: B) {
    let store = backend.store();
    let mut versions = Vec::new();
    for name in ["c", "a", "e", "B", "d"] {
        versions.push(create(&*store, &place(name), puts(&[("key", "value")])).await);
    }
    create(
        &*store,
        &RecordId {
            owner: "other".into(),
            name: "a".into(),
        },
        only("other's"),
    )
    .await;
    let page = |after: &'static str, most| {
        let store = store.clone();
        async move { names(&store.list("owner", after, most).await.expect("readable")) }
    };
    assert_eq!(page("", 2).await, "B a");
    assert_eq!(page("a", 2).await, "c d");
    assert_eq!(page("d", 2).await, "e");
    assert_eq!(page("e", 2).await, "");
    assert_eq!(page("", 100).await, "B a c d e");
    assert_eq!(page("", 0).await, "");
    let first = store.list("owner", "B", 1).await.expect("readable");
    assert_eq!(
        first,
        [Listed {
            place: place("a"),
            version: versions[1],
            head: bytes("head")
        }]
    );
}

pub(crate) async fn list_after_a_name_that_is_not_there<B: Backend>(backend: B) {
    let store = backend.store();
    for name in ["a", "c"] {
        create(&*store, &place(name), only("head")).await;
    }
    assert_eq!(
        names(&store.list("owner", "b", 10).await.expect("readable")),
        "c"
    );
    assert_eq!(
        names(&store.list("owner", "a ", 10).await.expect("readable")),
        "c"
    );
    let after = RecordId {
        owner: "owned".into(),
        name: "z".into(),
    };
    assert_eq!(
        names(&store.list_all(Some(&after), 10).await.expect("readable")),
        "a c"
    );
    assert_eq!(
        names(
            &store
                .list_all(Some(&place("b")), 10)
                .await
                .expect("readable")
        ),
        "c"
    );
}

pub(crate) async fn list_all_in_pages<B: Backend>(backend: B) {
    let store = backend.store();
    let mut places = Vec::new();
    for (owner, name) in [
        ("b", "1"),
        ("a", "2"),
        ("a", "1"),
        ("B", "9"),
        ("b", "0"),
        ("a b", "1"),
        ("c", "~"),
    ] {
        places.push(RecordId {
            owner: owner.into(),
            name: name.into(),
        });
    }
    for place in &places {
        create(&*store, place, puts(&[("key", "value")])).await;
    }
    places.sort_unstable();
    for most in [1, 2, 3, 100] {
        let mut found: Vec<RecordId> = Vec::new();
        loop {
            let page = store.list_all(found.last(), most).await.expect("readable");
            assert!(page.len() <= most);
            if page.is_empty() {
                break;
            }
            assert!(page.iter().all(|record| record.head == "head"));
            found.extend(page.into_iter().map(|record| record.place));
        }
        assert_eq!(found, places, "{most} at a time");
    }
}

pub(crate) async fn due_in_order<B: Backend>(backend: B) {
    let store = backend.store();
    for (name, due_ms) in [
        ("c", 30),
        ("a", 20),
        ("d", 10),
        ("b", 20),
        ("e", 40),
        ("now", 0),
    ] {
        create(&*store, &place(name), due(due_ms)).await;
    }
    let other = RecordId {
        owner: "other".into(),
        name: "d".into(),
    };
    create(&*store, &other, due(15)).await;
    let due = store.due(30, 100).await.expect("readable");
    assert_eq!(
        names(&due),
        "now d d a b c",
        "those that are longest due first"
    );
    assert_eq!((&due[2].place, &due[2].head), (&other, &bytes("due")));
    assert_eq!(
        names(&store.due(29, 100).await.expect("readable")),
        "now d d a b"
    );
    assert_eq!(names(&store.due(0, 100).await.expect("readable")), "now");
}

/// What was looked at is due later, so that the next page has the others.
pub(crate) async fn due_at_most<B: Backend>(backend: B) {
    let store = backend.store();
    for n in 0..10 {
        create(&*store, &place(&format!("{n}")), due(100 - n)).await;
    }
    assert_eq!(store.due(1000, 0).await, Ok(Vec::new()));
    let mut seen = Vec::new();
    loop {
        let page = store.due(1000, 4).await.expect("readable");
        assert!(page.len() <= 4);
        if page.is_empty() {
            break;
        }
        for record in page {
            commit(&*store, &record.place, Some(record.version), due(2000)).await;
            seen.push(record.place.name);
        }
    }
    assert_eq!(seen.concat(), "9876543210");
}

pub(crate) async fn due_is_updated<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("due"));
    let now = |now_ms| {
        let store = store.clone();
        async move { store.due(now_ms, 10).await.expect("readable").len() }
    };
    let mut version = create(&*store, &place, due(10)).await;
    assert_eq!((now(9).await, now(10).await), (0, 1));
    version = commit(&*store, &place, Some(version), due(20)).await;
    assert_eq!((now(19).await, now(20).await), (0, 1));
    version = commit(&*store, &place, Some(version), due(5)).await;
    assert_eq!((now(4).await, now(5).await), (0, 1));
    version = commit(&*store, &place, Some(version), due(u64::MAX)).await;
    assert_eq!(now(u64::MAX - 1).await, 0);
    version = commit(&*store, &place, Some(version), due(7)).await;
    assert_eq!(now(7).await, 1);
    delete(&*store, &place, version).await;
    assert_eq!(now(u64::MAX - 1).await, 0, "the deleted is not due");
}

pub(crate) async fn never_due<B: Backend>(backend: B) {
    let store = backend.store();
    create(&*store, &place("never"), due(u64::MAX)).await;
    create(&*store, &place("in an age"), due(1 << 60)).await;
    for now_ms in [u64::MAX - 1, u64::MAX] {
        assert_eq!(
            names(&store.due(now_ms, 10).await.expect("readable")),
            "in an age",
            "at {now_ms}"
        );
    }
    assert_eq!(store.due((1 << 60) - 1, 10).await, Ok(Vec::new()));
}

pub(crate) async fn count_up_to_most<B: Backend>(backend: B) {
    let store = backend.store();
    assert_eq!(store.count("owner", 10).await, Ok(0));
    let mut last = None;
    for n in 0..5 {
        last = Some(
            create(
                &*store,
                &place(&format!("{n}")),
                Change {
                    ..puts(&[("a", "1"), ("b", "2")])
                },
            )
            .await,
        );
    }
    create(
        &*store,
        &RecordId {
            owner: "other".into(),
            name: "0".into(),
        },
        only("head"),
    )
    .await;
    assert_eq!(store.count("owner", 10).await, Ok(5));
    assert_eq!(store.count("owner", 5).await, Ok(5));
    assert_eq!(store.count("owner", 3).await, Ok(3));
    assert_eq!(store.count("owner", 0).await, Ok(0));
    delete(&*store, &place("4"), last.expect("a version")).await;
    assert_eq!(store.count("owner", 10).await, Ok(4));
}
