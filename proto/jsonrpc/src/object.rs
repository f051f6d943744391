//! A JSON object whose values stay as they were written: numbers, escapes and spaces of other
//! programs are not changed.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap as _, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::repair::with_null_for_numbers;

/// An object's members, in their order.
#[derive(Debug, Clone, Default)]
pub struct Object(Vec<(String, Box<RawValue>)>);

impl Object {
    /// Reads an object. None where it is something else.
    pub fn read(text: &RawValue) -> Option<Self> {
        serde_json::from_str(text.get()).ok()
    }

    /// The same of what is to stand beside what others have written, with null for each number that
    /// JSON does not have: some readers can read nothing of what has one in it.
    pub fn read_as_json(text: &RawValue) -> Option<Self> {
        match with_null_for_numbers(text.get()) {
            Some(text) => serde_json::from_str(&text).ok(),
            None => Self::read(text),
        }
    }

    /// A member, as it was written.
    pub fn get(&self, key: &str) -> Option<&RawValue> {
        // Of members with the same name the last one counts, as for most readers.
        self.0
            .iter()
            .rev()
            .find(|(name, _)| name == key)
            .map(|(_, value)| &**value)
    }

    /// A member that is a string.
    pub fn text(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }

    /// A member that is an object.
    pub fn object(&self, key: &str) -> Option<Self> {
        Self::read(self.get(key)?)
    }

    /// A member that is an array.
    pub fn array(&self, key: &str) -> Option<Vec<Box<RawValue>>> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }

    /// Puts a member in its place, or at the end.
    pub fn set(&mut self, key: &str, value: Box<RawValue>) {
        let at = self.0.iter().rposition(|(name, _)| name == key);
        match at {
            Some(at) => self.0[at].1 = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    /// The same with a string.
    pub fn set_text(&mut self, key: &str, value: &str) {
        self.set(key, raw(value));
    }

    /// Removes a member.
    pub fn remove(&mut self, key: &str) {
        self.0.retain(|(name, _)| name != key);
    }

    /// As text.
    pub fn write(&self) -> Box<RawValue> {
        raw(self)
    }
}

/// What can be written as JSON without fail: no map of ours has keys that are no strings.
pub fn raw<T: Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_default()
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Object {
        serde_json::from_str(text).expect("an object")
    }

    #[test]
    fn what_is_not_changed_stays_as_it_was_written() {
        let text = r#"{"b":1e400,"a":{ "x" : 1.00 },"name":"\u00e9","b":[18446744073709551616]}"#;
        let mut read = object(text);
        assert_eq!(read.write().get(), text);
        assert_eq!(
            read.get("b").map(RawValue::get),
            Some("[18446744073709551616]")
        );
        assert_eq!(
            (read.text("name").as_deref(), read.text("a")),
            (Some("é"), None)
        );
        read.set_text("name", "n");
        read.set_text("new", "\"");
        read.remove("b");
        assert_eq!(
            read.write().get(),
            r#"{"a":{ "x" : 1.00 },"name":"n","new":"\""}"#
        );
    }

    #[test]
    fn what_is_no_object_is_none() {
        for text in ["[]", "1", "null", r#""x""#] {
            let text: Box<RawValue> = serde_json::from_str(text).expect("JSON");
            assert!(Object::read(&text).is_none());
        }
    }
}
