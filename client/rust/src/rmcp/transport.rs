//! What rmcp's server speaks through.

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;

use super::live::{Closed, Incoming, Live};

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
    type Error = Closed;

    /// Takes the message at once, so that messages stay in order. What can't be kept is no error:
    /// the server goes on.
    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Closed>> + Send + 'static {
        let is_kept = self.live.say(message);
        async move {
            if let Some(is_kept) = is_kept {
                let _ = is_kept.await;
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.arriving.recv().await
    }

    async fn close(&mut self) -> Result<(), Closed> {
        self.live.close();
        Ok(())
    }
}
