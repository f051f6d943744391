//! The log's own: its format, what cuts it, and what it takes.

use super::*;
use crate::storage::{Head, Item};
use crate::tmpfs::Tmpfs;

const ID: LogId = LogId(7);

fn place(name: &str) -> RecordId {
    RecordId {
        owner: "service test".into(),
        name: name.into(),
    }
}

fn change(value: &[u8]) -> Change {
    let head = Head {
        bytes: "head".into(),
        due_ms: u64::MAX,
    };
    let item = Item {
        key: "key".into(),
        tag: "tag".into(),
        value: value.to_vec().into(),
    };
    Change {
        head: Some(head),
        puts: vec![item],
        ..Change::default()
    }
}

fn begun(disk: &Tmpfs) -> (PathBuf, Redo) {
    let database = disk.path().join("contents.db");
    let redo = Redo::begin(&database, ID, Number::default()).expect("begun");
    (database, redo)
}

/// Entries with these versions, the first of which makes the record.
fn append(
    redo: &mut Redo,
    versions: std::ops::RangeInclusive<u64>,
    value: &[u8],
) -> Vec<Option<Number>> {
    let expected = |version| (version > 1).then(|| Version(version - 1));
    versions
        .map(|version| {
            let next = Version(version);
            redo.is_with(|| true)
                .then(|| redo.append(&place("a"), expected(version), next, &change(value)))
                .flatten()
        })
        .collect()
}

fn versions(left: &[Logged]) -> Vec<u64> {
    left.iter().map(|entry| entry.next.0).collect()
}

#[test]
fn what_was_appended_is_left_from_what_the_database_has_on() {
    let disk = Tmpfs::shared();
    let (database, mut redo) = begun(&disk);
    assert_eq!(
        append(&mut redo, 1..=3, b"value"),
        [1, 2, 3].map(|number| Some(Number(number)))
    );
    let found = |id, has| versions(&left(&database, id, Number(has)).expect("read"));
    assert_eq!(
        (found(ID, 0), found(ID, 2), found(ID, 3)),
        (vec![1, 2, 3], vec![3], vec![])
    );
    assert_eq!(
        found(LogId(8), 0),
        Vec::<u64>::new(),
        "it is not that database's"
    );
    let all = left(&database, ID, Number(0)).expect("read");
    assert_eq!(
        (&all[0].place, all[0].expected, &all[0].change),
        (&place("a"), None, &change(b"value"))
    );
    assert_eq!(all[1].expected, Some(Version(1)));
}

#[test]
fn it_is_emptied_when_the_database_has_the_last_entry() {
    let disk = Tmpfs::shared();
    let (database, mut redo) = begun(&disk);
    append(&mut redo, 1..=3, b"value");
    for (up_to, expected) in [(None, 3), (Some(Number(2)), 3), (Some(Number(3)), 0)] {
        redo.committed(up_to);
        assert_eq!(
            left(&database, ID, Number(0)).expect("read").len(),
            expected,
            "{up_to:?}"
        );
    }
    assert_eq!(append(&mut redo, 4..=4, b"value"), [Some(Number(4))]);
    assert_eq!(
        versions(&left(&database, ID, Number(3)).expect("read")),
        [4]
    );
}

#[test]
fn a_log_that_another_process_cuts_takes_nothing_until_the_database_has_all() {
    let disk = Tmpfs::shared();
    let (database, mut redo) = begun(&disk);
    append(&mut redo, 1..=2, b"value");
    let cut = || {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(beside(&database));
        file.expect("the log").set_len(0).expect("cut");
    };
    cut();
    assert_eq!(append(&mut redo, 3..=3, b"value"), [None]);
    redo.committed(Some(Number(2)));
    assert_eq!(append(&mut redo, 3..=3, b"value"), [Some(Number(3))]);
    assert_eq!(
        versions(&left(&database, ID, Number(2)).expect("read")),
        [3]
    );
    // Cut between the look and the write: what was before is lost, and no other version wrote it.
    let at = redo.bytes;
    cut();
    let written = redo.file.write_all_at(b"entry", at);
    written.expect("written behind a gap");
    assert_eq!(left(&database, ID, Number(0)).expect("no error").len(), 0);
}

/// As a SIGKILL leaves it.
#[test]
fn cut_anywhere_it_has_the_entries_that_are_whole() {
    let disk = Tmpfs::shared();
    let (database, mut redo) = begun(&disk);
    let mut ends = vec![redo.bytes];
    for version in 1..=3 {
        append(&mut redo, version..=version, b"value");
        ends.push(redo.bytes);
    }
    let whole = std::fs::read(beside(&database)).expect("read");
    assert_eq!(whole.len() as u64, redo.bytes);
    for length in 0..=whole.len() {
        std::fs::write(beside(&database), &whole[..length]).expect("written");
        let expected = ends
            .iter()
            .skip(1)
            .filter(|end| **end <= length as u64)
            .count();
        assert_eq!(
            left(&database, ID, Number(0)).expect("read").len(),
            expected,
            "of {length} bytes"
        );
    }
}

