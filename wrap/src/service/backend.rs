//! The backend of a session, as the process sees it that serves it.

use bytes::Bytes;
use mcp_sessiond_proto::KeeperName;
use mcp_sessiond_proto::backends::Attached;
use serde_json::Value;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::link::{Link, Message, Wish};

/// The backend is gone, with its keeper; or it belongs to another process by now. What was sent before and not taken did not
/// reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server is gone")]
pub struct Gone;

/// The backend of a session. What it writes to its standard error goes to that of this process. When this is dropped, or its process killed, the backend goes on, and the next one that attaches gets
/// what was not confirmed.
///
/// Its futures may be dropped at any moment: then a line may have been taken, or not.
#[derive(Debug)]
pub struct Backend {
    wishes: mpsc::UnboundedSender<Wish>,
    messages: Mutex<mpsc::UnboundedReceiver<Message>>,
    keeper: KeeperName,
    incarnation: u64,
    is_fresh: bool,
}

impl Backend {
    /// The backend at the other end of an open link.
    pub(super) fn over(link: Link, keeper: KeeperName, is_fresh: bool, attached: &Attached) -> Self {
        let (wishes, wished) = mpsc::unbounded_channel();
        let (sender, messages) = mpsc::unbounded_channel();
        tokio::spawn(link.run(wished, sender));
        Self { wishes, messages: Mutex::new(messages), keeper, incarnation: attached.incarnation, is_fresh }
    }

    /// Sends a line, a message or a batch without a newline. Returns once the keeper has taken it: from then on the backend gets it,
    /// whatever becomes of this process. Lines are taken in the order in which this was called.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn send(&self, line: impl Into<Bytes>) -> Result<(), Gone> {
        let (taken, is_taken) = oneshot::channel();
        self.wishes.send(Wish::Send(line.into(), taken)).map_err(|_| Gone)?;
        is_taken.await.map_err(|_| Gone)
    }

    /// The next line of the backend; none when that is gone for good. After some hundred lines that were not confirmed there are no
    /// more until they are.
    pub async fn next(&self) -> Option<Message> {
        self.messages.lock().await.recv().await
    }

    /// Everything up to this number is kept elsewhere, or not needed any more: it does not come again.
    pub fn confirm(&self, number: u64) {
        let _ = self.wishes.send(Wish::Confirm(number));
    }

    /// The ids of the calls that were taken, by whichever process, and whose answers are not confirmed. A call that is not among them
    /// was never made, or its answer has been confirmed.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn open_calls(&self) -> Result<Vec<Value>, Gone> {
        let (told, are_told) = oneshot::channel();
        self.wishes.send(Wish::Calls(told)).map_err(|_| Gone)?;
        are_told.await.map_err(|_| Gone)
    }

    /// Ends the backend, and returns when its keeper has taken it down, or is about to. What is open is answered first, as far as
    /// that comes in time.
    pub async fn end(&self) {
        if self.wishes.send(Wish::End).is_ok() {
            self.wishes.closed().await;
        }
    }

    /// The name of its keeper.
    #[must_use]
    pub fn keeper(&self) -> KeeperName {
        self.keeper
    }

    /// Tells its keeper from all others that ever had its name. Numbers begin anew with each of them.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Whether it was started just now: it knows of no call that was made before.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.is_fresh
    }
}
