//! Which servers a host's file has, and where they stand in it.

use super::tree::Node;
use super::{Host, of_project, tolerant};
use mcp_sessiond_daemon::config::FileForm;

/// What is in a host's file.
pub(crate) fn tree(host: Host, text: &str) -> Result<Option<Node>, String> {
    match host.form {
        FileForm::Toml => super::tree::toml(text).map(Some),
        FileForm::Yaml => super::tree::yaml(text),
        FileForm::Json => super::tree::json(text, &tolerant()),
    }
}

/// A server in a file's tree.
pub(crate) struct Server<'a> {
    /// What it is called among all of the file.
    pub(crate) name: String,
    /// What it is called where it stands.
    pub(crate) own: &'a str,
    pub(crate) entry: &'a Node,
}

/// The servers in a file's tree: the user's, then those of single projects.
pub(crate) fn servers(host: Host, tree: Option<&Node>) -> Result<Vec<Server<'_>>, String> {
    let Some(tree) = tree else {
        return Ok(Vec::new());
    };
    if tree.members()?.is_none() {
        if tree.has_marks() {
            return Err(
                "it has an anchor, an alias or a tag around its servers; edit it by hand"
                    .to_owned(),
            );
        }
        return Err("it must be an object".to_owned());
    }
    let mut found = in_table(host, tree, None)?;
    let projects = host
        .projects
        .as_ref()
        .map(|key| tree.get(key))
        .transpose()?
        .flatten();
    for (project, table) in projects
        .map(Node::members)
        .transpose()?
        .flatten()
        .unwrap_or_default()
    {
        found.extend(in_table(host, table, Some(project))?);
    }
    Ok(found)
}

/// Where VS Code's settings, workspaces and development containers may have servers: VS Code moves
/// them to a file of their own, or reads them there, by its version.
const IN_SETTINGS: [&[&str]; 4] = [
    &["mcp", "servers"],
    &["mcp.servers"],
    &["settings", "mcp", "servers"],
    &["customizations", "vscode", "mcp", "servers"],
];

/// The names of servers that are in a file of VS Code's, and not where `setup` changes them.
pub(crate) fn in_settings(host: Host, tree: Option<&Node>) -> Result<Vec<&str>, String> {
    if !host.has_settings() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for path in IN_SETTINGS {
        let mut at = tree;
        for name in path {
            at = at.map(|node| node.get(name)).transpose()?.flatten();
        }
        let servers = at.map(Node::members).transpose()?.flatten();
        found.extend(servers.into_iter().flatten().map(|(name, _)| name.as_str()));
    }
    Ok(found)
}

fn in_table<'a>(
    host: Host,
    table: &'a Node,
    project: Option<&str>,
) -> Result<Vec<Server<'a>>, String> {
    // Some programs write null where there are none.
    let Some(servers) = table.get(&host.key)?.filter(|servers| !servers.is_null()) else {
        return Ok(Vec::new());
    };
    let inner = host
        .inner_key()
        .map(|key| servers.get(key))
        .transpose()?
        .flatten();
    let names = inner
        .map(Node::members)
        .transpose()?
        .flatten()
        .map(|members| members.iter().map(|(name, _)| name.as_str()));
    let servers = match inner {
        Some(inner) if names.is_some_and(|names| host.is_inner(names)) => inner,
        _ if host.has_inner_alone() => return Ok(Vec::new()),
        _ => servers,
    };
    if servers.has_marks() && servers.members()?.is_none() {
        return Err(format!(
            "`{}` has an anchor, an alias or a tag; edit it by hand",
            host.key
        ));
    }
    let servers = servers
        .members()?
        .ok_or_else(|| format!("`{}` must be an object", host.key))?;
    let server = |(own, entry): &'a (String, Node)| Server {
        name: project.map_or_else(|| own.clone(), |project| of_project(own, project)),
        own,
        entry,
    };
    Ok(servers.iter().map(server).collect())
}
