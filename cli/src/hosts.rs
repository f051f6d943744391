//! Hosts that keep their servers in a file: where it is, and what is in it.

pub(crate) mod edit;
pub(crate) mod entries;
pub(crate) mod executable;
pub(crate) mod file;
pub(crate) mod inspect;
pub(crate) mod listed;
pub(crate) mod members;
pub(crate) mod names;
pub(crate) mod record;
pub(crate) mod tree;
mod yaml;
mod yaml_list;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstObject, CstObjectProp, CstRootNode};
use mcp_sessiond_process::regular_file;
use mcp_sessiond_proto::paths::UserDirectories;
use serde_json::Value;

use self::yaml::{Kind, Yaml};

/// Bytes that a host's file may have: Claude Code keeps a history in it.
const FILE_MAX: u64 = 256 * 1024 * 1024;

/// A host. Its name on the command line is the one in small letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum Host {
    Claude,
    ClaudeDesktop,
    Vscode,
    Cursor,
    Codex,
    Gemini,
    Opencode,
    Zed,
    Cline,
    Roo,
    Windsurf,
    Copilot,
    Goose,
    Qwen,
    Kiro,
    Kimi,
    Openclaw,
    Antigravity,
    Amp,
    Junie,
}

/// Why a host's file can't be used. What is in it is never part of the sentence.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    #[error("could not read {}: {error}", path.display())]
    Unread {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{}: {why}", path.display())]
    Form { path: PathBuf, why: String },
}

impl Host {
    /// The files that this host reads the user's servers from, whether they are there or not; the
    /// first one that has a name counts.
    pub(crate) fn files(self, user: &UserDirectories) -> Vec<PathBuf> {
        let named = |variable: &str| {
            std::env::var_os(variable)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let UserDirectories {
            home,
            config,
            application_data: data,
        } = user;
        let extension = |path: &str| data.join("Code/User/globalStorage").join(path);
        match self {
            Self::Claude => {
                vec![
                    named("CLAUDE_CONFIG_DIR")
                        .unwrap_or_else(|| home.clone())
                        .join(".claude.json"),
                ]
            }
            Self::ClaudeDesktop => vec![data.join("Claude/claude_desktop_config.json")],
            Self::Vscode => vec![data.join("Code/User/mcp.json")],
            Self::Cursor => vec![home.join(".cursor/mcp.json")],
            Self::Codex => {
                vec![
                    named("CODEX_HOME")
                        .unwrap_or_else(|| home.join(".codex"))
                        .join("config.toml"),
                ]
            }
            Self::Gemini => vec![home.join(".gemini/settings.json")],
            // opencode has it in .config on macOS, too.
            Self::Opencode => ["opencode.json", "opencode.jsonc"]
                .map(|name| config.join("opencode").join(name))
                .into(),
            Self::Zed => vec![config.join("zed/settings.json")],
            Self::Cline => vec![
                home.join(".cline/data/settings/cline_mcp_settings.json"),
                extension("saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
            ],
            Self::Roo => {
                vec![
                    home.join(".roo/mcp.json"),
                    extension("rooveterinaryinc.roo-cline/settings/mcp_settings.json"),
                ]
            }
            Self::Windsurf => vec![home.join(".codeium/windsurf/mcp_config.json")],
            Self::Copilot => vec![home.join(".copilot/mcp-config.json")],
            Self::Qwen => vec![home.join(".qwen/settings.json")],
            Self::Kiro => vec![home.join(".kiro/settings/mcp.json")],
            // Kimi Code's, and that of the older Kimi CLI.
            Self::Kimi => vec![
                named("KIMI_CODE_HOME")
                    .unwrap_or_else(|| home.join(".kimi-code"))
                    .join("mcp.json"),
                home.join(".kimi/mcp.json"),
            ],
            Self::Openclaw => vec![home.join(".openclaw/openclaw.json")],
            // That of all its programs, and that of its older editor.
            Self::Antigravity => vec![
                home.join(".gemini/config/mcp_config.json"),
                home.join(".gemini/antigravity/mcp_config.json"),
            ],
            Self::Amp => ["settings.json", "settings.jsonc"]
                .map(|name| home.join(".config/amp").join(name))
                .into(),
            Self::Junie => vec![
                named("JUNIE_HOME")
                    .unwrap_or_else(|| home.join(".junie"))
                    .join("mcp/mcp.json"),
            ],
            // On macOS, too.
            Self::Goose => {
                let own = named("GOOSE_PATH_ROOT").filter(|root| root.is_absolute());
                vec![
                    own.map_or_else(|| config.join("goose"), |root| root.join("config"))
                        .join("config.yaml"),
                ]
            }
        }
    }

    /// A file of this host's settings that may have servers, too, which it takes from there.
    pub(crate) fn settings(self, user: &UserDirectories) -> Option<PathBuf> {
        let settings = || user.application_data.join("Code/User/settings.json");
        (self == Self::Vscode).then(settings)
    }

    /// What people call it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Claude => "Claude Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Vscode => "VS Code",
            Self::Cursor => "Cursor",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
            Self::Opencode => "opencode",
            Self::Zed => "Zed",
            Self::Cline => "Cline",
            Self::Roo => "Roo Code",
            Self::Windsurf => "Windsurf",
            Self::Copilot => "Copilot CLI",
            Self::Goose => "Goose",
            Self::Qwen => "Qwen Code",
            Self::Kiro => "Kiro",
            Self::Kimi => "Kimi",
            Self::Openclaw => "OpenClaw",
            Self::Antigravity => "Antigravity",
            Self::Amp => "Amp",
            Self::Junie => "Junie",
        }
    }

