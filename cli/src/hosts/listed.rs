//! Entries that run a server of `servers.json`, as `wrap @NAME`: the edits that make one of another
//! entry, and those that take that back. Everything of an entry that is not about what is run stays
//! as it is.

use serde_json::Value;

use super::Host;
use super::edit::Edit;
use super::entries::{Form, form, holder, new_arguments, quoted};
use super::record::Wrapped;
use super::tree::Node;

/// Fields by which hosts give a server variables. `servers.json` has them then, and here none is
/// left, since some are secrets.
const VARIABLES: [&str; 3] = ["env", "environment", "envs"];

/// Has an entry run the server of this name of `servers.json`.
///
/// # Errors
/// When a name is there twice.
pub(crate) fn list(
    (host, text): (Host, &str),
    entry: &Node,
    form: &Form<'_>,
    (executable, name): (&str, &str),
) -> Result<Vec<Edit>, String> {
    let at_name = format!("@{name}");
    let mut edits = match form {
        Form::NotWrappable(_) => return Ok(Vec::new()),
        Form::Words(words) => vec![in_place(words, array(&[executable, "wrap", &at_name]))],
        Form::Command { command, arguments } => {
            let of_arguments = match arguments {
                Some(node) => in_place(node, array(&["wrap", &at_name])),
                None => {
                    let words = [quoted("wrap"), quoted(&at_name)].join(", ");
                    let end = command.range.end;
                    let text = new_arguments(host, text, command, &words);
                    Edit {
                        range: end..end,
                        text,
                    }
                }
            };
            vec![in_place(command, quoted(executable)), of_arguments]
        }
    };
    for (_, node) in variables(entry)? {
        if is_inline(text, node) {
            edits.push(in_place(node, "{}".to_owned()));
        }
    }
    Ok(edits)
}

/// What a host will read where it read this entry before. `plain` is the entry in the file's text.
///
/// # Errors
/// When a name is there twice.
pub(crate) fn expect_listed(
    (host, text): (Host, &str),
    plain: &Node,
    entry: &mut Value,
    (executable, name): (&str, &str),
) -> Result<(), String> {
    let at_name = format!("@{name}");
    let (holder, field) = holder(host, entry);
    let Some(Value::Object(fields)) = holder else {
        return Ok(());
    };
    if fields.get(field).is_some_and(Value::is_array) {
        fields.insert(
            field.to_owned(),
            Value::from(vec![executable, "wrap", &at_name]),
        );
    } else {
        fields.insert(field.to_owned(), Value::from(executable));
        fields.insert("args".to_owned(), Value::from(vec!["wrap", &at_name]));
    }
    for (variables, node) in variables(plain)? {
        if is_inline(text, node) {
            fields.insert(variables.to_owned(), Value::Object(serde_json::Map::new()));
        }
    }
    Ok(())
}

/// Takes it back, where it stands there as [`list`] has put it: `was` is the entry as it was before,
/// with the text that it was in. None: it does not stand there so.
///
/// # Errors
/// When a name is there twice.
pub(crate) fn unlist(
    (host, text): (Host, &str),
    entry: &Node,
    wrapped: &Wrapped,
    (was_text, was): (&str, &Node),
) -> Result<Option<Vec<Edit>>, String> {
    let Some(name) = &wrapped.listed else {
        return Ok(None);
    };
    let now = form(host, entry)?;
    if now.words() != [&wrapped.executable, "wrap", &format!("@{name}")] {
        return Ok(None);
    }
    let back = |now: &Node, was: &Node| in_place(now, was_text[was.range.clone()].to_owned());
    let mut edits = match (now, form(host, was)?) {
        (Form::Words(now), Form::Words(was)) => vec![back(now, was)],
        (
            Form::Command { command, arguments },
            Form::Command {
                command: was_command,
                arguments: was_arguments,
            },
        ) => {
            let mut edits = vec![back(command, was_command)];
            match (arguments, was_arguments) {
                (Some(now), Some(was)) => edits.push(back(now, was)),
                // Hosts make nothing of an empty list.
                (Some(now), None) => edits.push(in_place(now, "[]".to_owned())),
                (None, _) => return Ok(None),
            }
            edits
        }
        _ => return Ok(None),
    };
    let were = variables(was)?;
    for (name, node) in variables(entry)? {
        if text[node.range.clone()] == *"{}"
            && let Some((_, was)) = were.iter().find(|(was, _)| *was == name)
        {
            edits.push(back(node, was));
        }
    }
    Ok(Some(edits))
}

/// What a host will read where it read this entry before, of one that was as `was` says.
pub(crate) fn expect_unlisted(host: Host, entry: &mut Value, mut was: Value) {
    let (was, _) = holder(host, &mut was);
    let (holder, field) = holder(host, entry);
    let (Some(Value::Object(fields)), Some(Value::Object(was))) = (holder, was) else {
        return;
    };
    for name in [field, "args"] {
        match was.get(name) {
            Some(value) => fields.insert(name.to_owned(), value.clone()),
            None => fields.remove(name),
        };
    }
    for name in VARIABLES {
        let is_empty = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
        if fields.get(name).is_some_and(is_empty)
            && let Some(value) = was.get(name)
        {
            fields.insert(name.to_owned(), value.clone());
        }
    }
}

/// Where an entry has variables: beside its command, or in the command's table.
fn variables(entry: &Node) -> Result<Vec<(&'static str, &Node)>, String> {
    let table = match entry.get("command")? {
        Some(command) if command.members()?.is_some() => command,
        _ => entry,
    };
    let mut found = Vec::new();
    for name in VARIABLES {
        if let Some(node) = table.get(name)? {
            found.push((name, node));
        }
    }
    Ok(found)
}

/// Whether a table stands between braces. One that is spread over lines of TOML or YAML is left to
/// people.
fn is_inline(text: &str, node: &Node) -> bool {
    text[node.range.clone()].starts_with('{')
}

fn in_place(node: &Node, text: String) -> Edit {
    Edit {
        range: node.range.clone(),
        text,
    }
}

fn array(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("[{}]", words.join(", "))
}
