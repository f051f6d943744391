//! JSON-RPC 2.0 for every language: one request or notification a frame. Batches are refused, as MCP refuses them.

use std::collections::HashMap;
use std::io;
use std::time::Instant;

use bytes::BytesMut;
use serde_json::{Map, Value, json};
use tarpc::{ClientMessage, Response};

use super::{DEADLINE_DEFAULT, cancel, request, without_values};
use crate::client::variant;
use crate::error::Error;
use crate::frame::{Decoded, FrameCodec, put_frame};
use crate::service::{METHODS, SessiondRequest, SessiondResponse};

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
/// Every refusal of ours; which one stands in `error.data.code`.
const REFUSED: i32 = -32000;

/// Bytes that an id may have: it is kept for as long as the call takes.
const ID_MAX: usize = 128;

/// A request that never reaches the service: its code and why.
struct Malformed(i32, String);

/// The server's side. Ids of the peer's, of whatever type, are mapped to numbers of our own.
pub(super) struct Server {
    out_max: usize,
    next: u64,
    in_flight: HashMap<u64, InFlight>,
}

/// A call that was not answered yet.
struct InFlight {
    id: Value,
    since: Instant,
}

/// Calls in flight from which on it is looked for those that are past their deadline.
const IN_FLIGHT_MANY: usize = 256;

impl Server {
    pub(super) fn new(out_max: usize) -> Self {
        Self { out_max, next: 0, in_flight: HashMap::new() }
    }

    fn put(&self, outbound: &mut BytesMut, message: &Value) -> io::Result<()> {
        put_frame(outbound, self.out_max, |writer| serde_json::to_writer(writer, message))
    }

    fn notification(&mut self, method: &str, params: &Value) -> Decoded<ClientMessage<SessiondRequest>> {
        let named = &params["requestId"];
        let found = self.in_flight.iter().find(|(_, call)| call.id == *named).map(|(number, _)| *number);
        match found {
            Some(number) if method == "notifications/cancelled" => {
                // tarpc answers it no more, so nobody else would take it out.
                self.in_flight.remove(&number);
                Decoded::Item(cancel(number))
            }
            _ => Decoded::Ignored,
        }
    }

    /// Takes down a call's id. Those past their deadline, which tarpc drops without an answer, go when there are many.
    fn enter(&mut self, id: Value) -> u64 {
        if self.in_flight.len() >= IN_FLIGHT_MANY {
            self.in_flight.retain(|_, call| call.since.elapsed() <= DEADLINE_DEFAULT);
        }
        self.next += 1;
        self.in_flight.insert(self.next, InFlight { id, since: Instant::now() });
        self.next
    }
}

impl FrameCodec for Server {
    type In = ClientMessage<SessiondRequest>;
    type Out = Response<SessiondResponse>;

    fn decode(&mut self, frame: &[u8], outbound: &mut BytesMut) -> io::Result<Decoded<Self::In>> {
        let mut id = Value::Null;
        let parsed = parse(frame, &mut id).and_then(|(method, params)| {
            if id.is_null() { Ok(Err((method, params))) } else { call(&method, params).map(Ok) }
        });
        match parsed {
            Ok(Ok(call)) => {
                let number = self.enter(id);
                Ok(Decoded::Item(request(number, DEADLINE_DEFAULT, call)))
            }
            Ok(Err((method, params))) => Ok(self.notification(&method, &params)),
            Err(Malformed(code, message)) => {
                let error = json!({"code": code, "message": message});
                self.put(outbound, &json!({"jsonrpc": "2.0", "id": id, "error": error}))?;
                Ok(Decoded::Answered)
            }
        }
    }

    fn encode(&mut self, response: Self::Out, outbound: &mut BytesMut) -> io::Result<()> {
        let Some(InFlight { id, .. }) = self.in_flight.remove(&response.request_id) else { return Ok(()) };
        let result = match response.message {
            Ok(reply) => result(&reply)?,
            Err(error) => {
                Err(refusal(&Error::Unavailable { sentence: error.detail, retry_after_ms: RETRY_AFTER_MS }))
            }
        };
        let (member, value) = match result {
            Ok(value) => ("result", value),
            Err(error) => ("error", error),
        };
        let answer = json!({"jsonrpc": "2.0", "id": id, member: value});
        self.put(outbound, &answer).or_else(|_| {
            // What else the connection carries is not ended by it.
            let error = refusal(&Error::InvalidArgument { sentence: super::TOO_LARGE.into() });
            self.put(outbound, &json!({"jsonrpc": "2.0", "id": answer["id"], "error": error}))
        })
    }
}

