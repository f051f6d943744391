//! This executable and others of its kind: whether they can be run, and their versions.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// This executable's.
pub(crate) const OWN: &str = env!("CARGO_PKG_VERSION");

/// How long an executable may take to say its version.
const WAIT: Duration = Duration::from_secs(5);

/// That of an executable; none where it does not say.
pub(crate) async fn of(binary: &Path) -> Option<String> {
    if is_this(binary) {
        return Some(OWN.to_owned());
    }
    let mut command = tokio::process::Command::new(binary);
    command
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let said = tokio::time::timeout(WAIT, command.output())
        .await
        .ok()?
        .ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    said.trim()
        .strip_prefix("mcp-sessiond ")
        .map(ToOwned::to_owned)
}

/// Whether it can be run.
pub(crate) fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn is_this(binary: &Path) -> bool {
    let own = std::env::current_exe().and_then(|own| own.canonicalize());
    own.is_ok_and(|own| binary.canonicalize().is_ok_and(|binary| binary == own))
}
