//! Edits of a text.

use std::ops::Range;

/// A piece of the text, and what stands there instead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) range: Range<usize>,
    pub(crate) text: String,
}

/// The text after these edits, of which no two touch the same bytes.
pub(crate) fn edited(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| std::cmp::Reverse(edit.range.start));
    let mut text = text.to_owned();
    for edit in edits {
        text.replace_range(edit.range, &edit.text);
    }
    text
}

/// The text without the mark that some editors put before it.
pub(crate) fn body(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The text with its body edited.
pub(crate) fn with_body(text: &str, edits: Vec<Edit>) -> String {
    let body = body(text);
    let mark = &text[..text.len() - body.len()];
    mark.to_owned() + &edited(body, edits)
}
