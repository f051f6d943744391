//! Ids of requests, as others have written them: raw text, of which no more is read than is needed.
//! So 1e400 and 2^64 stay what they are.

/// Whether a value is an id: MCP's are strings and numbers.
pub fn is_id(raw: &str) -> bool {
    raw.starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit())
}

/// The number of ours that an answer names. Some servers give it back as a string or as `5.0`,
/// which hosts put up with.
pub fn number(raw: &str) -> Option<u64> {
    let raw = raw
        .strip_prefix('"')
        .and_then(|raw| raw.strip_suffix('"'))
        .unwrap_or(raw);
    let (digits, fraction) = raw.split_once('.').unwrap_or((raw, ""));
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit())
        && fraction.bytes().all(|byte| byte == b'0');
    if plain { digits.parse().ok() } else { None }
}
