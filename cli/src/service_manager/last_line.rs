//! The last line that a service has written to its standard error.

use std::fs::File;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Log;
use super::steps::answer;
use crate::file_end::end_of;
use crate::ui::table::printable;

/// Bytes at the end of a file in which the line is looked for.
const END: u64 = 8 * 1024;

/// How often, and after which pause, the journal is asked: it writes a moment later what it is told.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// The line, where there is one, without the name of this program before it. `since`: when the
/// service was started.
pub(super) fn of(log: Log, since: SystemTime) -> Option<String> {
    let text = match log {
        Log::File(path) => File::open(path)
            .and_then(|file| end_of(&file, END))
            .map(|(text, _)| text)
            .ok(),
        Log::Journal(unit) => in_journal(&unit, since),
        Log::Nowhere(_) => None,
    }?;
    let last = text.lines().rfind(|line| !line.trim().is_empty())?;
    let last = last.strip_prefix("mcp-sessiond: ").unwrap_or(last);
    Some(printable(last))
}

/// What the processes of a unit have written last since then, without systemd's own lines about it.
fn in_journal(unit: &str, since: SystemTime) -> Option<String> {
    let since = since.duration_since(UNIX_EPOCH).ok()?.as_secs();
    let since = format!("--since=@{since}");
    let of_processes = format!("_SYSTEMD_USER_UNIT={unit}");
    let mut ask = vec!["journalctl", "--quiet", "--no-pager", "--lines=1"];
    ask.extend(["--output=cat", &since, &of_processes]);
    for _ in 0..ATTEMPTS {
        let said = answer(&ask).ok()?;
        if !said.is_empty() {
            return Some(said);
        }
        std::thread::sleep(PAUSE);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_file_is_the_last_one_with_words_in_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let line = |text: &str| {
            std::fs::write(&path, text).expect("written");
            of(Log::File(path.clone()), UNIX_EPOCH)
        };
        assert_eq!(line("a\nmcp-sessiond: b\n\n").as_deref(), Some("b"));
        assert_eq!(line("\n \n"), None);
        let long = format!("{}\nthe end", "x".repeat(20_000));
        assert_eq!(line(&long).as_deref(), Some("the end"));
        assert_eq!(
            of(Log::File(directory.path().join("none")), UNIX_EPOCH),
            None
        );
    }
}