    /// The host that people call so, if it has a file that we know.
    pub(crate) fn titled(title: &str) -> Option<Self> {
        let title = match title {
            "Goose's desktop application" => "Goose",
            title => title,
        };
        let mut hosts = Self::value_variants().iter().copied();
        hosts.find(|host| host.title() == title)
    }

    /// The files that this host reads a project's servers from.
    pub(crate) fn project_files(self, project: &Path) -> Vec<PathBuf> {
        let name = match self {
            Self::Claude => ".mcp.json",
            Self::Vscode => ".vscode/mcp.json",
            Self::Cursor => ".cursor/mcp.json",
            Self::Codex => ".codex/config.toml",
            Self::Gemini => ".gemini/settings.json",
            Self::Opencode => {
                return ["opencode.json", "opencode.jsonc"]
                    .map(|name| project.join(name))
                    .into();
            }
            Self::Zed => ".zed/settings.json",
            Self::Roo => ".roo/mcp.json",
            Self::Qwen => ".qwen/settings.json",
            Self::Kiro => ".kiro/settings/mcp.json",
            Self::Kimi => ".kimi-code/mcp.json",
            Self::Antigravity => ".agents/mcp_config.json",
            Self::Amp => {
                return [".amp/settings.json", ".amp/settings.jsonc"]
                    .map(|name| project.join(name))
                    .into();
            }
            Self::Junie => ".junie/mcp/mcp.json",
            Self::ClaudeDesktop
            | Self::Cline
            | Self::Windsurf
            | Self::Copilot
            | Self::Goose
            | Self::Openclaw => {
                return Vec::new();
            }
        };
        vec![project.join(name)]
    }

    /// Whether it asks its user again to approve a server whose entry has changed. Claude Code
    /// approves a project's server by its name, and does not (run).
    pub(crate) fn asks_again(self) -> bool {
        matches!(self, Self::Vscode | Self::Cursor)
    }

