//! A server as a host's file has it, in the form of `servers.json`.

use std::ffi::OsString;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::commands::wrap;
use crate::hosts::Host;
use crate::hosts::entries::{is_command_line, is_windows_command};
use mcp_sessiond_daemon::config::FileForm;
use mcp_sessiond_proxy::secrets::is_secret;

/// An entry in the form of `servers.json`, or why there is none. Secrets stay what they are.
pub(crate) fn converted(host: Host, server: &Value) -> Result<Map<String, Value>, String> {
    let server = match (host.form, server.as_object()) {
        (FileForm::Yaml, Some(server)) => &in_usual_words(server),
        (_, Some(server)) => server,
        (FileForm::Yaml, None) => {
            return Err(
                "it is not a table, or has an anchor, an alias or a tag of YAML".to_owned(),
            );
        }
        (_, None) => return Err("it must be an object".to_owned()),
    };
    let get = |names: &[&str]| {
        names
            .iter()
            .find_map(|name| server.get(*name))
            .filter(|value| !value.is_null())
    };
    let mut entry = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            entry.insert(name.to_owned(), value);
        }
    };
    let url = get(&["url", "serverUrl", "httpUrl"]);
    if let Some(url) = url {
        if is_sse(host, server) {
            return Err("it speaks HTTP with SSE, which mcp-sessiond does not support; nearly all such servers have Streamable HTTP, too".to_owned());
        }
        if get(&["command"]).is_some() {
            return Err("it has a command and an address".to_owned());
        }
        put("type", Some("http".into()));
        put("url", Some(url.clone()));
        put("headers", headers(server)?);
    } else {
        let (command, arguments) = command(server)?;
        if is_command_line(&command) {
            return Err(
                "its command is a whole command line; the arguments belong in `args`".to_owned(),
            );
        }
        if is_windows_command(&command) {
            return Err("its command is for Windows, and can't run on this system".to_owned());
        }
        if get(&["sandboxEnabled"]) == Some(&Value::Bool(true)) {
            return Err("it has `sandboxEnabled`: the host runs it in a sandbox, which mcp-sessiond does not; take that away there, or leave the server to the host".to_owned());
        }
        put("command", Some(command.into()));
        put("args", (!arguments.is_empty()).then(|| json!(arguments)));
        put(
            "env",
            match &host.variables {
                Some(name) => get(&[name]),
                None => get(&["env", "environment"]),
            }
            .or_else(|| server.get("command")?.get("env"))
            .cloned()
            .filter(is_filled),
        );
        put("cwd", get(&["cwd"]).cloned());
        put("envFile", get(&["envFile"]).cloned());
        if get(&["env_keys"]).is_some_and(is_filled) {
            return Err("its `env_keys` name what Goose keeps in a store of its own; write them into `envs` there, or into servers.json".to_owned());
        }
        if get(&["env_vars"]).is_some_and(is_filled) {
            return Err("its `env_vars` name variables of the host's; write them into `env` there, or into servers.json".to_owned());
        }
    }
    let is_off = get(&["disabled"]) == Some(&Value::Bool(true))
        || get(&["enabled"]) == Some(&Value::Bool(false));
    put("disabled", is_off.then(|| true.into()));
    // Others have something else under `tools`.
    let only = get(&["enabled_tools", "includeTools"]).or_else(|| get(&[host.only.as_deref()?]));
    let only = only.filter(|only| **only != json!(["*"])).cloned();
    put(
        "only",
        only.map(|only| match is_gemini(host) {
            true => without_arguments(only),
            false => only,
        }),
    );
    put(
        "without",
        get(&["disabled_tools", "excludeTools", "disabledTools"])
            .cloned()
            .filter(is_filled),
    );
    let mut entry = Value::Object(entry);
    rewrite(host, &mut entry)?;
    for field in ["cwd", "envFile"] {
        let is_whole = |path: &str| {
            ["/", "~/", "${"]
                .iter()
                .any(|beginning| path.starts_with(beginning))
        };
        if entry[field].as_str().is_some_and(|path| !is_whole(path)) {
            return Err(format!(
                "its `{field}` depends on where the host runs; write an absolute path there"
            ));
        }
    }
    match entry {
        Value::Object(entry) => Ok(entry),
        _ => Err("it must be an object".to_owned()),
    }
}

