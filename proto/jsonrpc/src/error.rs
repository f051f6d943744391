//! The error of an answer.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::answers::{Outcome, UNREADABLE_SERVER_ANSWER};
use crate::code;
use crate::object::Object;

/// An error of JSON-RPC.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RpcError {
    /// Its code.
    pub code: i64,
    /// One sentence.
    #[serde(default)]
    pub message: String,
    /// What else there is to it.
    #[serde(
        default,
        deserialize_with = "as_written",
        skip_serializing_if = "Option::is_none"
    )]
    pub data: Option<Box<RawValue>>,
}

/// What is there, also where it is null.
fn as_written<'de, D: Deserializer<'de>>(data: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(data).map(Some)
}

impl RpcError {
    /// Whether it is an error of whoever carries messages to the server: it says what has become of
    /// the request.
    pub fn is_not_the_servers(&self) -> bool {
        let data = self.data.as_deref().and_then(Object::read);
        data.is_some_and(|data| data.text("outcome").is_some())
    }

    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// Reads the error of an answer. One that is not as JSON-RPC has it is in `data` as a
    /// whole.
    pub(crate) fn read(text: &RawValue) -> Self {
        let own = || {
            let read = Object::read(text);
            let member = |name: &str| read.as_ref().and_then(|read| read.get(name));
            let code = member("code")
                .and_then(|code| serde_json::from_str::<serde_json::Number>(code.get()).ok());
            let message = read.as_ref().map_or_else(
                || serde_json::from_str(text.get()).unwrap_or_default(),
                |read| read.text("message").unwrap_or_default(),
            );
            Self {
                code: code.as_ref().and_then(whole).unwrap_or(code::INTERNAL),
                message,
                data: Some(text.to_owned()),
            }
        };
        serde_json::from_str(text.get()).unwrap_or_else(|_| own())
    }
}

/// The integer that a number is, however it is written.
fn whole(number: &serde_json::Number) -> Option<i64> {
    let text = number.to_string();
    text.strip_suffix(".0").unwrap_or(&text).parse().ok()
}

impl RpcError {
    /// A question of a server whose answer, the host's, can't be read.
    pub fn unreadable_of_host() -> Self {
        let why = "the host's answer can't be read as JSON-RPC";
        Self::new(code::CONNECTION, why)
    }

    /// A call whose answer can't be read. It was carried out.
    pub fn unreadable_of_server() -> Self {
        let data = format!(r#"{{"outcome":"{}"}}"#, Outcome::NotKept.as_str());
        Self {
            data: RawValue::from_string(data).ok(),
            ..Self::new(code::CONNECTION, UNREADABLE_SERVER_ANSWER)
        }
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, message, .. } = self;
        write!(to, "{message} ({code})")
    }
}

impl core::error::Error for RpcError {}
