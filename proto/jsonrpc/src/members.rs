//! The members of an object. Their values stay unread.

use alloc::borrow::Cow;
use core::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A member that decides something: of two, readers differ in which they take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Member<'a> {
    #[default]
    Absent,
    Once(&'a str),
    Twice,
}

impl<'a> Member<'a> {
    pub(crate) fn put(&mut self, value: &'a str) {
        *self = match self {
            Self::Absent => Self::Once(value),
            Self::Once(_) | Self::Twice => Self::Twice,
        };
    }

    /// The raw text of its value, if it is there once.
    pub(crate) fn once(self) -> Option<&'a str> {
        match self {
            Self::Once(value) => Some(value),
            Self::Absent | Self::Twice => None,
        }
    }

    pub(crate) fn is_twice(self) -> bool {
        matches!(self, Self::Twice)
    }
}

/// The members of a message, and of its parameters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Envelope<'a> {
    pub id: Member<'a>,
    pub method: Member<'a>,
    pub params: Member<'a>,
    pub result: Member<'a>,
    pub error: Member<'a>,
    pub within: Params<'a>,
}

/// The members of parameters that are read of any message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Params<'a> {
    pub meta: Member<'a>,
    pub progress_token: Member<'a>,
    pub request_id: Member<'a>,
}

impl<'a> Envelope<'a> {
    /// Reads a message, its parameters in the same pass. None where it is no object, or has a member
    /// twice.
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        struct Reader<'a>(&'a str);
        impl<'de> Visitor<'de> for Reader<'de> {
            type Value = Envelope<'de>;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a message")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut read = Envelope::default();
                while let Some(key) = map.next_key::<&RawValue>()? {
                    let member = match &*name(key) {
                        "id" => &mut read.id,
                        "method" => &mut read.method,
                        "result" => &mut read.result,
                        "error" => &mut read.error,
                        "params" => {
                            let value = value_behind(self.0, key.get());
                            if value.starts_with('{') {
                                let (whole, within) = map.next_value_seed(WholeParams(value))?;
                                read.within = within;
                                read.params.put(whole);
                                continue;
                            }
                            &mut read.params
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    member.put(map.next_value::<&RawValue>()?.get());
                }
                Ok(read)
            }
        }
        let read = whole(text, Reader(text))?;
        let members = [read.id, read.method, read.params, read.result, read.error];
        (!members.into_iter().any(Member::is_twice)).then_some(read)
    }
}

/// Parameters that are an object and stand at the beginning of this text: their own text, and what
/// is read of them.
struct WholeParams<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for WholeParams<'de> {
    type Value = (&'de str, Params<'de>);

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for WholeParams<'de> {
    type Value = (&'de str, Params<'de>);

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("parameters")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut read = Params::default();
        // Up to the last value that was read.
        let mut end = 1;
        while let Some(key) = map.next_key::<&RawValue>()? {
            let value = map.next_value::<&RawValue>()?.get();
            end = offset(self.0, value) + value.len();
            match &*name(key) {
                "_meta" => read.meta.put(value),
                "progressToken" => read.progress_token.put(value),
                "requestId" => read.request_id.put(value),
                _ => {}
            }
        }
        // Behind it there is white space, and the brace.
        let rest = self.0.get(end..).unwrap_or_default();
        let brace = end + rest.find('}').map_or(0, |at| at + 1);
        Ok((self.0.get(..brace).unwrap_or_default(), read))
    }
}

/// Shows each member of an object: its name, and the raw text of its value. None where the text is
/// something else.
pub(crate) fn each<'a>(text: &'a str, each: impl FnMut(&str, &'a str)) -> Option<()> {
    struct Each<F>(F);
    impl<'de, F: FnMut(&str, &'de str)> Visitor<'de> for Each<F> {
        type Value = ();

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
            while let Some(key) = map.next_key::<&RawValue>()? {
                (self.0)(&name(key), map.next_value::<&RawValue>()?.get());
            }
            Ok(())
        }
    }
    whole(text, Each(each))
}

/// Reads an object that is the whole text; serde would take an array for one as well.
fn whole<'a, V: Visitor<'a>>(text: &'a str, visitor: V) -> Option<V::Value> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = reader.deserialize_map(visitor).ok()?;
    reader.end().ok().map(|()| read)
}

/// The name of a member. One that is no text, for lack of half a surrogate pair, is none of those
/// that are read.
fn name(key: &RawValue) -> Cow<'_, str> {
    string(key.get()).unwrap_or_default()
}

