//! The backend of a session, as the process that serves the session sees it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_proto::KeeperName;
use mcp_sessiond_proto::backends::Attached;
use serde_json::Value;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::time::timeout;

use super::link::{Ends, Gone, Input, Link, Message};

/// How long a keeper may take to end: longer than the longest `backends.stop_wait_ms`, which is a
/// minute.
const END_WAIT: Duration = Duration::from_secs(75);

/// The backend of a session. Its standard error is copied to this process's. The backend survives
/// this value and this process; the next front that attaches gets every line that was not
/// confirmed.
///
/// Dropping a future of [`Backend::send`] leaves open whether the backend gets the line.
#[derive(Debug)]
pub struct Backend {
    inputs: mpsc::UnboundedSender<Input>,
    messages: Mutex<mpsc::UnboundedReceiver<Message>>,
    gone: watch::Receiver<()>,
    ends: Arc<Ends>,
    keeper: KeeperName,
    incarnation: u64,
    is_initialized: bool,
}

impl Backend {
    /// The backend at the other end of an open link.
    pub(super) fn over(link: Link, keeper: KeeperName, attached: &Attached) -> Self {
        let (inputs, received) = mpsc::unbounded_channel();
        let (sender, messages) = mpsc::unbounded_channel();
        let (is_gone, gone) = watch::channel(());
        let ends = link.ends();
        tokio::spawn(link.run(received, sender, is_gone));
        let Attached {
            incarnation,
            initialized: is_initialized,
            ..
        } = *attached;
        Self {
            inputs,
            messages: Mutex::new(messages),
            gone,
            ends,
            keeper,
            incarnation,
            is_initialized,
        }
    }

    /// Sends a line: a message or a batch, without the newline. Returns once the keeper has
    /// acknowledged it; from then on the backend gets it even if this process is killed. Lines keep
    /// the order of the calls.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn send(&self, line: impl Into<Bytes>) -> Result<(), Gone> {
        let (taken, is_taken) = oneshot::channel();
        let gone = Gone {
            may_have_arrived: false,
        };
        self.inputs
            .send(Input::Send(line.into(), taken))
            .map_err(|_| gone)?;
        is_taken.await.unwrap_or(Err(gone))
    }

    /// The next line of the backend; none when the backend is gone for good. The keeper holds
    /// further lines back once 256 lines, or 1 MiB, are unconfirmed.
    pub async fn next(&self) -> Option<Message> {
        self.messages.lock().await.recv().await
    }

    /// Confirms all lines up to this number: the keeper drops them and does not send them again.
    pub fn confirm(&self, number: u64) {
        let _ = self.inputs.send(Input::Confirm(number));
    }

    /// Why the server has ended, each time since the last call of this, for people, as far as no client
    /// was told. The keeper starts it again. What was said before an end comes before it.
    pub fn ends(&self) -> Vec<String> {
        self.ends.take()
    }

    /// A client was told of one more of these ends, the oldest first.
    pub fn confirm_end(&self) {
        let _ = self.inputs.send(Input::Heard);
    }

    /// The ids of the calls that the keeper has accepted, from this process or a former one, and
    /// whose answers are not confirmed. Any other call was never accepted, or its answer has been
    /// confirmed.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn open_calls(&self) -> Result<Vec<Value>, Gone> {
        let (told, are_told) = oneshot::channel();
        let gone = Gone {
            may_have_arrived: false,
        };
        self.inputs.send(Input::Calls(told)).map_err(|_| gone)?;
        are_told.await.map_err(|_| gone)
    }

    /// Ends the backend. Returns when the keeper says that it ends, or is gone. Before that the
    /// keeper passes on the answers that come in time, and answers the other open calls with an
    /// error.
    ///
    /// A keeper that hangs is waited for no longer than 75 s.
    pub async fn end(&self) {
        if self.inputs.send(Input::End).is_ok() {
            drop(timeout(END_WAIT, self.inputs.closed()).await);
        }
    }

    /// Waits until the backend's processes are gone, which may take as long as a server has to exit
    /// (`backends.stop_wait_ms`). No longer than 75 s.
    pub async fn gone(&self) {
        let mut gone = self.gone.clone();
        drop(timeout(END_WAIT, gone.changed()).await);
    }

    /// The name of its keeper.
    pub fn keeper(&self) -> KeeperName {
        self.keeper
    }

    /// Tells its keeper from former ones of the same name. Each keeper numbers its lines from 1.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Whether it had answered `initialize` when this process attached. If not, `initialize` has to
    /// be sent.
    pub fn is_initialized(&self) -> bool {
        self.is_initialized
    }
}
