//! What is on record of a stream that was opened for calls: its name, and the ids of the calls.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use mcp_sessiond_proto::{Json, RequestId, StreamId};
use serde_json::value::RawValue;

use crate::messages::Id;

/// Bytes of the origin of a stream that the daemon keeps.
const ORIGIN_MAX: usize = 256;
/// What the names of streams of single calls begin with.
const CALL: &str = "call";
/// What the names of streams of batches begin with.
const BATCH: &str = "batch";

/// The name of a stream for calls. It tells the incarnation of the server that they are sent to.
/// None: that can't be part of a name.
pub fn stream_name(incarnation: &str, is_batch: bool, unique: &RequestId) -> Option<StreamId> {
    let kind = if is_batch { BATCH } else { CALL };
    format!("{kind}-{incarnation}-{unique}").parse().ok()
}

/// Whether the calls of a stream of this name were sent to that server, if they were sent at all.
pub(crate) fn is_for(stream: &StreamId, incarnation: &str) -> bool {
    let (_, rest) = stream.as_str().split_once('-').unwrap_or_default();
    rest.rsplit_once('-')
        .is_some_and(|(of_server, _)| of_server == incarnation)
}

/// What the daemon keeps as the origin of a stream, which has to be an id: that of its call, or the
/// ids of a batch as one text. None: that is too long.
pub fn origin(calls: &[Id], is_batch: bool) -> Option<Json> {
    let origin = match calls {
        [id] if !is_batch => Json::new(&**id).ok()?,
        ids => Json::from(&serde_json::Value::String(format!("[{}]", ids.join(",")))),
    };
    (origin.len() <= ORIGIN_MAX).then_some(origin)
}

/// The calls of a stream, of which [`origin`] is on record.
pub fn calls_of(stream: &StreamId, origin: &Json) -> Vec<Id> {
    if !stream.as_str().starts_with(BATCH) {
        return vec![origin.as_str().into()];
    }
    let text = serde_json::from_str::<String>(origin.as_str()).unwrap_or_default();
    let ids: Vec<Box<RawValue>> = serde_json::from_str(&text).unwrap_or_default();
    ids.into_iter().map(|id| id.get().into()).collect()
}