/// The text of a JSON string, borrowed where nothing in it is escaped.
pub(crate) fn string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str(raw).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// The text from the value on that stands behind a key.
fn value_behind<'a>(text: &'a str, key: &str) -> &'a str {
    let rest = text.get(offset(text, key) + key.len()..);
    let rest = rest.unwrap_or_default().trim_ascii_start();
    rest.strip_prefix(':').unwrap_or(rest).trim_ascii_start()
}

/// Where a part begins in the text that it was borrowed from.
pub(crate) fn offset(whole: &str, part: &str) -> usize {
    part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr())
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::format;
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// JSON as others write it: with spaces, escapes and large numbers.
    fn json() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(
            [
                "1e400",
                "null",
                "\"}\"",
                "\"\\\"{\"",
                "[ ]",
                "{ }",
                "-0.0",
                "\"\u{20ac}\"",
            ]
            .to_vec(),
        );
        let leaf = leaf.prop_map(ToString::to_string);
        leaf.prop_recursive(4, 32, 4, |inner| {
            let member =
                ("[a-z}{\"]{0,3}", inner.clone(), " {0,2}").prop_map(|(key, value, space)| {
                    let key = serde_json::Value::from(key).to_string();
                    format!("{space}{key}{space}:{space}{value}{space}")
                });
            let object = prop::collection::vec(member, 0..4)
                .prop_map(|all| format!("{{{}}}", all.join(",")));
            let array =
                prop::collection::vec(inner, 1..4).prop_map(|all| format!("[{}]", all.join(" , ")));
            prop_oneof![object, array]
        })
    }

    proptest! {
        #[test]
        fn one_pass_sees_what_two_see(params in json(), first in any::<bool>(), space in "[ \t\r\n]{0,2}") {
            let (id, params_member) = (format!("\"id\":{space}7"), format!("{space}\"params\"{space}:{space}{params}{space}"));
            let text = if first { format!("{{{params_member},{id}}}") } else { format!("{{{id},{params_member}}}") };
            let read = Envelope::of(&text).expect("a message");
            prop_assert_eq!((read.params.once(), read.id.once()), (Some(&*params), Some("7")));
        }
    }

    #[test]
    fn a_member_is_found_by_its_name_however_that_is_written() {
        let text =
            r#"{"\u0069d":1,"p\u0061rams":{"\u005fmeta":{"a":1},"request\u0049d":2} , "\ud800":1}"#;
        let read = Envelope::of(text).expect("a message");
        assert_eq!(read.id.once(), Some("1"));
        assert_eq!(
            read.params.once(),
            Some(r#"{"\u005fmeta":{"a":1},"request\u0049d":2}"#)
        );
        assert_eq!(read.within.meta.once(), Some(r#"{"a":1}"#));
        assert_eq!(read.within.request_id.once(), Some("2"));
    }

    #[test]
    fn what_is_there_twice_is_not_there_once() {
        for name in ["id", "method", "params", "result", "error"] {
            let text = format!(r#"{{"{name}":{{}},"x":1,"x":2,"{name}":{{}}}}"#);
            assert!(Envelope::of(&text).is_none(), "{name}");
        }
        let read = Envelope::of(r#"{"params":{"_meta":1,"_meta":1,"progressToken":1}}"#);
        let within = read.expect("a message").within;
        assert!(within.meta.is_twice() && within.progress_token.once() == Some("1"));
    }

    #[test]
    fn depth_is_skipped_without_a_stack() {
        let deep = format!("{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
        let text = format!(r#"{{"params":{{"a":{deep}}},"result":{deep}}}"#);
        assert!(Envelope::of(&text).is_some());
    }

    #[test]
    fn what_is_no_object_has_no_members() {
        for text in ["", "[]", "1", "{", "{}x", "{\"a\":}", "{\"a\u{1}\":1}"] {
            assert!(
                each(text, |_, _| {}).is_none() && Envelope::of(text).is_none(),
                "{text}"
            );
        }
        let mut seen = BTreeMap::new();
        each(" {\"a\":1, \"b\" : [2]} ", |name, value| {
            seen.insert(name.to_string(), value.to_string());
        });
        let seen: Vec<(String, String)> = seen.into_iter().collect();
        assert_eq!(seen, [("a".into(), "1".into()), ("b".into(), "[2]".into())]);
    }
}
