//! JSON-RPC 2.0 for every language: one request or notification a frame. Batches are refused, as
//! MCP refuses them.

mod envelope;

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Instant;
use std::{io, iter};

use bytes::BytesMut;
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, MapDeserializer};
use serde_json::value::RawValue;
use serde_json::{Number, Value, json};
use tarpc::{ClientMessage, Response};

use envelope::Envelope;

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
        Self {
            out_max,
            next: 0,
            in_flight: HashMap::new(),
        }
    }

    fn put(&self, outbound: &mut BytesMut, message: &Value) -> io::Result<()> {
        put_frame(outbound, self.out_max, |writer| {
            serde_json::to_writer(writer, message)
        })
    }

    fn notification(
        &mut self,
        method: &str,
        params: Option<&RawValue>,
    ) -> Decoded<ClientMessage<SessiondRequest>> {
        let named = params
            .filter(|_| method == "notifications/cancelled")
            .and_then(cancelled);
        let found = self
            .in_flight
            .iter()
            .find(|(_, call)| Some(&call.id) == named.as_ref());
        let Some(number) = found.map(|(number, _)| *number) else {
            return Decoded::Ignored;
        };
        // tarpc does not answer a cancelled call, so nothing else would remove it.
        self.in_flight.remove(&number);
        Decoded::Item(cancel(number))
    }

    /// Takes down a call's id. Those past their deadline, which tarpc drops without an answer, go
    /// when there are many.
    fn enter(&mut self, id: Value) -> u64 {
        if self.in_flight.len() >= IN_FLIGHT_MANY {
            self.in_flight
                .retain(|_, call| call.since.elapsed() <= DEADLINE_DEFAULT);
        }
        self.next += 1;
        self.in_flight.insert(
            self.next,
            InFlight {
                id,
                since: Instant::now(),
            },
        );
        self.next
    }
}

impl FrameCodec for Server {
    type In = ClientMessage<SessiondRequest>;
    type Out = Response<SessiondResponse>;

    fn decode(&mut self, frame: &[u8], outbound: &mut BytesMut) -> io::Result<Decoded<Self::In>> {
        let mut id = Value::Null;
        let parsed = parse(frame, &mut id).and_then(|(method, params)| {
            if id.is_null() {
                Ok(Err((method, params)))
            } else {
                call(&method, params).map(Ok)
            }
        });
        match parsed {
            Ok(Ok(call)) => {
                let number = self.enter(id);
                Ok(Decoded::Item(request(number, DEADLINE_DEFAULT, call)))
            }
            Ok(Err((method, params))) => Ok(self.notification(&method, params)),
            Err(Malformed(code, message)) => {
                let error = json!({"code": code, "message": message});
                self.put(
                    outbound,
                    &json!({"jsonrpc": "2.0", "id": id, "error": error}),
                )?;
                Ok(Decoded::Answered)
            }
        }
    }

    fn encode(&mut self, response: Self::Out, outbound: &mut BytesMut) -> io::Result<()> {
        let Some(InFlight { id, .. }) = self.in_flight.remove(&response.request_id) else {
            return Ok(());
        };
        let result = match response.message {
            Ok(reply) => result(&reply)?,
            Err(error) => Err(refusal(&Error::Unavailable {
                sentence: error.detail,
                retry_after_ms: RETRY_AFTER_MS,
            })),
        };
        let (member, value) = match result {
            Ok(value) => ("result", value),
            Err(error) => ("error", error),
        };
        let answer = json!({"jsonrpc": "2.0", "id": id, member: value});
        self.put(outbound, &answer).or_else(|_| {
            // What else the connection carries is not ended by it.
            let error = refusal(&Error::InvalidArgument {
                sentence: super::TOO_LARGE.into(),
            });
            self.put(
                outbound,
                &json!({"jsonrpc": "2.0", "id": answer["id"], "error": error}),
            )
        })
    }
}

/// When to try again after too many requests in flight, in ms: they are short.
const RETRY_AFTER_MS: u32 = 100;

