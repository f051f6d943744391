//! The answer of a server to our first request.

use std::cell::OnceCell;

use mcp_sessiond_jsonrpc::error::RpcError;
use mcp_sessiond_jsonrpc::message::{Kind, Line};
use mcp_sessiond_jsonrpc::object::raw;
use mcp_sessiond_jsonrpc::readable::Readable;
use serde_json::value::RawValue;

/// What came back to our first request to a server.
#[derive(Debug)]
pub(crate) enum FirstAnswer {
    /// Its result.
    Result(Box<RawValue>),
    /// Its error, or ours where its answer can't be passed on.
    Error(Box<RawValue>),
}

impl FirstAnswer {
    /// Reads a line. None: it is something else than the answer to the request of this id.
    pub(crate) fn read(line: &[u8], to: &str) -> Option<Self> {
        let copy = OnceCell::new();
        let message = Line::of(line, &copy).message()?;
        if !matches!(message.kind, Kind::Answer { id, .. } if id == to) {
            return None;
        }
        let sent = |value: Option<Readable<'_>>| {
            let value = value?.sent().filter(|value| *value != "null")?;
            RawValue::from_string(value.to_owned()).ok()
        };
        let result = sent(message.result()).map(Self::Result);
        result
            .or_else(|| sent(message.error()).map(Self::Error))
            .or_else(|| Some(Self::Error(raw(&RpcError::unreadable_of_server()))))
    }
}
