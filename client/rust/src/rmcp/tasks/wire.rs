//! Tasks as the Tasks extension writes them (SEP-2663), and its errors.

use mcp_sessiond_proto::tasks::{Task as View, TaskStatus};
use mcp_sessiond_proto::{Error, Json};
use rmcp::ErrorData;
use rmcp::model::{
    DetailedTask, ErrorCode, InputRequest, InputRequests, JsonObject, TASKS_EXTENSION_ID, Task,
    TaskPayload, TaskStatus as WireStatus,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::error::SessionError;

/// What a client gets for every task that is not there for it: also for another caller's.
pub(super) fn not_found() -> ErrorData {
    ErrorData::invalid_params(
        "Task not found: it does not exist, or its time is over",
        None,
    )
}

/// The client must declare these capabilities for what it asks.
pub(super) fn missing(required: &Value) -> ErrorData {
    let data = json!({"requiredCapabilities": required});
    ErrorData::new(
        ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY,
        "Missing required client capability",
        Some(data),
    )
}

/// The client must declare the Tasks extension.
pub(super) fn undeclared() -> ErrorData {
    missing(&json!({"extensions": {TASKS_EXTENSION_ID: {}}}))
}

/// Whether a task is not there, as far as its caller may know.
pub(super) fn is_gone(error: &SessionError) -> bool {
    error.is_over()
        || matches!(
            error.refusal(),
            Some(Error::UnknownTask | Error::BindingMismatch)
        )
}

/// Whether a task has ended, so that it can't be changed any more.
pub(super) fn has_ended(error: &SessionError) -> bool {
    matches!(error.refusal(), Some(Error::TaskEnded))
}

/// What a client is told about an error of the daemon's: nothing of paths and sockets.
pub(super) fn refused(error: &SessionError) -> ErrorData {
    match error.refusal() {
        _ if is_gone(error) => not_found(),
        Some(Error::InvalidArgument { .. } | Error::QuotaExceeded { .. }) => {
            ErrorData::invalid_params(error.to_string(), None)
        }
        _ => ErrorData::internal_error(
            "the daemon mcp-sessiond can't be asked for this task now: try again",
            None,
        ),
    }
}

/// JSON of what rmcp writes without fail.
pub(super) fn to_json(value: &impl Serialize) -> Json {
    Json::trusted(serde_json::to_string(value).expect("it is JSON"))
}

fn read<T: DeserializeOwned>(json: &Json) -> Result<T, ErrorData> {
    serde_json::from_str(json.as_str()).map_err(|_| {
        ErrorData::internal_error(
            "this task was written by a program that rmcp does not understand",
            None,
        )
    })
}

/// A task without what its status brings with it.
pub(super) fn task(id: &str, view: &View) -> Task {
    let status = match view.status {
        TaskStatus::Working => WireStatus::Working,
        TaskStatus::InputRequired => WireStatus::InputRequired,
        TaskStatus::Completed => WireStatus::Completed,
        TaskStatus::Failed => WireStatus::Failed,
        TaskStatus::Cancelled => WireStatus::Cancelled,
    };
    let mut task = Task::new(id, status, moment(view.created_ms), moment(view.updated_ms))
        .with_ttl_ms(view.ttl_ms);
    task.poll_interval_ms = view.poll_ms.map(u64::from);
    task.status_message.clone_from(&view.message);
    task
}

/// A task with all that `tasks/get` tells of it.
pub(super) fn detailed(id: &str, view: &View) -> Result<DetailedTask, ErrorData> {
    let mut task = task(id, view);
    let nothing = Json::trusted("{}".into());
    let payload = match view.status {
        TaskStatus::Working => TaskPayload::Working,
        TaskStatus::Cancelled => TaskPayload::Cancelled,
        TaskStatus::InputRequired => {
            let open = view.inputs.iter().filter(|input| input.response.is_none());
            let read = open
                .map(|input| Ok((input.key.to_string(), read::<InputRequest>(&input.request)?)));
            TaskPayload::InputRequired {
                input_requests: read.collect::<Result<InputRequests, ErrorData>>()?,
            }
        }
        TaskStatus::Completed => TaskPayload::Completed {
            result: read(view.result.as_ref().unwrap_or(&nothing))?,
        },
        TaskStatus::Failed => {
            let error: JsonObject = read(view.error.as_ref().unwrap_or(&nothing))?;
            // The daemon has ended the task with an error whose message is news; one that failed
            // here says the same.
            if let Some(message) = error.get("message").and_then(Value::as_str) {
                task.status_message = Some(message.into());
            }
            TaskPayload::Failed { error }
        }
    };
    Ok(DetailedTask::new(task, payload))
}

/// ISO 8601, to the millisecond.
fn moment(ms: u64) -> String {
    let seconds = i64::try_from(ms / 1_000).unwrap_or_default();
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (date, time) = (at.date(), at.time());
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        time.hour(),
        time.minute(),
        time.second(),
        ms % 1_000
    )
}
