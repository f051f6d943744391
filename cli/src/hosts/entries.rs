//! The servers in a host's file, and the edits that put `mcp-sessiond wrap --` in front of their
//! commands or take it away. `--entry` names the server in them, where its name is a label.

use std::ops::Range;
use std::path::Path;

use mcp_sessiond_client::Label;
use serde_json::Value;

use super::edit::Edit;
use super::record::Wrapped;
use super::tree::{Kind, Node};
use super::{Host, yaml_list};
use mcp_sessiond_daemon::config::FileForm;

/// What stands between our executable and the server's command, of a server of this name. A name
/// that is no label of ours is left out.
pub(crate) fn own_words(name: &str) -> Vec<&str> {
    match name.parse::<Label>() {
        Ok(_) if !name.starts_with('-') => vec!["wrap", "--entry", name, "--"],
        _ => vec!["wrap", "--"],
    }
}

/// How many of these words stand there as [`own_words`] has them, whatever the name: the server may
/// have been given another one since. None: they are not ours.
fn count_own<'a>(words: impl IntoIterator<Item = Option<&'a str>>) -> Option<usize> {
    let first: Vec<&str> = words.into_iter().map_while(|word| word).take(4).collect();
    match first[..] {
        ["wrap", "--", ..] => Some(2),
        ["wrap", "--entry", _, "--"] => Some(4),
        _ => None,
    }
}

/// Fields by which hosts tell a server that is elsewhere.
const ADDRESSES: [&str; 4] = ["url", "serverUrl", "httpUrl", "uri"];

/// How a server stands in a file.
#[derive(Debug)]
pub(crate) enum Form<'a> {
    /// A command, and its arguments in a list of their own.
    Command {
        command: &'a Node,
        arguments: Option<&'a Node>,
    },
    /// The whole command line in one list, as opencode has it.
    Words(&'a Node),
    /// It can't be wrapped: a clause that says why.
    NotWrappable(&'static str),
}

/// How the entry of a server stands there.
///
/// # Errors
/// When a name is there twice.
pub(crate) fn form(host: Host, entry: &Node) -> Result<Form<'_>, String> {
    if entry.has_marks() {
        return Ok(Form::NotWrappable(
            "it has an anchor, an alias, a tag or a merge key of YAML; edit it by hand",
        ));
    }
    if entry.members()?.is_none() {
        return Ok(Form::NotWrappable("it is not a table of fields"));
    }
    for address in ADDRESSES {
        if entry.get(address)?.is_some_and(|value| !value.is_null()) {
            return Ok(Form::NotWrappable(
                "a remote server has no process on this machine",
            ));
        }
    }
    if host.has_settings() && entry.get("dev")?.is_some_and(|dev| !dev.is_null()) {
        return Ok(Form::NotWrappable(
            "it has `dev`, by which VS Code watches the server's files or debugs its process; take that away first",
        ));
    }
    if !host.parts.is_empty()
        && let Some(kind) = entry
            .get("type")?
            .and_then(Node::text)
            .filter(|kind| *kind != "stdio")
        && entry.get(&host.command)?.is_none()
    {
        return Ok(Form::NotWrappable(
            if kind == "sse" || kind == "streamable_http" {
                "a remote server has no process on this machine"
            } else {
                "it is a part of Goose"
            },
        ));
    }
    let (command, arguments) = match entry
        .get(&host.command)?
        .filter(|command| !command.is_null())
    {
        // Zed's older form.
        Some(command) if command.members()?.is_some() => {
            (command.get("path")?, command.get("args")?)
        }
        command => (command, entry.get("args")?),
    };
    Ok(match (command, arguments) {
        (None, _) => Form::NotWrappable("it has no command"),
        (Some(command), _) if matches!(command.kind, Kind::LongText) => {
            Form::NotWrappable("its command is on several lines; write it on one")
        }
        (Some(words), _) if words.list().is_some_and(|words| !words.is_empty()) => {
            let command = words.list().and_then(|words| words.first()?.text());
            match command.is_some_and(is_windows_command) {
                true => Form::NotWrappable(WINDOWS),
                false => Form::Words(words),
            }
        }
        (Some(command), _) if command.text().is_none_or(str::is_empty) => {
            Form::NotWrappable("its command is not a string")
        }
        (Some(command), _) if command.text().is_some_and(is_command_line) => Form::NotWrappable(
            "its command is a whole command line; the arguments belong in `args`",
        ),
        (Some(command), _) if command.text().is_some_and(is_windows_command) => {
            Form::NotWrappable(WINDOWS)
        }
        (_, Some(arguments)) if arguments.list().is_none() => {
            Form::NotWrappable("its arguments must be a list")
        }
        (Some(command), arguments) => Form::Command { command, arguments },
    })
}

