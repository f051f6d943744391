//! The bodies of requests and responses.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt as _, Full};
use tokio::sync::mpsc::Receiver;

type BoxError = Box<dyn Error + Send + Sync>;

/// The body of a request, of whatever server.
pub(super) struct RequestBody(UnsyncBoxBody<Bytes, BoxError>);

impl RequestBody {
    pub(super) fn of<B>(body: B) -> Self
    where
        B: Body + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let whole = |mut data: B::Data| data.copy_to_bytes(data.remaining());
        let body = body.map_frame(move |frame| frame.map_data(whole));
        Self(body.map_err(Into::into).boxed_unsync())
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self(
            Full::new(bytes)
                .map_err(|never| match never {})
                .boxed_unsync(),
        )
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// The body of a response of [`durable`](super::durable).
pub struct DurableBody(Kind);

enum Kind {
    /// rmcp's own, or a refusal's.
    Whole(BoxBody<Bytes, Infallible>),
    /// Events, as they come.
    Events(Receiver<Bytes>),
}

impl DurableBody {
    pub(super) fn of(body: BoxBody<Bytes, Infallible>) -> Self {
        Self(Kind::Whole(body))
    }

    pub(super) fn events(parts: Receiver<Bytes>) -> Self {
        Self(Kind::Events(parts))
    }
}

impl From<String> for DurableBody {
    fn from(text: String) -> Self {
        Self::of(Full::from(text).boxed())
    }
}

impl fmt::Debug for DurableBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.0 {
            Kind::Whole(_) => "whole",
            Kind::Events(_) => "events",
        };
        write!(formatter, "DurableBody({kind})")
    }
}

impl Body for DurableBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Kind::Whole(body) => Pin::new(body).poll_frame(context),
            Kind::Events(parts) => parts
                .poll_recv(context)
                .map(|part| part.map(|part| Ok(Frame::data(part)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Kind::Whole(body) if body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(body) => body.size_hint(),
            Kind::Events(_) => SizeHint::default(),
        }
    }
}
