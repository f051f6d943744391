use std::fs::{self, Permissions};
use std::os::unix::fs::{chown, symlink};
use std::path::PathBuf;
use std::process::Command;

use mcp_sessiond_process::{ProcessId, StartTime};

use super::*;
use crate::tmpfs::needs_root;

struct Bench {
    directory: tempfile::TempDir,
    tokens: Tokens,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(directory.path(), Permissions::from_mode(DIRECTORY_MODE))
            .expect("it is ours");
        let tokens = open(directory.path()).expect("tokens/ is made");
        Self { directory, tokens }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(DIRECTORY).join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("")).expect("tokens/");
        let mut names: Vec<String> = entries
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .into_string()
                    .expect("a name")
            })
            .collect();
        names.sort();
        names
    }
}

fn open(runtime: &Path) -> io::Result<Tokens> {
    Tokens::open(&Directory::open_existing(runtime).expect("a directory of ours"))
}

fn file(number: u32) -> TokenFile {
    TokenFile {
        host: ProcessId {
            pid: 7,
            start: StartTime(42),
            inode: None,
        },
        number,
    }
}

fn token(bytes: impl Into<Vec<u8>>) -> Token {
    Token::new(bytes).expect("a token")
}

fn read(tokens: &Tokens) -> Option<Token> {
    match tokens.read(file(1)).expect("tokens/ is fine") {
        Found::Absent => None,
        Found::Token(token) => Some(token),
        Found::Corrupted(why) => panic!("{why}"),
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path)
        .expect("it is there")
        .permissions()
        .mode()
        & 0o7777
}

#[test]
fn a_token_is_read_back_byte_for_byte() {
    let bench = Bench::new();
    assert_eq!(read(&bench.tokens), None);
    for bytes in [
        vec![0],
        b"\xff\n\0 a token\r\n".to_vec(),
        vec![9; TOKEN_MAX],
        vec![1],
    ] {
        let token = token(bytes.clone());
        bench.tokens.write(file(1), &token).expect("it is written");
        assert_eq!(read(&bench.tokens), Some(token));
        assert_eq!(fs::read(bench.path("token-7-42")).expect("the file"), bytes);
    }
    bench
        .tokens
        .write(file(2), &token("second"))
        .expect("it is written");
    assert_eq!(bench.names(), ["token-7-42", "token-7-42-2"]);
}

/// The file is never seen half written: another one takes its name when it is whole.
#[test]
fn a_token_is_replaced_and_not_rewritten() {
    let bench = Bench::new();
    let path = bench.path("token-7-42");
    bench
        .tokens
        .write(file(1), &token("former"))
        .expect("it is written");
    let former = File::open(&path).expect("the file");
    bench
        .tokens
        .write(file(1), &token("new"))
        .expect("it is written");
    assert_ne!(
        former.metadata().expect("it").ino(),
        fs::metadata(&path).expect("the file").ino()
    );
    assert_eq!(io::read_to_string(former).expect("it"), "former");

    // What a killed daemon has left of an unfinished one is in nobody's way, not even as a symlink.
    let elsewhere = bench.directory.path().join("elsewhere");
    symlink(&elsewhere, bench.path("new-token-7-42")).expect("a symlink");
    bench
        .tokens
        .write(file(1), &token("newest"))
        .expect("it is written");
    assert!(!elsewhere.exists());
    assert_eq!(read(&bench.tokens), Some(token("newest")));
    assert_eq!(bench.names(), ["token-7-42"]);
}

