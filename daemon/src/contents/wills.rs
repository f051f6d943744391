//! Last wills: a stream's is a message that is appended, and with which the stream is closed, when
//! its author has exited; a task whose writer has exited has failed.

use mcp_sessiond_proto::{Error, Json, StreamId, TaskId};

use super::head::{self, Head};
use super::transaction::{Draft, Halt};
use super::{Access, Admit, Contents, events, is_session, prune, streams, tasks};
use crate::storage::RecordId;

/// Records that are asked for at once.
const BATCH: usize = 100;

/// What a will is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Of {
    /// A stream.
    Stream(StreamId),
    /// A task.
    Task(TaskId),
}

/// Where a will is on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The session.
    pub place: RecordId,
    /// What it is about.
    pub of: Of,
    /// Whose will it is.
    pub author: String,
}

impl Contents {
    /// Appends a stream's will and closes the stream, or ends the task, if it is open and this
    /// author's. Tells whether it was.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::UnknownSession`] if the session has ended;
    /// [`Error::QuotaExceeded`].
    pub async fn apply_will(&self, will: &Recorded) -> Result<bool, Error> {
        let access = Access::daemon(will.place.clone());
        let done = self
            .change(&access, Admit::Unchecked, |draft| apply(draft, will))
            .await?;
        if done {
            self.tell_news(&will.place);
        }
        Ok(done)
    }

    /// The wills on record.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn wills(&self) -> Result<Vec<Recorded>, Error> {
        let mut found = Vec::new();
        let mut after: Option<RecordId> = None;
        loop {
            let page = self
                .store
                .list_all(after.as_ref(), BATCH)
                .await
                .map_err(|error| self.failed(&error))?;
            let Some(last) = page.last() else {
                return Ok(found);
            };
            after = Some(last.place.clone());
            for listed in page {
                let has_wills = |head: Head| head.wills > 0;
                if is_session(&listed.place) && head::decode(&listed.head).is_ok_and(has_wills) {
                    found.extend(self.wills_of(listed.place).await?);
                }
            }
        }
    }

    async fn wills_of(&self, place: RecordId) -> Result<Vec<Recorded>, Error> {
        let access = Access::daemon(place.clone());
        let rows = self.look_quietly(&access, Admit::Unchecked, &[], |draft| {
            Ok((streams::rows(draft, None, usize::MAX)?, tasks::all(draft)?))
        });
        let (streams, tasks) = match rows.await {
            Err(Error::UnknownSession) => return Ok(Vec::new()),
            rows => rows?.0,
        };
        let of_streams = streams
            .into_iter()
            .filter_map(|(id, row)| Some((Of::Stream(id), row.will?.author)));
        let of_tasks = tasks
            .into_iter()
            .filter_map(|(id, row)| Some((Of::Task(id), row.author?)));
        let recorded = |(of, author)| Recorded {
            place: place.clone(),
            of,
            author,
        };
        Ok(of_streams.chain(of_tasks).map(recorded).collect())
    }
}

fn apply(draft: &mut Draft<'_>, will: &Recorded) -> Result<bool, Halt> {
    // Nobody has used the session by this.
    draft.quietly();
    if draft.head.is_terminated() {
        return Ok(false);
    }
    let stream = match &will.of {
        Of::Stream(stream) => stream,
        Of::Task(task) => return tasks::lose(draft, task, &will.author),
    };
    let row = draft.stream(stream)?.filter(|row| !row.closed);
    let message = row
        .and_then(|row| row.will)
        .filter(|made| made.author == will.author);
    let Some(message) = message.map(|made| made.message) else {
        return Ok(false);
    };
    events::put(draft, None, stream.clone(), &[Some(Json::trusted(message))])?;
    streams::close(draft, stream)?;
    prune::prune(draft, [stream])?;
    Ok(true)
}
