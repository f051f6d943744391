//! What a change does, in which order, and how large it may be.

use bytes::Bytes;
use mcp_sessiond_daemon::storage::{Change, Head, Item, Key, RecordId, Scan, Storage};

use super::{
    bytes, commit, create, delete, everything, head, item, items, only, pairs, place, puts, range,
    read, tagged,
};
use crate::contract::backends::Backend;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

pub(crate) async fn recreated_without_former_items<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("again"));
    let first = create(&*store, &place, puts(&[("a", "1"), ("b", "2")])).await;
    delete(&*store, &place, first).await;
    assert_eq!(items(&*store, &place).await, []);
    create(&*store, &place, puts(&[("b", "new")])).await;
    assert_eq!(
        read(&*store, &place, &["a", "b"]).await.items,
        [None, Some(item("b", "new"))]
    );
    assert_eq!(items(&*store, &place).await, pairs(&[("b", "new")]));
}

pub(crate) async fn a_head_alone_keeps_the_items<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("head"));
    let first = create(&*store, &place, puts(&[("a", "1"), ("b", "2")])).await;
    commit(&*store, &place, Some(first), only("new")).await;
    assert_eq!(read(&*store, &place, &[]).await.head, bytes("new"));
    assert_eq!(
        items(&*store, &place).await,
        pairs(&[("a", "1"), ("b", "2")])
    );
}

pub(crate) async fn puts_replace<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("puts"));
    let change = Change {
        puts: vec![tagged("a", "old", "1"), tagged("b", "old", "2")],
        ..only("head")
    };
    let first = create(&*store, &place, change).await;
    let change = Change {
        puts: vec![tagged("a", "new", "3"), tagged("c", "new", "4")],
        ..only("head")
    };
    commit(&*store, &place, Some(first), change).await;
    let found = read(&*store, &place, &["a", "b", "c"]).await.items;
    assert_eq!(
        found,
        [
            tagged("a", "new", "3"),
            tagged("b", "old", "2"),
            tagged("c", "new", "4")
        ]
        .map(Some)
    );
}

pub(crate) async fn removes_come_before_puts<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("removes"));
    let first = create(&*store, &place, puts(&[("a", "1"), ("b", "2"), ("c", "3")])).await;
    let removes = super::keys(&["a", "b", "not there"]);
    commit(
        &*store,
        &place,
        Some(first),
        Change {
            removes,
            ..puts(&[("b", "new"), ("d", "4")])
        },
    )
    .await;
    assert_eq!(
        items(&*store, &place).await,
        pairs(&[("b", "new"), ("c", "3"), ("d", "4")])
    );
}

pub(crate) async fn clear_comes_before_puts<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("clear"));
    let first = create(
        &*store,
        &place,
        puts(&[("a", "1"), ("b", "2"), ("\u{7f}", "3")]),
    )
    .await;
    let second = commit(
        &*store,
        &place,
        Some(first),
        Change {
            clear: true,
            ..puts(&[("b", "new"), ("c", "4")])
        },
    )
    .await;
    assert_eq!(
        items(&*store, &place).await,
        pairs(&[("b", "new"), ("c", "4")])
    );
    commit(
        &*store,
        &place,
        Some(second),
        Change {
            clear: true,
            ..only("head")
        },
    )
    .await;
    assert_eq!(items(&*store, &place).await, []);
}

pub(crate) async fn removes_and_puts_after_a_clear<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("clear"));
    let change = Change {
        clear: true,
        removes: super::keys(&["a", "b"]),
        ..puts(&[("b", "1"), ("c", "2")])
    };
    let first = create(&*store, &place, change.clone()).await;
    assert_eq!(
        items(&*store, &place).await,
        pairs(&[("b", "1"), ("c", "2")])
    );
    commit(&*store, &place, Some(first), change).await;
    assert_eq!(
        items(&*store, &place).await,
        pairs(&[("b", "1"), ("c", "2")])
    );
}

/// Of what is forgotten nothing is asked, for it may be there for a while.
pub(crate) async fn forget_spares_the_rest<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("forget"));
    let some = [
        ("a1", "1"),
        ("a2", "2"),
        ("b1", "3"),
        ("b2", "4"),
        ("c1", "5"),
    ];
    let first = create(&*store, &place, puts(&some)).await;
    let none = vec![range("b", "b"), range("z", "a"), range("x", "y")];
    let second = commit(
        &*store,
        &place,
        Some(first),
        Change {
            forget: none,
            ..only("head")
        },
    )
    .await;
    assert_eq!(items(&*store, &place).await, pairs(&some));
    let forget = vec![range("a", "b1"), range("a2", "b"), range("c", "d")];
    commit(
        &*store,
        &place,
        Some(second),
        Change {
            forget,
            ..only("head")
        },
    )
    .await;
    let rest = store
        .scan(&place, &Scan::of(range("b", "c"), 10, MIB))
        .await
        .expect("readable");
    assert_eq!(rest, [item("b1", "3"), item("b2", "4")]);
}

