use std::fs;
use std::os::unix::fs::symlink;

use super::*;

/// A directory with the file in it, in the state `servers`.
struct Setup {
    directory: tempfile::TempDir,
    watch: Watch,
}

const BEGIN: &str = r#"{"servers": {"a": {"command": "x"}, "b": {"command": "y"}}}"#;

impl Setup {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("servers.json");
        fs::write(&file, BEGIN).expect("the file");
        let watch = Watch::begin(&file).expect("it is right");
        Self { directory, watch }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("servers.json")
    }

    async fn next(&mut self) -> FileChange {
        next(&mut self.watch).await
    }
}

async fn next(watch: &mut Watch) -> FileChange {
    let news = tokio::time::timeout(Duration::from_secs(20), watch.next()).await;
    assert!(!watch.blind, "nothing was found by looking once a second");
    news.expect("it is seen")
}

fn edited(added: &[&str], removed: &[&str], changed: &[&str]) -> FileChange {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    FileChange::Edited(Edit {
        added: names(added),
        removed: names(removed),
        changed: names(changed),
    })
}

fn one(name: &str, command: &str) -> String {
    format!(r#"{{"servers": {{"{name}": {{"command": "{command}"}}}}}}"#)
}

#[tokio::test]
async fn an_edit_is_seen_however_it_is_written() {
    let mut place = Setup::new();
    let file = place.file();
    let other = place.directory.path().join("other");

    fs::write(&other, one("a", "z")).expect("a file");
    fs::rename(&other, &file).expect("in its place");
    assert_eq!(place.next().await, edited(&[], &["b"], &["a"]));

    fs::write(&file, one("c", "z")).expect("in place");
    assert_eq!(place.next().await, edited(&["c"], &["a"], &[]));

    // What it is called while it is away does not matter, nor what else happens in the directory.
    fs::rename(&file, &other).expect("away");
    fs::write(place.directory.path().join("noise"), "").expect("a file");
    fs::write(&file, one("d", "z")).expect("made anew");
    assert_eq!(place.next().await, edited(&["d"], &["c"], &[]));

    // The names of an edit that changes the order alone are none, so this waits for the next.
    fs::write(&file, BEGIN).expect("in place");
    assert_eq!(place.next().await, edited(&["a", "b"], &["d"], &[]));
    fs::write(
        &file,
        r#"{"servers": {"b": {"command": "y"}, "a": {"command": "x"}}, "more": 1}"#,
    )
    .expect("in place");
    fs::write(&file, one("a", "x")).expect("in place");
    assert_eq!(place.next().await, edited(&[], &["b"], &[]));
}

#[tokio::test]
async fn a_file_that_is_wrong_or_gone_is_told_once_and_its_servers_stay() {
    let mut place = Setup::new();
    let file = place.file();
    let wrong = |news: FileChange| match news {
        FileChange::Wrong(sentence) => sentence,
        FileChange::Edited(edit) => panic!("{edit:?}"),
    };

    fs::write(&file, "{\"servers\": {").expect("in place");
    let said = wrong(place.next().await);
    assert!(said.contains("EOF while parsing"), "{said}");
    assert!(said.ends_with("; its servers stay as they are"), "{said}");
    assert_eq!(place.watch.servers().entries().count(), 2);

    // Neither the same again nor the mended file is news, and then it is gone.
    fs::write(&file, "{\"servers\": {").expect("in place");
    fs::write(&file, BEGIN).expect("in place");
    fs::remove_file(&file).expect("it was there");
    let said = wrong(place.next().await);
    assert!(said.contains("there is no "), "{said}");
    assert_eq!(place.watch.servers().entries().count(), 2);

    fs::write(&file, one("a", "z")).expect("back");
    assert_eq!(place.next().await, edited(&[], &["b"], &["a"]));
}

#[tokio::test]
async fn a_server_that_is_wrong_now_stays_as_it_was() {
    let mut place = Setup::new();
    let file = place.file();
    fs::write(
        &file,
        r#"{"servers": {"a": {"command": "x", "args": 1}, "b": {"command": "z"}}}"#,
    )
    .expect("in place");
    let FileChange::Wrong(said) = place.next().await else {
        panic!("it is wrong")
    };
    assert!(
        said.contains("the server \"a\"") && said.contains("`args` must be a list of strings"),
        "{said}"
    );
    assert!(said.ends_with("; it stays as it was"), "{said}");
    assert_eq!(place.next().await, edited(&[], &[], &["b"]));
    let names: Vec<&str> = place
        .watch
        .servers()
        .entries()
        .map(|entry| entry.name())
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(place.watch.servers().bad().count(), 1);

    // Mended as it was, it is the same; the edit is of the other one.
    fs::write(&file, BEGIN).expect("in place");
    assert_eq!(place.next().await, edited(&[], &[], &["b"]));
    assert_eq!(place.watch.servers().bad().count(), 0);
}

#[tokio::test]
async fn links_that_lead_elsewhere_are_followed() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().canonicalize().expect("a path");
    let at = |name: &str| root.join(name);
    for (version, command) in [("one", "x"), ("two", "y")] {
        fs::create_dir(at(version)).expect("a directory");
        fs::write(at(version).join("servers.json"), one("a", command)).expect("the file");
    }
    // As a configuration manager does it: the file is a link through a link to a directory.
    fs::create_dir(at("config")).expect("a directory");
    symlink("one", at("now")).expect("a link");
    symlink("../now/servers.json", at("config").join("servers.json")).expect("a link");
    let mut watch = Watch::begin(&at("config").join("servers.json")).expect("it is right");

    symlink("two", at("next")).expect("a link");
    fs::rename(at("next"), at("now")).expect("in its place");
    assert_eq!(next(&mut watch).await, edited(&[], &[], &["a"]));
    fs::write(at("two").join("new"), one("b", "y")).expect("a file");
    fs::rename(at("two").join("new"), at("two").join("servers.json")).expect("in its place");
    assert_eq!(next(&mut watch).await, edited(&["b"], &["a"], &[]));

    // The whole directory goes and comes back.
    fs::remove_dir_all(at("config")).expect("it was there");
    assert!(matches!(next(&mut watch).await, FileChange::Wrong(_)));
    fs::create_dir(at("config")).expect("a directory");
    fs::write(at("config").join("servers.json"), one("c", "y")).expect("the file");
    assert_eq!(next(&mut watch).await, edited(&["c"], &["b"], &[]));
}
