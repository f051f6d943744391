//! One server of the file, as it is written there.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mcp_sessiond_proto::Resume;
use mcp_sessiond_proxy::front::bundle::Waking;
use serde_json::{Value, json};

use super::fields::Fields;

/// A server of the file. What stands for a secret is not looked up: see [`Self::resolve`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    name: String,
    kind: Kind,
    options: Options,
    /// The directory of the file, from which paths are.
    pub(super) base: PathBuf,
}

/// How a server is reached. As text it shows names, and no values of variables and headers.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A program that is started.
    Stdio {
        command: String,
        args: Vec<String>,
        env: BTreeMap<String, String>,
        cwd: Option<PathBuf>,
    },
    /// A server that is there already.
    Http {
        url: String,
        headers: BTreeMap<String, String>,
    },
}

/// What is ours of an entry.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    /// It is not among all servers.
    pub(crate) disabled: bool,
    /// One for all hosts and sessions of the user.
    pub(crate) shared: bool,
    /// Globs: what else it offers is left out. None: all is let through.
    pub(crate) only: Option<Vec<String>>,
    /// Globs: what is left out of that.
    pub(crate) without: Vec<String>,
    /// Other names, by its own.
    pub(crate) rename: BTreeMap<String, String>,
    /// When it is started, where its host is answered from memory until then.
    pub(crate) lazy: Option<Waking>,
    /// Whether its host's next connection gets it again. None: as the table of hosts says.
    pub(crate) resume: Option<Resume>,
    /// Whether an edit of what its script imports makes it another server.
    pub(crate) has_sources: bool,
    /// How many calls may be under way.
    pub(crate) calls: Option<NonZeroU32>,
    /// How long a call may take.
    pub(crate) timeout: Option<Duration>,
}

/// Fields of ours that say what reaches a client of the server.
const LIMITING: [&str; 5] = ["only", "without", "rename", "calls", "timeout_ms"];

impl Entry {
    /// Reads what the file has under `name`, or says why it can't be run. `base` is the directory
    /// of the file.
    pub(super) fn read(name: &str, value: &Value, base: &Path) -> Result<Self, String> {
        if name.is_empty() {
            return Err("its name is empty; give it one".to_owned());
        }
        let fields = Fields::of(value)?;
        let (kind, options) = (Kind::read(&fields)?, Options::read(&fields)?);
        if options.shared && matches!(kind, Kind::Http { .. }) {
            return Err(
                "it is `shared`, and has a `url`; only a server with a `command` can be shared"
                    .to_owned(),
            );
        }
        Ok(Self {
            name: name.to_owned(),
            kind,
            options,
            base: base.to_owned(),
        })
    }

    /// A server at this URL that is in no file.
    pub(crate) fn of_url(
        name: &str,
        url: &str,
        headers: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let base = std::env::current_dir().unwrap_or_else(|_| "/".into());
        Self::read(name, &json!({"url": url, "headers": headers}), &base)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }
}

impl Kind {
    fn read(fields: &Fields<'_>) -> Result<Self, String> {
        let told = fields.text("type")?;
        let is_http = match told.as_deref() {
            None => None,
            Some("stdio") => Some(false),
            Some("http" | "streamable-http") => Some(true),
            Some("sse") => {
                return Err("its `type` is \"sse\", which mcp-sessiond does not support; nearly all such servers have \
                     Streamable HTTP, too: write \"http\" and the `url` for that"
                    .to_owned());
            }
            Some(other) => {
                return Err(format!(
                    "{other:?} is not a `type`; there are \"stdio\" and \"http\""
                ));
            }
        };
        match (is_http, fields.has("command"), fields.has("url")) {
            (_, true, true) => Err("it has a `command` and a `url`; remove one".to_owned()),
            (None | Some(false), true, false) => Self::stdio(fields),
            (None | Some(true), false, true) => Self::http(fields),
            (None, false, false) => Err("it has neither a `command` nor a `url`".to_owned()),
            (Some(false), false, _) => {
                Err("its `type` is \"stdio\", but it has no `command`".to_owned())
            }
            (Some(true), _, false) => Err(format!(
                "its `type` is {:?}, but it has no `url`",
                told.unwrap_or_default()
            )),
        }
    }

