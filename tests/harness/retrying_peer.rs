//! A caller that the daemon may be killed under.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use mcp_sessiond_proto::hello::{Codec, Hello};
use serde_json::{Value, json};

use crate::{Peer, until};

/// Connects again, and repeats what was not answered, until it is: what a client library does.
#[derive(Debug)]
pub struct RetryingPeer {
    socket: PathBuf,
    peer: Option<Peer>,
}

impl RetryingPeer {
    /// Calls whatever daemon listens there at the time.
    #[must_use]
    pub fn new(socket: PathBuf) -> Self {
        Self { socket, peer: None }
    }

    /// Calls, and repeats the call where the answer was lost, or was `unavailable` or
    /// `outcome_unknown`. Tells whether that happened.
    ///
    /// # Errors
    /// The error that a daemon answered with.
    ///
    /// # Panics
    /// When there is no answer within [`crate::PATIENCE`].
    pub fn call(&mut self, method: &str, params: &Value) -> (Result<Value, Value>, bool) {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let mut repeated = false;
        // Nothing tells that another daemon listens, nor that a storage is there again.
        let answer = until("an answer", || {
            let answer = self.connected().and_then(|peer| peer.ask(&call));
            let Some(mut answer) = answer else {
                (self.peer, repeated) = (None, true);
                return None;
            };
            if let Some(result) = answer.get_mut("result") {
                return Some(Ok(result.take()));
            }
            let error = answer["error"]["data"].take();
            let passes = ["unavailable", "outcome_unknown"]
                .iter()
                .any(|code| error["code"] == *code);
            repeated |= passes;
            (!passes).then_some(Err(error))
        });
        (answer, repeated)
    }

    /// Calls, and is not refused.
    ///
    /// # Panics
    /// When it is.
    #[expect(clippy::needless_pass_by_value, reason = "it is built for the call")]
    pub fn done(&mut self, method: &str, params: Value) -> Value {
        let (answer, _) = self.call(method, &params);
        answer.unwrap_or_else(|error| panic!("{method} was refused: {error}"))
    }

    fn connected(&mut self) -> Option<&mut Peer> {
        if self.peer.is_none() {
            let mut peer = Peer::over(UnixStream::connect(&self.socket).ok()?);
            let welcome = peer.hello(&Hello::client(Codec::JsonRpc).encode())?;
            self.peer = (welcome.answer == 0).then_some(peer);
        }
        self.peer.as_mut()
    }
}
