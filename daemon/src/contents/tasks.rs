//! Tasks: what has become of work that goes on after the request that began it was answered.
//!
//! A task has a row, with what lists show of it, and a body, with its requests for the client and
//! its result. Only its writer's exit, its writers' words and its time change it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use mcp_sessiond_proto::debug::PAGE_MAX;
use mcp_sessiond_proto::streams::{MESSAGE_MAX, WAIT_MAX_MS};
use mcp_sessiond_proto::tasks::{
    CreateTaskRequest, ListTasksRequest, TASK_INPUTS_MAX, TASK_LOST, TASK_MESSAGE_MAX, Task,
    TaskAnswer, TaskAsk, TaskEnd, TaskInput, TaskRef, TaskStatus, UpdateTaskRequest,
    WaitTaskRequest,
};
use mcp_sessiond_proto::{Error, Json, RequestId, TaskId};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::head::{self, TaskBody, TaskRow, Tasks};
use super::transaction::{Draft, Halt};
use super::{Access, Admit, Bounds, Contents, draw, keys};
use crate::storage::{Item, Scan, StorageError};

/// Tasks that go at once because their time is over: each has two items, and a change removes at
/// most 128.
const EXPIRED_MAX: usize = 50;

impl Contents {
    /// Creates a task. Tells whether this author is its writer: a repeated request gets the first
    /// one's task.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]; [`Error::QuotaExceeded`] where all of the session's tasks are
    /// under way; those of a session that is not there, not the caller's, or terminated.
    pub async fn create_task(
        &self,
        access: &Access,
        request: &CreateTaskRequest,
        author: &str,
    ) -> Result<(Task, bool), Error> {
        check_message(request.message.as_ref())?;
        check_ttl(request.ttl_ms)?;
        let drawn = task_id(&draw::<32>());
        self.change(access, Admit::Living, |draft| {
            create(draft, request, &drawn, author)
        })
        .await
    }

    /// A task as it is.
    ///
    /// # Errors
    /// [`Error::UnknownTask`]; those of a session that is not there, not the caller's, or
    /// terminated.
    pub async fn get_task(&self, access: &Access, request: &TaskRef) -> Result<Task, Error> {
        self.look(access, Admit::Living, |draft| whole(draft, &request.task))
            .await
    }

    /// Changes or ends a task. With `take` this author is its writer from now on.
    ///
    /// # Errors
    /// [`Error::UnknownTask`], [`Error::TaskEnded`], [`Error::InvalidArgument`],
    /// [`Error::QuotaExceeded`]; those of a session that is not there, not the caller's, or
    /// terminated.
    pub async fn update_task(
        &self,
        access: &Access,
        request: &UpdateTaskRequest,
        author: &str,
    ) -> Result<Task, Error> {
        check_message(request.message.as_ref())?;
        check_ttl(request.ttl_ms)?;
        check_texts(request, &self.bounds())?;
        let task = self
            .change(access, Admit::Living, |draft| {
                update(draft, request, author)
            })
            .await?;
        self.tell_news(&access.place);
        Ok(task)
    }

    /// Waits until a task has another version than this, or has ended. When the time of the wait is
    /// over: the task as it is.
    ///
    /// # Errors
    /// [`Error::UnknownTask`]; those of a session that is not there, not the caller's, or
    /// terminated.
    pub async fn wait_task(
        &self,
        access: &Access,
        request: &WaitTaskRequest,
    ) -> Result<Task, Error> {
        let timeout_ms = request.timeout_ms.unwrap_or(WAIT_MAX_MS).min(WAIT_MAX_MS);
        let deadline = Instant::now() + Duration::from_millis(timeout_ms.into());
        let news = self.news(&access.place);
        let mut in_use = None;
        loop {
            // Before the look: what changes after it is news.
            let told = news.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            let rule = |draft: &mut Draft<'_>| whole(draft, &request.task);
            let task = match in_use {
                None => self.look(access, Admit::Living, rule).await?,
                Some(_) => self.look_quietly(access, Admit::Known, &[], rule).await?.0,
            };
            let is_over = task.version != request.version || task.status.is_final();
            if is_over || self.is_closing() || Instant::now() >= deadline {
                return Ok(task);
            }
            in_use.get_or_insert_with(|| self.presence.call(&access.place));
            // Nobody tells when its time is over.
            let until_ms = task.created_ms.saturating_add(task.ttl_ms);
            let left = Duration::from_millis(
                until_ms
                    .saturating_sub(self.clock.now_ms())
                    .min(WAIT_MAX_MS.into()),
            );
            let look_again = self.next_look(deadline).min(Instant::now() + left);
            tokio::select! {
                () = told => {}
                () = tokio::time::sleep_until(look_again) => {}
            }
        }
    }