    /// Under which name the file has its servers.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Vscode => "servers",
            Self::Codex => "mcp_servers",
            Self::Opencode | Self::Openclaw => "mcp",
            Self::Zed => "context_servers",
            Self::Goose => "extensions",
            // One name with a point in it.
            Self::Amp => "amp.mcpServers",
            _ => "mcpServers",
        }
    }

    /// Under which name the servers are within what [`key`](Self::key) names, where they are: of
    /// OpenClaw always, of opencode from version 2 on.
    pub(crate) fn inner_key(self) -> Option<&'static str> {
        matches!(self, Self::Opencode | Self::Openclaw).then_some("servers")
    }

    /// Whether a member of that name is the servers, by the names of its own members: opencode's
    /// file may have had a server that is called so.
    pub(crate) fn is_inner<'a>(self, mut names: impl Iterator<Item = &'a str>) -> bool {
        self == Self::Openclaw || !names.any(|name| ["type", "command", "url"].contains(&name))
    }

    /// Under which name an entry has its command.
    pub(crate) fn command(self) -> &'static str {
        if self == Self::Goose {
            "cmd"
        } else {
            "command"
        }
    }

    /// The servers of a file of this host's, as they are written there, in its order. None: there
    /// is no such file.
    ///
    /// # Errors
    /// When it can't be read, or is not of its form.
    pub(crate) fn read(self, path: &Path) -> Result<Option<Vec<(String, Value)>>, HostError> {
        let text = match regular_file::read_text(path, FILE_MAX) {
            Ok(text) => text,
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            Err(error) => {
                return Err(HostError::Unread {
                    path: path.to_owned(),
                    error,
                });
            }
        };
        let members = || {
            self.check_names(&text)?;
            let mut members = self.members(&text)?;
            members.retain(|(_, entry)| !self.is_part(entry));
            if self.has_switches() {
                self.switch_off(&text, &mut members)?;
            }
            Ok(members)
        };
        members().map(Some).map_err(|why| HostError::Form {
            path: path.to_owned(),
            why,
        })
    }

    /// Refuses a file that has a name twice where its servers are: hosts take the last one, people
    /// read the first.
    fn check_names(self, text: &str) -> Result<(), String> {
        let tree = members::tree(self, edit::body(text))?;
        for server in members::servers(self, tree.as_ref())? {
            let checked = server.entry.check_names();
            checked.map_err(|why| format!("the server {:?}: {why}", server.name))?;
        }
        Ok(())
    }

    /// Whether the file may say beside the servers which of them are off: Gemini CLI's, and that of
    /// Qwen Code, which was made from it.
    fn has_switches(self) -> bool {
        matches!(self, Self::Gemini | Self::Qwen)
    }

    /// Marks the servers that the file has switched off: by `mcp.excluded`, or by `mcp.allowed`
    /// unless that is empty.
    fn switch_off(self, text: &str, members: &mut [(String, Value)]) -> Result<(), String> {
        if text.trim_start_matches('\u{feff}').trim().is_empty() {
            return Ok(());
        }
        let (_, object) = json_object(text)?;
        let switches = object.object_value("mcp");
        let names = |list: &str| -> Vec<String> {
            let list = switches.as_ref().and_then(|all| all.get(list)?.value());
            list.and_then(|list| serde_json::from_value(list.to_serde_value()?).ok())
                .unwrap_or_default()
        };
        let (allowed, excluded) = (names("allowed"), names("excluded"));
        for (name, entry) in members {
            let is_on = allowed.is_empty() || allowed.contains(name);
            if let (false, Value::Object(entry)) = (is_on && !excluded.contains(name), entry) {
                entry.insert("disabled".to_owned(), true.into());
            }
        }
        Ok(())
    }

    /// The same, from what the file has in it.
    ///
    /// # Errors
    /// When it is not of this host's form.
    fn members(self, text: &str) -> Result<Vec<(String, Value)>, String> {
        match self {
            Self::Codex => toml_members(text, self.key()),
            Self::Goose => yaml_members(text, self.key()),
            _ => {
                if text.trim_start_matches('\u{feff}').trim().is_empty() {
                    return Ok(Vec::new());
                }
                let (_, object) = json_object(text)?;
                match self.inner_object(&object) {
                    Some(inner) => members_of(&inner, "servers"),
                    None if self == Self::Openclaw => Ok(Vec::new()),
                    None => members_of(&object, self.key()),
                }
            }
        }
    }

    /// The object that has the servers under [`inner_key`](Self::inner_key), if there is one.
    fn inner_object(self, object: &CstObject) -> Option<CstObject> {
        let outer = object.object_value(self.key())?;
        let inner = outer.object_value(self.inner_key()?)?;
        let names: Vec<String> = inner
            .properties()
            .iter()
            .filter_map(CstObjectProp::decoded_name)
            .collect();
        self.is_inner(names.iter().map(String::as_str))
            .then_some(outer)
    }

    /// The same, and those of single projects that are in the user's file.
    ///
    /// # Errors
    /// When it is not of this host's form.
    pub(crate) fn all_members(self, text: &str) -> Result<Vec<(String, Value)>, String> {
        let mut found = self.members(text)?;
        let Some(projects) = self.projects() else {
            return Ok(found);
        };
        if text.trim().is_empty() {
            return Ok(found);
        }
        let (_, object) = json_object(text)?;
        for project in object
            .object_value(projects)
            .iter()
            .flat_map(CstObject::properties)
        {
            let name = project.decoded_name().ok_or("a name in it is not JSON")?;
            let Some(project) = project.object_value() else {
                continue;
            };
            let servers = members_of(&project, self.key())?;
            found.extend(
                servers
                    .into_iter()
                    .map(|(server, value)| (of_project(&server, &name), value)),
            );
        }
        Ok(found)
    }

    /// Whether an entry is a part of this host, and no server: Goose has some beside the servers.
    fn is_part(self, entry: &Value) -> bool {
        let kind = entry
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        self == Self::Goose && ["builtin", "platform", "frontend", "inline_python"].contains(&kind)
    }

    /// Under which name the file has what belongs to single projects of the user's, by their paths:
    /// `claude mcp add` puts servers there.
    pub(crate) fn projects(self) -> Option<&'static str> {
        (self == Self::Claude).then_some("projects")
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(
            self.to_possible_value()
                .as_ref()
                .map_or("", |value| value.get_name()),
        )
    }
}

