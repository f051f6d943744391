//! `setup` and its undo on a disk that is full, or soon full.

use std::fs;
use std::path::Path;

use mcp_sessiond_tests::SmallDisk;

use super::{USUAL, Wild};

/// A page: what a small disk gives at once.
const PAGE: usize = 4096;

/// Fills a disk but for these pages.
fn fill(directory: &Path, free: usize) {
    let filling = directory.join("filling");
    let mut size = 0;
    while fs::write(&filling, vec![0; size + PAGE]).is_ok() {
        size += PAGE;
    }
    fs::write(&filling, vec![0; size.saturating_sub(free * PAGE)]).expect("it did fit");
}

#[test]
#[ignore = "needs root"]
fn on_a_full_disk_there_is_the_old_file_or_the_new_one() {
    // The host's file is full of history: some of its pages fit, and some don't.
    let wild = Wild::new("cursor", "cursor-one-line.json", USUAL);
    let text = wild
        .text()
        .replacen('{', &format!("{{\"more\":\"{}\",", "x".repeat(3 * PAGE)), 1);
    let directory = wild.path.parent().expect("a directory").to_owned();
    for place in [directory, wild.copies()] {
        fs::create_dir_all(&place).expect("a directory");
        let disk = SmallDisk::mount(&place, "96k");
        fs::create_dir_all(wild.path.parent().expect("a directory")).expect("a directory");
        fs::write(&wild.path, &text).expect("a host's file");
        let filling = place.join("filling");
        let (mut failed, mut done) = (0, 0);
        for free in 0..12 {
            fill(&place, free);
            let (code, _, errors) = wild.setup(&["cursor", "--yes"]);
            let is_done = code == Some(0);
            assert!(is_done || code == Some(73), "{free}: {errors}");
            assert!(
                is_done || errors.contains("could not be written, and is as it was"),
                "{free}: {errors}"
            );
            assert_eq!(wild.text() == text, !is_done, "{free}");
            fs::remove_file(&filling).expect("room");
            assert_eq!(wild.setup(&["cursor", "--yes"]).0, Some(0));
            let wrapped = wild.text();
            assert_ne!(wrapped, text);

            fill(&place, free);
            let (code, _, errors) = wild.setup(&["--undo", "--yes"]);
            let is_undone = code == Some(0);
            assert!(is_undone || code == Some(73), "{free}: {errors}");
            assert_eq!(
                wild.text(),
                if is_undone { &*text } else { &*wrapped },
                "{free}"
            );
            fs::remove_file(&filling).expect("room");
            assert_eq!(wild.setup(&["--undo", "--yes"]).0, Some(0));
            assert_eq!(wild.text(), text);
            let left: Vec<_> = fs::read_dir(&place)
                .expect("it is there")
                .map(|one| one.expect("one").file_name())
                .collect();
            assert!(left.iter().all(|name| name == "mcp.json"), "{left:?}");
            if is_done { done += 1 } else { failed += 1 }
        }
        assert!(failed > 2 && done > 2, "{failed} {done}");
        drop(disk);
    }
}
