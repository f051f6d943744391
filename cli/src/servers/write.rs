//! Writes `servers.json`, in one step.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;

use jsonc_parser::cst::{CstInputValue, CstObject, CstObjectProp};
use serde_json::{Map, Value};

use crate::hosts::json_object;

/// The fields of an entry, in the order in which people write them.
const ORDER: [&str; 6] = ["type", "command", "args", "url", "env", "headers"];

/// The text with these servers in it, each in the place of one of the same name or behind the
/// others.
pub(crate) fn edited(
    text: &str,
    servers: &[(String, Map<String, Value>)],
) -> Result<String, String> {
    let text = if text.trim().is_empty() { "{}\n" } else { text };
    let (root, object) = json_object(text)?;
    let all = object.object_value_or_create(place(&object));
    let all = all.ok_or("its servers must be in an object")?;
    for (name, entry) in servers {
        match found(&object, name) {
            Some(former) => former.set_value(input(&Value::Object(entry.clone()))),
            None => drop(all.append(name, input(&Value::Object(entry.clone())))),
        }
    }
    Ok(root.to_string())
}

/// What `share` has put into `servers.json`, and takes back. The server has a field that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    /// The server.
    Server,
    /// That it is shared. The server was there.
    Shared,
}

/// The field.
const BY_SHARE: &str = "by_share";

impl Added {
    fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Shared => "shared",
        }
    }

    /// What `share` has put there for this server.
    pub(crate) fn of(text: &str, name: &str) -> Option<Self> {
        let (_, object) = json_object(text).ok()?;
        let added = found(&object, name)?.object_value()?.get(BY_SHARE)?;
        let added = added.value()?.to_serde_value()?;
        [Self::Server, Self::Shared]
            .into_iter()
            .find(|one| added == one.as_str())
    }
}

/// The text in which this server is shared, by `share`.
pub(crate) fn shared(text: &str, name: &str, added: Added) -> Result<String, String> {
    let (root, object) = json_object(text)?;
    let entry = found(&object, name).and_then(|server| server.object_value());
    let entry = entry.ok_or_else(|| format!("it has no server {name:?}"))?;
    let put = |field: &str, value: CstInputValue| match entry.get(field) {
        Some(member) => member.set_value(value),
        None => drop(entry.append(field, value)),
    };
    put("shared", CstInputValue::Bool(true));
    put(BY_SHARE, CstInputValue::String(added.as_str().to_owned()));
    Ok(root.to_string())
}

/// The text without what `share` has put there.
pub(crate) fn unshared(text: &str, name: &str, added: Added) -> Result<String, String> {
    let (root, object) = json_object(text)?;
    let server = found(&object, name);
    match (added, server.as_ref().and_then(CstObjectProp::object_value)) {
        (Added::Server, _) => server.into_iter().for_each(CstObjectProp::remove),
        (Added::Shared, entry) => {
            let fields = ["shared", BY_SHARE].into_iter();
            fields
                .filter_map(|field| entry.as_ref()?.get(field))
                .for_each(CstObjectProp::remove);
        }
    }
    Ok(root.to_string())
}

/// Under which name the file has its servers.
fn place(object: &CstObject) -> &'static str {
    let is_vscode = object.get("mcpServers").is_none() && object.get("servers").is_some();
    if is_vscode { "servers" } else { "mcpServers" }
}

/// Where a server of this name stands.
fn found(object: &CstObject, name: &str) -> Option<CstObjectProp> {
    let places = [place(object), "servers"].into_iter();
    places
        .filter_map(|place| object.object_value(place))
        .find_map(|servers| servers.get(name))
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(is) => CstInputValue::Bool(*is),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(all) => CstInputValue::Array(all.iter().map(input).collect()),
        Value::Object(all) => {
            let mut members: Vec<_> = all.iter().collect();
            let place = |name: &str| {
                ORDER
                    .iter()
                    .position(|known| *known == name)
                    .unwrap_or(ORDER.len())
            };
            members.sort_by_key(|(name, _)| place(name));
            CstInputValue::Object(
                members
                    .into_iter()
                    .map(|(name, value)| (name.clone(), input(value)))
                    .collect(),
            )
        }
    }
}

/// Puts the text in the place of the file, which nobody else can read, where that still says what
/// it said. A link stays one.
///
/// # Errors
/// Why it can't, in a sentence.
pub(crate) fn replace(path: &Path, former: &str, text: &str) -> Result<(), String> {
    let refused = |error| format!("could not write {}: {error}", path.display());
    put(path, former, text).map_err(refused)
}

fn put(path: &Path, former: &str, text: &str) -> io::Result<()> {
    let target = match path.canonicalize() {
        Ok(target) => target,
        Err(_) if path.is_symlink() => {
            return Err(io::Error::other("it is a link to a file that is not there"));
        }
        Err(_) => path.to_owned(),
    };
    if target.metadata().is_ok_and(|meta| meta.mode() & 0o200 == 0) {
        return Err(io::Error::other(
            "it is read-only; if it is yours to edit: chmod u+w",
        ));
    }
    let directory = target.parent().unwrap_or(Path::new("/"));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let new = directory.join(format!(".servers.json.{}", std::process::id()));
    let _ = std::fs::remove_file(&new);
    let written = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        let now = match std::fs::read_to_string(&target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            now => now?,
        };
        if now != former {
            return Err(io::Error::other("it was edited meanwhile; run this again"));
        }
        std::fs::rename(&new, &target)
    };
    written().inspect_err(|_| drop(std::fs::remove_file(&new)))
}