/// When to try again after too many requests in flight, in ms: they are short.
const RETRY_AFTER_MS: u32 = 100;

/// Reads a frame as a request or notification. The id is filled in as soon as it is known.
fn parse(frame: &[u8], id: &mut Value) -> Result<(String, Value), Malformed> {
    let message: Value = serde_json::from_slice(frame).map_err(|error| {
        Malformed(PARSE_ERROR, format!("not JSON: {} at column {}", error.classify_name(), error.column()))
    })?;
    let Value::Object(mut message) = message else {
        return Err(Malformed(INVALID_REQUEST, "one request object a frame, no batches".into()));
    };
    match message.remove("id") {
        None => {}
        Some(Value::String(given)) if given.len() > ID_MAX => {
            return Err(Malformed(INVALID_REQUEST, format!("`id` may have {ID_MAX} bytes")));
        }
        Some(given @ (Value::String(_) | Value::Number(_))) => *id = given,
        Some(_) => return Err(Malformed(INVALID_REQUEST, "`id` must be a string or a number".into())),
    }
    if message.get("jsonrpc") != Some(&json!("2.0")) {
        return Err(Malformed(INVALID_REQUEST, "`jsonrpc` must be \"2.0\"".into()));
    }
    let Some(Value::String(method)) = message.remove("method") else {
        return Err(Malformed(INVALID_REQUEST, "`method` must be a string".into()));
    };
    Ok((method, message.remove("params").unwrap_or(Value::Null)))
}

/// The call as the service's own request type.
fn call(method: &str, params: Value) -> Result<SessiondRequest, Malformed> {
    if !METHODS.contains(&method) {
        return Err(Malformed(METHOD_NOT_FOUND, format!("no such method; there are {}", METHODS.join(", "))));
    }
    let empty = matches!(&params, Value::Null) || params.as_object().is_some_and(Map::is_empty);
    let tagged = |arguments: Value| json!({ variant(method): arguments });
    // A method without an argument is an empty variant; any other has the one argument `request`.
    if let Ok(call) = serde_json::from_value(tagged(json!({}))) {
        return if empty {
            Ok(call)
        } else {
            Err(Malformed(INVALID_PARAMS, format!("`params` of {method}: there are none")))
        };
    }
    let params = if params.is_null() { json!({}) } else { params };
    if !params.is_object() {
        return Err(Malformed(INVALID_PARAMS, format!("`params` of {method} must be an object")));
    }
    serde_json::from_value(tagged(json!({"request": params}))).map_err(|error| {
        Malformed(INVALID_PARAMS, format!("`params` of {method}: {}", without_values(&error)))
    })
}

/// The reply without its variant, and without `Ok` around it.
fn result(reply: &SessiondResponse) -> io::Result<Result<Value, Value>> {
    let tagged = serde_json::to_value(reply).map_err(io::Error::other)?;
    let Value::Object(tagged) = tagged else { return Ok(Ok(Value::Null)) };
    let value = tagged.into_iter().next().map_or(Value::Null, |(_, value)| value);
    match value {
        Value::Object(mut object) if object.len() == 1 && object.contains_key("Ok") => {
            Ok(Ok(object.remove("Ok").unwrap_or_default()))
        }
        Value::Object(mut object) if object.len() == 1 && object.contains_key("Err") => {
            let error = object.remove("Err").unwrap_or_default();
            Ok(Err(refusal(&serde_json::from_value(error).unwrap_or(Error::Unknown))))
        }
        value => Ok(Ok(value)),
    }
}

/// A refusal as JSON-RPC's error object: the sentence, and the error with its HTTP status as `data`.
fn refusal(error: &Error) -> Value {
    let mut data = serde_json::to_value(error).unwrap_or_default();
    data["http_status"] = error.http_status().into();
    json!({"code": REFUSED, "message": error.to_string(), "data": data})
}

/// serde_json's own messages can quote what was sent, and that might be a token.
trait ClassifyName {
    fn classify_name(&self) -> &'static str;
}

impl ClassifyName for serde_json::Error {
    fn classify_name(&self) -> &'static str {
        match self.classify() {
            serde_json::error::Category::Io => "unreadable",
            serde_json::error::Category::Syntax => "syntax error",
            serde_json::error::Category::Data => "wrong type",
            serde_json::error::Category::Eof => "it ends too early",
        }
    }
}