impl Form<'_> {
    /// The command line, as far as it is text.
    pub(crate) fn words(&self) -> Vec<String> {
        let texts = |nodes: &[Node]| {
            nodes
                .iter()
                .map(|node| node.text().unwrap_or("…").to_owned())
                .collect::<Vec<_>>()
        };
        match self {
            Self::Command { command, arguments } => {
                let rest = arguments
                    .and_then(Node::list)
                    .map(texts)
                    .unwrap_or_default();
                [texts(std::slice::from_ref(*command)), rest].concat()
            }
            Self::Words(words) => words.list().map(texts).unwrap_or_default(),
            Self::NotWrappable(_) => Vec::new(),
        }
    }

    /// Whether `mcp-sessiond` is run already, also by way of `npx` and the like.
    pub(crate) fn is_ours(&self, executable: &str) -> bool {
        let words = self.words();
        let is_us = |word: &str| word == executable || is_us(word);
        let is_verb = |word: &String| ["wrap", "serve"].contains(&&**word);
        words.first().is_some_and(|word| is_us(word))
            || words
                .windows(2)
                .any(|two| is_us(&two[0]) && is_verb(&two[1]))
    }

    /// Puts us in front of the server of this name. The literals of the command move as they are, so that nothing in them can
    /// change.
    pub(crate) fn wrap(&self, host: Host, text: &str, executable: &str, name: &str) -> Vec<Edit> {
        let own_words: Vec<String> = own_words(name).into_iter().map(quoted).collect();
        let own = own_words.join(", ");
        match self {
            Self::NotWrappable(_) => Vec::new(),
            Self::Words(words) => {
                let Some([first, ..]) = words.list() else {
                    return Vec::new();
                };
                vec![Edit {
                    range: first.range.start..first.range.start,
                    text: format!("{}, {own}, ", quoted(executable)),
                }]
            }
            Self::Command { command, arguments } => {
                let literal = &text[command.range.clone()];
                let at = |place: usize, text: String| Edit {
                    range: place..place,
                    text,
                };
                let executable = Edit {
                    range: command.range.clone(),
                    text: quoted(executable),
                };
                if let Some(node) = arguments.filter(|node| yaml_list::is_block(text, node)) {
                    let items = own_words.into_iter().chain([literal.to_owned()]);
                    return [executable]
                        .into_iter()
                        .chain(yaml_list::put_in_front(text, node, items))
                        .collect();
                }
                let needs_quotes =
                    host.form == FileForm::Yaml && !yaml_list::fits_brackets(literal);
                let word = command
                    .text()
                    .filter(|_| needs_quotes)
                    .map_or_else(|| literal.to_owned(), quoted);
                let front = format!("{own}, {word}");
                let arguments = match arguments.map(|node| (node, node.list().unwrap_or_default()))
                {
                    None => at(
                        command.range.end,
                        new_arguments(host, text, command, &front),
                    ),
                    Some((node, [])) => at(node.range.start + 1, front),
                    Some((node, [first, ..])) => {
                        let between = &text[node.range.start + 1..first.range.start];
                        // One line for us, where each argument has one.
                        let pause = if between.contains('\n') && between.trim().is_empty() {
                            between
                        } else {
                            " "
                        };
                        at(first.range.start, format!("{front},{pause}"))
                    }
                };
                vec![executable, arguments]
            }
        }
    }

    /// Names this executable instead of one that is gone.
    pub(crate) fn renew(&self, executable: &str) -> Option<Edit> {
        let literal = match self {
            Self::Command { command, .. } => *command,
            Self::Words(words) => words.list()?.first()?,
            Self::NotWrappable(_) => return None,
        };
        let named = Path::new(literal.text()?);
        let is_gone = named.is_absolute() && is_us(literal.text()?) && !named.exists();
        is_gone.then(|| Edit {
            range: literal.range.clone(),
            text: quoted(executable),
        })
    }

    /// Takes us away again, where we stand there as [`wrap`](Self::wrap) has put us. None: we
    /// don't.
    pub(crate) fn unwrap(&self, text: &str, wrapped: &Wrapped) -> Option<Vec<Edit>> {
        if *self.words().first()? != wrapped.executable {
            return None;
        }
        let own_of = |nodes: &[Node]| count_own(nodes.iter().map(Node::text));
        let remove = |range: Range<usize>| Edit {
            range,
            text: String::new(),
        };
        match self {
            Self::NotWrappable(_) => None,
            Self::Words(words) => {
                let words = words.list()?;
                let next = words.get(1 + own_of(words.get(1..)?)?)?;
                Some(vec![remove(words[0].range.start..next.range.start)])
            }
            Self::Command { command, arguments } => {
                let node = (*arguments)?;
                let words = node.list()?;
                let own = own_of(words)?;
                let literal = words.get(own)?;
                let former = Edit {
                    range: command.range.clone(),
                    text: text[literal.range.clone()].to_owned(),
                };
                if words.len() == own + 1 && yaml_list::is_block(text, node) {
                    return Some(vec![former, yaml_list::emptied(text, node)?]);
                }
                let range = match words.get(own + 1) {
                    Some(next) => words[0].range.start..next.range.start,
                    None if wrapped.has_made_arguments && is_next_field(text, command, node) => {
                        command.range.end..node.range.end
                    }
                    // With a comma that somebody has put behind it.
                    None => {
                        let rest = &text[literal.range.end..node.range.end];
                        let comma = rest
                            .trim_start()
                            .starts_with(',')
                            .then(|| rest.find(','))
                            .flatten();
                        words[0].range.start..literal.range.end + comma.map_or(0, |at| at + 1)
                    }
                };
                Some(vec![former, remove(range)])
            }
        }
    }
}

