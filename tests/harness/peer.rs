//! A connection to the daemon that may say anything.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use mcp_sessiond_proto::hello::{CHALLENGE_LEN, Codec, HELLO_LEN, Hello};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::PATIENCE;

/// A connection of the test's own process.
#[derive(Debug)]
pub struct Peer {
    /// The connection.
    pub stream: UnixStream,
    calls: u64,
}

impl Peer {
    /// Connects, and says nothing yet.
    ///
    /// # Panics
    /// When nobody listens.
    #[must_use]
    pub fn connect(socket: &Path) -> Self {
        Self::over(UnixStream::connect(socket).expect("a daemon listens"))
    }

    pub(crate) fn over(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        Self { stream, calls: 0 }
    }

    /// The same connection, to be written to from another thread.
    ///
    /// # Panics
    /// When there are too many descriptors.
    #[must_use]
    pub fn twin(&self) -> Self {
        Self::over(self.stream.try_clone().expect("a descriptor"))
    }

    /// Says hello, and is welcomed.
    ///
    /// # Panics
    /// When it is not.
    pub fn greet(&mut self, codec: Codec) {
        let answer = self
            .hello(&Hello::client(codec).encode())
            .expect("an answer to the hello");
        assert_eq!(answer.answer, 0, "{answer:?}");
    }

    /// Says these bytes for a hello, and answers the question who it is. None: the connection was
    /// ended without an answer.
    pub fn hello(&mut self, hello: &[u8]) -> Option<Hello> {
        self.stream.write_all(hello).ok()?;
        let answer = self.answered()?;
        if !answer.is_challenge() {
            return Some(answer);
        }
        let mut challenge = [0; CHALLENGE_LEN];
        self.stream.read_exact(&mut challenge).ok()?;
        self.stream.write_all(&challenge).ok()?;
        self.answered()
    }

    /// A hello of the daemon's.
    fn answered(&mut self) -> Option<Hello> {
        let mut answer = [0; HELLO_LEN];
        self.stream.read_exact(&mut answer).ok()?;
        Hello::decode(&answer).ok()
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn send(&mut self, body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(body.len()).expect("a frame");
        self.stream
            .write_all(&[&length.to_be_bytes(), body].concat())
    }

    /// Sends the beginning of a frame that is to have so many bytes.
    ///
    /// # Panics
    /// When the daemon has hung up.
    pub fn announce(&mut self, length: u32, beginning: &[u8]) {
        self.stream
            .write_all(&[&length.to_be_bytes(), beginning].concat())
            .expect("written");
    }

    /// Reads a frame. None: the connection was ended.
    ///
    /// # Panics
    /// When nothing comes at all.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 4];
        match self.stream.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                panic!("neither an answer nor an end")
            }
            Err(_) => return None,
            Ok(()) => {}
        }
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut body).ok()?;
        Some(body)
    }

    /// Reads a frame of JSON.
    ///
    /// # Panics
    /// When the connection was ended, or it is not JSON.
    #[track_caller]
    pub fn answer(&mut self) -> Value {
        serde_json::from_slice(&self.receive().expect("an answer")).expect("JSON")
    }

    /// Whether the daemon has ended the connection, or does so now, without another word.
    pub fn is_ended(&mut self) -> bool {
        self.receive().is_none()
    }

    /// Sends a frame of JSON and reads one.
    pub fn ask(&mut self, message: &Value) -> Option<Value> {
        self.send(message.to_string().as_bytes()).ok()?;
        serde_json::from_slice(&self.receive()?).ok()
    }

    /// A call in JSON-RPC.
    ///
    /// # Errors
    /// The error that the daemon answered with: `error.data`, or the whole of it where there is
    /// none.
    ///
    /// # Panics
    /// When it does not answer.
    #[expect(clippy::needless_pass_by_value, reason = "it is built for the call")]
    pub fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.calls += 1;
        let call = json!({"jsonrpc": "2.0", "id": self.calls, "method": method, "params": params});
        let mut answer = self.ask(&call).expect("an answer");
        assert_eq!(answer["id"], self.calls, "{answer}");
        if let Some(result) = answer.get_mut("result") {
            return Ok(result.take());
        }
        let error = answer["error"].take();
        Err(error.get("data").unwrap_or(&error).clone())
    }

    /// Claims a session for the test, which has a lease then.
    ///
    /// # Panics
    /// When there is none to be had.
    pub fn claim(&mut self) -> Value {
        self.call("claim", json!({})).expect("a session")
    }

    /// Stores a token, in base64, under the lease that was claimed.
    ///
    /// # Errors
    /// The error that the daemon answered with.
    pub fn store(&mut self, claimed: &Value, token: &str) -> Result<Value, Value> {
        let request =
            json!({"session": claimed["session"], "epoch": claimed["epoch"], "token": token});
        self.call("store_token", request)
    }

    /// A call in MessagePack, written as JSON: `{"id":…,"deadline_ms":…,"call":{…}}`.
    pub fn ask_packed(&mut self, call: &Value) -> Option<Value> {
        self.send(&rmp_serde::to_vec_named(call).ok()?).ok()?;
        rmp_serde::from_slice(&self.receive()?).ok()
    }

    /// The pid of the daemon at the other end, if it answers.
    pub(crate) fn pid_of_daemon(stream: &mut UnixStream) -> Option<Pid> {
        let mut peer = Self::over(stream.try_clone().ok()?);
        let welcome = peer.hello(&Hello::client(Codec::JsonRpc).encode())?;
        if welcome.answer != 0 {
            return None;
        }
        let about = peer.call("about", json!({})).ok()?;
        Some(Pid::from_raw(i32::try_from(about["pid"].as_i64()?).ok()?))
    }
}
