//! What a process has written, line by line, and who waits for a line.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::PATIENCE;

/// The lines of one process, or of several one after the other. Clones are the same log.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    lines: Mutex<Vec<String>>,
    more: Condvar,
}

impl Log {
    /// Takes everything that comes from `source` into these logs, and calls its end by a line of
    /// its own.
    pub(crate) fn follow(source: impl Read + Send + 'static, end: &'static str, logs: Vec<Self>) {
        std::thread::spawn(move || {
            let lines = BufReader::new(source).split(b'\n').map_while(Result::ok);
            let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
            for line in lines.chain([end.to_owned()]) {
                logs.iter().for_each(|log| log.push(line.clone()));
            }
        });
    }

    fn push(&self, line: String) {
        self.lock().push(line);
        self.0.more.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many lines there are now: where [`Log::wait_from`] may begin.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The lines that hold `needle`.
    #[must_use]
    pub fn lines(&self, needle: &str) -> Vec<String> {
        self.lock()
            .iter()
            .filter(|line| line.contains(needle))
            .cloned()
            .collect()
    }

    /// Waits for a line that holds `needle`.
    ///
    /// # Panics
    /// When none comes.
    pub fn wait(&self, needle: &str) -> String {
        self.wait_from(0, &[needle])
    }

    /// Waits for a line that holds one of `needles`, from line number `from` on.
    ///
    /// # Panics
    /// When none comes.
    pub fn wait_from(&self, from: usize, needles: &[&str]) -> String {
        let fits = |line: &&String| needles.iter().any(|needle| line.contains(needle));
        let lines = self.lock();
        let absent = |lines: &mut Vec<String>| !lines.iter().skip(from).any(|line| fits(&line));
        let waited = self.0.more.wait_timeout_while(lines, PATIENCE, absent);
        let (lines, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let found = lines.iter().skip(from).find(fits).cloned();
        found.unwrap_or_else(|| panic!("no line with one of {needles:?} in:\n{}", lines.join("\n")))
    }

    /// Waits until so many lines hold `needle`.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn wait_count(&self, needle: &str, count: usize) {
        let fewer = |lines: &mut Vec<String>| {
            lines.iter().filter(|line| line.contains(needle)).count() < count
        };
        let waited = self.0.more.wait_timeout_while(self.lock(), PATIENCE, fewer);
        let (lines, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(
            !timeout.timed_out(),
            "fewer than {count} lines with {needle:?} in:\n{}",
            lines.join("\n")
        );
    }

    /// Everything, for who wants to know what went wrong.
    #[must_use]
    pub fn text(&self) -> String {
        self.lock().join("\n")
    }
}