    fn stdio(fields: &Fields<'_>) -> Result<Self, String> {
        if fields.has("envFile") {
            return Err(
                "`envFile` is not read here; put its variables into `env`, or name a file for one by \
                        ${file:PATH}"
                    .to_owned(),
            );
        }
        let command = fields.text("command")?.unwrap_or_default();
        if command.is_empty() || command.starts_with('@') {
            return Err("`command` is the program to run".to_owned());
        }
        let env = fields.map("env")?;
        if let Some(name) = env
            .keys()
            .find(|name| name.is_empty() || name.contains(['=', '\0']))
        {
            return Err(format!("{name:?} is not a name of an environment variable"));
        }
        let cwd = fields.text("cwd")?.map(PathBuf::from);
        Ok(Self::Stdio {
            command,
            args: fields.texts("args")?.unwrap_or_default(),
            env,
            cwd,
        })
    }

    fn http(fields: &Fields<'_>) -> Result<Self, String> {
        let url = fields.text("url")?.unwrap_or_default();
        if !is_http(&url) && !url.starts_with("${") {
            return Err("`url` must begin with https:// or http://".to_owned());
        }
        let headers = fields.map("headers")?;
        let is_token = |name: &String| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
        };
        if let Some(name) = headers.keys().find(|name| !is_token(name)) {
            return Err(format!("{name:?} is not a name of a header"));
        }
        Ok(Self::Http { url, headers })
    }
}

pub(crate) fn is_http(url: &str) -> bool {
    let begins = |scheme: &str| {
        url.get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    ["http://", "https://"].into_iter().any(begins)
}

impl Kind {
    /// All of it, as one text, for a digest: it has what the file has.
    pub(crate) fn written(&self) -> String {
        match self {
            Self::Stdio {
                command,
                args,
                env,
                cwd,
            } => json!([command, args, env, cwd]),
            Self::Http { url, headers } => json!([url, headers]),
        }
        .to_string()
    }

    /// Whether it is written down that a part of it is in a file or a keyring: that may become
    /// another one while the entry stays as it is.
    pub(crate) fn looks_up(&self) -> bool {
        let written = self.written();
        ["${file:", "${keyring:"]
            .iter()
            .any(|kind| written.contains(kind))
    }

    /// Whether the user's login says who the user is with the server: that may become another
    /// account's while the entry stays as it is.
    pub(crate) fn logs_in(&self) -> bool {
        match self {
            Self::Stdio { .. } => false,
            Self::Http { headers, .. } => !headers
                .keys()
                .any(|name| name.eq_ignore_ascii_case("authorization")),
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Arguments may hold what a secret stood for.
            Self::Stdio {
                command,
                args,
                env,
                cwd,
            } => formatter
                .debug_struct("Stdio")
                .field("command", command)
                .field("args", &args.len())
                .field("env", &env.keys())
                .field("cwd", cwd)
                .finish(),
            // A URL may have a password before its host, and a key behind its path.
            Self::Http { url, headers } => {
                let path = url.split(['?', '#']).next().unwrap_or_default();
                let (scheme, rest) = path.split_once("://").unwrap_or(("", path));
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                let host = authority.rsplit('@').next().unwrap_or_default();
                formatter
                    .debug_struct("Http")
                    .field("url", &format_args!("{scheme}://{host}{path}"))
                    .field("headers", &headers.keys())
                    .finish()
            }
        }
    }
}

impl Options {
    fn read(fields: &Fields<'_>) -> Result<Self, String> {
        let options = Self {
            disabled: fields.flag("disabled")?,
            shared: fields.flag("shared")?,
            only: fields.texts("only")?,
            without: fields.texts("without")?.unwrap_or_default(),
            rename: fields.map("rename")?,
            lazy: fields.lazy("lazy")?,
            resume: fields.resume("resume")?,
            has_sources: fields.flag_or("sources", true)?,
            calls: fields.count("calls")?,
            timeout: fields
                .count("timeout_ms")?
                .map(|limit| Duration::from_millis(limit.get().into())),
        };
        if options.rename.values().any(String::is_empty) {
            return Err("`rename` must have a different name for each".to_owned());
        }
        if options
            .only
            .iter()
            .flatten()
            .chain(&options.without)
            .any(String::is_empty)
        {
            return Err(
                "`only` and `without` must not have an empty pattern; \"*\" fits everything"
                    .to_owned(),
            );
        }
        Ok(options)
    }

    /// The fields that say what reaches a client, of those that are used.
    pub(super) fn limiting(&self) -> Vec<&'static str> {
        let used = [
            self.only.is_some(),
            !self.without.is_empty(),
            !self.rename.is_empty(),
            self.calls.is_some(),
            self.timeout.is_some(),
        ];
        LIMITING
            .into_iter()
            .zip(used)
            .filter_map(|(field, is_used)| is_used.then_some(field))
            .collect()
    }
}
