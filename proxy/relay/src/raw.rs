//! Values of JSON as they stand in a message: raw text, of which no more is read than is needed.

use alloc::borrow::Cow;

/// The text of a JSON string, borrowed where nothing in it is escaped.
pub(crate) fn string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str(raw).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// MCP's ids are strings and numbers.
pub(super) fn is_id(raw: &str) -> bool {
    raw.starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit())
}

/// The number of ours that an answer names. Some servers give it back as a string or as `5.0`,
/// which hosts put up with.
pub(crate) fn number(raw: &str) -> Option<u64> {
    let raw = raw
        .strip_prefix('"')
        .and_then(|raw| raw.strip_suffix('"'))
        .unwrap_or(raw);
    let (digits, fraction) = raw.split_once('.').unwrap_or((raw, ""));
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit())
        && fraction.bytes().all(|byte| byte == b'0');
    if plain { digits.parse().ok() } else { None }
}