/// The umask is the whole process's, so this test runs itself again, in a process of its own.
#[test]
fn the_mode_is_0600_whatever_the_umask() {
    const AGAIN: &str = "MCP_SESSIOND_TEST_UMASK";
    if std::env::var_os(AGAIN).is_none() {
        let mut again = Command::new(std::env::current_exe().expect("this test"));
        again
            .args([
                "--exact",
                "tokens::tests::the_mode_is_0600_whatever_the_umask",
            ])
            .env(AGAIN, "1");
        let output = String::from_utf8(again.output().expect("it runs").stdout).expect("text");
        assert!(output.contains("1 passed"), "with another umask: {output}");
        return;
    }
    let bench = Bench::new();
    for umask in [0o000, 0o022, 0o077, 0o777] {
        nix::sys::stat::umask(Mode::from_bits_truncate(umask));
        bench
            .tokens
            .write(file(1), &token("secret"))
            .expect("it is written");
        assert_eq!(
            mode(&bench.path("token-7-42")),
            FILE_MODE,
            "umask {umask:03o}"
        );
    }
}

#[test]
fn a_directory_that_is_not_ours_alone_is_refused_and_not_repaired() {
    let bench = Bench::new();
    let directory = bench.path("");
    let refused = || {
        let told = [
            bench.tokens.read(file(1)).map(drop),
            bench.tokens.write(file(1), &token("secret")),
            bench.tokens.delete(file(1)),
            bench.tokens.sweep(&HashSet::new()).map(drop),
            open(bench.directory.path()).map(drop),
        ];
        told.map(|told| told.expect_err("it is refused").to_string())
    };
    fs::set_permissions(&directory, Permissions::from_mode(0o750)).expect("it is ours");
    assert!(
        refused().iter().all(|why| why.contains("mode 0750")),
        "{:?}",
        refused()
    );
    assert_eq!(mode(&directory), 0o750, "it was repaired");

    let elsewhere = bench.directory.path().join("elsewhere");
    fs::set_permissions(&directory, Permissions::from_mode(DIRECTORY_MODE)).expect("it is ours");
    fs::rename(&directory, &elsewhere).expect("rename");
    symlink(&elsewhere, bench.directory.path().join(DIRECTORY)).expect("a symlink");
    refused();
    assert_eq!(
        fs::read_dir(&elsewhere).expect("it is there").count(),
        0,
        "the symlink was followed"
    );
}

#[test]
#[ignore = "needs root"]
fn somebody_elses_directory_is_refused() {
    needs_root("give a directory away");
    let bench = Bench::new();
    chown(bench.path(""), Some(4321), None).expect("chown");
    let refused = bench.tokens.read(file(1)).expect_err("it is refused");
    assert!(refused.to_string().contains("uid 4321"), "{refused}");
}

#[test]
fn deleting_what_is_not_there_is_no_error() {
    let bench = Bench::new();
    bench.tokens.delete(file(1)).expect("it is not there");
    bench
        .tokens
        .write(file(1), &token("one"))
        .expect("it is written");
    bench
        .tokens
        .write(file(2), &token("two"))
        .expect("it is written");
    bench.tokens.delete(file(2)).expect("it is deleted");
    assert_eq!(read(&bench.tokens), Some(token("one")));
    fs::create_dir_all(bench.path("token-7-42-2/full")).expect("a directory");
    bench
        .tokens
        .delete(file(2))
        .expect_err("a directory with something in it stays");
}

#[test]
fn a_sweep_takes_what_bears_our_names_and_belongs_to_nobody() {
    let bench = Bench::new();
    for number in 1..=3 {
        bench
            .tokens
            .write(file(number), &token("kept or not"))
            .expect("it is written");
    }
    for name in [
        "new-token-7-42",
        "token-9-9",
        "notes",
        "mytoken-7-42",
        ".token-7-42",
    ] {
        fs::write(bench.path(name), "").expect("a file");
    }
    symlink(bench.path("notes"), bench.path("token-1-1")).expect("a symlink");
    let keep = HashSet::from([file(1).to_string(), file(3).to_string()]);
    assert_eq!(bench.tokens.sweep(&keep).expect("tokens/ is fine"), 4);
    let left = [
        ".token-7-42",
        "mytoken-7-42",
        "notes",
        "token-7-42",
        "token-7-42-3",
    ];
    assert_eq!(bench.names(), left);
}
