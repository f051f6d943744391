//! What rmcp's server speaks through.

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;

use super::live::{Incoming, Live};

/// A request of the server's can't be kept, and nobody waits for it. rmcp gives it to whoever waits
/// for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client does not get this request, which can't be kept")]
pub(super) struct Undelivered;

/// The server's end of a session. The server is closed when this is dropped.
pub(super) struct DurableTransport {
    live: Arc<Live>,
    arriving: Incoming,
}

impl DurableTransport {
    pub(super) fn new(live: Arc<Live>, arriving: Incoming) -> Self {
        Self { live, arriving }
    }
}

impl Drop for DurableTransport {
    fn drop(&mut self) {
        self.live.close();
    }
}

impl Transport<RoleServer> for DurableTransport {
    type Error = Undelivered;

    /// Takes the message at once, so that messages stay in order. What can't be kept is no error,
    /// unless somebody would wait for its answer for ever: the server goes on.
    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Undelivered>> + Send + 'static {
        let question = match &message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let (live, is_kept) = (self.live.clone(), self.live.say(message));
        async move {
            let in_place = match is_kept {
                Some(is_kept) => is_kept.await,
                None => Ok(None),
            };
            match (in_place, question) {
                (Err(_), Some(_)) => return Err(Undelivered),
                (Ok(Some(event)), Some(question)) => live.unkept(&question, &event),
                _ => {}
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.arriving.recv().await
    }

    async fn close(&mut self) -> Result<(), Undelivered> {
        self.live.close();
        Ok(())
    }
}
