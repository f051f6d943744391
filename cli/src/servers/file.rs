//! The form of the file: the one that hosts' files have, `mcpServers`, or VS Code's, `servers`.
//! What else there is, is theirs.

use std::fmt;

use mcp_sessiond_proxy::front::bundle::Decorations;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

#[derive(Debug, Deserialize)]
struct File {
    #[serde(default, rename = "mcpServers")]
    mcp_servers: Named,
    #[serde(default)]
    servers: Named,
    #[serde(default)]
    decorations: Decorations,
}

/// The members of a JSON object, in its order, also those whose name is there twice.
#[derive(Debug, Default)]
struct Named(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Named;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object, with a server under each name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named, A::Error> {
                let mut all = Vec::new();
                while let Some(member) = map.next_entry::<String, Value>()? {
                    all.push(member);
                }
                Ok(Named(all))
            }
        }
        from.deserialize_map(Members)
    }
}

/// What is under a name; for one that is there twice, a sentence that says so.
type Member = (String, Result<Value, String>);

/// The servers of the file's text, in its order, and what is added to them together.
pub(super) fn servers(text: &[u8]) -> Result<(Vec<Member>, Decorations), serde_json::Error> {
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let File {
        mcp_servers,
        servers,
        decorations,
    } = serde_json::from_slice(text)?;
    let mut found: Vec<Member> = Vec::new();
    for (names, is_second) in [(mcp_servers, false), (servers, true)] {
        let before = found.len();
        for (name, value) in names.0 {
            match found.iter().position(|(other, _)| *other == name) {
                Some(at) if is_second && at < before => {
                    found[at].1 = Err(
                        "it is there twice, in `mcpServers` and in `servers`; remove one"
                            .to_owned(),
                    );
                }
                Some(at) => found[at].1 = Err("it is there twice; remove one".to_owned()),
                None => found.push((name, Ok(value))),
            }
        }
    }
    Ok((found, decorations))
}
