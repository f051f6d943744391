//! What a host can ask of a bundle, other than lists.

use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::error::RpcError;
use mcp_sessiond_jsonrpc::object::Object;
use mcp_sessiond_jsonrpc::owned::Id;
use serde_json::value::RawValue;

use crate::names::{Namespace, Origin};

/// What there are lists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum List {
    /// `tools/list`.
    Tools,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    Templates,
    /// `prompts/list`.
    Prompts,
}

impl List {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Resources, Self::Templates, Self::Prompts];

    /// The method that asks for it.
    pub fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }

    /// The list that a method asks for.
    pub fn of(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|list| list.method() == method)
    }

    /// The notification that says that it has changed.
    pub fn changed(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Resources | Self::Templates => "notifications/resources/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
        }
    }

    /// What the filter of a subscription calls its changes (MCP 2026-07-28).
    pub(crate) fn filter_key(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
            Self::Resources | Self::Templates => "resourcesListChanged",
            Self::Prompts => "promptsListChanged",
        }
    }

    /// The member of the result that has it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    /// The capability of those who have it.
    pub(crate) fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources | Self::Templates => "resources",
            Self::Prompts => "prompts",
        }
    }

    /// The member of an item by which it is asked for.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }

    pub(crate) fn namespace(self) -> Option<Namespace> {
        match self {
            Self::Tools => Some(Namespace::Tool),
            Self::Prompts => Some(Namespace::Prompt),
            Self::Resources | Self::Templates => None,
        }
    }
}

/// An item of a list: a tool, a resource, a template, a prompt.
#[derive(Debug, Clone)]
pub struct Item {
    /// By which it is asked for: a name, a URI, the template of one.
    pub name: String,
    /// The whole item.
    pub members: Object,
    /// The backend that it comes from, and its name there.
    pub origin: Origin,
}

impl Item {
    /// Reads what a backend has listed.
    pub(crate) fn read(backend: &str, list: List, text: &RawValue) -> Option<Self> {
        let members = Object::read_as_json(text)?;
        let name = members.text(list.name())?;
        let origin = Origin {
            backend: backend.to_owned(),
            name: name.clone(),
        };
        Some(Self {
            name,
            members,
            origin,
        })
    }

    /// The same under another name.
    pub fn renamed(mut self, list: List, name: &str) -> Self {
        if self.name != name {
            name.clone_into(&mut self.name);
            self.members.set_text(list.name(), name);
        }
        self
    }
}

/// What a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `tools/call` of this tool.
    Tool(String),
    /// `prompts/get` of this prompt.
    Prompt(String),
    /// `resources/read` of this URI.
    Read(String),
    /// `resources/subscribe` to this URI.
    Subscribe(String),
    /// `resources/unsubscribe` from this URI.
    Unsubscribe(String),
    /// `completion/complete` of an argument of this prompt.
    CompletePrompt(String),
    /// `completion/complete` of a variable of this template.
    CompleteResource(String),
    /// `logging/setLevel`.
    Level,
    /// Any other method.
    Other(String),
}

impl Target {
    /// The method.
    pub fn method(&self) -> &str {
        match self {
            Self::Tool(_) => "tools/call",
            Self::Prompt(_) => "prompts/get",
            Self::Read(_) => "resources/read",
            Self::Subscribe(_) => "resources/subscribe",
            Self::Unsubscribe(_) => "resources/unsubscribe",
            Self::CompletePrompt(_) | Self::CompleteResource(_) => "completion/complete",
            Self::Level => "logging/setLevel",
            Self::Other(method) => method,
        }
    }

    /// What it is, in words.
    pub fn what(&self) -> &'static str {
        match self {
            Self::Tool(_) => "tool",
            Self::Prompt(_) | Self::CompletePrompt(_) => "prompt",
            Self::Read(_)
            | Self::Subscribe(_)
            | Self::Unsubscribe(_)
            | Self::CompleteResource(_) => "resource",
            Self::Level | Self::Other(_) => "method",
        }
    }

    /// By which name it is asked for: a name, an URI, a template, a method.
    pub fn name(&self) -> &str {
        match (self.listed_name(), self.uri()) {
            (Some((_, name)), _) | (None, Some(name)) => name,
            (None, None) => self.method(),
        }
    }

    /// The name of the tool or the prompt.
    pub fn listed_name(&self) -> Option<(Namespace, &str)> {
        match self {
            Self::Tool(name) => Some((Namespace::Tool, name)),
            Self::Prompt(name) | Self::CompletePrompt(name) => Some((Namespace::Prompt, name)),
            _ => None,
        }
    }

    /// The URI, or the template of one.
    pub fn uri(&self) -> Option<&str> {
        match self {
            Self::Read(uri)
            | Self::Subscribe(uri)
            | Self::Unsubscribe(uri)
            | Self::CompleteResource(uri) => Some(uri),
            _ => None,
        }
    }
}

/// A call.
#[derive(Debug, Clone)]
pub struct Call {
    /// The host's id of it, by which it can be cancelled, and which the backend gets unchanged.
    pub id: Id,
    /// What it is about.
    pub target: Target,
    /// Its parameters, as they were sent. The name of a tool or a prompt in them is `target`'s.
    pub params: Option<Box<RawValue>>,
}