    /// The tasks in order of their ids, a page at a time, without their requests and results.
    ///
    /// # Errors
    /// Those of a session that is not there, not the caller's, or terminated.
    pub async fn list_tasks(
        &self,
        access: &Access,
        request: &ListTasksRequest,
    ) -> Result<Vec<Task>, Error> {
        self.look(access, Admit::Living, |draft| {
            let range = keys::task_after(request.after.as_ref())..keys::end_of_tasks();
            // Those whose time is over make no page shorter: a short page is the last one.
            let rows = rows(draft, Scan::of(range, usize::MAX, usize::MAX))?;
            let living = rows
                .into_iter()
                .filter(|(_, row)| row.until_ms() > draft.now_ms);
            Ok(living
                .take(PAGE_MAX)
                .map(|(id, row)| view(id, row, TaskBody::default()))
                .collect())
        })
        .await
    }
}

fn invalid(sentence: String) -> Error {
    Error::InvalidArgument { sentence }
}

fn check_message(message: Option<&String>) -> Result<(), Error> {
    match message {
        Some(text) if text.len() > TASK_MESSAGE_MAX => Err(invalid(format!(
            "the message of a task has at most {TASK_MESSAGE_MAX} bytes"
        ))),
        _ => Ok(()),
    }
}

fn check_ttl(ttl_ms: Option<u64>) -> Result<(), Error> {
    if ttl_ms == Some(0) {
        return Err(invalid("`ttl_ms` is at least 1".into()));
    }
    Ok(())
}

fn check_texts(request: &UpdateTaskRequest, bounds: &Bounds) -> Result<(), Error> {
    let UpdateTaskRequest {
        ask, answer, end, ..
    } = request;
    if ask.len() > TASK_INPUTS_MAX || answer.len() > TASK_INPUTS_MAX {
        return Err(invalid(format!(
            "one call has at most {TASK_INPUTS_MAX} requests and so many answers"
        )));
    }
    if end.is_some() && !(ask.is_empty() && answer.is_empty()) {
        return Err(invalid(
            "a task that ends has no requests and no answers".into(),
        ));
    }
    let asked = ask
        .iter()
        .map(|ask| &ask.request)
        .chain(answer.iter().map(|answer| &answer.response));
    let limit = bounds.limits.message_bytes;
    if let Some(text) = asked
        .chain(end.iter().filter_map(text_of))
        .find(|text| text.len() > limit)
    {
        let what = format!("a text of a task, of {} bytes,", text.len());
        return Err(Error::QuotaExceeded {
            what,
            limit: limit as u64,
        });
    }
    Ok(())
}

/// What a task ends with.
fn text_of(end: &TaskEnd) -> Option<&Json> {
    match end {
        TaskEnd::Completed(text) | TaskEnd::Failed(text) => Some(text),
        TaskEnd::Cancelled => None,
    }
}

fn create(
    draft: &mut Draft<'_>,
    request: &CreateTaskRequest,
    drawn: &str,
    author: &str,
) -> Result<(Task, bool), Halt> {
    let id = request
        .request
        .as_ref()
        .map_or_else(|| drawn.to_owned(), |request| id_by(draft, request));
    let id: TaskId = id
        .parse()
        .map_err(|_| StorageError::Damaged("a task has no id".into()))?;
    if request.request.is_some() && draft.item(&keys::task_key(&id))?.is_some() {
        let is_writer = find(draft, &id)?.author.as_deref() == Some(author);
        return Ok((whole(draft, &id)?, is_writer));
    }
    if draft.head.tasks.count as usize >= draft.bounds.limits.tasks {
        make_room(draft)?;
    }
    let now_ms = draft.now_ms;
    let longest = draft.bounds.sessions.task_life_ms;
    let row = TaskRow {
        message: request.message.clone(),
        created_ms: now_ms,
        updated_ms: now_ms,
        ttl_ms: request.ttl_ms.unwrap_or(longest).min(longest),
        poll_ms: request.poll_ms,
        version: 1,
        author: Some(author.to_owned()),
        ..TaskRow::default()
    };
    draft.head.tasks.count += 1;
    draft.head.tasks.note(row.until_ms());
    draft.head.wills += 1;
    draft.put(keys::task_key(&id), "", head::encode(&row));
    Ok((view(id, row, TaskBody::default()), true))
}

/// No id begins with a hyphen: on a command line it would be an option.
fn task_id(random: &[u8]) -> String {
    format!("t{}", BASE64.encode(random))
}

/// The id of the task that a request creates: the same whenever it is repeated, and known to nobody
/// who does not know the session's secret.
fn id_by(draft: &Draft<'_>, request: &RequestId) -> String {
    let hash = Sha256::new()
        .chain_update(b"task")
        .chain_update(draft.head.secret);
    task_id(&hash.chain_update(request.as_str()).finalize())
}

