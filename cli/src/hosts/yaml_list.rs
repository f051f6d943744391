//! Edits of a list in YAML that has no brackets: an item on each line.

use super::edit::Edit;
use super::tree::Node;

/// Whether a list has no brackets.
pub(crate) fn is_block(text: &str, list: &Node) -> bool {
    !text[list.range.start..].starts_with('[') && list.list().is_some_and(|items| !items.is_empty())
}

/// Puts items in front, each on a line of its own. None: the first item doesn't stand behind its
/// dash.
pub(crate) fn put_in_front(
    text: &str,
    list: &Node,
    items: impl Iterator<Item = String>,
) -> Option<Edit> {
    let first = list.list()?.first()?.range.start;
    let line = text[..first].rfind('\n').map_or(0, |end| end + 1);
    let dash = &text[line..first];
    if dash.trim() != "-" {
        return None;
    }
    let end = if text[..line].ends_with("\r\n") {
        "\r\n"
    } else {
        "\n"
    };
    let items = items.map(|item| format!("{item}{end}{dash}")).collect();
    Some(Edit {
        range: first..first,
        text: items,
    })
}

/// An empty list in its place. None: something stands between it and its name.
pub(crate) fn emptied(text: &str, list: &Node) -> Option<Edit> {
    let (first, last) = (list.list()?.first()?, list.list()?.last()?);
    let line = text[..first.range.start]
        .rfind('\n')
        .map_or(0, |end| end + 1);
    let name = text[..line].trim_end();
    name.ends_with(':').then(|| Edit {
        range: name.len()..last.range.end,
        text: " []".to_owned(),
    })
}

/// Whether a literal is the same text between brackets, where commas and braces end it.
pub(crate) fn fits_brackets(literal: &str) -> bool {
    literal.starts_with(['"', '\''])
        || literal
            .chars()
            .all(|c| c.is_alphanumeric() || "/._-@+=~".contains(c))
}
