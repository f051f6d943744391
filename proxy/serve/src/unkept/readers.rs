//! The clients that read the streams of one session, and what waits for a reader of the standalone
//! stream.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use mcp_sessiond_client::StreamId;
use tokio::sync::mpsc;

/// Messages that wait for one reader's connection. While there are so many, the server waits.
const UNREAD_MAX: usize = 8;
/// Messages that wait for a reader of the standalone stream.
const WAITING_MAX: usize = 64;
/// Bytes that wait for a reader of the standalone stream.
const WAITING_BYTES_MAX: usize = 1024 * 1024;

/// No room for a message that nobody reads.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// The readers, by their streams.
#[derive(Debug, Default)]
pub(super) struct Readers {
    readers: HashMap<StreamId, mpsc::Sender<Bytes>>,
    waiting: VecDeque<Bytes>,
}

/// What a reader is given.
#[derive(Debug)]
pub(super) struct Reading {
    first: VecDeque<Bytes>,
    rest: mpsc::Receiver<Bytes>,
}

impl Reading {
    /// The next message. None: there will be none.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        match self.first.pop_front() {
            Some(part) => Some(part),
            None => self.rest.recv().await,
        }
    }
}

impl Readers {
    /// Makes the caller the reader of a stream; the former reader's connection ends.
    pub(super) fn read(&mut self, stream: &StreamId) -> Reading {
        let (sender, rest) = mpsc::channel(UNREAD_MAX);
        self.readers.insert(stream.clone(), sender);
        let is_standalone = stream.as_str() == StreamId::STANDALONE;
        let first = if is_standalone {
            std::mem::take(&mut self.waiting)
        } else {
            VecDeque::new()
        };
        Reading { first, rest }
    }

    /// The reader of a stream.
    pub(super) fn of(&self, stream: &StreamId) -> Option<mpsc::Sender<Bytes>> {
        self.readers.get(stream).cloned()
    }

    /// Whether there is any.
    pub(super) fn any(&mut self) -> bool {
        self.gone();
        !self.readers.is_empty()
    }

    /// Forgets readers that have gone. Returns their streams.
    pub(super) fn gone(&mut self) -> Vec<StreamId> {
        let gone = self.readers.extract_if(|_, reader| reader.is_closed());
        gone.map(|(stream, _)| stream).collect()
    }

    /// A stream has ended: so does its reader's connection, after what it was given.
    pub(super) fn finish(&mut self, stream: &StreamId) {
        self.readers.remove(stream);
    }

    /// All streams have ended.
    pub(super) fn clear(&mut self) {
        self.readers.clear();
        self.waiting.clear();
    }

    /// Keeps a message for the next reader of its stream. Only the standalone stream has another
    /// one.
    ///
    /// # Errors
    /// When there is no room.
    pub(super) fn wait(&mut self, stream: &StreamId, part: Bytes) -> Result<(), Full> {
        let bytes: usize = self.waiting.iter().map(Bytes::len).sum();
        let has_room = self.waiting.len() < WAITING_MAX && bytes + part.len() <= WAITING_BYTES_MAX;
        if stream.as_str() != StreamId::STANDALONE || !has_room {
            return Err(Full);
        }
        self.waiting.push_back(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_standalone_stream_keeps_some_messages_for_its_next_reader_and_no_other_stream_does()
     {
        let (mut readers, standalone) = (Readers::default(), StreamId::standalone());
        let call: StreamId = "call".parse().expect("an id");
        assert_eq!(readers.wait(&call, "x".into()), Err(Full));
        let most = "x".repeat(WAITING_BYTES_MAX);
        assert_eq!(readers.wait(&standalone, most.clone().into()), Ok(()));
        assert_eq!(readers.wait(&standalone, "y".into()), Err(Full));
        let mut reading = readers.read(&standalone);
        assert_eq!(
            reading.next().await.map(|part| part.len()),
            Some(most.len())
        );
        assert_eq!(
            (0..WAITING_MAX)
                .filter(|_| readers.wait(&standalone, "y".into()).is_ok())
                .count(),
            WAITING_MAX
        );
        assert_eq!(readers.wait(&standalone, "y".into()), Err(Full));
    }

    #[tokio::test]
    async fn a_second_reader_takes_the_place_of_the_first() {
        let (mut readers, standalone) = (Readers::default(), StreamId::standalone());
        let mut first = readers.read(&standalone);
        let second = readers.read(&standalone);
        assert_eq!((first.next().await, readers.any()), (None, true));
        drop(second);
        assert_eq!((readers.gone(), readers.any()), (vec![standalone], false));
    }
}
