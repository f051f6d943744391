//! Hosts' files as their hosts read them: with parsers that `setup` does not use, where there are
//! such.

use std::collections::BTreeMap;

use serde_json::Value;

/// A server that a host would start.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// The command and its arguments. None: there is no command.
    pub(super) words: Vec<String>,
    pub(super) variables: BTreeMap<String, String>,
}

impl Entry {
    /// The words behind ours.
    pub(super) fn own_words(&self) -> &[String] {
        let is_ours = self
            .words
            .first()
            .is_some_and(|word| word.contains("sessiond"));
        let ours = self
            .words
            .iter()
            .position(|word| word == "--")
            .filter(|_| is_ours);
        &self.words[ours.map_or(0, |at| at + 1)..]
    }
}

/// The servers of a host's file, those of single projects with the project's name.
pub(super) fn entries(host: &str, text: &str) -> BTreeMap<String, Entry> {
    let text = text.trim_start_matches('\u{feff}');
    let file: Value = match host {
        "codex" => {
            serde_json::to_value(toml::from_str::<toml::Table>(text).expect("TOML")).expect("JSON")
        }
        // Goose's own parser.
        "goose" => serde_yaml::from_str(text).expect("YAML"),
        _ => jsonc_parser::parse_to_serde_value::<Value>(
            text,
            &jsonc_parser::ParseOptions::default(),
        )
        .expect("JSON with comments"),
    };
    let key = match host {
        "vscode" => "servers",
        "codex" => "mcp_servers",
        "opencode" => "mcp",
        "zed" => "context_servers",
        "goose" => "extensions",
        _ => "mcpServers",
    };
    let mut found = BTreeMap::new();
    let mut add = |of: &Value, project: &str| {
        for (name, entry) in of[key].as_object().into_iter().flatten() {
            found.insert(format!("{name}{project}"), read(entry));
        }
    };
    add(&file, "");
    for (project, of) in file["projects"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|_| host == "claude")
    {
        add(of, &format!(" ({project})"));
    }
    found
}

fn read(entry: &Value) -> Entry {
    let command = [&entry["command"]["path"], &entry["command"], &entry["cmd"]]
        .into_iter()
        .find(|command| !command.is_null())
        .unwrap_or(&Value::Null);
    let arguments = if entry["command"].is_object() {
        &entry["command"]["args"]
    } else {
        &entry["args"]
    };
    // What Claude Code makes of a variable that is not there.
    let word = |word: &str| word.replace("${API_BIN:-node}", "node");
    let words = |value: &Value| match value {
        Value::String(one) => vec![word(one)],
        Value::Array(words) => words.iter().filter_map(Value::as_str).map(word).collect(),
        _ => Vec::new(),
    };
    let variables = [
        &entry["env"],
        &entry["envs"],
        &entry["environment"],
        &entry["command"]["env"],
    ];
    let variables = variables.into_iter().filter_map(Value::as_object).flatten();
    Entry {
        words: [words(command), words(arguments)].concat(),
        variables: variables
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect(),
    }
}