/// Whether a command has its arguments behind it. Paths and variables may have blanks in them.
pub(crate) fn is_command_line(command: &str) -> bool {
    let (program, rest) = command
        .trim_start()
        .split_once(char::is_whitespace)
        .unwrap_or_default();
    !rest.trim().is_empty() && !program.contains(['/', '\\', '$', '%'])
}

/// Why an entry is left alone that has a Windows command.
pub(crate) const WINDOWS: &str =
    "its command is for Windows; `setup` changes only what runs on this system";

/// Whether a command is one of Windows: a host's file may be shared with such a system, and one in
/// WSL may be read by a host on either side.
pub(crate) fn is_windows_command(command: &str) -> bool {
    let lower = command.to_ascii_lowercase();
    let has_drive = matches!(
        lower.as_bytes(),
        [letter, b':', b'/' | b'\\', ..] if letter.is_ascii_lowercase()
    );
    let name = lower.rsplit(['/', '\\']).next().unwrap_or_default();
    has_drive
        || [".exe", ".cmd", ".bat"]
            .iter()
            .any(|ending| name.ends_with(ending))
        || ["cmd", "wsl"].contains(&name)
}

/// Whether nothing but the name of the list stands between a command and its arguments.
fn is_next_field(text: &str, command: &Node, arguments: &Node) -> bool {
    let Some(between) = text.get(command.range.end..arguments.range.start) else {
        return false;
    };
    let name = between
        .trim()
        .trim_start_matches(',')
        .trim_end_matches([':', '='])
        .trim();
    let name = name.trim_matches('"');
    name == "args"
        || name
            .strip_suffix(".args")
            .is_some_and(|table| !table.contains(char::is_whitespace))
}