/// Goose's entry with the words of the others.
fn in_usual_words(server: &Map<String, Value>) -> Map<String, Value> {
    let usual = |name: &str| match name {
        "cmd" => "command".to_owned(),
        "envs" => "env".to_owned(),
        "uri" => "url".to_owned(),
        "available_tools" => "includeTools".to_owned(),
        other => other.to_owned(),
    };
    let mut all: Map<_, _> = server
        .iter()
        .map(|(name, value)| (usual(name), value.clone()))
        .collect();
    // Where it is empty Goose allows all.
    all.retain(|name, value| name != "includeTools" || is_filled(value));
    all
}

/// Gemini lets a tool through that is listed with arguments, whatever they are: `x(*)`.
fn without_arguments(mut tools: Value) -> Value {
    for tool in tools.as_array_mut().into_iter().flatten() {
        if let Some((name, _)) = tool.as_str().and_then(|tool| tool.split_once('(')) {
            *tool = Value::from(name);
        }
    }
    tools
}

fn is_filled(value: &(impl std::borrow::Borrow<Value> + ?Sized)) -> bool {
    match value.borrow() {
        Value::Object(members) => !members.is_empty(),
        Value::Array(elements) => !elements.is_empty(),
        _ => true,
    }
}

/// Whether a host has Gemini's format: Qwen Code was made from Gemini CLI.
fn is_gemini(host: Host) -> bool {
    host.has_switches
}

/// Gemini's `url` is one for SSE, unless its `type` says otherwise; `httpUrl` comes before it.
fn is_sse(host: Host, server: &Map<String, Value>) -> bool {
    match server
        .get("type")
        .or_else(|| server.get("transport"))
        // Cline's former word.
        .or_else(|| server.get("transportType"))
        .and_then(Value::as_str)
    {
        Some(told) => told == "sse",
        None => is_gemini(host) && !server.contains_key("httpUrl"),
    }
}

fn headers(server: &Map<String, Value>) -> Result<Option<Value>, String> {
    let mut all = match server.get("headers").or_else(|| server.get("http_headers")) {
        Some(Value::Object(headers)) => headers.clone(),
        None | Some(Value::Null) => Map::new(),
        Some(_) => return Err("its headers must be an object".to_owned()),
    };
    // Codex names variables.
    if let Some(variable) = server.get("bearer_token_env_var").and_then(Value::as_str) {
        all.insert(
            "Authorization".to_owned(),
            format!("Bearer ${{env:{variable}}}").into(),
        );
    }
    if let Some(Value::Object(named)) = server.get("env_http_headers") {
        for (header, variable) in named {
            let variable = variable
                .as_str()
                .ok_or("its `env_http_headers` must be strings")?;
            all.insert(header.clone(), format!("${{env:{variable}}}").into());
        }
    }
    Ok((!all.is_empty()).then_some(Value::Object(all)))
}

/// The command and its arguments, without our own `wrap` in front.
fn command(server: &Map<String, Value>) -> Result<(String, Vec<String>), String> {
    let texts = |value: Option<&Value>| match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(words)) => words
            .iter()
            .map(|word| word.as_str().map(str::to_owned))
            .collect::<Option<Vec<_>>>()
            .ok_or(()),
        Some(_) => Err(()),
    };
    let words = match server.get("command") {
        Some(Value::String(command)) => {
            texts(server.get("args")).map(|arguments| [vec![command.clone()], arguments].concat())
        }
        // opencode's.
        words @ Some(Value::Array(_)) => texts(words),
        // Zed's older form.
        Some(Value::Object(command)) => match command.get("path").and_then(Value::as_str) {
            Some(path) => texts(command.get("args"))
                .map(|arguments| [vec![path.to_owned()], arguments].concat()),
            None => Err(()),
        },
        None | Some(Value::Null) => {
            return Err("it has neither a command nor an address".to_owned());
        }
        Some(_) => Err(()),
    };
    let words = words.map_err(|()| "its command and arguments must be strings".to_owned())?;
    let mut words = unwrapped(words)?.into_iter();
    let command = words
        .next()
        .filter(|command| !command.is_empty())
        .ok_or("its command is empty")?;
    Ok((command, words.collect()))
}

fn unwrapped(words: Vec<String>) -> Result<Vec<String>, String> {
    let is_ours = |path: &str| {
        Path::new(path)
            .file_name()
            .is_some_and(|name| name == "mcp-sessiond")
    };
    let [program, verb, rest @ ..] = &words[..] else {
        return Ok(words);
    };
    if !is_ours(program) || verb != "wrap" {
        return Ok(words);
    }
    let rest: Vec<OsString> = rest.iter().map(OsString::from).collect();
    let command = wrap::command_in(&rest)
        .ok_or("it is a `wrap` that can't be read; write `--` before its command")?;
    let command: Vec<String> = command
        .into_iter()
        .filter_map(|word| word.into_string().ok())
        .collect();
    let Some(first) = command.first() else {
        return Err("it runs all servers of servers.json".to_owned());
    };
    match first.strip_prefix('@') {
        Some(name) => Err(runs_listed(name)),
        None => Ok(command),
    }
}

