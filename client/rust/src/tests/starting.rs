//! Starting a daemon. A shell script stands in for its executable.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use mcp_sessiond_proto::types::Outcome;

use super::fake::{Fake, grant};
use crate::connection::connect;
use crate::directory::Directory;
use crate::{ConnectError, Options, Sessiond, Start};

fn script(parent: &Path, text: &str) -> PathBuf {
    let path = parent.join("stand-in");
    // Written by a child of its own: an executable that any thread of this process has open for
    // writing, or that a fork of another test has inherited so, can't be run.
    let written = std::process::Command::new("/bin/sh")
        .args([
            "-c",
            "printf '%s' \"$1\" > \"$2\"",
            "sh",
            &format!("#!/bin/sh\n{text}\n"),
        ])
        .arg(&path)
        .status();
    assert!(written.expect("sh").success());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("mode");
    path
}

#[tokio::test]
async fn a_daemon_is_started_in_the_directory_that_is_wanted() {
    for code in [0, 75] {
        let fake = Fake::new([grant("s1", 1, Outcome::Resumed, Some("old"))]);
        let parent = tempfile::tempdir().expect("tempdir");
        let wanted = parent.path().join("d");
        // The daemon's directory appears where the client looks for it, socket and all.
        let text = format!(
            "test \"$*\" = 'run --on-demand' || exit 1\nmv '{}' \"$MCP_SESSIOND_DIR\"\nexit {code}",
            fake.path.display()
        );
        let binary = script(parent.path(), &text);
        let start = Start::Auto {
            binary: Some(binary),
        };
        let sessiond = Sessiond::init(Options::default().directory(&wanted).start(start));
        assert!(sessiond.load().await.is_some(), "{:?}", sessiond.status());
    }
}

#[tokio::test]
async fn a_daemon_that_gives_up_is_told_at_once() {
    let parent = tempfile::tempdir().expect("tempdir");
    let directory = Directory::at(parent.path().join("d")).expect("a path");
    let start = Start::Auto {
        binary: Some(script(parent.path(), "exit 64")),
    };
    let refused = connect(&directory, &start).await.expect_err("refused");
    assert!(
        matches!(refused, ConnectError::StartFailed { .. }),
        "{refused}"
    );
    assert!(
        refused
            .to_string()
            .contains("its configuration has an error"),
        "{refused}"
    );
}

#[tokio::test]
async fn without_an_executable_there_is_nothing_to_wait_for() {
    let parent = tempfile::tempdir().expect("tempdir");
    let directory = Directory::at(parent.path().join("d")).expect("a path");
    let start = Start::Auto {
        binary: Some(parent.path().join("nothing")),
    };
    let refused = connect(&directory, &start).await.expect_err("refused");
    assert!(
        matches!(refused, ConnectError::NotStarted { .. }),
        "{refused}"
    );
}