/// What a server of a single project is called among all of a file.
pub(crate) fn of_project(server: &str, project: &str) -> String {
    format!("{server} ({project})")
}

/// JSON as hosts read it: with comments and trailing commas.
pub(crate) fn tolerant() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

/// The object that a text is, which can be edited and keeps everything else in it.
pub(crate) fn json_object(text: &str) -> Result<(CstRootNode, CstObject), String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // The parser's own error would quote the text.
    let root = CstRootNode::parse(text, &tolerant()).map_err(|error| {
        format!(
            "it is not JSON at line {} column {}",
            error.line_display(),
            error.column_display()
        )
    })?;
    let object = root.object_value().ok_or("it must be a JSON object")?;
    Ok((root, object))
}

fn members_of(object: &CstObject, key: &str) -> Result<Vec<(String, Value)>, String> {
    let Some(servers) = object.get(key).filter(|servers| !is_null(servers)) else {
        return Ok(Vec::new());
    };
    let servers = servers
        .object_value()
        .ok_or_else(|| format!("`{key}` must be an object"))?;
    let mut found = Vec::new();
    for member in servers.properties() {
        let name = member.decoded_name().ok_or("a name in it is not JSON")?;
        let value = member
            .value()
            .and_then(|value| value.to_serde_value())
            .ok_or("a value in it is not JSON")?;
        found.push((name, value));
    }
    Ok(found)
}

/// Whether nothing is there, which hosts take for no servers.
fn is_null(member: &CstObjectProp) -> bool {
    member.value().and_then(|value| value.to_serde_value()) == Some(Value::Null)
}

fn yaml_members(text: &str, key: &str) -> Result<Vec<(String, Value)>, String> {
    let tree = Yaml::read(text.trim_start_matches('\u{feff}'))?;
    let Some(servers) = tree.as_ref().and_then(|tree| tree.get(key)) else {
        return Ok(Vec::new());
    };
    match &servers.kind {
        Kind::Null => Ok(Vec::new()),
        // What an alias stands for is elsewhere.
        Kind::Table(members) => Ok(members
            .iter()
            .map(|(name, entry)| {
                (
                    name.clone(),
                    if entry.has_marks() {
                        Value::Null
                    } else {
                        entry.value()
                    },
                )
            })
            .collect()),
        _ => Err(format!("`{key}` must be a table")),
    }
}

fn toml_members(text: &str, key: &str) -> Result<Vec<(String, Value)>, String> {
    let mut table: toml::Table = toml::from_str(text).map_err(|error| {
        let before = error
            .span()
            .map_or("", |span| text.get(..span.start).unwrap_or_default());
        format!(
            "it is not TOML at line {}",
            before.matches('\n').count() + 1
        )
    })?;
    let Some(servers) = table.remove(key) else {
        return Ok(Vec::new());
    };
    match serde_json::to_value(servers) {
        Ok(Value::Object(servers)) => Ok(servers.into_iter().collect()),
        _ => Err(format!("`{key}` must be a table")),
    }
}
