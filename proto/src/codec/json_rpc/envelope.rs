//! Reads a frame's members in place. A tree of its values would take many times its size.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The members of a request or notification, as raw text. Of two with one name the last counts.
#[derive(Default)]
pub(super) struct Envelope<'a> {
    pub(super) id: Option<&'a RawValue>,
    pub(super) jsonrpc: Option<&'a RawValue>,
    pub(super) method: Option<&'a RawValue>,
    /// Also none if it is `null`.
    pub(super) params: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    /// None: it is JSON, but no object.
    ///
    /// # Errors
    /// When it is not JSON, or nested deeper than serde_json allows.
    pub(super) fn read(frame: &'a [u8]) -> serde_json::Result<Option<Self>> {
        // Check all of it first: serde_json only skims a raw value for its end.
        serde_json::from_slice::<Checked>(frame)?;
        if is_object(frame) {
            serde_json::from_slice(frame).map(Some)
        } else {
            Ok(None)
        }
    }
}

fn is_object(text: &[u8]) -> bool {
    text.trim_ascii_start().first() == Some(&b'{')
}

/// The text, if the value is a string.
pub(super) fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str(raw.get()).ok().map(|Text(text)| text)
}

/// None: no object. Else whether the object is empty.
pub(super) fn object(raw: &RawValue) -> Option<bool> {
    let members = raw.get().strip_prefix('{')?;
    Some(members.trim_ascii_start() == "}")
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Member {
    Id,
    Jsonrpc,
    Method,
    Params,
    #[serde(other)]
    Other,
}

impl<'de: 'a, 'a> Deserialize<'de> for Envelope<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Envelope<'de>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope<'de>, A::Error> {
                let mut envelope = Envelope::default();
                while let Some(member) = map.next_key()? {
                    match member {
                        Member::Id => envelope.id = Some(map.next_value()?),
                        Member::Jsonrpc => envelope.jsonrpc = Some(map.next_value()?),
                        Member::Method => envelope.method = Some(map.next_value()?),
                        Member::Params => envelope.params = map.next_value()?,
                        Member::Other => drop(map.next_value::<&RawValue>()?),
                    }
                }
                Ok(envelope)
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Reads any value with the errors of `serde_json::Value`, and keeps nothing. (`IgnoredAny` checks
/// neither numbers nor strings, and does not limit the depth.)
struct Checked;

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Checked {
    type Value = Self;
    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any valid JSON value")
    }
    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<Self>()?.is_some() {}
        Ok(self)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}
