//! What a shell offers where a verb wants a server or a tool. The shell asks by running this
//! executable ([`VARIABLE`]), so it learns what is there at the moment.
//!
//! Nothing is started for it: no daemon, and no server. What can't be found out is not offered, and
//! nothing is said about that: somebody is in the middle of a command line.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use clap::ValueEnum as _;
use clap_complete::{ArgValueCompleter, CompletionCandidate, PathCompleter};
use mcp_sessiond_proxy::program::display_name;
use serde_json::Value;
use tokio::time::Instant;

use crate::hosts::Host;
use crate::inventory::Server;
use crate::inventory::selection::running;
use crate::mcp_client::McpClient;
use crate::mcp_client::target::Target;
use crate::runtime::block_on;
use crate::servers::{Entry, Kind, Servers};
use crate::ui::candidates::candidates;

/// The variable that holds the shell's name when a shell asks. It is our own, since hosts hand
/// theirs on.
pub(crate) const VARIABLE: &str = "MCP_SESSIOND_COMPLETE";

/// How long a server may take to list its tools: somebody waits at the prompt.
const TOOLS_WAIT: Duration = Duration::from_secs(2);

/// Servers that `call` reaches: those that belong to no host, and those of `servers.json`.
pub(crate) fn callable() -> Vec<CompletionCandidate> {
    let of_user = running().into_iter().filter(Server::is_users);
    let named = of_user.map(|server| {
        let name = server.server.trim_start_matches('@').to_owned();
        (name, "it runs".to_owned())
    });
    candidates(named.chain(listed(|_| true)))
}

/// Servers of `servers.json`.
pub(crate) fn written_down() -> Vec<CompletionCandidate> {
    candidates(listed(|_| true))
}

/// Those of them that have a URL.
#[cfg(feature = "http")]
pub(crate) fn remote() -> Vec<CompletionCandidate> {
    candidates(listed(|entry| matches!(entry.kind(), Kind::Http { .. })))
}

/// What `wrap` runs: `@NAME`, or a program.
pub(crate) fn wrapped() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let begins = |candidate: &CompletionCandidate| {
            let value = candidate.get_value().to_string_lossy();
            value.starts_with(&*typed.to_string_lossy())
        };
        match typed.to_str().is_some_and(|typed| typed.starts_with('@')) {
            true => written_down()
                .into_iter()
                .map(|candidate| candidate.add_prefix("@"))
                .filter(begins)
                .collect(),
            false => clap_complete::engine::ValueCompleter::complete(&PathCompleter::any(), typed),
        }
    })
}

/// The tools of the server that is named before, if it runs.
pub(crate) fn tools() -> Vec<CompletionCandidate> {
    let Some(server) = words_behind("call").into_iter().next() else {
        return Vec::new();
    };
    candidates(tools_of(&server).into_iter().map(|tool| {
        let about = tool["description"].as_str().unwrap_or_default();
        let first = about.trim().lines().next().unwrap_or_default();
        (text(&tool["name"]), first.to_owned())
    }))
}

/// The arguments of the tool that is named before, as `KEY=`.
pub(crate) fn arguments() -> Vec<CompletionCandidate> {
    let words = words_behind("call");
    let [server, tool, ..] = &words[..] else {
        return Vec::new();
    };
    let tools = tools_of(server);
    let schema = tools.iter().find(|one| one["name"] == tool.as_str());
    let properties = schema.and_then(|tool| tool["inputSchema"]["properties"].as_object());
    let given = |key: &str| {
        words
            .iter()
            .any(|word| word.starts_with(&format!("{key}=")))
    };
    let keys = properties.into_iter().flatten();
    candidates(
        keys.filter(|(key, _)| !given(key))
            .map(|(key, schema)| (format!("{key}="), text(&schema["description"]))),
    )
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn listed(is_meant: impl Fn(&Entry) -> bool) -> Vec<(String, String)> {
    let file = Servers::usual_path().and_then(|path| Servers::read(&path));
    let entries = file.as_ref().ok().into_iter().flat_map(Servers::entries);
    entries
        .filter(|entry| is_meant(entry))
        .map(|entry| (entry.name().to_owned(), about(entry)))
        .collect()
}

/// What is said of a server of the list. zsh lists words that share a description after all others.
fn about(entry: &Entry) -> String {
    match entry.kind() {
        Kind::Stdio { command, args, .. } => {
            let arguments: Vec<OsString> = args.iter().map(OsString::from).collect();
            format!("runs {}", display_name::of(command.as_ref(), &arguments))
        }
        Kind::Http { .. } => format!("the remote server {}", entry.name()),
    }
}

/// Hosts that `setup` knows.
pub(crate) fn hosts() -> Vec<CompletionCandidate> {
    let hosts = Host::value_variants().iter();
    let named =
        hosts.map(|host| CompletionCandidate::new(host.to_string()).help(Some(host.title.into())));
    named.collect()
}

/// The words behind this verb, without options, as they stand on the command line so far: the shell
/// hands that on behind `--`.
fn words_behind(verb: &str) -> Vec<String> {
    let line = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    line.skip_while(|word| word != "--")
        .skip_while(|word| word != verb)
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect()
}

/// The tools of a server that runs. Of one that does not nothing is known before it is started.
fn tools_of(server: &str) -> Vec<Value> {
    let name = server.trim_start_matches('@');
    let is_meant = |one: &Server| one.is_users() && one.server.trim_start_matches('@') == name;
    if !running().iter().any(is_meant) {
        return Vec::new();
    }
    let listed = block_on(async {
        let target = Target::find(server).await.ok()?;
        let until = Instant::now() + TOOLS_WAIT;
        let mut client = McpClient::connect(&target, until).await.ok()?;
        let tools = client.tools().await.ok();
        client.leave().await;
        tools
    });
    listed.ok().flatten().unwrap_or_default()
}
