//! The program that PROTOCOL.md names, against the same daemon: JSON-RPC over a real socket.

use std::process::{Output, Stdio};

use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::types::Outcome;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::fake::{Fake, Turn, grant};

const PROGRAM: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/python/sessiond.py"
);

/// What the program did.
async fn run(fake: &Fake, verb: &str, input: &[u8]) -> Output {
    let mut command = Command::new("python3");
    command
        .args([PROGRAM, verb, "--dir"])
        .arg(&fake.path)
        .env("MCP_SESSIOND_DIR", "/nowhere");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .expect("python3 is installed, as tests/run sees to");
    // It need not read, and then the pipe breaks.
    drop(child.stdin.take().expect("piped").write_all(input).await);
    child.wait_with_output().await.expect("ended")
}

#[tokio::test]
#[ignore = "needs python3"]
async fn the_program_of_the_page_loads_stores_and_rejects() {
    let held = || grant("s1", 2, Outcome::Resumed, Some("old \u{0} \n"));
    let stale = Turn::Refuse(Error::LeaseEnded);
    let turns = [
        held(),
        held(),
        Turn::Store { resumed: true },
        held(),
        Turn::Done,
        grant("s1", 2, Outcome::Held, None),
        held(),
        stale,
    ];
    let fake = Fake::new(turns);
    let loaded = run(&fake, "load", b"").await;
    assert_eq!(
        (loaded.status.code(), loaded.stdout),
        (Some(0), b"old \0 \n".to_vec())
    );
    let stored = run(&fake, "store", b"new").await;
    assert_eq!(stored.status.code(), Some(0), "{stored:?}");
    let rejected = run(&fake, "reject", b"").await;
    assert_eq!(rejected.status.code(), Some(0), "{rejected:?}");
    let absent = run(&fake, "load", b"").await;
    assert_eq!((absent.status.code(), absent.stdout), (Some(3), vec![]));
    let refused = run(&fake, "store", b"new").await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("Refused: the lease has ended"),
        "{refused:?}"
    );
    let heard = [
        "claim",
        "claim",
        "store s1 2 new",
        "claim",
        "reject s1 2",
        "claim",
        "claim",
        "store s1 2 new",
    ];
    assert_eq!(fake.heard(), heard);
}
