//! What is read: items that are asked for, and items in a range.

use mcp_sessiond_daemon::storage::{Change, Item, Key, RecordId, Scan, Storage};

use super::{
    bytes, commit, create, everything, item, items, keys, only, pairs, place, puts, range, read,
    tagged, text,
};
use crate::contract::backends::Backend;

pub(crate) async fn read_of_the_missing<B: Backend>(backend: B) {
    let (store, missing) = (backend.store(), place("missing"));
    create(&*store, &place("other"), puts(&[("a", "1")])).await;
    assert_eq!(store.read(&missing, &keys(&["a"])).await, Ok(None));
    assert_eq!(store.read(&missing, &[]).await, Ok(None));
    assert_eq!(
        store.scan(&missing, &Scan::of(everything(), 10, 100)).await,
        Ok(Vec::new())
    );
}

pub(crate) async fn read_in_the_order_asked<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("order"));
    create(&*store, &place, puts(&[("a", "1"), ("b", "2"), ("c", "3")])).await;
    let found = read(&*store, &place, &["c", "0", "a", "z"]).await;
    assert_eq!(
        found.items,
        [Some(item("c", "3")), None, Some(item("a", "1")), None]
    );
    assert_eq!(read(&*store, &place, &[]).await.items, []);
    let many: Vec<Key> = (0..128)
        .rev()
        .map(|n| bytes(&format!("{n:03}")))
        .chain(keys(&["b"]))
        .collect();
    let found = store
        .read(&place, &many)
        .await
        .expect("readable")
        .expect("a record")
        .items;
    assert_eq!(
        found.iter().flatten().collect::<Vec<_>>(),
        [&item("b", "2")]
    );
    assert_eq!((found.len(), &found[128]), (129, &Some(item("b", "2"))));
}

/// Two items change together, while another daemon reads them.
pub(crate) async fn read_of_one_version<B: Backend>(backend: B) {
    const NAMES: [&str; 2] = ["a", "b"];
    let (store, beside, place) = (backend.store(), backend.beside().await, place("together"));
    let both = |n: u32| {
        puts(
            &NAMES
                .map(|name| (name, n.to_string()))
                .each_ref()
                .map(|(name, n)| (*name, &**n)),
        )
    };
    let mut version = create(&*store, &place, both(0)).await;
    let writes = async {
        for n in 1..=60 {
            version = commit(&*store, &place, Some(version), both(n)).await;
        }
    };
    let reads = async {
        loop {
            let [a, b] = read(&*beside, &place, &NAMES)
                .await
                .items
                .try_into()
                .expect("two");
            assert_eq!(a.expect("there").value, b.expect("there").value);
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = writes => {}
        () = reads => {}
    }
}

/// Items `a0` to `a9` of ten bytes each, with the tags `even` and `odd`.
async fn ten(store: &dyn Storage, place: &RecordId) {
    let tag = |n: u32| if n.is_multiple_of(2) { "even" } else { "odd" };
    let puts: Vec<Item> = [4, 1, 9, 0, 7, 3, 2, 8, 6, 5]
        .map(|n| tagged(&format!("a{n}"), tag(n), &format!("ten bytes{n}")))
        .to_vec();
    create(
        store,
        place,
        Change {
            puts,
            ..only("head")
        },
    )
    .await;
}

/// The keys of what a scan finds.
async fn found(
    store: &dyn Storage,
    place: &RecordId,
    (from, to): (&str, &str),
    tags: &[&str],
    most: usize,
    bytes: usize,
) -> String {
    let tags: Vec<String> = tags.iter().map(|tag| (*tag).into()).collect();
    let found = store
        .scan(
            place,
            &Scan {
                tags,
                ..Scan::of(range(from, to), most, bytes)
            },
        )
        .await
        .expect("readable");
    found
        .iter()
        .map(|item| text(&item.key))
        .collect::<Vec<_>>()
        .join(" ")
}

const ALL: (&str, &str) = ("a", "b");

pub(crate) async fn scan_in_order_of_keys<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("scan"));
    ten(&*store, &place).await;
    let all = store
        .scan(&place, &Scan::of(everything(), usize::MAX, usize::MAX))
        .await
        .expect("readable");
    assert_eq!(all[3], tagged("a3", "odd", "ten bytes3"));
    assert_eq!(
        found(&*store, &place, ALL, &[], 100, 1000).await,
        "a0 a1 a2 a3 a4 a5 a6 a7 a8 a9",
        "whatever the order in which they were put"
    );
}

pub(crate) async fn scan_of_a_range<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("scan"));
    ten(&*store, &place).await;
    assert_eq!(
        found(&*store, &place, ("a3", "a6"), &[], 100, 1000).await,
        "a3 a4 a5"
    );
    assert_eq!(
        found(&*store, &place, ("a3\0", "a6\0"), &[], 100, 1000).await,
        "a4 a5 a6"
    );
    assert_eq!(
        found(&*store, &place, ("a8", "z"), &[], 100, 1000).await,
        "a8 a9"
    );
    assert_eq!(
        found(&*store, &place, ("A", "a1"), &[], 100, 1000).await,
        "a0"
    );
}

