//! The service that keeps events, over HTTP: another example of the client library.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use crate::{PATIENCE, World};

/// `event-service`, until this is dropped.
#[derive(Debug)]
pub struct EventService {
    child: Child,
    address: String,
}

impl World {
    /// An event service that listens.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn event_service(&self) -> EventService {
        let mut command = self.command(self.binaries.event_service);
        let mut child = command
            .arg("127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("a line");
        let address = line
            .trim_end()
            .rsplit(' ')
            .next()
            .expect("an address")
            .to_owned();
        EventService { child, address }
    }
}

impl EventService {
    /// Sends a request, and reads the answer to its end.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn ask(&self, method: &str, headers: &[(&str, &str)], body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let headers: String = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let length = body.len();
        let request =
            format!("{method} / HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

impl Drop for EventService {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
