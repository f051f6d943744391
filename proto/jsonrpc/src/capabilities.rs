//! What a server declares in its answer to `initialize`, where more can be promised than it has said
//! itself.

use crate::edits::Edits;
use crate::members::{self, Member};
use crate::message::Message;

/// What a server may have lists of (MCP 2025-11-25, "Server Features").
const LISTS: [&str; 3] = ["tools", "prompts", "resources"];

/// Declares `listChanged: true` in each of `tools`, `prompts` and `resources` that an answer to
/// `initialize` declares without it. Whoever starts servers again can say so of any of them. What is
/// there twice, and nothing but `false` or `null` in the place of `true`, stays as it is.
pub fn declare_list_changes(message: &Message<'_>, edits: &mut Edits) {
    let Some(capabilities) = message
        .result
        .and_then(|result| member(result, "capabilities").once())
    else {
        return;
    };
    for list in LISTS {
        let Some(declared) = member(capabilities, list).once() else {
            continue;
        };
        let Some(inside) = declared.strip_prefix('{') else {
            continue;
        };
        match member(declared, "listChanged") {
            Member::Once(value) => {
                if let Some(value @ ("false" | "null")) = message.whole().part(value).sent() {
                    edits.replace(message, value, "true");
                }
            }
            Member::Absent => {
                let is_empty = inside.trim_ascii_start() == "}";
                let behind = if is_empty { "" } else { "," };
                let opened = alloc::format!(r#"{{"listChanged":true{behind}"#);
                edits.replace(message, &declared[..1], opened);
            }
            Member::Twice => {}
        }
    }
}

/// A member of an object. What is no object has none.
fn member<'a>(object: &'a str, wanted: &str) -> Member<'a> {
    let mut found = Member::Absent;
    let _ = members::each(object, |name, value| {
        if name == wanted {
            found.put(value);
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;

    use bytes::Bytes;

    use super::*;
    use crate::edits::edited;

    fn declared(capabilities: &str) -> String {
        let around = |inner: &str| {
            format!(r#"{{"id":1,"result":{{"x":1e400,"capabilities":{inner} }},"jsonrpc":"2.0"}}"#)
        };
        let line = edited(&Bytes::from(around(capabilities)), declare_list_changes);
        let line = String::from_utf8(line.into()).expect("text");
        let (before, after) = (
            r#"{"id":1,"result":{"x":1e400,"capabilities":"#,
            r#" },"jsonrpc":"2.0"}"#,
        );
        let inner = line
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after));
        inner.expect("nothing else changes").into()
    }

    #[test]
    fn list_changes_are_declared_in_what_the_server_declares() {
        for (capabilities, expected) in [
            (r#"{"tools":{}}"#, r#"{"tools":{"listChanged":true}}"#),
            (
                r#"{ "prompts" : { } ,"logging":{}}"#,
                r#"{ "prompts" : {"listChanged":true } ,"logging":{}}"#,
            ),
            (
                r#"{"resources":{"subscribe":true},"tools":{"listChanged":false}}"#,
                r#"{"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true}}"#,
            ),
            (
                r#"{"tools":{"list\u0043hanged":null}}"#,
                r#"{"tools":{"list\u0043hanged":true}}"#,
            ),
        ] {
            assert_eq!(declared(capabilities), expected);
        }
    }

    #[test]
    fn anything_else_stays_as_it_is() {
        for capabilities in [
            "{}",
            "[]",
            "1",
            r#"{"logging":{},"completions":{"a":[1]}}"#,
            r#"{"tools":{"listChanged":true}}"#,
            r#"{"tools":{"listChanged":"no"}}"#,
            r#"{"tools":{"listChanged":true,"listChanged":false}}"#,
            r#"{"tools":{},"tools":{}}"#,
            r#"{"tools":null,"prompts":true,"resources":[]}"#,
        ] {
            assert_eq!(declared(capabilities), capabilities);
        }
        let failed = Bytes::from(r#"{"id":1,"error":{"code":1,"capabilities":{"tools":{}}}}"#);
        assert_eq!(edited(&failed, declare_list_changes), failed);
    }
}