/// What a host will read where it read this entry before, of one that was wrapped so.
pub(crate) fn expect_unwrapped(host: Host, entry: &mut Value, wrapped: &Wrapped) {
    let own_of = |words: &[Value]| count_own(words.iter().map(Value::as_str));
    let (holder, field) = holder(host, entry);
    let Some(Value::Object(fields)) = holder else {
        return;
    };
    if let Some(Value::Array(words)) = fields.get_mut(field) {
        if words.first() == Some(&Value::from(&*wrapped.executable))
            && let Some(own) = own_of(&words[1..])
        {
            words.drain(..=own);
        }
        return;
    }
    if fields.get(field) != Some(&Value::from(&*wrapped.executable)) {
        return;
    }
    if let Some(Value::Array(words)) = fields.get_mut("args")
        && let Some(own) = own_of(words).filter(|own| *own < words.len())
    {
        let former = words.drain(..=own).next_back();
        if let Some(former) = former {
            fields.insert(field.to_owned(), former);
        }
    }
}

/// Hosts make nothing of an empty list of arguments.
pub(crate) fn without_empty_arguments(host: Host, entry: &mut Value) {
    let (holder, _) = holder(host, entry);
    let Some(Value::Object(fields)) = holder else {
        return;
    };
    if fields
        .get("args")
        .and_then(Value::as_array)
        .is_some_and(Vec::is_empty)
    {
        fields.remove("args");
    }
}

/// Where command and arguments are, and which field the command is.
pub(super) fn holder(host: Host, entry: &mut Value) -> (Option<&mut Value>, &'static str) {
    match entry.get("command") {
        // Zed's older form.
        Some(Value::Object(_)) => (entry.get_mut("command"), "path"),
        _ => (Some(entry), host.command_key()),
    }
}

/// What a host will read where it read this entry before, of the server of this name.
pub(crate) fn expect_wrapped(host: Host, entry: &mut Value, executable: &str, name: &str) {
    let own = own_words(name).into_iter().map(Value::from);
    let (holder, field) = holder(host, entry);
    let Some(Value::Object(fields)) = holder else {
        return;
    };
    match fields.get_mut(field) {
        Some(Value::Array(words)) => {
            drop(words.splice(0..0, [Value::from(executable)].into_iter().chain(own)));
        }
        Some(command) => {
            let former = std::mem::replace(command, Value::from(executable));
            let arguments = fields
                .entry("args")
                .or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(words) = arguments {
                words.splice(0..0, own.chain([former]));
            }
        }
        None => {}
    }
}

/// What a host will read where it read this entry before, of one whose executable was gone.
pub(crate) fn expect_renewed(host: Host, entry: &mut Value, executable: &str) {
    let (holder, field) = holder(host, entry);
    match holder.and_then(|holder| holder.get_mut(field)) {
        Some(Value::Array(words)) => {
            if let Some(word) = words.first_mut() {
                *word = Value::from(executable);
            }
        }
        Some(command) => *command = Value::from(executable),
        None => {}
    }
}

/// The arguments of a command that has none: on a line of their own where the command has one.
pub(super) fn new_arguments(host: Host, text: &str, command: &Node, front: &str) -> String {
    let line = text[..command.range.start]
        .rfind('\n')
        .map_or(0, |end| end + 1);
    let before = &text[line..command.range.start];
    let name = before
        .trim_start()
        .trim_end()
        .trim_end_matches([':', '='])
        .trim_end();
    let (field, comma) = match host.form {
        FileForm::Toml => ("args = ", ""),
        FileForm::Yaml => ("args: ", ""),
        FileForm::Json => ("\"args\": ", ","),
    };
    match !name.contains(['{', ',']) {
        false => format!(", {field}[{front}]"),
        true => {
            let end = if text[..line].ends_with("\r\n") {
                "\r\n"
            } else {
                "\n"
            };
            let indent = &before[..before.len() - before.trim_start().len()];
            // A dotted name in TOML: `mcp_servers.x.command`.
            let table = name
                .strip_suffix("command")
                .filter(|table| host.form == FileForm::Toml && table.ends_with('.'))
                .unwrap_or_default();
            format!("{comma}{end}{indent}{table}{field}[{front}]")
        }
    }
}

/// Whether a word of a command line is our executable, or our package.
pub(crate) fn is_us(word: &str) -> bool {
    let name = Path::new(word)
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    name == "mcp-sessiond" || name.starts_with("mcp-sessiond@")
}

/// A text as a literal of JSON, which is one of TOML and YAML, too.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
