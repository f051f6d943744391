//! A daemon as a child process.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Log;
use crate::process::kib;

/// A daemon in the foreground. It is killed when this is dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    command: Command,
    /// What the world's daemons wrote, one after the other.
    all: Log,
    /// What this one wrote since it was started last.
    own: Log,
}

impl Daemon {
    /// The last line of every daemon's log.
    pub const END: &str = "-- end of the daemon --";

    pub(crate) fn spawn(mut command: Command, all: Log) -> Self {
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        let (child, own) = launch(&mut command, &all);
        Self {
            child,
            command,
            all,
            own,
        }
    }

    /// Waits until clients can connect.
    ///
    /// # Panics
    /// When it ends instead.
    pub fn ready(&self) {
        assert!(
            self.ready_or_ended(),
            "the daemon did not start:\n{}",
            self.own.text()
        );
    }

    /// Waits until clients can connect, or it has ended. Tells which.
    #[must_use]
    pub fn ready_or_ended(&self) -> bool {
        self.own.wait_from(0, &[" ready ", Self::END]) != Self::END
    }

    /// What this one writes, to be waited for elsewhere; its last line is [`Daemon::END`].
    #[must_use]
    pub fn log(&self) -> Log {
        self.own.clone()
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it has been waited for already.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid().cast_signed()), signal).expect("it is our child");
    }

    /// Kills it, as the kernel does when memory runs out, and waits until it is gone.
    ///
    /// # Panics
    /// When it came to another end before.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let status = self.wait();
        assert_eq!(
            status.signal(),
            Some(Signal::SIGKILL as i32),
            "it ended by itself: {status}"
        );
    }

    /// Starts another one like it, which is ready when this returns.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
        self.start_with(&[]);
        self.ready();
    }

    /// Starts another one like it, with these variables on top for this one time.
    ///
    /// # Panics
    /// When it can't be started.
    pub fn start_with(&mut self, variables: &[(&str, &str)]) {
        self.command.envs(variables.iter().copied());
        (self.child, self.own) = launch(&mut self.command, &self.all);
        for (name, _) in variables {
            self.command.env_remove(name);
        }
    }

    /// [`Daemon::kill`], then [`Daemon::start_again`].
    ///
    /// # Panics
    /// As these do.
    pub fn restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// [`Daemon::kill`], then [`Daemon::start_with`].
    ///
    /// # Panics
    /// As these do.
    pub fn restart_with(&mut self, variables: &[(&str, &str)]) {
        self.kill();
        self.start_with(variables);
    }

    /// Asks it to stop, and waits until it has.
    ///
    /// # Panics
    /// When its end can't be learnt.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait()
    }

    /// Waits until it ends.
    ///
    /// # Panics
    /// When its end can't be learnt.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("it is our child")
    }

    /// How it ended, if it has.
    ///
    /// # Panics
    /// When that can't be learnt.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is our child")
    }

    /// What it holds in memory (VmRSS), in KiB.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn resident_kib(&self) -> u64 {
        self.kib("VmRSS:")
    }

    /// How much of that it has allocated (RssAnon), in KiB: without the program's text and
    /// constants, which the kernel reads from the file again after the daemon has let go of them.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn allocated_kib(&self) -> u64 {
        self.kib("RssAnon:")
    }

    /// How much of that are pages of files (RssFile), in KiB: the program's text and constants.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn mapped_kib(&self) -> u64 {
        self.kib("RssFile:")
    }

    /// The most that it has held in memory (VmHWM), in KiB.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn peak_kib(&self) -> u64 {
        self.kib("VmHWM:")
    }

    fn kib(&self, name: &str) -> u64 {
        kib(self.pid(), name)
    }

    /// How many descriptors it has open.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        open_descriptors(self.pid()).len()
    }

    /// Leaves it so many descriptors to open, beside those that are open now. None: as many as it
    /// may.
    ///
    /// # Panics
    /// When it can't be limited.
    pub fn leave_descriptors(&self, free: Option<usize>) {
        leave_descriptors(self.pid(), free);
    }
}

/// Leaves a process so many descriptors to open, beside those that are open now. None: as many as it
/// may.
///
/// # Panics
/// When it can't be limited.
pub fn leave_descriptors(pid: u32, free: Option<usize>) {
    let open = open_descriptors(pid);
    let limit = free.map(|free| {
        (0..)
            .filter(|number| !open.contains(number))
            .nth(free)
            .unwrap_or_default()
    });
    let limit = limit.map(|limit| limit.to_string());
    let pid = pid.to_string();
    let hard = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("it runs");
    let hard = hard
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .expect("a limit");
    let hard = hard.split_whitespace().nth(1).expect("a hard one");
    let soft = limit.as_deref().unwrap_or(hard);
    let set = ["--pid", &pid, &format!("--nofile={soft}:{hard}")];
    assert!(
        Command::new("prlimit")
            .args(set)
            .status()
            .expect("prlimit")
            .success()
    );
}

/// The numbers of the descriptors that a process has open.
fn open_descriptors(pid: u32) -> std::collections::BTreeSet<usize> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

fn launch(command: &mut Command, all: &Log) -> (Child, Log) {
    let mut child = command.spawn().expect("the daemon");
    let own = Log::default();
    Log::follow(
        child.stderr.take().expect("piped"),
        Daemon::END,
        vec![own.clone(), all.clone()],
    );
    (child, own)
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
