//! A line of a log.

use anstream::adapter::strip_str;

use crate::ui::table::{BAD, DOUBTFUL, paint, printable};

/// The levels, as the daemon writes them.
const LEVELS: [&str; 5] = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"];

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Whether the daemon has said it, or what has started the daemon.
    pub(super) is_daemons: bool,
    /// When, in RFC 3339.
    time: Option<String>,
    /// How bad it is, one of [`LEVELS`].
    level: Option<&'static str>,
    /// What is said.
    pub(super) text: String,
}

impl Line {
    /// One of a server's. It does nothing to a terminal.
    pub(super) fn written(line: &str) -> Self {
        let text = printable(&strip_str(line.trim_end_matches('\r')).to_string());
        Self {
            is_daemons: false,
            time: None,
            level: None,
            text,
        }
    }

    /// One of the daemon's, as it stands in a file: with the time, or, where it ended badly,
    /// without.
    pub(super) fn of_file(line: &str) -> Self {
        match line.split_once(' ') {
            Some((time, rest)) if is_time(time) => Self::logged(Some(time.to_owned()), rest),
            _ => Self::logged(None, line),
        }
    }

    /// One of the daemon's.
    pub(super) fn logged(time: Option<String>, line: &str) -> Self {
        let text = printable(&strip_str(line).to_string());
        let level = LEVELS.into_iter().find(|level| {
            text.trim_start()
                .strip_prefix(level)
                .is_some_and(|rest| rest.starts_with(' '))
        });
        let text = match level {
            Some(level) => text.trim_start()[level.len()..].trim_start().to_owned(),
            None => text,
        };
        Self {
            is_daemons: true,
            time,
            level,
            text,
        }
    }

    /// The value of one of its fields, as the daemon writes them: `NAME=VALUE`, or `NAME="VALUE"`.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let begin = format!("{name}=");
        let mut found = self.text.match_indices(&begin);
        let at = found.find(|(at, _)| *at == 0 || self.text[..*at].ends_with(' '));
        let value = &self.text[at?.0 + begin.len()..];
        match value.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next(),
            None => value.split(' ').next(),
        }
    }

    /// For people.
    pub(super) fn painted(&self, marked: bool) -> String {
        let mark = if marked { "mcp-sessiond: " } else { "" };
        let time = self
            .time
            .as_ref()
            .map_or_else(String::new, |time| format!("{time} "));
        let level = match self.level {
            None => String::new(),
            Some(level @ "ERROR") => paint(BAD, level) + " ",
            Some(level @ "WARN") => format!(" {} ", paint(DOUBTFUL, level)),
            Some(level) => format!("{level:>5} "),
        };
        format!("{mark}{time}{level}{}\n", self.text)
    }

    /// For programs.
    pub(super) fn to_json(&self) -> String {
        let from = if self.is_daemons { "daemon" } else { "server" };
        let level = self.level.map(str::to_lowercase);
        serde_json::json!({"from": from, "time": self.time, "level": level, "line": self.text})
            .to_string()
            + "\n"
    }
}

/// Whether this is a time as the daemon writes it: `2026-11-23T15:20:01.000000Z`.
fn is_time(word: &str) -> bool {
    humantime::parse_rfc3339(word).is_ok()
}

/// The last so many of them.
pub(super) fn last_of(mut lines: Vec<Line>, most: usize) -> Vec<Line> {
    lines.split_off(lines.len().saturating_sub(most))
}

/// Takes the whole lines out of what was read, and leaves what is behind the last newline.
pub(super) fn whole_lines(read: &mut String) -> Vec<String> {
    let Some(end) = read.rfind('\n') else {
        return Vec::new();
    };
    let rest = read.split_off(end + 1);
    let whole = std::mem::replace(read, rest);
    whole.lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_file_has_time_and_level() {
        let line = Line::of_file("2026-11-23T15:20:01.000001Z  WARN what is wrong: pid=1");
        assert_eq!(
            (line.time.as_deref(), line.level),
            (Some("2026-11-23T15:20:01.000001Z"), Some("WARN"))
        );
        assert_eq!(line.text, "what is wrong: pid=1");
        let plain = strip_str(&line.painted(true)).to_string();
        assert_eq!(
            plain,
            "mcp-sessiond: 2026-11-23T15:20:01.000001Z  WARN what is wrong: pid=1\n"
        );
        assert_eq!(
            line.to_json(),
            r#"{"from":"daemon","level":"warn","line":"what is wrong: pid=1","time":"2026-11-23T15:20:01.000001Z"}"#
                .to_owned()
                + "\n"
        );
        let bare = Line::of_file("mcp-sessiond: WARNED of what ends it");
        assert_eq!(
            (&bare.time, bare.level, bare.painted(false).trim_end()),
            (&None, None, &*bare.text)
        );
    }

    #[test]
    fn a_line_has_fields() {
        let line = Line::of_file(
            "2026-11-23T15:20:01.000001Z  INFO a server has ended session=0199 server=\"npx @a/b\" keeper=7 why=\"observer=x\"",
        );
        for (name, value) in [
            ("session", Some("0199")),
            ("server", Some("npx @a/b")),
            ("keeper", Some("7")),
            ("host", None),
        ] {
            assert_eq!(line.field(name), value, "{name}");
        }
    }

    #[test]
    fn a_server_s_line_does_nothing_to_a_terminal() {
        let line = Line::written("\u{1b}[31mred\u{1b}[0m \u{7}2026-01-01T00:00:00Z ERROR x\r");
        assert_eq!(line.painted(false), "red 2026-01-01T00:00:00Z ERROR x\n");
        assert_eq!(line.level, None);
    }

    #[test]
    fn lines_are_whole() {
        let mut read = "one\r\ntwo\nthr".to_owned();
        assert_eq!(whole_lines(&mut read), ["one", "two"]);
        read += "ee";
        assert!(whole_lines(&mut read).is_empty());
        read += "\n\n";
        assert_eq!(whole_lines(&mut read), ["three", ""]);
        assert_eq!(read, "");
    }
}
