//! Edits of a text.

use std::ops::Range;

/// A piece of the text, and what stands there instead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) range: Range<usize>,
    pub(super) text: String,
}

/// The text after these edits, of which no two touch the same bytes.
pub(super) fn edited(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| std::cmp::Reverse(edit.range.start));
    let mut text = text.to_owned();
    for edit in edits {
        text.replace_range(edit.range, &edit.text);
    }
    text
}