/// The row of a task whose time is not over.
fn find(draft: &Draft<'_>, id: &TaskId) -> Result<TaskRow, Halt> {
    let item = draft.item(&keys::task_key(id))?.ok_or(Error::UnknownTask)?;
    let row: TaskRow = head::decode(&item.value)?;
    if row.until_ms() <= draft.now_ms {
        return Err(Error::UnknownTask.into());
    }
    Ok(row)
}

fn body(draft: &Draft<'_>, id: &TaskId) -> Result<TaskBody, Halt> {
    let item = draft.item(&keys::task_body_key(id))?;
    Ok(item
        .map(|item| head::decode(&item.value))
        .transpose()?
        .unwrap_or_default())
}

fn whole(draft: &Draft<'_>, id: &TaskId) -> Result<Task, Halt> {
    draft.need([keys::task_key(id), keys::task_body_key(id)])?;
    Ok(view(id.clone(), find(draft, id)?, body(draft, id)?))
}

fn view(task: TaskId, row: TaskRow, body: TaskBody) -> Task {
    let (result, error) = match body.end {
        Some(TaskEnd::Completed(result)) => (Some(result), None),
        Some(TaskEnd::Failed(error)) => (None, Some(error)),
        Some(TaskEnd::Cancelled) | None => (None, None),
    };
    let TaskRow {
        status,
        message,
        created_ms,
        updated_ms,
        ttl_ms,
        poll_ms,
        version,
        ..
    } = row;
    let inputs = body.inputs;
    Task {
        task,
        status,
        message,
        created_ms,
        updated_ms,
        ttl_ms,
        poll_ms,
        version,
        inputs,
        result,
        error,
    }
}

fn update(draft: &mut Draft<'_>, request: &UpdateTaskRequest, author: &str) -> Result<Task, Halt> {
    let id = &request.task;
    draft.need([keys::task_key(id), keys::task_body_key(id)])?;
    let (was, had) = (find(draft, id)?, body(draft, id)?);
    if was.status.is_final() {
        if request.end.is_some() && request.end == had.end {
            return Ok(view(id.clone(), was, had));
        }
        return Err(Error::TaskEnded.into());
    }
    let (mut row, mut body) = (was.clone(), had.clone());
    row.message = request.message.clone().or(row.message);
    row.poll_ms = request.poll_ms.or(row.poll_ms);
    row.ttl_ms = request
        .ttl_ms
        .unwrap_or(row.ttl_ms)
        .min(draft.bounds.sessions.task_life_ms);
    if request.take {
        row.author = Some(author.to_owned());
    }
    request
        .ask
        .iter()
        .try_for_each(|asked| ask(&mut body, asked))?;
    request
        .answer
        .iter()
        .for_each(|answered| answer(&mut body, answered));
    match &request.end {
        Some(how) => end(draft, &mut row, &mut body, how.clone()),
        None => {
            let is_open = body.inputs.iter().any(|input| input.response.is_none());
            row.status = if is_open {
                TaskStatus::InputRequired
            } else {
                TaskStatus::Working
            };
        }
    }
    let bytes = body.bytes();
    if bytes > MESSAGE_MAX {
        let what = format!("the requests and answers of this task, of {bytes} bytes,");
        return Err(Error::QuotaExceeded {
            what,
            limit: MESSAGE_MAX as u64,
        }
        .into());
    }
    if row != was || body != had {
        draft.head.tasks.note(row.until_ms());
        change(draft, id, &mut row, (body != had).then_some(&body));
    }
    Ok(view(id.clone(), row, body))
}

/// Puts a changed task on record.
fn change(draft: &mut Draft<'_>, id: &TaskId, row: &mut TaskRow, body: Option<&TaskBody>) {
    row.version += 1;
    row.updated_ms = draft.now_ms.max(row.updated_ms);
    draft.put(keys::task_key(id), "", head::encode(row));
    if let Some(body) = body {
        draft.put(keys::task_body_key(id), "", head::encode(body));
    }
}

fn ask(body: &mut TaskBody, asked: &TaskAsk) -> Result<(), Error> {
    let TaskAsk { key, request } = asked;
    match body.inputs.iter().find(|input| input.key == *key) {
        Some(input) if input.request == *request => return Ok(()),
        Some(_) => {
            let sentence =
                format!("the task has used the key {key} for another request; take a new key");
            return Err(invalid(sentence));
        }
        None => {}
    }
    if body.inputs.len() >= TASK_INPUTS_MAX {
        let what = "the number of requests of this task".into();
        return Err(Error::QuotaExceeded {
            what,
            limit: TASK_INPUTS_MAX as u64,
        });
    }
    body.inputs.push(TaskInput {
        key: key.clone(),
        request: request.clone(),
        response: None,
    });
    Ok(())
}

