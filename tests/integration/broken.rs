//! What the daemon does where something on its disk is damaged, misconfigured or full: hosts have
//! their servers all the same.

mod files;
mod full;
mod locked;
mod log;
mod records;
mod storage;

use std::path::Path;
use std::process::{Command, Stdio};

use mcp_sessiond_tests::World;
use serde_json::Value;

/// What `doctor` says is a problem with one thing: a sentence, and what to do. Asserts that it
/// exits with 1.
#[track_caller]
fn assert_bad(world: &World, what: &str) -> String {
    let (code, findings) = check(world);
    assert_eq!(code, Some(1), "{findings}");
    let bad = found(&findings, what, "problem");
    bad.unwrap_or_else(|| panic!("nothing bad about {what} in {findings}"))
}

/// Whether `doctor` has neither a problem nor a note about it.
fn is_well(world: &World, what: &str) -> bool {
    let findings = check(world).1;
    ["problem", "note"]
        .iter()
        .all(|outcome| found(&findings, what, outcome).is_none())
}

/// What `doctor` notes about one thing: a sentence, and what to do.
#[track_caller]
fn noted(world: &World, what: &str) -> String {
    let findings = check(world).1;
    found(&findings, what, "note").unwrap_or_else(|| panic!("no note about {what} in {findings}"))
}

/// The exit code of `doctor`, and what it found.
fn check(world: &World) -> (Option<i32>, Value) {
    let check = world
        .sessiond(&["doctor", "--json"])
        .output()
        .expect("doctor");
    let said: Value = serde_json::from_slice(&check.stdout).expect("JSON");
    (check.status.code(), said["findings"].clone())
}

fn found(findings: &Value, what: &str, outcome: &str) -> Option<String> {
    let findings = findings.as_array().expect("findings");
    let one = findings
        .iter()
        .find(|one| one["check"] == what && one["outcome"] == outcome)?;
    Some(format!(
        "{}: {}",
        one["what"].as_str()?,
        one["fix"].as_str()?
    ))
}

/// Asserts that tokens are kept from one instance to the next.
#[track_caller]
fn assert_tokens_are_kept(world: &World) {
    let host = world.host();
    let mut instance = host.instance(&[]);
    let session = instance.first_run("a token").session();
    instance.kill();
    host.instance(&[])
        .load()
        .assert_resumed(&session, Some("a token"));
}

/// Holds a database as a curious `sqlite3` does, until it is dropped.
struct Curious(std::process::Child);

impl Curious {
    fn holds(world: &World) -> Self {
        Self::runs(&world.directory().join("sessions.db"), "sys.stdin.read()")
    }

    /// One that has just begun to write, and then goes on with this.
    fn runs(database: &Path, and_then: &str) -> Self {
        let script = format!(
            "import select, sqlite3, sys\n\
             base = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
             base.execute('BEGIN IMMEDIATE')\n\
             print('held', flush=True)\n\
             {and_then}"
        );
        let mut command = Command::new("python3");
        command
            .args(["-c", &script])
            .arg(database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut front = command.spawn().expect("python3");
        let mut said = [0; 4];
        std::io::Read::read_exact(front.stdout.as_mut().expect("piped"), &mut said)
            .expect("it has it");
        Self(front)
    }
}

impl Drop for Curious {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
