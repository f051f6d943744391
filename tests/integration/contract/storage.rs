//! The promises of the trait `Storage`.

mod changes;
mod conflicts;
mod lists;
mod reads;
mod reopening;

use std::ops::Range;

use bytes::Bytes;
use mcp_sessiond_daemon::storage::{
    Change, Head, Item, Key, Record, RecordId, Scan, Storage, StorageError, Version,
};

pub(crate) use changes::*;
pub(crate) use conflicts::*;
pub(crate) use lists::*;
pub(crate) use reads::*;
pub(crate) use reopening::*;

/// The cases of this layer.
macro_rules! cases {
    ($needs:ident $backend:ty) => {
        crate::contract::tests! { $needs $backend, crate::contract::storage,
            create_twice
            update_of_the_missing
            update_of_the_stale
            update_after_a_delete
            delete_of_the_stale
            delete_of_the_missing
            a_conflict_changes_nothing
            two_hundred_at_once
            two_daemons_at_once
            the_version_is_the_one_that_was_drawn

            recreated_without_former_items
            a_head_alone_keeps_the_items
            puts_replace
            removes_come_before_puts
            clear_comes_before_puts
            removes_and_puts_after_a_clear
            forget_spares_the_rest
            forgotten_with_other_changes
            a_value_of_3584_kib
            a_value_of_nearly_4_mib
            as_many_puts_as_there_may_be
            as_many_removes_as_there_may_be
            the_largest_head
            empty_values_and_heads
            keys_of_every_byte
            names_of_every_character
            owners_of_any_text

            read_of_the_missing
            read_in_the_order_asked
            read_of_one_version
            scan_in_order_of_keys
            scan_of_a_range
            scan_of_nothing
            scan_at_most
            scan_until_bytes
            scan_by_tags
            scan_by_tags_until_bytes
            owners_do_not_see_each_other
            records_do_not_see_each_other

            list_in_pages
            list_after_a_name_that_is_not_there
            list_all_in_pages
            due_in_order
            due_at_most
            due_is_updated
            never_due
            count_up_to_most

            reopened_with_everything
            reopened_without_the_deleted
            works_when_asked
        }
    };
}
pub(super) use cases;

/// Of one owner, with this name.
fn place(name: &str) -> RecordId {
    RecordId {
        owner: "owner".into(),
        name: name.into(),
    }
}

/// Another one than any before.
fn drawn() -> Version {
    Version(fastrand::u64(..))
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// A head that nobody has to look at.
fn head(text: &str) -> Option<Head> {
    Some(Head {
        bytes: bytes(text),
        due_ms: u64::MAX,
    })
}

fn due(due_ms: u64) -> Change {
    Change {
        head: Some(Head {
            bytes: bytes("due"),
            due_ms,
        }),
        ..Change::default()
    }
}

/// A change of the head alone.
fn only(text: &str) -> Change {
    Change {
        head: head(text),
        ..Change::default()
    }
}

/// A change that puts these items.
fn puts(items: &[(&str, &str)]) -> Change {
    Change {
        puts: items.iter().map(|(key, value)| item(key, value)).collect(),
        ..only("head")
    }
}

fn item(key: &str, value: &str) -> Item {
    Item {
        key: bytes(key),
        tag: String::new(),
        value: bytes(value),
    }
}

fn tagged(key: &str, tag: &str, value: &str) -> Item {
    Item {
        tag: tag.into(),
        ..item(key, value)
    }
}

fn keys(names: &[&str]) -> Vec<Key> {
    names.iter().map(|name| bytes(name)).collect()
}

/// From a key to before another.
fn range(from: &str, to: &str) -> Range<Key> {
    bytes(from)..bytes(to)
}

/// Every key but the very last that there can be.
fn everything() -> Range<Key> {
    Bytes::from_static(&[0])..Bytes::from_static(&[0xFF; 256])
}

/// Commits, and waits until it is kept.
async fn try_commit(
    store: &dyn Storage,
    place: &RecordId,
    expected: Option<Version>,
    change: Change,
) -> Result<Version, StorageError> {
    let next = drawn();
    store
        .commit(place, expected, next, change)
        .await?
        .kept()
        .await?;
    Ok(next)
}

/// Commits what must succeed.
async fn commit(
    store: &dyn Storage,
    place: &RecordId,
    expected: Option<Version>,
    change: Change,
) -> Version {
    try_commit(store, place, expected, change)
        .await
        .expect("committed")
}

/// Makes a record.
async fn create(store: &dyn Storage, place: &RecordId, change: Change) -> Version {
    commit(store, place, None, change).await
}

/// Deletes a record.
async fn delete(store: &dyn Storage, place: &RecordId, expected: Version) {
    commit(store, place, Some(expected), Change::default()).await;
}

/// A record that is there, with the values of these items.
async fn read(store: &dyn Storage, place: &RecordId, names: &[&str]) -> Record {
    store
        .read(place, &keys(names))
        .await
        .expect("readable")
        .expect("a record")
}

/// All items of a record: keys and values, as text.
async fn items(store: &dyn Storage, place: &RecordId) -> Vec<(String, String)> {
    let items = store
        .scan(place, &Scan::of(everything(), usize::MAX, usize::MAX))
        .await
        .expect("readable");
    items
        .iter()
        .map(|item| (text(&item.key), text(&item.value)))
        .collect()
}

fn pairs(items: &[(&str, &str)]) -> Vec<(String, String)> {
    items
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()))
        .collect()
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}
