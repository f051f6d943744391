//! Lines on their way to standard error: the journal is told how bad each is, a file gets the time,
//! nobody can fill it with one line, and it is put aside while the daemon runs.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use mcp_sessiond_proto::Lock as _;
use nix::fcntl::OFlag;
use nix::sys::stat::fstat;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

/// Bytes that the file of a daemon started on demand may have. It is put aside then, and the one
/// before it goes.
pub(crate) const LOG_MAX: u64 = 1024 * 1024;

/// How often one line about one process is written within [`WINDOW`].
const OFTEN: u32 = 10;

/// For how long lines are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// Different lines that are counted at once. When there are more, counting begins anew.
const LINES: usize = 1_024;

/// Where the lines go.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    /// Standard error is the journal's.
    is_journal: bool,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The file behind standard error, if it is to be put aside when it is full.
    file: Option<PathBuf>,
    counted: HashMap<u64, Counted>,
}

#[derive(Debug)]
struct Counted {
    since: Instant,
    lines: u32,
}

/// What becomes of a line.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// It is written.
    Written,
    /// So is this one, and those like it that follow are left out.
    Last,
    /// It is left out.
    LeftOut,
    /// It is written after so many like it were left out.
    After(u32),
}

/// Writes one line.
#[derive(Debug)]
pub(super) struct Line<'a> {
    lines: &'a Lines,
    level: Level,
}

impl Lines {
    pub(super) fn new() -> Self {
        Self {
            is_journal: is_journal(),
            shared: Arc::default(),
        }
    }

    /// Standard error is this file.
    pub(super) fn put_aside(&self, file: PathBuf) {
        self.lock().file = Some(file);
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.locked()
    }

    fn put(&self, level: Level, line: &[u8]) -> io::Result<()> {
        let mut shared = self.lock();
        // Who has asked for more than the usual gets all of it.
        let is_usual = level <= Level::INFO;
        let fate = if is_usual {
            shared.fate(line, Instant::now())
        } else {
            Fate::Written
        };
        let mut text = Vec::with_capacity(line.len() + 64);
        if let Fate::After(count) = fate {
            self.begin(level, &mut text);
            let _ = writeln!(
                text,
                "{level:>5} {count} more like the next line were left out"
            );
        }
        if fate != Fate::LeftOut {
            self.begin(level, &mut text);
            text.extend_from_slice(line);
        }
        if fate == Fate::Last {
            self.begin(level, &mut text);
            let _ = writeln!(
                text,
                "{level:>5} more like the last line are left out for up to {} s",
                WINDOW.as_secs()
            );
        }
        if !text.is_empty() {
            shared.rotate();
        }
        io::stderr().write_all(&text)
    }

    /// What stands before each line.
    fn begin(&self, level: Level, text: &mut Vec<u8>) {
        if self.is_journal {
            text.extend_from_slice(priority(level).as_bytes());
            return;
        }
        let mut time = String::new();
        // Into memory: it can't fail.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        text.extend_from_slice(time.as_bytes());
        text.push(b' ');
    }
}

impl Shared {
    fn fate(&mut self, line: &[u8], now: Instant) -> Fate {
        if self.counted.len() >= LINES {
            self.counted.clear();
        }
        let counted = self.counted.entry(kind(line)).or_insert(Counted {
            since: now,
            lines: 0,
        });
        let mut left_out = 0;
        if now.duration_since(counted.since) >= WINDOW {
            left_out = counted.lines.saturating_sub(OFTEN);
            *counted = Counted {
                since: now,
                lines: 0,
            };
        }
        counted.lines = counted.lines.saturating_add(1);
        match counted.lines {
            1 if left_out > 0 => Fate::After(left_out),
            lines if lines < OFTEN => Fate::Written,
            OFTEN => Fate::Last,
            _ => Fate::LeftOut,
        }
    }

    /// Puts the file aside if it is full. Where that can't be done, it goes on growing.
    fn rotate(&self) {
        let Some(path) = &self.file else { return };
        let is_full =
            |found: nix::sys::stat::FileStat| u64::try_from(found.st_size).unwrap_or(0) > LOG_MAX;
        if fstat(io::stderr()).is_ok_and(is_full) && std::fs::rename(path, aside(path)).is_ok() {
            let _ = open(path).and_then(|file| nix::unistd::dup2_stderr(file).map_err(Into::into));
        }
    }
}

/// What lines have in common that are counted together: everything but numbers, and the process
/// that they are about.
fn kind(line: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(line);
    let mut hasher = DefaultHasher::new();
    let is_process = |word: &&str| word.starts_with("pid=");
    text.split_whitespace().find(is_process).hash(&mut hasher);
    text.split(|letter: char| letter.is_ascii_digit())
        .filter(|part| !part.is_empty())
        .for_each(|part| part.hash(&mut hasher));
    hasher.finish()
}

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // The layer hands over whole lines.
        self.lines.put(self.level, line).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        Line {
            lines: self,
            level: Level::INFO,
        }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Self::Writer {
        Line {
            lines: self,
            level: *meta.level(),
        }
    }
}

/// Where a full log is put.
fn aside(path: &Path) -> PathBuf {
    let mut aside = path.to_owned().into_os_string();
    aside.push(".1");
    aside.into()
}

/// Opens the log of a daemon that is started on demand. A full one is put aside.
///
/// # Errors
/// Those of the operating system.
pub(crate) fn open_log(path: &Path) -> io::Result<std::fs::File> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() > LOG_MAX) {
        std::fs::rename(path, aside(path))?;
    }
    open(path)
}

fn open(path: &Path) -> io::Result<std::fs::File> {
    let flags = OFlag::O_NOFOLLOW.bits();
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)
}

/// Whether standard error is connected to the journal: systemd.exec(5), `$JOURNAL_STREAM`.
pub(crate) fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let number = |text: &str| text.parse::<u64>().ok();
    let Some((device, inode)) = stream
        .split_once(':')
        .and_then(|(one, two)| number(one).zip(number(two)))
    else {
        return false;
    };
    // The conversions change nothing on Linux; st_dev is an i32 on macOS.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    fstat(io::stderr())
        .is_ok_and(|found| (found.st_dev as u64, found.st_ino as u64) == (device, inode))
}

/// What tells the journal how bad a line is: sd-daemon(3).
pub(crate) fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}
