//! What a keeper waits for, each in a future that can be dropped without loss.

use std::io;

use tokio::net::unix::pipe;

use super::Event;
use super::Sharing;
use crate::frames::{Frames, PendingFrames};
use crate::lines::{Lines, PendingLine};
use crate::socket::SocketWriter;

/// Bytes of the backend's standard error that are read at once.
const ERRORS_CHUNK: usize = 8 * 1024;

pub(super) async fn to_front(front: Option<(&mut PendingFrames, &SocketWriter)>) -> Event {
    match front {
        Some((pending, writer)) if !pending.is_empty() => match pending.write(writer).await {
            Ok(()) => Event::Written,
            Err(_) => Event::FrontGone,
        },
        _ => std::future::pending().await,
    }
}

pub(super) async fn to_backend(
    pending_line: &mut PendingLine,
    input: Option<&mut pipe::Sender>,
) -> Event {
    match input {
        Some(input) if !pending_line.is_empty() => match pending_line.write(input).await {
            Ok(()) => Event::Written,
            Err(_) => Event::InputClosed,
        },
        _ => std::future::pending().await,
    }
}

pub(super) async fn from_front(reader: Option<&mut Frames>) -> Event {
    match reader {
        Some(reader) => match reader.next().await {
            Ok(Some(said)) => Event::FromFront(said),
            Ok(None) | Err(_) => Event::FrontGone,
        },
        None => std::future::pending().await,
    }
}

pub(super) async fn from_clients(sharing: &mut Option<Sharing>) -> Event {
    match sharing {
        Some(sharing) => Event::FromClient(sharing.next().await),
        None => std::future::pending().await,
    }
}

pub(super) async fn from_backend(output: Option<&mut Lines<pipe::Receiver>>) -> Event {
    match output {
        Some(output) => match output.next().await {
            Ok(Some(line)) if output.has_ended() => Event::LastFromBackend(line),
            Ok(Some(line)) => Event::FromBackend(line),
            Ok(None) | Err(_) => Event::OutputClosed,
        },
        None => std::future::pending().await,
    }
}

pub(super) async fn from_stderr(errors: Option<&mut pipe::Receiver>) -> Event {
    let Some(errors) = errors else {
        return std::future::pending().await;
    };
    if errors.readable().await.is_err() {
        return Event::StderrClosed;
    }
    let mut text = vec![0; ERRORS_CHUNK];
    match errors.try_read(&mut text) {
        Ok(read @ 1..) => {
            text.truncate(read);
            Event::Stderr(text)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Event::Written,
        Ok(0) | Err(_) => Event::StderrClosed,
    }
}