impl Call {
    /// Reads a request of the host.
    ///
    /// # Errors
    /// Where the parameters don't say what the method needs.
    pub fn read(id: Id, method: &str, params: Option<&RawValue>) -> Result<Self, RpcError> {
        let wrong = |what: &str| RpcError::new(code::INVALID_PARAMS, format!("{method}: {what}"));
        let sent = params.map(ToOwned::to_owned);
        let params = params.and_then(Object::read).unwrap_or_default();
        let text = |key: &str| {
            params
                .text(key)
                .ok_or_else(|| wrong(&format!("`params.{key}` must be a string")))
        };
        let target = match method {
            "tools/call" => Target::Tool(text("name")?),
            "prompts/get" => Target::Prompt(text("name")?),
            "resources/read" => Target::Read(text("uri")?),
            "resources/subscribe" => Target::Subscribe(text("uri")?),
            "resources/unsubscribe" => Target::Unsubscribe(text("uri")?),
            "logging/setLevel" => Target::Level,
            "completion/complete" => {
                let of = params.object("ref").unwrap_or_default();
                match (of.text("type").as_deref(), of.text("name"), of.text("uri")) {
                    (Some("ref/prompt"), Some(name), _) => Target::CompletePrompt(name),
                    (Some("ref/resource"), _, Some(uri)) => Target::CompleteResource(uri),
                    _ => return Err(wrong("`params.ref` must name a prompt or a resource")),
                }
            }
            _ => Target::Other(method.to_owned()),
        };
        Ok(Self {
            id,
            target,
            params: sent,
        })
    }

    /// A parameter that is an object.
    pub(crate) fn object(&self, name: &str) -> Option<Object> {
        Object::read(self.params.as_deref()?)?.object(name)
    }

    /// The same for another name of the tool or the prompt.
    pub fn renamed(mut self, name: &str) -> Self {
        let (Target::Tool(own) | Target::Prompt(own) | Target::CompletePrompt(own)) =
            &mut self.target
        else {
            return self;
        };
        if own == name {
            return self;
        }
        name.clone_into(own);
        let params = self.params.as_deref().and_then(Object::read);
        let mut params = params.unwrap_or_default();
        if let Target::CompletePrompt(_) = self.target {
            let mut of = params.object("ref").unwrap_or_default();
            of.set_text("name", name);
            params.set("ref", of.write());
        } else {
            params.set_text("name", name);
        }
        self.params = Some(params.write());
        self
    }
}

/// Whether an URI is one of this template (RFC 6570). A variable stands for anything but a slash;
/// one with an operator (`{+path}`, `{?query}`) for anything. Returns the number of characters that
/// are not a variable's: more is a better match.
pub fn matches(template: &str, uri: &str) -> Option<usize> {
    let uri = uri.as_bytes();
    // Where in the URI that may end which was read of the template: all places at once, as a
    // template of many variables could otherwise be tried in more ways than anybody can wait for.
    let mut ends = vec![false; uri.len() + 1];
    ends[0] = true;
    let (mut rest, mut literals) = (template, 0);
    loop {
        let (literal, after) = rest
            .split_once('{')
            .map_or((rest, None), |(literal, after)| (literal, Some(after)));
        literals += literal.len();
        let mut begins = vec![false; uri.len() + 1];
        for at in
            (0..=uri.len()).filter(|at| ends[*at] && uri[*at..].starts_with(literal.as_bytes()))
        {
            begins[at + literal.len()] = true;
        }
        let Some(after) = after else {
            return begins[uri.len()].then_some(literals);
        };
        let (variable, after) = after.split_once('}')?;
        let is_whole =
            variable.starts_with(|first: char| !first.is_ascii_alphanumeric() && first != '_');
        let mut is_open = false;
        for at in 0..=uri.len() {
            is_open |= begins[at];
            ends[at] = is_open;
            is_open &= is_whole || uri.get(at) != Some(&b'/');
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates() {
        for (template, uri, length) in [
            ("file:///{path}", "file:///a.txt", Some(8)),
            ("file:///{path}", "file:///a/b.txt", None),
            ("file:///{+path}", "file:///a/b.txt", Some(8)),
            ("db://{table}/rows/{id}", "db://t/rows/7", Some(11)),
            ("db://{table}/rows/{id}", "db://t/cells/7", None),
            ("a://x{?q}", "a://x?q=1", Some(5)),
            ("a://x{?q}", "a://x", Some(5)),
            ("a://x", "a://x", Some(5)),
            ("a://{x", "a://y", None),
            ("é://{x}é", "é://üé", Some(7)),
            ("a://{x}{y}/{+z}", "a://b/c/d", Some(5)),
            ("a://{x}{y}", "a://b/c", None),
            (&"{+x}a".repeat(50), &"ab".repeat(200), None),
            (&"{+x}a".repeat(50), &"ba".repeat(200), Some(50)),
        ] {
            assert_eq!(matches(template, uri), length, "{template} {uri}");
        }
    }

    #[test]
    fn a_call_names_what_it_is_about() {
        let read = |method: &str, params: &str| {
            let params: Box<RawValue> = serde_json::from_str(params).expect("JSON");
            Call::read(Id::number(1), method, Some(&params)).map(|call| call.target)
        };
        let text = || "x".to_owned();
        let is = |method, params, target: Target| {
            assert_eq!(read(method, params).expect("a call"), target);
        };
        is("tools/call", r#"{"name":"x"}"#, Target::Tool(text()));
        is("resources/read", r#"{"uri":"x"}"#, Target::Read(text()));
        is(
            "completion/complete",
            r#"{"ref":{"type":"ref/prompt","name":"x"}}"#,
            Target::CompletePrompt(text()),
        );
        is(
            "completion/complete",
            r#"{"ref":{"type":"ref/resource","uri":"x"}}"#,
            Target::CompleteResource(text()),
        );
        is("x", "{}", Target::Other(text()));
        for (method, params) in [
            ("tools/call", "{}"),
            ("tools/call", "[]"),
            ("resources/read", r#"{"uri":1}"#),
            ("completion/complete", "{}"),
        ] {
            assert_eq!(
                read(method, params).expect_err("wrong").code,
                code::INVALID_PARAMS
            );
        }
    }
}
