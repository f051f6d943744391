//! Streams: opened, listed, closed, orphaned.

use mcp_sessiond_proto::debug::PAGE_MAX;
use mcp_sessiond_proto::streams::{
    FindEventRequest, FoundEvent, ListStreamsRequest, OpenStreamRequest, Stream, StreamRef,
};
use mcp_sessiond_proto::{Error, Json, StreamId};

use super::event_id::{EventIds, Position};
use super::head::{self, StreamRow, Will};
use super::transaction::{Draft, Halt};
use super::{Access, Admit, Bounds, Contents, keys, prune, replay};
use crate::storage::{Scan, StorageError};

/// Bytes that the id of the request that opened a stream may have: it is a JSON-RPC id.
const OPENED_BY_MAX: usize = 256;

/// Items of closed streams that can go at once, to make room for others.
const RETIRED_CHUNKS_MAX: usize = 256;

/// Where there are as many streams as there may be, so many closed ones go at once: each is read by
/// itself, and a rule may read only so often.
const RETIRED_MAX: usize = 4;
/// Not more than one of so many streams that there may be.
const RETIRED_PART: usize = 16;
/// Not more than one of so many that are closed: a client may still come for those that were closed
/// last.
const RETIRED_OF_CLOSED: usize = 4;

impl Contents {
    /// Opens a stream. One that is open already stays as it is, but for its will, if the request
    /// has one: that is the author's from now on.
    ///
    /// # Errors
    /// [`Error::StreamClosed`]; [`Error::QuotaExceeded`] where all of the session's streams are
    /// open; those of a session that is not there, not the caller's, or terminated.
    pub async fn open_stream(
        &self,
        access: &Access,
        request: &OpenStreamRequest,
        author: Option<&str>,
    ) -> Result<Stream, Error> {
        let is_id = |json: &Json| {
            json.len() <= OPENED_BY_MAX && !json.as_str().trim_start().starts_with(['{', '['])
        };
        if !request.opened_by.as_ref().is_none_or(is_id) {
            let sentence = format!(
                "`opened_by` is a JSON-RPC id: a string or a number of at most {OPENED_BY_MAX} bytes"
            );
            return Err(Error::InvalidArgument { sentence });
        }
        let will = will_of(request.will.as_ref(), author, &self.bounds())?;
        let open = |draft: &mut Draft<'_>| {
            let known = draft.stream(&request.stream)?;
            if draft.has_row(&request.stream)?
                && let Some(mut row) = known
            {
                if row.closed {
                    return Err(Error::StreamClosed.into());
                }
                if will.is_some() {
                    draft.set_will(&mut row, will.clone());
                    draft.set_stream(request.stream.clone(), row.clone())?;
                }
                return Ok(Some(view(draft, request.stream.clone(), row)));
            }
            if draft.head.streams as usize >= draft.bounds.limits.streams && !retire(draft)? {
                return Ok(None);
            }
            let opened_at = draft.head.last_number;
            let mut row = StreamRow {
                opened_by: request.opened_by.clone(),
                opened_at,
                ..StreamRow::default()
            };
            draft.set_will(&mut row, will.clone());
            draft.set_stream(request.stream.clone(), row.clone())?;
            Ok(Some(view(draft, request.stream.clone(), row)))
        };
        // A long stream makes room in several changes.
        loop {
            if let Some(opened) = self.change(access, Admit::Living, open).await? {
                return Ok(opened);
            }
        }
    }

    /// The streams in order of their ids, a page at a time.
    ///
    /// # Errors
    /// Those of a session that is not there, not the caller's, or terminated.
    pub async fn list_streams(
        &self,
        access: &Access,
        request: &ListStreamsRequest,
    ) -> Result<Vec<Stream>, Error> {
        self.look(access, Admit::Living, |draft| {
            let rows = rows(draft, request.after.as_ref(), PAGE_MAX)?;
            Ok(rows
                .into_iter()
                .map(|(stream, row)| view(draft, stream, row))
                .collect())
        })
        .await
    }

    /// Closes a stream.
    ///
    /// # Errors
    /// [`Error::UnknownStream`]; [`Error::InvalidArgument`] for the standalone one; those of a
    /// session that is not there, not the caller's, or terminated.
    pub async fn close_stream(
        &self,
        access: &Access,
        request: &StreamRef,
    ) -> Result<Stream, Error> {
        let closed = self.mark(access, request, |row| row.closed = true).await?;
        self.tell_news(&access.place);
        Ok(closed)
    }

    /// The stream's reader is gone.
    ///
    /// # Errors
    /// As [`Contents::close_stream`].
    pub async fn orphan_stream(
        &self,
        access: &Access,
        request: &StreamRef,
    ) -> Result<Stream, Error> {
        self.mark(access, request, |row| row.orphaned = true).await
    }

    /// The stream's reader is back.
    ///
    /// # Errors
    /// As [`Contents::close_stream`].
    pub async fn unorphan_stream(
        &self,
        access: &Access,
        request: &StreamRef,
    ) -> Result<Stream, Error> {
        self.mark(access, request, |row| row.orphaned = false).await
    }

    /// The stream of an event id, and whether all was said there.
    ///
    /// # Errors
    /// [`Error::UnknownCursor`]; those of a session that is not there, not the caller's, or
    /// terminated.
    pub async fn find_event(
        &self,
        access: &Access,
        request: &FindEventRequest,
    ) -> Result<FoundEvent, Error> {
        self.look(access, Admit::Living, |draft| {
            let ids = EventIds::new(&draft.head.secret);
            let (place, row) = replay::place_of(draft, &ids, &request.event)?;
            let Position {
                stream,
                position,
                number,
                ..
            } = place;
            let ended = row.closed && position == row.last_position;
            Ok(FoundEvent {
                stream: view(draft, stream, row),
                position,
                number,
                ended,
            })
        })
        .await
    }

    async fn mark(
        &self,
        access: &Access,
        request: &StreamRef,
        mark: impl Fn(&mut StreamRow),
    ) -> Result<Stream, Error> {
        closable(&request.stream)?;
        self.change(access, Admit::Living, |draft| {
            let mut row = draft.stream(&request.stream)?.ok_or(Error::UnknownStream)?;
            let before = row.clone();
            mark(&mut row);
            if row.closed {
                draft.set_will(&mut row, None);
            }
            if row != before {
                draft.set_stream(request.stream.clone(), row.clone())?;
            }
            Ok(view(draft, request.stream.clone(), row))
        })
        .await
    }
}