fn answer(body: &mut TaskBody, answered: &TaskAnswer) {
    let is_it = |input: &&mut TaskInput| input.key == answered.key && input.response.is_none();
    if let Some(input) = body.inputs.iter_mut().find(is_it) {
        input.response = Some(answered.response.clone());
    }
}

fn end(draft: &mut Draft<'_>, row: &mut TaskRow, body: &mut TaskBody, how: TaskEnd) {
    row.status = match how {
        TaskEnd::Completed(_) => TaskStatus::Completed,
        TaskEnd::Failed(_) => TaskStatus::Failed,
        TaskEnd::Cancelled => TaskStatus::Cancelled,
    };
    row.author = None;
    draft.head.wills = draft.head.wills.saturating_sub(1);
    // Nobody answers its requests any more.
    *body = TaskBody {
        inputs: Vec::new(),
        end: Some(how),
    };
}

/// The writer of a task has exited. Tells whether the task was under way, and its.
pub(super) fn lose(draft: &mut Draft<'_>, id: &TaskId, author: &str) -> Result<bool, Halt> {
    let mut row = match find(draft, id) {
        Err(Halt::Refuse(_)) => return Ok(false),
        row => row?,
    };
    if row.author.as_deref() != Some(author) {
        return Ok(false);
    }
    let mut body = TaskBody::default();
    end(
        draft,
        &mut row,
        &mut body,
        TaskEnd::Failed(Json::trusted(TASK_LOST.into())),
    );
    change(draft, id, &mut row, Some(&body));
    Ok(true)
}

/// The rows of tasks that this scan finds.
pub(super) fn rows(draft: &Draft<'_>, scan: Scan) -> Result<Vec<(TaskId, TaskRow)>, Halt> {
    let row = |item: &Item| {
        let damaged =
            |_| StorageError::Damaged("the id of a task is not what a daemon has written".into());
        Ok((
            keys::name_in(&item.key).parse().map_err(damaged)?,
            head::decode(&item.value)?,
        ))
    };
    draft.scan(scan)?.iter().map(row).collect()
}

/// The rows of all tasks, those whose time is over among them.
pub(super) fn all(draft: &Draft<'_>) -> Result<Vec<(TaskId, TaskRow)>, Halt> {
    rows(
        draft,
        Scan::of(
            keys::task_after(None)..keys::end_of_tasks(),
            usize::MAX,
            usize::MAX,
        ),
    )
}

/// The tasks go whose time is over. Tells whether there are more of them.
pub(super) fn expire(draft: &mut Draft<'_>) -> Result<bool, Halt> {
    if draft.head.tasks.first_due_ms() > draft.now_ms {
        return Ok(false);
    }
    let now_ms = draft.now_ms;
    let (over, living): (Vec<_>, Vec<_>) = all(draft)?
        .into_iter()
        .partition(|(_, row)| row.until_ms() <= now_ms);
    let (now, later) = over.split_at(over.len().min(EXPIRED_MAX));
    draft.need(now.iter().map(|(id, _)| keys::task_body_key(id)))?;
    let mut tasks = Tasks::default();
    for (_, row) in living.iter().chain(later) {
        tasks.count += 1;
        tasks.note(row.until_ms());
    }
    for (id, row) in now {
        remove(draft, id, row)?;
    }
    draft.head.tasks = tasks;
    Ok(!later.is_empty())
}

fn remove(draft: &mut Draft<'_>, id: &TaskId, row: &TaskRow) -> Result<(), Halt> {
    draft.head.tasks.count = draft.head.tasks.count.saturating_sub(1);
    draft.head.wills = draft.head.wills.saturating_sub(row.author.is_some().into());
    if draft.item(&keys::task_body_key(id))?.is_some() {
        draft.remove(keys::task_body_key(id));
    }
    draft.remove(keys::task_key(id));
    Ok(())
}

/// Makes room for one more: those go whose time is over, or else the one that ended first.
fn make_room(draft: &mut Draft<'_>) -> Result<(), Halt> {
    expire(draft)?;
    let limit = draft.bounds.limits.tasks;
    if (draft.head.tasks.count as usize) < limit {
        return Ok(());
    }
    let ended = all(draft)?
        .into_iter()
        .filter(|(_, row)| row.status.is_final());
    let Some((id, row)) = ended.min_by_key(|(_, row)| row.updated_ms) else {
        let what = "the number of tasks of this session that are under way".into();
        return Err(Error::QuotaExceeded {
            what,
            limit: limit as u64,
        }
        .into());
    };
    remove(draft, &id, &row)
}
