//! A log in the journal of systemd, by `journalctl`.

use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::NoLog;
use super::line::{Line, last_of};

/// What the journal has of a unit.
pub(super) struct Journal {
    unit: String,
    /// The place of the last line that was read.
    cursor: Option<String>,
    /// The `journalctl` that waits for more.
    waiting: Option<(Child, Lines<BufReader<ChildStdout>>)>,
}

impl Journal {
    pub(super) fn new(unit: String) -> Self {
        Self {
            unit,
            cursor: None,
            waiting: None,
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new("journalctl");
        // Not `--user`: of a system user, as root, the lines are in the system's journal.
        command.args(["--user-unit", &self.unit, "--output=json", "--no-pager"]);
        // An interrupt is for us alone, so that this is no failure of its.
        command
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .process_group(0);
        command
    }

    /// The last lines since the system was started.
    pub(super) async fn last(
        &mut self,
        most: usize,
        is_wanted: &dyn Fn(&Line) -> bool,
    ) -> Result<Vec<Line>, NoLog> {
        let unit = &self.unit;
        let output = self.command().arg("--boot").output().await.map_err(|error| {
            NoLog(format!(
                "{unit} logs to the journal, and `journalctl`, which reads it, can't be run: {error}"
            ))
        })?;
        let read: Vec<Entry> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(Entry::read)
            .collect();
        if read.is_empty() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().map(str::trim).find(|line| !line.is_empty());
            let said = said.map_or_else(String::new, |said| format!(" (journalctl: {said})"));
            return Err(NoLog(format!(
                "{unit} logs to the journal, which has nothing of it since the system was started{said}; `systemctl --user status {unit}` says whether it runs"
            )));
        }
        self.cursor = read.last().and_then(|entry| entry.cursor.clone());
        let lines = read
            .into_iter()
            .flat_map(|entry| entry.lines)
            .filter(is_wanted)
            .collect();
        Ok(last_of(lines, most))
    }

    /// The lines that come next.
    pub(super) async fn next(&mut self) -> Option<Vec<Line>> {
        if self.waiting.is_none() {
            let mut command = self.command();
            command.args(["--follow", "--no-tail", "--boot"]);
            if let Some(cursor) = &self.cursor {
                command.args(["--after-cursor", cursor]);
            }
            let mut child = command
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .ok()?;
            let lines = BufReader::new(child.stdout.take()?).lines();
            self.waiting = Some((child, lines));
        }
        let (_, lines) = self.waiting.as_mut()?;
        loop {
            let line = lines.next_line().await.ok()??;
            if let Some(entry) = Entry::read(&line) {
                return Some(entry.lines);
            }
        }
    }
}

/// An entry of the journal.
struct Entry {
    lines: Vec<Line>,
    cursor: Option<String>,
}

impl Entry {
    /// One of `journalctl --output=json` (systemd.journal-fields(7)).
    fn read(line: &str) -> Option<Self> {
        let fields: Value = serde_json::from_str(line).ok()?;
        let text = match &fields["MESSAGE"] {
            Value::String(text) => text.clone(),
            // What is no text is an array of bytes.
            Value::Array(bytes) => {
                let bytes = bytes
                    .iter()
                    .filter_map(|byte| u8::try_from(byte.as_u64()?).ok());
                String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
            }
            _ => return None,
        };
        let micros = fields["__REALTIME_TIMESTAMP"]
            .as_str()
            .and_then(|micros| micros.parse().ok());
        let time = micros.map(|micros| {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_micros(micros);
            humantime::format_rfc3339_micros(time).to_string()
        });
        let lines = text
            .lines()
            .map(|line| Line::logged(time.clone(), line))
            .collect();
        Some(Self {
            lines,
            cursor: fields["__CURSOR"].as_str().map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_line_of_the_daemon_s() {
        let line = r#"{"__CURSOR":"s=1;i=2","__REALTIME_TIMESTAMP":"1795447201000001","PRIORITY":"6","MESSAGE":" INFO ready"}"#;
        let entry = Entry::read(line).expect("an entry");
        assert_eq!(entry.cursor.as_deref(), Some("s=1;i=2"));
        assert_eq!(
            entry.lines,
            [Line::of_file("2026-11-23T15:20:01.000001Z  INFO ready")]
        );
        let bytes = Entry::read(r#"{"MESSAGE":[104,105,255]}"#).expect("an entry");
        assert_eq!(bytes.lines, [Line::logged(None, "hi\u{fffd}")]);
        assert!(Entry::read("-- no JSON").is_none());
    }
}
