//! A server on stdio as a child of the test, which is its host then: wrapped, or as it is.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::process::exit_of;
use crate::{Log, PATIENCE, Pipe, World};

/// A front, or a server without one. It leads a process group, and is killed when this is dropped.
#[derive(Debug)]
pub struct Front {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    /// What was read and not given out yet, and how much of it has no newline.
    read: Vec<u8>,
    scanned: usize,
    /// What it writes to its standard error.
    pub errors: Log,
}

impl World {
    /// The command line that wraps a server.
    #[must_use]
    pub fn wrapping(&self, options: &[&str], server: &[String]) -> Vec<String> {
        let own = [&[self.binaries.daemon, "wrap"], options, &["--"]].concat();
        own.into_iter()
            .map(str::to_owned)
            .chain(server.iter().cloned())
            .collect()
    }

    /// A server that is started by this command line, of which the test is the host.
    ///
    /// # Panics
    /// When it can't be started.
    #[must_use]
    pub fn front(&self, words: &[String]) -> Front {
        self.front_with(words, &[])
    }

    /// The same, with these variables on top.
    #[must_use]
    pub fn front_with(&self, words: &[String], variables: &[(&str, &str)]) -> Front {
        let (program, arguments) = words.split_first().expect("a program");
        let mut command = self.command(program);
        command.args(arguments).envs(variables.iter().copied());
        Front::spawn(command)
    }
}

impl Front {
    /// Runs a server.
    ///
    /// # Panics
    /// When it can't be started.
    #[must_use]
    pub fn spawn(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn().expect("a server");
        let errors = Log::default();
        Log::follow(
            child.stderr.take().expect("piped"),
            "-- end of the front --",
            vec![errors.clone()],
        );
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("piped"));
        Self {
            child,
            input,
            output,
            read: Vec::new(),
            scanned: 0,
            errors,
        }
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn as_pid(&self) -> Pid {
        Pid::from_raw(self.pid().cast_signed())
    }

    /// Writes bytes as they are.
    ///
    /// # Panics
    /// When it has closed its standard input.
    pub fn send(&mut self, bytes: &[u8]) {
        self.input
            .as_mut()
            .expect("open")
            .write_all(bytes)
            .expect("it reads");
    }

    /// The next line, without its newline, or none at the end.
    ///
    /// # Panics
    /// When none comes.
    pub fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.read[self.scanned..]
                .iter()
                .position(|byte| *byte == b'\n')
            {
                let mut line: Vec<u8> = self.read.drain(..=self.scanned + at).collect();
                line.pop();
                self.scanned = 0;
                return Some(line);
            }
            self.scanned = self.read.len();
            assert!(
                self.says_within(PATIENCE),
                "waited {PATIENCE:?} in vain for a line\n{}",
                self.errors.text()
            );
            let mut chunk = vec![0; 1 << 16];
            match self.output.read(&mut chunk).expect("read") {
                0 => return None,
                read => self.read.extend_from_slice(&chunk[..read]),
            }
        }
    }

    /// The next bytes, so many of them.
    ///
    /// # Panics
    /// When they do not come.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.read.len() < count {
            assert!(
                self.says_within(PATIENCE),
                "waited {PATIENCE:?} in vain for {count} bytes\n{}",
                self.errors.text()
            );
            let mut chunk = vec![0; 1 << 16];
            match self.output.read(&mut chunk).expect("read") {
                0 => panic!("it ended:\n{}", self.errors.text()),
                read => self.read.extend_from_slice(&chunk[..read]),
            }
        }
        self.scanned = 0;
        self.read.drain(..count).collect()
    }

    /// Whether there is something to be read, or comes in time.
    ///
    /// # Panics
    /// When that can't be found out.
    #[must_use]
    pub fn says_within(&self, time: Duration) -> bool {
        let mut polled = [PollFd::new(self.output.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(time).expect("some seconds");
        poll(&mut polled, timeout).expect("polled") > 0
    }

    /// Another way to its standard input.
    ///
    /// # Panics
    /// When it was closed.
    #[must_use]
    pub fn input(&self) -> File {
        self.input
            .as_ref()
            .expect("open")
            .as_fd()
            .try_clone_to_owned()
            .expect("a descriptor")
            .into()
    }

    /// Closes its standard input.
    pub fn close(&mut self) {
        drop(self.input.take());
    }

    /// Closes the end of its standard output from which it is read.
    ///
    /// # Panics
    /// When there is no `/dev/null`.
    pub fn close_output(&mut self) {
        let null = File::open("/dev/null").expect("a device");
        self.output = OwnedFd::from(null).into();
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(self.as_pid(), signal);
    }

    /// Kills everything in its process group, and waits until it is gone.
    pub fn kill_group(&mut self) {
        let _ = killpg(self.as_pid(), Signal::SIGKILL);
        self.wait();
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        self.wait();
    }

    /// Waits until it is gone.
    ///
    /// # Panics
    /// When it stays.
    pub fn wait(&mut self) -> ExitStatus {
        exit_of(&mut self.child)
    }

    /// Whether it still runs.
    ///
    /// # Panics
    /// When that can't be learnt.
    #[must_use]
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }
}

impl Pipe for Front {
    fn write(&mut self, line: &str) {
        self.send(format!("{line}\n").as_bytes());
    }

    fn read(&mut self) -> String {
        let line = self
            .line()
            .unwrap_or_else(|| panic!("it ended:\n{}", self.errors.text()));
        String::from_utf8(line).expect("UTF-8")
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.kill();
    }
}
