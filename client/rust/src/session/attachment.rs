//! A client of a session: there until it is dropped, whatever becomes of connections and daemons.

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Session;
use crate::connection::Connection;
use crate::error::SessionError;
use crate::retrying_client::{BROKEN_PAUSE, NumberedConnection};
use crate::runtime::driven;
use crate::sessiond::RETRY_AFTER;

/// A client that has come to a session. It goes when this is dropped. Until then it is attached
/// again whenever the connection was lost; when the session has ended it is none of it any more.
#[derive(Debug)]
#[must_use = "the client goes when this is dropped"]
pub struct Attachment {
    leave: oneshot::Sender<()>,
    keeping: JoinHandle<()>,
}

impl Attachment {
    /// The client goes, and the daemon knows of it when this returns, if it is there.
    pub async fn detach(self) {
        drop(self.leave);
        drop(self.keeping.await);
    }
}

impl Session {
    /// A client has come: the timer of the grace period stops. It starts when the last has gone.
    ///
    /// # Errors
    /// Those of every change ([`Session::update`]).
    ///
    /// ```no_run
    /// # async fn example(session: mcp_sessiond_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// let attachment = session.attach().await?;
    /// // … answer the client for as long as it is there …
    /// attachment.detach().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn attach(&self) -> Result<Attachment, SessionError> {
        driven(self.attach_here()).await
    }

    async fn attach_here(&self) -> Result<Attachment, SessionError> {
        let (leave, left) = oneshot::channel();
        let (tell, told) = oneshot::channel();
        let session = self.clone();
        // In a task from the start: whoever drops this future must not leave a client behind.
        let keeping = tokio::spawn(async move {
            match session.attach_once().await {
                Ok(link) => {
                    drop(tell.send(Ok(())));
                    session.keep_attached(link, left).await;
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        });
        let attachment = Attachment { leave, keeping };
        // The task ends without a word only with its runtime.
        told.await
            .unwrap_or_else(|_| Err(SessionError::NoAnswer(self.0.connections.options.timeout)))?;
        Ok(attachment)
    }

    async fn attach_once(&self) -> Result<NumberedConnection, SessionError> {
        let attach = |connection: Connection, context, of| async move {
            connection.attach_session(context, of).await
        };
        Ok(self.call_with_connection(attach).await?.1)
    }

    async fn keep_attached(&self, mut link: NumberedConnection, mut left: oneshot::Receiver<()>) {
        loop {
            tokio::select! {
                _ = &mut left => return self.detach(&link).await,
                () = link.connection.ended() => {}
            }
            let mut pause = BROKEN_PAUSE;
            link = loop {
                // Whoever leaves now has left: with the connection.
                if timeout(pause, &mut left).await.is_ok() {
                    return;
                }
                match self.attach_once().await {
                    Ok(link) => break link,
                    Err(error) if error.passes() => pause = RETRY_AFTER,
                    Err(_) => return,
                }
            };
        }
    }

    async fn detach(&self, link: &NumberedConnection) {
        let (deadline, of) = (self.0.connections.deadline(), self.named(None));
        let detach = |connection: Connection, context| {
            let of = of.clone();
            async move { connection.detach_session(context, of).await }
        };
        // Where the connection breaks now, the client has gone with it.
        drop(self.0.connections.client.call(link, deadline, detach).await);
    }
}
