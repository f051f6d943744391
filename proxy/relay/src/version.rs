//! Versions of the protocol, and what hosts and servers declare in `initialize`.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use mcp_sessiond_jsonrpc::readable::Readable;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// A version of the protocol, as it was written.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct Version(Box<str>);

impl Version {
    fn is_date(&self) -> bool {
        let shape = |(at, byte): (usize, u8)| {
            if at == 4 || at == 7 {
                byte == b'-'
            } else {
                byte.is_ascii_digit()
            }
        };
        self.0.len() == 10 && self.0.bytes().enumerate().all(shape)
    }

    /// Whether hosts of this version are told of changed lists only where they have subscribed to that
    /// (MCP 2026-07-28, Subscriptions).
    pub(super) fn listens(&self) -> bool {
        self.is_date() && &*self.0 >= "2026-07-28"
    }

    /// Whether a host that speaks this version can go on with a server that answered `answered` to
    /// `requested`: a host must take an older version than it asked for, or hang up.
    pub(super) fn can_use(&self, answered: &Self, requested: &Self) -> bool {
        self == requested || (self.is_date() && answered.is_date() && answered.0 <= self.0)
    }
}

/// A version that is not a date is not shown: what a peer has sent does not belong in a log.
impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.is_date() {
            &self.0
        } else {
            "of an unknown version"
        })
    }
}

/// What a host declares in `initialize`.
#[derive(Default)]
pub(super) struct InitializeParams {
    pub version: Version,
    pub capabilities: Capabilities,
}

/// What a host can do for a server.
#[derive(Clone, Copy, Default)]
pub(super) struct Capabilities {
    sampling: bool,
    elicitation: bool,
    roots: bool,
}

/// What a host must be able to do to answer an ask.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capability {
    Sampling,
    Elicitation,
    Roots,
}

impl Capabilities {
    /// Whether this is among them.
    pub(super) fn include(self, capability: Capability) -> bool {
        match capability {
            Capability::Sampling => self.sampling,
            Capability::Elicitation => self.elicitation,
            Capability::Roots => self.roots,
        }
    }
}

impl InitializeParams {
    /// Reads the parameters of an `initialize`.
    pub(super) fn of(params: Option<Readable<'_>>) -> Self {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params {
            #[serde(default)]
            protocol_version: Option<String>,
            #[serde(default)]
            capabilities: Declared,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Declared {
            sampling: Option<IgnoredAny>,
            elicitation: Option<IgnoredAny>,
            roots: Option<IgnoredAny>,
        }
        let read = params.and_then(Readable::object::<Params>);
        read.map_or_else(
            Self::default,
            |Params {
                 protocol_version,
                 capabilities,
             }| Self {
                version: Version(protocol_version.unwrap_or_default().into()),
                capabilities: Capabilities {
                    sampling: capabilities.sampling.is_some(),
                    elicitation: capabilities.elicitation.is_some(),
                    roots: capabilities.roots.is_some(),
                },
            },
        )
    }
}

/// What a server declares in its answer to `initialize`.
#[derive(Default)]
pub(super) struct Told {
    pub version: Version,
    /// The notifications that tell a host to list again what this server has lists of.
    pub lists: Vec<&'static str>,
    /// Whether it sends messages for its host's log.
    pub logs: bool,
    /// Its own version (`serverInfo.version`).
    pub own_version: Option<String>,
}

impl Told {
    /// Reads the result of `initialize`.
    pub(super) fn of(result: Option<Readable<'_>>) -> Self {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Result {
            #[serde(default)]
            protocol_version: Option<String>,
            #[serde(default)]
            capabilities: Capabilities,
            #[serde(default)]
            server_info: Value,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Capabilities {
            tools: Option<IgnoredAny>,
            resources: Option<IgnoredAny>,
            prompts: Option<IgnoredAny>,
            logging: Option<IgnoredAny>,
        }
        let Some(Result {
            protocol_version,
            capabilities,
            server_info,
        }) = result.and_then(Readable::object)
        else {
            return Self::default();
        };
        let lists = [
            (capabilities.tools, "notifications/tools/list_changed"),
            (
                capabilities.resources,
                "notifications/resources/list_changed",
            ),
            (capabilities.prompts, "notifications/prompts/list_changed"),
        ];
        Self {
            version: Version(protocol_version.unwrap_or_default().into()),
            logs: capabilities.logging.is_some(),
            own_version: server_info["version"].as_str().map(Into::into),
            lists: lists
                .into_iter()
                .filter_map(|(has, method)| has.map(|_| method))
                .collect(),
        }
    }
}
