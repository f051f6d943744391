//! The broker of [`crate::broker`] as a child process.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::World;

/// The broker as a process.
#[derive(Debug)]
pub struct BrokerProcess {
    child: Child,
    /// Its socket.
    pub socket: PathBuf,
}

impl World {
    /// A broker.
    #[must_use]
    pub fn broker(&self) -> BrokerProcess {
        BrokerProcess::spawn(
            self.command(self.binaries.broker),
            self.root().join("broker.sock"),
        )
    }
}

impl BrokerProcess {
    fn spawn(mut command: Command, socket: PathBuf) -> Self {
        command
            .arg(&socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("the broker");
        let mut ready = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut ready)
            .expect("a line");
        assert_eq!(ready, "ready\n");
        Self { child, socket }
    }

    /// Asks it something.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn ask(&self, question: &Value) -> Value {
        let mut stream = UnixStream::connect(&self.socket).expect("the broker");
        stream
            .write_all(format!("{question}\n").as_bytes())
            .expect("asked");
        let mut line = String::new();
        BufReader::new(stream)
            .read_line(&mut line)
            .expect("answered");
        serde_json::from_str(&line).expect("json")
    }

    /// How many tokens were refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.ask(&json!({"op": "tally"}))["refused"]
            .as_u64()
            .expect("a number")
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