/// A daemon of another version reads it: whoever changes it draws another [`MAGIC`].
#[test]
fn the_format_is_that_of_its_version() {
    let disk = Tmpfs::shared();
    let (database, mut redo) = begun(&disk);
    append(&mut redo, 2..=2, b"v");
    let mut expected = b"mcpsred1\x07\0\0\0\0\0\0\0\x4a\0\0\0".to_vec();
    // Number, place, the former version, the next one.
    expected.extend(b"\x95\x01\x92\xacservice test\xa1a\x01\x02");
    // The change: head with its due time, whether it clears, what is removed, what is put, what is
    // forgotten.
    expected.extend(b"\x95\x92\xc4\x04head\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xc2\x90");
    expected.extend(b"\x91\x93\xc4\x03key\xa3tag\xc4\x01v\x90");
    let found = std::fs::read(beside(&database)).expect("read");
    let length = u32::try_from(expected.len() - 20).expect("short");
    expected[16..20].copy_from_slice(&length.to_le_bytes());
    assert_eq!(
        found.escape_ascii().to_string(),
        expected.escape_ascii().to_string()
    );
}

#[test]
#[ignore = "needs root"]
fn what_does_not_fit_is_not_in_there_and_harms_nothing() {
    let disk = Tmpfs::mount(64);
    let (database, mut redo) = begun(&disk);
    append(&mut redo, 1..=1, b"value");
    assert_eq!(
        append(&mut redo, 2..=2, &[7; ENTRY_MAX + 1]),
        [None],
        "it is too large"
    );
    let filler = disk.fill();
    // The page that it has begun to fill holds some more.
    let mut last = 1;
    while append(&mut redo, last + 1..=last + 1, &[7; 500]) != [None] {
        last += 1;
    }
    let all: Vec<u64> = (1..=last).collect();
    assert_eq!(
        versions(&left(&database, ID, Number(0)).expect("read")),
        all
    );
    std::fs::remove_file(filler).expect("deleted");
    assert_eq!(
        append(&mut redo, last + 1..=last + 1, b"value"),
        [Some(Number(last + 1))]
    );
    assert_eq!(left(&database, ID, Number(last)).expect("read").len(), 1);
}

#[test]
fn it_takes_only_so_much_and_again_when_the_database_has_caught_up() {
    let disk = Tmpfs::shared();
    let (_, mut redo) = begun(&disk);
    let mut last = 0;
    while append(&mut redo, last + 1..=last + 1, &[7; ENTRY_MAX - 1_000]) != [None] {
        last += 1;
    }
    assert!(
        redo.bytes > LOG_MAX && redo.bytes < LOG_MAX + ENTRY_MAX as u64,
        "{} bytes",
        redo.bytes
    );
    redo.committed(Some(Number(last)));
    assert_eq!(
        append(&mut redo, last + 1..=last + 1, b"value"),
        [Some(Number(last + 1))]
    );
}

#[test]
fn one_that_was_deleted_takes_nothing_and_is_made_again_when_the_database_has_everything() {
    let disk = Tmpfs::shared();
    let (database, mut redo) = begun(&disk);
    append(&mut redo, 1..=2, b"value");
    assert!(redo.is_in_place());
    std::fs::remove_file(beside(&database)).expect("deleted");
    assert!(!redo.is_in_place());
    assert_eq!(append(&mut redo, 3..=3, b"value"), [None]);
    redo.committed(Some(Number(1)));
    assert!(
        !redo.is_in_place(),
        "the second would follow on what is nowhere"
    );
    assert_eq!(append(&mut redo, 3..=3, b"value"), [None]);
    std::fs::create_dir(beside(&database)).expect("a directory");
    redo.committed(Some(Number(2)));
    assert_eq!(
        append(&mut redo, 3..=3, b"value"),
        [None],
        "it can't be made"
    );
    std::fs::remove_dir(beside(&database)).expect("removed");
    redo.committed(None);
    assert!(redo.is_in_place());
    append(&mut redo, 3..=3, b"value");
    assert_eq!(
        versions(&left(&database, ID, Number(2)).expect("read")),
        [3]
    );
}

#[test]
fn there_is_none_on_a_disk_or_where_the_power_may_go() {
    let disk = Tmpfs::shared();
    let database = disk.path().join("contents.db");
    assert!(may_be(&database, Durability::Process));
    assert!(!may_be(&database, Durability::Power));
    // Another file system, whatever the disks of this machine are.
    assert!(!may_be(Path::new("/proc/contents.db"), Durability::Process));
}

#[test]
fn one_of_another_version_is_not_passed_over() {
    let disk = Tmpfs::shared();
    let (database, mut redo) = begun(&disk);
    redo.file.write_all_at(b"mcpsred0", 0).expect("written");
    assert!(
        left(&database, ID, Number(0)).expect("read").is_empty(),
        "it has nothing"
    );
    append(&mut redo, 1..=1, b"value");
    let refused = left(&database, ID, Number(0))
        .expect_err("refused")
        .to_string();
    assert!(refused.contains("another version"), "{refused}");
}

#[test]
fn values_are_not_shown() {
    let disk = Tmpfs::shared();
    let (_, mut redo) = begun(&disk);
    append(&mut redo, 1..=1, b"value");
    assert_eq!(
        format!("{redo:?}"),
        "Redo(78 bytes, Number(0) of Number(1))"
    );
}

/// What another user has put there would be followed.
#[test]
fn a_link_is_not_followed() {
    let disk = Tmpfs::shared();
    let database = disk.path().join("contents.db");
    std::os::unix::fs::symlink(disk.path().join("elsewhere"), beside(&database)).expect("a link");
    Redo::begin(&database, ID, Number::default()).expect_err("refused");
    left(&database, ID, Number::default()).expect_err("refused");
    assert!(!disk.path().join("elsewhere").exists());
}