/// Reads a frame as a request or notification: its method and `params`. Sets `id` as soon as it is
/// known.
fn parse<'a>(
    frame: &'a [u8],
    id: &mut Value,
) -> Result<(Cow<'a, str>, Option<&'a RawValue>), Malformed> {
    let envelope = Envelope::read(frame).map_err(|error| {
        Malformed(
            PARSE_ERROR,
            format!(
                "not JSON: {} at column {}",
                error.classify_name(),
                error.column()
            ),
        )
    })?;
    let Some(envelope) = envelope else {
        return Err(Malformed(
            INVALID_REQUEST,
            "one request object a frame, no batches".into(),
        ));
    };
    if let Some(given) = envelope.id {
        *id = read_id(given)?;
    }
    if envelope.jsonrpc.and_then(envelope::text).as_deref() != Some("2.0") {
        return Err(Malformed(
            INVALID_REQUEST,
            "`jsonrpc` must be \"2.0\"".into(),
        ));
    }
    let Some(method) = envelope.method.and_then(envelope::text) else {
        return Err(Malformed(
            INVALID_REQUEST,
            "`method` must be a string".into(),
        ));
    };
    Ok((method, envelope.params))
}

fn read_id(given: &RawValue) -> Result<Value, Malformed> {
    if let Some(text) = envelope::text(given) {
        return if text.len() <= ID_MAX {
            Ok(Value::String(text.into_owned()))
        } else {
            Err(Malformed(
                INVALID_REQUEST,
                format!("`id` may have {ID_MAX} bytes"),
            ))
        };
    }
    let number = serde_json::from_str::<Number>(given.get()).map(Value::Number);
    number.map_err(|_| Malformed(INVALID_REQUEST, "`id` must be a string or a number".into()))
}

/// The id of the call that the client cancels.
fn cancelled(params: &RawValue) -> Option<Value> {
    #[derive(Deserialize)]
    struct Cancelled<'a> {
        #[serde(borrow, rename = "requestId")]
        request_id: &'a RawValue,
    }
    let Cancelled { request_id } = serde_json::from_str(params.get()).ok()?;
    read_id(request_id).ok()
}

/// The call as the service's own request type, read from the text of `params`.
fn call(method: &str, params: Option<&RawValue>) -> Result<SessiondRequest, Malformed> {
    if !METHODS.contains(&method) {
        return Err(Malformed(
            METHOD_NOT_FOUND,
            format!("no such method; there are {}", METHODS.join(", ")),
        ));
    }
    let object = params.map_or(Some(true), envelope::object);
    // A method without an argument is an empty variant; any other has the one argument `request`.
    if let Ok(call) = serde_json::from_value(json!({ variant(method): {} })) {
        return if object == Some(true) {
            Ok(call)
        } else {
            Err(Malformed(
                INVALID_PARAMS,
                format!("`params` of {method}: there are none"),
            ))
        };
    }
    if object.is_none() {
        return Err(Malformed(
            INVALID_PARAMS,
            format!("`params` of {method} must be an object"),
        ));
    }
    variant_of(method, params).map_err(|error| {
        Malformed(
            INVALID_PARAMS,
            format!(
                "`params` of {method}: {}",
                without_values(&without_place(&error))
            ),
        )
    })
}

/// Reads `params` as if they stood in `{"Variant": {"request": params}}`.
fn variant_of(method: &str, params: Option<&RawValue>) -> serde_json::Result<SessiondRequest> {
    let params = match params {
        Some(params) => params,
        None => serde_json::from_str("{}")?,
    };
    let arguments = MapDeserializer::new(iter::once(("request", params)));
    let tagged = MapDeserializer::new(iter::once((variant(method), arguments)));
    SessiondRequest::deserialize(MapAccessDeserializer::new(tagged))
}

/// serde_json's error without its place, which counts from the beginning of some part of the frame.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place)
        .map_or_else(|| text.clone(), str::to_owned)
}

/// The reply without its variant, and without `Ok` around it.
fn result(reply: &SessiondResponse) -> io::Result<Result<Value, Value>> {
    let tagged = serde_json::to_value(reply).map_err(io::Error::other)?;
    let Value::Object(tagged) = tagged else {
        return Ok(Ok(Value::Null));
    };
    let value = tagged
        .into_iter()
        .next()
        .map_or(Value::Null, |(_, value)| value);
    match value {
        Value::Object(mut object) if object.len() == 1 && object.contains_key("Ok") => {
            Ok(Ok(object.remove("Ok").unwrap_or_default()))
        }
        Value::Object(mut object) if object.len() == 1 && object.contains_key("Err") => {
            let error = object.remove("Err").unwrap_or_default();
            Ok(Err(refusal(
                &serde_json::from_value(error).unwrap_or(Error::Unknown),
            )))
        }
        value => Ok(Ok(value)),
    }
}

/// A refusal as JSON-RPC's error object: the sentence, and the error with its HTTP status as
/// `data`.
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
