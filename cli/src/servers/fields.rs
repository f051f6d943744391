//! Reads the fields of an entry. An error names the field and what would be right, and never what
//! is there: it may be a secret.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use mcp_sessiond_proto::Resume;
use mcp_sessiond_proxy::front::bundle::Waking;
use serde_json::{Map, Value};

/// The fields of an entry. One that is `null` counts as absent.
pub(super) struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    pub(super) fn of(entry: &'a Value) -> Result<Self, String> {
        entry
            .as_object()
            .map(Self)
            .ok_or_else(|| "a server is an object, with a `command` or a `url`".to_owned())
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// What the field is, if it is there and `read` makes something of it.
    fn read<T>(
        &self,
        key: &str,
        what: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        read(value)
            .map(Some)
            .ok_or_else(|| format!("`{key}` must be {what}"))
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<String>, String> {
        self.read(key, "a string", |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<String>>, String> {
        self.read(key, "a list of strings", |value| {
            value
                .as_array()?
                .iter()
                .map(|one| one.as_str().map(str::to_owned))
                .collect()
        })
    }

    pub(super) fn map(&self, key: &str) -> Result<BTreeMap<String, String>, String> {
        let map = self.read(key, "an object whose values are strings", |value| {
            let members = value.as_object()?.iter();
            members
                .map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect()
        });
        Ok(map?.unwrap_or_default())
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool, String> {
        self.flag_or(key, false)
    }

    pub(super) fn flag_or(&self, key: &str, default: bool) -> Result<bool, String> {
        let read = self.read(key, "true or false", Value::as_bool)?;
        Ok(read.unwrap_or(default))
    }

    pub(super) fn lazy(&self, key: &str) -> Result<Option<Waking>, String> {
        let read = self.read(key, "true, false or \"start\"", |value| match value {
            Value::Bool(false) => Some(None),
            Value::Bool(true) => Some(Some(Waking::AtFirstCall)),
            Value::String(start) if start == "start" => Some(Some(Waking::AtStart)),
            _ => None,
        })?;
        Ok(read.flatten())
    }

    pub(super) fn resume(&self, key: &str) -> Result<Option<Resume>, String> {
        self.read(key, "\"always\", \"cut\" or \"never\"", |value| {
            let resume = value.as_str()?.parse().ok()?;
            Resume::CHOICES.contains(&resume).then_some(resume)
        })
    }

    pub(super) fn count(&self, key: &str) -> Result<Option<NonZeroU32>, String> {
        self.read(key, "a number from 1 to 4294967295", |value| {
            NonZeroU32::new(u32::try_from(value.as_u64()?).ok()?)
        })
    }
}