/// Why an entry is not copied that runs the server of this name of `servers.json`.
fn runs_listed(name: &str) -> String {
    format!("it runs @{name}, which is in servers.json already")
}

/// Whether a host's server is that of this name of `servers.json`.
pub(crate) fn is_listed(host: Host, server: &Value, name: &str) -> bool {
    converted(host, server).is_err_and(|why| why == runs_listed(name))
}

/// What VS Code and the hosts that are made from it put in the place of `${NAME}` or `${NAME:…}`.
const HOSTS_OWN: [&str; 23] = [
    "workspaceFolder",
    "workspaceFolderBasename",
    "userHome",
    "pathSeparator",
    "/",
    "cwd",
    "file",
    "fileWorkspaceFolder",
    "fileWorkspaceFolderBasename",
    "relativeFile",
    "relativeFileDirname",
    "fileBasename",
    "fileBasenameNoExtension",
    "fileExtname",
    "fileDirname",
    "fileDirnameBasename",
    "columnNumber",
    "lineNumber",
    "selectedText",
    "execPath",
    "extensionInstallFolder",
    "defaultBuildTask",
    "config",
];

/// Writes the host's words for variables in ours.
fn rewrite(host: Host, value: &mut Value) -> Result<(), String> {
    match value {
        Value::String(text) => *text = rewritten(host, text)?,
        Value::Array(all) => all.iter_mut().try_for_each(|one| rewrite(host, one))?,
        Value::Object(all) => all.values_mut().try_for_each(|one| rewrite(host, one))?,
        _ => {}
    }
    Ok(())
}

fn rewritten(host: Host, text: &str) -> Result<String, String> {
    let opening = &*host.references;
    let has_braces_alone = opening == "{";
    let plain = |text: &str| {
        if is_gemini(host) {
            dollars(text)
        } else {
            text.to_owned()
        }
    };
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(opening) {
        let Some((inside, behind)) = after.split_once('}') else {
            break;
        };
        out.push_str(&plain(before));
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let (kind, name) = inside.split_once(':').unwrap_or((inside, ""));
        match (has_braces_alone, kind) {
            (true, "file") if !name.starts_with('/') && !name.starts_with("~/") => {
                return Err(
                    "it has {file:…} with a path from opencode's own file; write an absolute one there"
                        .to_owned(),
                );
            }
            (true, "env" | "file") => out.push_str(&format!("${{{inside}}}")),
            (true, _) => out.push_str(&format!("{{{inside}}}")),
            _ if host.plain_names && is_name(inside) => {
                out.push_str(&format!("${{env:{inside}}}"));
            }
            _ if host.defaults && is_name(kind) && name.starts_with('-') => {
                return Err(format!(
                    "it has ${{{kind}:-…}}, a variable with a default; write one of the two there"
                ));
            }
            (_, "input" | "command") => {
                return Err(format!(
                    "it has ${{{kind}:…}}, for which the host asks its user; write ${{keyring:…}} or ${{env:…}} there"
                ));
            }
            (_, kind) if HOSTS_OWN.contains(&kind) => {
                return Err(format!(
                    "it has ${{{kind}}}, which only the host knows; write a path there"
                ));
            }
            _ => out.push_str(&format!("${{{inside}}}")),
        }
        rest = behind;
    }
    Ok(out + &plain(rest))
}

/// Writes `$NAME` in ours.
fn dollars(text: &str) -> String {
    let mut parts = text.split('$');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, behind) = part.split_at(part.find(|c| !is_part(c)).unwrap_or(part.len()));
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            out.push_str(&format!("${part}"));
        } else {
            out.push_str(&format!("${{env:{name}}}{behind}"));
        }
    }
    out
}

/// The variables and headers whose value looks like a secret that stands there as it is.
pub(crate) fn secrets(entry: &Map<String, Value>) -> Vec<String> {
    let fields = ["env", "headers"]
        .into_iter()
        .filter_map(|field| entry.get(field)?.as_object());
    let members = fields
        .flatten()
        .filter_map(|(name, value)| Some((name, value.as_str()?)));
    members
        .filter(|(name, value)| is_secret(name, value))
        .map(|(name, _)| name.clone())
        .collect()
}
