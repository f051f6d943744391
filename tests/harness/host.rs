//! A host as a child process, and the servers that it starts.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{Binaries, BrokerProcess, Instance, Loaded, Log, McpServer, PATIENCE};

/// A process that starts servers, as an MCP host does. When it ends, so do they.
#[derive(Debug)]
pub struct Host {
    child: Child,
    link: Arc<Link>,
    next: AtomicU64,
    binaries: &'static Binaries,
    /// What its servers logged.
    pub log: Log,
}

/// The way to the host process.
#[derive(Debug)]
struct Link {
    orders: Mutex<Option<ChildStdin>>,
    servers: Mutex<HashMap<u64, Sender<Value>>>,
}

impl Link {
    fn order(&self, order: &Value) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(orders) = orders.as_mut() else {
            return;
        };
        orders
            .write_all(format!("{order}\n").as_bytes())
            .expect("the host takes orders");
    }
}

impl Host {
    pub(crate) fn spawn(mut command: Command, binaries: &'static Binaries) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the host");
        let log = Log::default();
        Log::follow(
            child.stderr.take().expect("piped"),
            "-- end of host --",
            vec![log.clone()],
        );
        let orders = Mutex::new(child.stdin.take());
        let link = Arc::new(Link {
            orders,
            servers: Mutex::default(),
        });
        let reports = BufReader::new(child.stdout.take().expect("piped"));
        let distributing = Arc::clone(&link);
        std::thread::spawn(move || {
            for report in reports.lines().map_while(Result::ok) {
                let report: Value =
                    serde_json::from_str(&report).expect("the host reports in JSON");
                let server = report["server"].as_u64().unwrap_or_default();
                let servers = distributing
                    .servers
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                // Whoever no longer listens does not want to know.
                let _ = servers.get(&server).map(|listener| listener.send(report));
            }
            distributing
                .servers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clear();
        });
        Self {
            child,
            link,
            next: AtomicU64::new(1),
            binaries,
            log,
        }
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Starts a server with these arguments, from its program's path on.
    #[must_use]
    pub fn server(&self, arguments: &[&str]) -> Server {
        self.server_with(arguments, &json!({}))
    }

    /// Starts a server with more variables, and, where `directory` is among them, in that
    /// directory.
    #[must_use]
    pub fn server_with(&self, arguments: &[&str], variables: &Value) -> Server {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, reports) = channel();
        self.link
            .servers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, sender);
        self.link
            .order(&json!({"spawn": id, "arguments": arguments, "variables": variables}));
        Server {
            id,
            pid: None,
            link: Arc::clone(&self.link),
            reports,
            patience: PATIENCE,
        }
    }

    /// Starts an [`Instance`].
    #[must_use]
    pub fn instance(&self, arguments: &[&str]) -> Instance {
        Instance(self.server(&[&[self.binaries.instance], arguments].concat()))
    }

    /// Starts an [`Instance`] that loads. Returns what it loaded, too.
    #[must_use]
    pub fn loaded(&self, arguments: &[&str]) -> (Instance, Loaded) {
        let mut instance = self.instance(arguments);
        let loaded = instance.load();
        (instance, loaded)
    }

    /// Starts an [`Instance`] that holds a session of its own, with this token in it.
    ///
    /// # Panics
    /// When it gets another one's.
    #[must_use]
    pub fn holder(&self, arguments: &[&str], token: &str) -> Instance {
        let mut instance = self.instance(arguments);
        instance.first_run(token);
        instance
    }

    /// Starts instances with these arguments, then has all of them load at once;
    /// [`Instance::answer`] is what each got.
    #[must_use]
    pub fn loading(&self, arguments: impl IntoIterator<Item = Vec<String>>) -> Vec<Instance> {
        let start = |arguments: Vec<String>| {
            self.instance(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let instances: Vec<Instance> = arguments.into_iter().map(start).collect();
        instances.iter().for_each(|instance| instance.begin("load"));
        instances
    }

    /// Starts a server by this command line: what [`World::front`](crate::World::front) does, with
    /// this as its host.
    #[must_use]
    pub fn front(&self, words: &[String]) -> Server {
        self.server(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Starts the example server, without waiting for its answer to `initialize`.
    #[must_use]
    pub fn mcp_server(&self, broker: &BrokerProcess, arguments: &[&str]) -> McpServer {
        let socket = broker.socket.to_str().expect("UTF-8");
        McpServer::start(
            self.server(&[&[self.binaries.example_server, socket], arguments].concat()),
        )
    }

    /// Kills it. Its servers see the end of their standard input.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It kills its servers when its orders end.
        drop(
            self.link
                .orders
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let _ = self.child.wait();
        if std::thread::panicking() {
            let _ = writeln!(
                std::io::stderr(),
                "the log of host {}'s servers:\n{}",
                self.pid(),
                self.log.text()
            );
        }
    }
}

/// A process that a host has started. It outlives this, but not its host.
#[derive(Debug)]
pub struct Server {
    id: u64,
    pid: Option<u32>,
    link: Arc<Link>,
    reports: Receiver<Value>,
    patience: Duration,
}

impl Server {
    /// It may take this long for whatever it is waited for, instead of [`PATIENCE`].
    #[must_use]
    pub fn within(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Its pid.
    ///
    /// # Panics
    /// When it could not be started.
    pub fn pid(&mut self) -> u32 {
        if self.pid.is_none() {
            let report = self.report();
            let pid = report["spawned"]
                .as_u64()
                .and_then(|pid| u32::try_from(pid).ok());
            self.pid = Some(pid.unwrap_or_else(|| panic!("not started: {report}")));
        }
        self.pid.unwrap_or_default()
    }

    fn report(&self) -> Value {
        self.reports
            .recv_timeout(self.patience)
            .expect("a report of the host")
    }

    /// Writes a line to its standard input.
    pub fn write(&self, line: &str) {
        self.link.order(&json!({"write": self.id, "line": line}));
    }

    /// Reads a line of its standard output.
    ///
    /// # Panics
    /// When it exits instead.
    pub fn read(&mut self) -> String {
        self.pid();
        let report = self.report();
        let line = report["line"].as_str();
        line.unwrap_or_else(|| panic!("no line, but {report}"))
            .to_owned()
    }

    /// Writes a line, and reads the answer, of which blanks at its end don't count.
    pub fn ask(&mut self, command: &str) -> String {
        self.write(command);
        self.read().trim_end().to_owned()
    }

    /// Sends it a signal.
    pub fn signal(&mut self, signal: Signal) {
        self.link
            .order(&json!({"kill": self.id, "signal": signal as i32}));
    }

    /// Kills it, and waits until it is gone. Lines that were not read are lost.
    pub fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.wait();
    }

    /// Waits until it is gone, and has been waited for by its host. Returns its exit code, if it
    /// had one.
    ///
    /// # Panics
    /// When it stays.
    pub fn wait(&mut self) -> Option<i64> {
        loop {
            let report = self.report();
            if report.get("exited").is_some() {
                return report["exited"].as_i64();
            }
        }
    }
}
