//! The server that says what it is told to: `raw`.

use std::io::Write as _;
use std::path::PathBuf;

use nix::sys::stat::Mode;

use crate::{World, until_written};

/// Where such a server writes what it hears, and is told what to say.
#[derive(Debug)]
pub struct Raw {
    /// Its command line.
    pub command: Vec<String>,
    heard: PathBuf,
    control: PathBuf,
}

impl World {
    /// A server of this kind, which was not started yet.
    ///
    /// # Panics
    /// When its FIFO can't be made.
    #[must_use]
    pub fn raw(&self, name: &str) -> Raw {
        let (heard, control) = (
            self.root().join(format!("{name}.heard")),
            self.root().join(format!("{name}.fifo")),
        );
        nix::unistd::mkfifo(&control, Mode::S_IRWXU).expect("a FIFO");
        std::fs::write(&heard, "").expect("a file");
        let path = |path: &PathBuf| path.to_str().expect("UTF-8").to_owned();
        Raw {
            command: vec![self.binaries.raw.into(), path(&heard), path(&control)],
            heard,
            control,
        }
    }
}

impl Raw {
    /// Has it say a line, whether anybody listens or not.
    ///
    /// # Panics
    /// When it can't be told.
    pub fn say(&self, line: &str) {
        self.say_bytes(line.as_bytes());
    }

    /// The same of bytes.
    ///
    /// # Panics
    /// When it can't be told.
    pub fn say_bytes(&self, line: &[u8]) {
        let mut control = std::fs::OpenOptions::new()
            .write(true)
            .open(&self.control)
            .expect("its FIFO");
        control.write_all(&[line, b"\n"].concat()).expect("told");
    }

    /// Every line that it has read.
    ///
    /// # Panics
    /// When there is no such file.
    #[must_use]
    pub fn heard(&self) -> Vec<Vec<u8>> {
        let all = std::fs::read(&self.heard).expect("a file");
        all.split_inclusive(|byte| *byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect()
    }

    /// Looks each time that it has read a line.
    pub fn until<T>(&self, what: &str, look: impl FnMut() -> Option<T>) -> T {
        until_written(&self.heard, what, look)
    }

    /// Waits until it has read a line with this text in it, and returns that.
    pub fn wait_heard(&self, text: &str) -> String {
        self.until(&format!("the server hears {text}"), || {
            let lines = self
                .heard()
                .into_iter()
                .map(|line| String::from_utf8_lossy(&line).into_owned());
            lines
                .filter(|line| line.ends_with('\n'))
                .find(|line| line.contains(text))
        })
    }
}
