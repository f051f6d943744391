//! What is measured, as processes: the daemon, an echo on a bare socket, Redis and Valkey.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use crate::caller::Outcome;

/// A private directory, gone afterwards.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn new(parent: &str) -> io::Result<Self> {
        let path = PathBuf::from(format!("{parent}/sessiond-bench-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A child that is killed when it is no longer needed.
pub(crate) struct Killed(Child);

impl Killed {
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// The processor time that it has had so far, in all its threads, in µs.
    pub(crate) fn busy(&self) -> f64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0.id()))
            .into_iter()
            .flatten()
            .flatten();
        let had = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            stat.split(' ').next()?.parse::<f64>().ok()
        };
        tasks.filter_map(had).sum::<f64>() / 1e3
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The daemon of a release build, in the foreground.
pub(crate) struct Daemon {
    pub(crate) process: Rc<Killed>,
    binary: PathBuf,
    pub(crate) directory: PathBuf,
}

impl Daemon {
    pub(crate) fn start(scratch: &Scratch, name: &str, settings: &[&str]) -> Outcome<Self> {
        let binary = std::env::var_os("MCP_SESSIOND_BIN")
            .ok_or("run it by tests/bench/run, which sets MCP_SESSIOND_BIN")?;
        let directory = scratch.0.join(name);
        let settings = settings
            .iter()
            .chain(&["limits.connections_per_process=1000"]);
        let mut process = Command::new(&binary)
            .arg("run")
            .args(settings.flat_map(|setting| ["--set", setting]))
            .env("MCP_SESSIOND_DIR", &directory)
            .env("MCP_SESSIOND_CONFIG", scratch.0.join("none"))
            .stderr(Stdio::piped())
            .spawn()?;
        let log = process.stderr.take().ok_or("no log")?;
        let mut lines = BufReader::new(log).lines();
        if !lines.any(|line| line.is_ok_and(|line| line.contains("ready"))) {
            return Err("the daemon did not start".into());
        }
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self {
            process: Rc::new(Killed(process)),
            binary: binary.into(),
            directory,
        })
    }

    /// `token load` for this very process, which has a token.
    pub(crate) fn token_load(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.args([
            "token",
            "load",
            "--for",
            &std::process::id().to_string(),
            "--instance",
            "load",
        ]);
        command.env("MCP_SESSIOND_DIR", &self.directory);
        command
    }
}

/// A process that sends back what it gets.
pub(crate) struct Echo {
    pub(crate) process: Rc<Killed>,
    pub(crate) path: PathBuf,
}

impl Echo {
    pub(crate) fn start(scratch: &Scratch) -> Outcome<Self> {
        let path = scratch.0.join("echo");
        let mut process = Command::new(std::env::current_exe()?)
            .arg("--echo")
            .arg(&path)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = String::new();
        BufReader::new(process.stdout.take().ok_or("no pipe")?).read_line(&mut said)?;
        Ok(Self {
            process: Rc::new(Killed(process)),
            path,
        })
    }
}

/// The echo itself: a thread a connection, blocking, nothing else.
pub(crate) fn echo(path: &str) -> Outcome<()> {
    let listener = UnixListener::bind(path)?;
    writeln!(io::stdout(), "ready")?;
    for stream in listener.incoming() {
        let mut stream = stream?;
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..read]).is_err() {
                    break;
                }
            }
        });
    }
    Ok(())
}

/// A Redis on a Unix socket, or a Valkey, which began as the same program.
pub(crate) struct Redis {
    pub(crate) process: Rc<Killed>,
    pub(crate) path: PathBuf,
}

impl Redis {
    pub(crate) fn start(
        program: impl AsRef<OsStr>,
        scratch: &Scratch,
        name: &str,
        settings: &[&str],
    ) -> Outcome<Self> {
        let directory = scratch.0.join(name);
        std::fs::create_dir(&directory)?;
        let path = directory.join("socket");
        let process = Command::new(program)
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&path)
            .arg("--dir")
            .arg(&directory)
            .args(settings)
            .stdout(Stdio::null())
            .spawn()?;
        let redis = Self {
            process: Rc::new(Killed(process)),
            path,
        };
        while !redis.answers() {
            std::thread::yield_now();
        }
        Ok(redis)
    }

    fn answers(&self) -> bool {
        let ping = |path: &Path| -> io::Result<usize> {
            let mut stream = UnixStream::connect(path)?;
            stream.write_all(b"PING\r\n")?;
            stream.read(&mut [0; 16])
        };
        ping(&self.path).is_ok_and(|read| read > 0)
    }
}