pub(crate) async fn forgotten_with_other_changes<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("forget"));
    let first = create(
        &*store,
        &place,
        puts(&[("a1", "1"), ("a2", "2"), ("b1", "3"), ("b2", "4")]),
    )
    .await;
    let forget = vec![range("a", "b")];
    let removes = super::keys(&["a1", "b1"]);
    commit(
        &*store,
        &place,
        Some(first),
        Change {
            forget,
            removes,
            ..puts(&[("b2", "new"), ("b3", "5")])
        },
    )
    .await;
    let rest = store
        .scan(&place, &Scan::of(range("b", "c"), 10, MIB))
        .await
        .expect("readable");
    assert_eq!(rest, [item("b2", "new"), item("b3", "5")]);
}

/// Bytes that no compression makes any smaller.
fn noise(length: usize) -> Bytes {
    (0..length).map(|_| fastrand::u8(..)).collect()
}

async fn keeps_a_value_of(store: &dyn Storage, length: usize) {
    let place = place("large");
    let large = Item {
        value: noise(length),
        ..item("large", "")
    };
    let first = create(store, &place, puts(&[("small", "1")])).await;
    commit(
        store,
        &place,
        Some(first),
        Change {
            puts: vec![large.clone()],
            ..only("head")
        },
    )
    .await;
    let found = read(store, &place, &["large", "small"]).await.items;
    assert!(
        found == [Some(large.clone()), Some(item("small", "1"))],
        "as it was put"
    );
    let found = store
        .scan(&place, &Scan::of(everything(), 10, usize::MAX))
        .await
        .expect("readable");
    assert!(found == [large, item("small", "1")], "as it was put");
}

pub(crate) async fn a_value_of_3584_kib<B: Backend>(backend: B) {
    keeps_a_value_of(&*backend.store(), 3584 * KIB).await;
}

pub(crate) async fn a_value_of_nearly_4_mib<B: Backend>(backend: B) {
    keeps_a_value_of(&*backend.store(), 4 * MIB - 4 * KIB).await;
}

pub(crate) async fn as_many_puts_as_there_may_be<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("many"));
    let some = |length| -> Vec<Item> {
        (0..128)
            .map(|n| Item {
                value: noise(length),
                ..item(&format!("{n:03}"), "")
            })
            .collect()
    };
    let (first, second) = (some(31 * KIB), some(100));
    let version = create(
        &*store,
        &place,
        Change {
            puts: first.clone(),
            ..only("head")
        },
    )
    .await;
    let found = store
        .scan(&place, &Scan::of(everything(), 1000, usize::MAX))
        .await
        .expect("readable");
    assert!(found == first, "as they were put");
    commit(
        &*store,
        &place,
        Some(version),
        Change {
            puts: second.clone(),
            ..only("head")
        },
    )
    .await;
    let keys: Vec<Key> = second.iter().map(|item| item.key.clone()).collect();
    let found = store
        .read(&place, &keys)
        .await
        .expect("readable")
        .expect("a record")
        .items;
    assert!(
        found.into_iter().eq(second.into_iter().map(Some)),
        "as they were put"
    );
}

pub(crate) async fn as_many_removes_as_there_may_be<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("many"));
    let mut version = create(&*store, &place, only("head")).await;
    let some = |prefix: &str| -> Vec<Item> {
        (0..128)
            .map(|n| item(&format!("{prefix}{n:03}"), "1"))
            .collect()
    };
    for prefix in ["a", "b"] {
        version = commit(
            &*store,
            &place,
            Some(version),
            Change {
                puts: some(prefix),
                ..only("head")
            },
        )
        .await;
    }
    let removes = some("a").into_iter().map(|item| item.key).collect();
    commit(
        &*store,
        &place,
        Some(version),
        Change {
            removes,
            puts: some("c"),
            ..only("head")
        },
    )
    .await;
    let found = store
        .scan(&place, &Scan::of(everything(), 1000, usize::MAX))
        .await
        .expect("readable");
    assert_eq!(found, [some("b"), some("c")].concat());
}

pub(crate) async fn the_largest_head<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("head"));
    let large = Head {
        bytes: noise(64 * KIB),
        due_ms: 7,
    };
    let first = create(
        &*store,
        &place,
        Change {
            head: Some(large.clone()),
            ..Change::default()
        },
    )
    .await;
    assert!(read(&*store, &place, &[]).await.head == large.bytes);
    assert!(store.list("owner", "", 10).await.expect("readable")[0].head == large.bytes);
    assert!(store.due(7, 10).await.expect("readable")[0].head == large.bytes);
    let puts = vec![Item {
        value: noise(3584 * KIB),
        ..item("a", "")
    }];
    let large = Head {
        bytes: noise(64 * KIB),
        due_ms: 7,
    };
    commit(
        &*store,
        &place,
        Some(first),
        Change {
            head: Some(large.clone()),
            puts,
            ..Change::default()
        },
    )
    .await;
    assert!(read(&*store, &place, &[]).await.head == large.bytes);
}

