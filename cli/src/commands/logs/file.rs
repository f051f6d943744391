//! A log in a file, which is put aside when it is full.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use super::line::{Line, last_of, whole_lines};
use super::{NoLog, PAUSE};
use crate::file_end::{end_of, read_from};

/// How far it is looked back in each file. The daemon's own has half of that; one that a service
/// manager writes may have any size.
const BACK: u64 = 2 * 1024 * 1024;

/// The end of a file.
pub(super) struct Tail {
    path: PathBuf,
    /// What is read, and how far.
    open: Option<(File, u64)>,
    /// Whether more is wanted than what there is.
    goes_on: bool,
    /// What has no newline yet.
    rest: String,
}

impl Tail {
    pub(super) fn new(path: PathBuf, goes_on: bool) -> Self {
        Self {
            path,
            open: None,
            goes_on,
            rest: String::new(),
        }
    }

    /// The last lines, those of the file that was put aside before.
    pub(super) fn last(
        &mut self,
        most: usize,
        is_wanted: &dyn Fn(&Line) -> bool,
    ) -> Result<Vec<Line>, NoLog> {
        let file = File::open(&self.path).map_err(|error| {
            let path = self.path.display();
            NoLog(match error.kind() {
                io::ErrorKind::NotFound => format!("there is no log: {path} does not exist"),
                _ => format!("the log can't be read: {path}: {error}"),
            })
        })?;
        let mut aside = self.path.clone().into_os_string();
        aside.push(".1");
        let mut text = File::open(aside)
            .and_then(|aside| end_of(&aside, BACK))
            .map_or_else(|_| String::new(), |(text, _)| text);
        let read = end_of(&file, BACK)
            .map_err(|error| NoLog(format!("{}: {error}", self.path.display())))?;
        text += &read.0;
        self.open = Some((file, read.1));
        let mut lines = whole_lines(&mut text);
        self.rest = text;
        // Its writer may have died before it ended that.
        if !self.goes_on && !self.rest.is_empty() {
            lines.push(std::mem::take(&mut self.rest));
        }
        let lines = lines
            .iter()
            .map(|line| Line::of_file(line))
            .filter(is_wanted)
            .collect();
        Ok(last_of(lines, most))
    }

    /// The lines that are written next.
    pub(super) async fn next(&mut self) -> Option<Vec<Line>> {
        loop {
            let lines = self.read();
            if !lines.is_empty() {
                return Some(lines);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// What has been written since.
    fn read(&mut self) -> Vec<Line> {
        // Looked at first: what is written to the former file after that is read the next time.
        let named = std::fs::metadata(&self.path).ok();
        if let Some((file, at)) = &mut self.open {
            let size = file.metadata().map_or(*at, |found| found.len());
            if size < *at {
                // It was truncated.
                *at = 0;
                self.rest.clear();
            }
            if let Ok(text) = read_from(file, *at) {
                *at += text.len() as u64;
                self.rest += &String::from_utf8_lossy(&text);
            }
            let is_named = |file: &File| {
                let found = file.metadata().ok()?;
                let named = named.as_ref()?;
                Some((found.dev(), found.ino()) == (named.dev(), named.ino()))
            };
            // It was put aside, or deleted; the next one may not be there yet.
            if is_named(file) == Some(false)
                && let Ok(next) = File::open(&self.path)
            {
                self.open = Some((next, 0));
                if let Some((file, at)) = &mut self.open
                    && let Ok(text) = read_from(file, 0)
                {
                    *at = text.len() as u64;
                    self.rest += &String::from_utf8_lossy(&text);
                }
            }
        }
        whole_lines(&mut self.rest)
            .iter()
            .map(|line| Line::of_file(line))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| &*line.text).collect()
    }

    #[test]
    fn no_line_is_missed_or_told_twice() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("daemon.log");
        let write = |text: &str| {
            let mut file = File::options()
                .create(true)
                .append(true)
                .open(&path)
                .expect("opened");
            file.write_all(text.as_bytes()).expect("written");
        };
        let mut tail = Tail::new(path.clone(), true);
        assert!(tail.last(10, &|_| true).is_err(), "there is none yet");
        write("1\n2\n3\nhal");
        assert_eq!(
            texts(&tail.last(2, &|_| true).ok().expect("there")),
            ["2", "3"]
        );
        assert!(tail.read().is_empty());
        write("f\n");
        assert_eq!(texts(&tail.read()), ["half"]);
        // Put aside, with a line that came just before; the next file is not there yet.
        write("last\n");
        std::fs::rename(&path, directory.path().join("daemon.log.1")).expect("renamed");
        assert_eq!(texts(&tail.read()), ["last"]);
        write("new\n");
        assert_eq!(texts(&tail.read()), ["new"]);
        write("newer\n");
        assert_eq!(texts(&tail.read()), ["newer"]);
        // Truncated, as by logrotate's copytruncate.
        std::fs::write(&path, "a\n").expect("written");
        assert_eq!(texts(&tail.read()), ["a"]);
        write("no end");
        let mut other = Tail::new(path, false);
        assert_eq!(
            texts(&other.last(3, &|_| true).ok().expect("there")),
            ["last", "a", "no end"]
        );
        assert_eq!(
            texts(&other.last(3, &|line| line.text == "2").ok().expect("there")),
            ["2"]
        );
    }
}