/// Whether there is a stream that could be closed under this id, or be an orphan.
pub(super) fn closable(stream: &StreamId) -> Result<(), Error> {
    if stream.as_str() != StreamId::STANDALONE {
        return Ok(());
    }
    let sentence = "the standalone stream stays as long as its session".into();
    Err(Error::InvalidArgument { sentence })
}

/// Closes a stream, if it is open: its will is void.
pub(super) fn close(draft: &mut Draft<'_>, stream: &StreamId) -> Result<(), Halt> {
    let Some(mut row) = draft.stream(stream)?.filter(|row| !row.closed) else {
        return Ok(());
    };
    row.closed = true;
    draft.set_will(&mut row, None);
    draft.set_stream(stream.clone(), row)
}

/// The will of a stream that is opened, if that is one which may be kept.
fn will_of(
    message: Option<&Json>,
    author: Option<&str>,
    bounds: &Bounds,
) -> Result<Option<Will>, Error> {
    let Some(message) = message else {
        return Ok(None);
    };
    let limit = bounds.limits.message_bytes;
    if message.len() > limit {
        let what = format!("a will of {} bytes", message.len());
        return Err(Error::QuotaExceeded {
            what,
            limit: limit as u64,
        });
    }
    let Some(author) = author else {
        return Err(Error::InvalidArgument {
            sentence: "a will has an author".into(),
        });
    };
    Ok(Some(Will {
        message: message.as_str().to_owned(),
        author: author.to_owned(),
    }))
}

/// Streams on record after `after`, in order of their ids.
pub(super) fn rows(
    draft: &Draft<'_>,
    after: Option<&StreamId>,
    most: usize,
) -> Result<Vec<(StreamId, StreamRow)>, Halt> {
    let range = keys::stream_after(after)..keys::end_of_streams();
    let items = draft.scan(Scan::of(range, most, usize::MAX))?;
    let row = |item: &crate::storage::Item| {
        let damaged =
            |_| StorageError::Damaged("the id of a stream is not what a daemon has written".into());
        Ok((
            keys::name_in(&item.key).parse().map_err(damaged)?,
            head::decode(&item.value)?,
        ))
    };
    items.iter().map(row).collect()
}

/// Makes room: of the closed streams the one that has been silent for the longest goes, with what
/// is left of its events, and a few of the next ones: all rows are read for that, and should not be
/// for each new stream. Tells whether there is room; else there are more events of the first one.
fn retire(draft: &mut Draft<'_>) -> Result<bool, Halt> {
    let limit = draft.bounds.limits.streams;
    let closed = rows(draft, None, usize::MAX)?
        .into_iter()
        .filter(|(_, row)| row.closed);
    let mut closed: Vec<_> = closed.collect();
    closed.sort_by_key(|(_, row)| row.last_number);
    let most = (limit / RETIRED_PART)
        .min(closed.len() / RETIRED_OF_CLOSED)
        .clamp(1, RETIRED_MAX);
    closed.truncate(most);
    draft.need(closed.iter().map(|(stream, _)| keys::stream_key(stream)))?;
    let mut room = RETIRED_CHUNKS_MAX;
    for (nth, (stream, row)) in closed.iter().enumerate() {
        let events = usize::try_from(row.events()).unwrap_or(usize::MAX);
        if nth > 0 && events > room {
            break;
        }
        if events > 0 && !prune::drop_all(draft, stream, row, RETIRED_CHUNKS_MAX)? {
            return Ok(false);
        }
        room = room.saturating_sub(events);
        draft.drop_stream(stream);
    }
    if closed.is_empty() {
        let what = "the number of open streams of this session".into();
        return Err(Error::QuotaExceeded {
            what,
            limit: limit as u64,
        }
        .into());
    }
    Ok(true)
}

fn view(draft: &Draft<'_>, stream: StreamId, row: StreamRow) -> Stream {
    let cursor = (row.last_position > 0).then(|| {
        let place = Position {
            stream: stream.clone(),
            position: row.last_position,
            number: row.last_number,
            chunk: row.last_chunk,
        };
        EventIds::new(&draft.head.secret).make(&place)
    });
    Stream {
        stream,
        closed: row.closed,
        orphaned: row.orphaned,
        last_position: row.last_position,
        cursor,
        events: u32::try_from(row.events()).unwrap_or(u32::MAX),
        bytes: row.bytes,
        opened_by: row.opened_by,
    }
}
