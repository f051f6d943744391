//! A request that is passed on as it came. Its connection ends when the rest of the response is
//! dropped, by which the server knows that the request is cancelled.

use std::fmt;
use std::io;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt as _, TryStreamExt as _};
use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode};

use crate::http::{Failed, client};
use crate::remote::{Remote, RemoteError};

/// The response to a request that was passed on.
pub struct ForwardedResponse {
    /// The status.
    pub status: StatusCode,
    /// All headers.
    pub headers: HeaderMap,
    /// The body, while it comes.
    pub body: BoxStream<'static, io::Result<Bytes>>,
}

/// Shows nothing of what it says.
impl fmt::Debug for ForwardedResponse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ForwardedResponse")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// Why there is no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotForwarded {
    /// The server has never got the request: why.
    #[error("{0}")]
    NotReached(String),
    /// The connection broke before there was a response: the outcome is unknown.
    #[error("the connection broke")]
    Broken,
}

impl From<Failed> for NotForwarded {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::NotReached(why) | Failed::Login(why) => Self::NotReached(why),
            Failed::Broken | Failed::TooLarge | Failed::Coding(_) => Self::Broken,
        }
    }
}

impl From<RemoteError> for NotForwarded {
    fn from(error: RemoteError) -> Self {
        Self::NotReached(error.to_string())
    }
}

impl Remote {
    /// Passes a request on, with these headers, our own in the place of those, and nothing of the
    /// user's login.
    ///
    /// # Errors
    /// [`NotForwarded`].
    pub async fn forward(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<ForwardedResponse, NotForwarded> {
        let request = client(self)?
            .request(method, self.url.clone())
            .headers(headers)
            .headers(self.headers.clone())
            .body(body);
        let response = self.within_hold(false, || {
            // A body of bytes can be sent again.
            let request = request.try_clone();
            async { Ok(request.ok_or(Failed::Broken)?.send().await?) }
        });
        let response = response.await?;
        Ok(ForwardedResponse {
            status: response.status(),
            headers: response.headers().clone(),
            body: response.bytes_stream().map_err(io::Error::other).boxed(),
        })
    }
}
