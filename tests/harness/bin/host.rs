//! A host: starts servers, and passes on what they say. Orders and reports are lines of JSON.
//!
//! | order | report |
//! | --- | --- |
//! | `{"spawn":ID,"arguments":[…],"variables":{…}}` | `{"server":ID,"spawned":PID}`, or `"failed"` and why |
//! | `{"write":ID,"line":…}` | |
//! | `{"kill":ID,"signal":N}` | |
//! | | `{"server":ID,"line":…}`: a line of its standard output |
//! | | `{"server":ID,"exited":CODE}`: it was waited for; null where a signal ended it |
//!
//! The variable `directory` is the directory that a server is started in. When the orders end,
//! every server is killed.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// The servers that were not waited for yet: whoever has one of them knows that the pid is its own.
type Servers = Arc<Mutex<HashMap<u64, Running>>>;

struct Running {
    child: Child,
    input: Option<ChildStdin>,
}

fn main() -> io::Result<()> {
    let servers = Servers::default();
    for order in io::stdin().lines() {
        let order: Value = serde_json::from_str(&order?)?;
        if let Some(id) = order["spawn"].as_u64() {
            if let Err(error) = spawn(id, &order, &servers) {
                report(&json!({"server": id, "failed": error.to_string()}));
            }
        } else if let Some(id) = order["write"].as_u64() {
            let line = format!("{}\n", order["line"].as_str().unwrap_or_default());
            if let Some(input) = lock(&servers)
                .get_mut(&id)
                .and_then(|server| server.input.as_mut())
            {
                // It may have died meanwhile, which is reported anyway.
                let _ = input.write_all(line.as_bytes());
            }
        } else if let Some(id) = order["kill"].as_u64() {
            let signal = order["signal"]
                .as_i64()
                .and_then(|signal| i32::try_from(signal).ok());
            let signal = signal.and_then(|signal| Signal::try_from(signal).ok());
            if let Some(server) = lock(&servers).get(&id) {
                let _ = kill(pid(&server.child), signal);
            }
        }
    }
    for server in lock(&servers).values_mut() {
        let _ = server.child.kill();
    }
    std::process::exit(0);
}

fn spawn(id: u64, order: &Value, servers: &Servers) -> io::Result<()> {
    let arguments: Vec<&str> = order["arguments"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let (program, rest) = arguments
        .split_first()
        .ok_or_else(|| io::Error::other("no program"))?;
    let mut command = Command::new(program);
    command
        .args(rest)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    for (name, value) in order["variables"].as_object().into_iter().flatten() {
        match (name.as_str(), value.as_str().unwrap_or_default()) {
            ("directory", path) => command.current_dir(path),
            (name, value) => command.env(name, value),
        };
    }
    // Within the lock, so that the report of the start comes before any other.
    let mut all = lock(servers);
    let mut child = command.spawn()?;
    report(&json!({"server": id, "spawned": child.id()}));
    let (input, output) = (child.stdin.take(), child.stdout.take());
    #[cfg(target_os = "linux")]
    let its_pid = pid(&child);
    all.insert(id, Running { child, input });
    drop(all);
    let servers = Arc::clone(servers);
    std::thread::spawn(move || {
        let lines = BufReader::new(output.ok_or_else(|| io::Error::other("no output"))?).lines();
        let reading = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                report(&json!({"server": id, "line": line}));
            }
        });
        // The pid stays its own until it is taken out of the list. nix has no such call on macOS.
        #[cfg(target_os = "linux")]
        nix::sys::wait::waitid(
            nix::sys::wait::Id::Pid(its_pid),
            nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT,
        )?;
        let mut all = lock(&servers);
        let code = all
            .remove(&id)
            .map(|mut server| server.child.wait())
            .transpose()?
            .and_then(|status| status.code());
        drop(all);
        // What it started may have its output still, so the end of that is not waited for, unless
        // it ended itself.
        if code.is_some() {
            let _ = reading.join();
        }
        report(&json!({"server": id, "exited": code}));
        io::Result::Ok(())
    });
    Ok(())
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

fn lock(servers: &Servers) -> MutexGuard<'_, HashMap<u64, Running>> {
    servers.lock().unwrap_or_else(PoisonError::into_inner)
}

fn report(report: &Value) {
    // Standard output locks itself for a line; who reads it may be gone.
    let mut output = io::stdout().lock();
    let _ = output
        .write_all(format!("{report}\n").as_bytes())
        .and_then(|()| output.flush());
}
