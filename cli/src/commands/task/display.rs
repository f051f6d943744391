//! A task as `tasks/get` answers it (SEP-2663, `DetailedTask`).

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use mcp_sessiond_client::{Json, TaskView};
use serde::Serialize;
use serde_json::value::RawValue;

/// The last instant that the format has, in ms since the Unix epoch: the end of the year 9999.
const LAST_MS: u64 = 253_402_300_799_000;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskJson<'a> {
    task_id: &'a str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_message: Option<&'a str>,
    created_at: String,
    last_updated_at: String,
    ttl_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_interval_ms: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_requests: Option<BTreeMap<&'a str, Option<&'a RawValue>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RawValue>,
}

impl<'a> From<&'a TaskView> for TaskJson<'a> {
    fn from(task: &'a TaskView) -> Self {
        let TaskView {
            task,
            status,
            message,
            created_ms,
            updated_ms,
            ttl_ms,
            poll_ms,
            version: _,
            inputs,
            result,
            error,
        } = task;
        let open = inputs.iter().filter(|input| input.response.is_none());
        let requests: BTreeMap<_, _> = open
            .map(|input| (input.key.as_str(), raw(&input.request)))
            .collect();
        Self {
            task_id: task.as_str(),
            status: status.name(),
            status_message: message.as_deref(),
            created_at: instant(*created_ms),
            last_updated_at: instant(*updated_ms),
            ttl_ms: *ttl_ms,
            poll_interval_ms: *poll_ms,
            input_requests: (!requests.is_empty()).then_some(requests),
            result: result.as_ref().and_then(raw),
            error: error.as_ref().and_then(raw),
        }
    }
}

fn raw(json: &Json) -> Option<&RawValue> {
    serde_json::from_str(json.as_str()).ok()
}

/// ISO 8601, as RFC 3339 narrows it.
fn instant(at_ms: u64) -> String {
    let at = UNIX_EPOCH + Duration::from_millis(at_ms.min(LAST_MS));
    humantime::format_rfc3339_millis(at).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants() {
        assert_eq!(instant(1_764_066_600_123), "2025-11-25T10:30:00.123Z");
        assert_eq!(instant(u64::MAX), "9999-12-31T23:59:59.000Z");
    }
}