pub(crate) async fn empty_values_and_heads<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("empty"));
    create(
        &*store,
        &place,
        Change {
            head: head(""),
            ..puts(&[("a", "")])
        },
    )
    .await;
    let found = read(&*store, &place, &["a"]).await;
    assert_eq!(
        (found.head, found.items),
        (Bytes::new(), vec![Some(item("a", ""))])
    );
    assert_eq!(items(&*store, &place).await, pairs(&[("a", "")]));
}

pub(crate) async fn keys_of_every_byte<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("keys"));
    let one = |key: Vec<u8>| Item {
        value: Bytes::copy_from_slice(&key),
        key: key.into(),
        tag: String::new(),
    };
    let mut all: Vec<Item> = (0..=255).map(|byte| one(vec![byte])).collect();
    all.extend((0..=255).map(|byte| one(vec![byte, 0, 0xFF, byte])));
    all.push(one(vec![0; 256]));
    all.push(one([&[0xFF; 255][..], &[0xFE]].concat()));
    let mut version = create(&*store, &place, only("head")).await;
    fastrand::shuffle(&mut all);
    for some in all.chunks(128) {
        version = commit(
            &*store,
            &place,
            Some(version),
            Change {
                puts: some.to_vec(),
                ..only("head")
            },
        )
        .await;
    }
    for some in all.chunks(100) {
        let keys: Vec<Key> = some.iter().map(|item| item.key.clone()).collect();
        let found = store
            .read(&place, &keys)
            .await
            .expect("readable")
            .expect("a record")
            .items;
        assert!(found.into_iter().eq(some.iter().cloned().map(Some)));
    }
    all.sort_by(|one, other| one.key.cmp(&other.key));
    assert!(
        store
            .scan(&place, &Scan::of(everything(), 1000, MIB))
            .await
            .expect("readable")
            == all,
        "in their order"
    );
    let removes = all.iter().step_by(5).map(|item| item.key.clone()).collect();
    commit(
        &*store,
        &place,
        Some(version),
        Change {
            removes,
            ..only("head")
        },
    )
    .await;
    let mut left = all.clone();
    let mut number = 0;
    left.retain(|_| {
        number += 1;
        number % 5 != 1
    });
    assert!(
        store
            .scan(&place, &Scan::of(everything(), 1000, MIB))
            .await
            .expect("readable")
            == left
    );
}

pub(crate) async fn names_of_every_character<B: Backend>(backend: B) {
    let store = backend.store();
    let all: String = (' '..='~').collect();
    let mut names: Vec<String> = all.chars().map(String::from).collect();
    names.extend(all.chars().map(|one| format!("a{one}")));
    names.extend([
        all.clone(),
        "x".repeat(160),
        "%".repeat(160),
        " ".repeat(160),
        "'\"\\; --".into(),
    ]);
    fastrand::shuffle(&mut names);
    for name in &names {
        create(&*store, &place(name), puts(&[("key", name)])).await;
    }
    for name in &names {
        assert_eq!(items(&*store, &place(name)).await, pairs(&[("key", name)]));
    }
    names.sort_unstable();
    let found = store.list("owner", "", 1000).await.expect("readable");
    assert!(
        found.iter().map(|record| &record.place.name).eq(&names),
        "in the order of their bytes"
    );
}

pub(crate) async fn owners_of_any_text<B: Backend>(backend: B) {
    let store = backend.store();
    let long = "é".repeat(256);
    let mut owners = [
        "a",
        "B",
        "b",
        "é",
        "e\u{301}",
        "z",
        "\u{FFFD}",
        "𐀀",
        " ",
        "a b",
        "https://x#?",
        "'\\\"",
        "%",
        &long,
    ];
    for owner in owners {
        let place = RecordId {
            owner: owner.into(),
            name: "name".into(),
        };
        create(&*store, &place, puts(&[("key", owner)])).await;
    }
    for owner in owners {
        let place = RecordId {
            owner: owner.into(),
            name: "name".into(),
        };
        assert_eq!(items(&*store, &place).await, pairs(&[("key", owner)]));
        assert_eq!(store.count(owner, 10).await, Ok(1));
    }
    owners.sort_unstable();
    let found = store.list_all(None, 100).await.expect("readable");
    assert!(
        found
            .iter()
            .map(|record| record.place.owner.as_str())
            .eq(owners),
        "in the order of their bytes"
    );
}