pub(crate) async fn scan_of_nothing<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("scan"));
    ten(&*store, &place).await;
    for nothing in [
        ("a3", "a3"),
        ("a6", "a3"),
        ("b", "c"),
        ("a0\0", "a1"),
        ("a", "a0"),
    ] {
        assert_eq!(
            found(&*store, &place, nothing, &[], 100, 1000).await,
            "",
            "{nothing:?}"
        );
    }
    assert_eq!(found(&*store, &place, ALL, &[], 0, 1000).await, "");
}

pub(crate) async fn scan_at_most<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("scan"));
    ten(&*store, &place).await;
    assert_eq!(found(&*store, &place, ALL, &[], 1, 1000).await, "a0");
    assert_eq!(
        found(&*store, &place, ("a2", "b"), &[], 3, 1000).await,
        "a2 a3 a4"
    );
    assert_eq!(
        found(&*store, &place, ("a8", "b"), &[], 2, 1000).await,
        "a8 a9"
    );
}

/// The item with which they have the bytes is the last; so there is one, however large it is.
pub(crate) async fn scan_until_bytes<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("scan"));
    ten(&*store, &place).await;
    for (bytes, expected) in [
        (1, "a0"),
        (10, "a0"),
        (11, "a0 a1"),
        (20, "a0 a1"),
        (21, "a0 a1 a2"),
        (30, "a0 a1 a2"),
    ] {
        assert_eq!(
            found(&*store, &place, ALL, &[], 100, bytes).await,
            expected,
            "{bytes} bytes"
        );
    }
    assert_eq!(found(&*store, &place, ALL, &[], 2, 30).await, "a0 a1");
}

pub(crate) async fn scan_by_tags<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("scan"));
    ten(&*store, &place).await;
    assert_eq!(
        found(&*store, &place, ALL, &["odd"], 100, 1000).await,
        "a1 a3 a5 a7 a9"
    );
    assert_eq!(
        found(&*store, &place, ALL, &["odd", "none"], 2, 1000).await,
        "a1 a3"
    );
    assert_eq!(
        found(&*store, &place, ("a4", "a7"), &["even", "odd"], 100, 1000).await,
        "a4 a5 a6"
    );
    assert_eq!(found(&*store, &place, ALL, &["none"], 100, 1000).await, "");
    assert_eq!(
        found(&*store, &place, ALL, &["od", "odd ", "ODD", "%"], 100, 1000).await,
        ""
    );
    assert_eq!(
        found(&*store, &place, ALL, &[""], 100, 1000).await,
        "",
        "no item has the empty tag"
    );
}

/// What the tags leave out counts for nothing.
pub(crate) async fn scan_by_tags_until_bytes<B: Backend>(backend: B) {
    let (store, place) = (backend.store(), place("scan"));
    ten(&*store, &place).await;
    assert_eq!(
        found(&*store, &place, ALL, &["odd"], 100, 11).await,
        "a1 a3"
    );
    assert_eq!(
        found(&*store, &place, ALL, &["even"], 100, 20).await,
        "a0 a2"
    );
}

pub(crate) async fn owners_do_not_see_each_other<B: Backend>(backend: B) {
    let store = backend.store();
    let place = |owner: &str| RecordId {
        owner: owner.into(),
        name: "same".into(),
    };
    let (one, other, nobody) = (place("one"), place("other"), place("one "));
    let version = create(&*store, &one, puts(&[("a", "one's"), ("b", "one's")])).await;
    assert_eq!(store.read(&other, &[]).await, Ok(None));
    assert_eq!(items(&*store, &other).await, []);
    create(&*store, &other, puts(&[("a", "other's")])).await;
    assert_eq!(
        items(&*store, &one).await,
        pairs(&[("a", "one's"), ("b", "one's")])
    );
    assert_eq!(items(&*store, &other).await, pairs(&[("a", "other's")]));
    assert_eq!(store.list("one", "", 10).await.expect("readable").len(), 1);
    assert_eq!(store.list("nobody", "", 10).await, Ok(Vec::new()));
    assert_eq!(store.read(&nobody, &[]).await, Ok(None));
    super::delete(&*store, &one, version).await;
    assert_eq!(items(&*store, &other).await, pairs(&[("a", "other's")]));
    assert_eq!(
        (store.count("one", 10).await, store.count("other", 10).await),
        (Ok(0), Ok(1))
    );
}

pub(crate) async fn records_do_not_see_each_other<B: Backend>(backend: B) {
    let (store, one, other) = (backend.store(), place("a"), place("a "));
    let version = create(&*store, &one, puts(&[("a", "one's"), ("b", "one's")])).await;
    create(&*store, &other, puts(&[("a", "other's")])).await;
    let change = Change {
        clear: true,
        forget: vec![everything()],
        ..only("head")
    };
    commit(&*store, &one, Some(version), change).await;
    assert_eq!(items(&*store, &other).await, pairs(&[("a", "other's")]));
}
