//! A host whose input is not JSON-RPC in lines of text, such as HTTP/2 over standard input and
//! output, or messages behind a `Content-Length`. Nothing of that can be kept: the command gets the
//! bytes as they are, as a child of the front, and its output is the front's.

/// A byte order mark in UTF-8.
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// Why the command is run as it is.
pub(super) const WHY: &str =
    "the host does not speak JSON-RPC in lines of text, so its bytes are passed on as they are";

/// Whether these first bytes of a host begin no line of JSON-RPC: the first one that is not white
/// space, behind a byte order mark, is neither `{` nor `[`.
pub(super) fn is_raw(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(MARK).unwrap_or(bytes);
    let first = bytes.trim_ascii_start();
    // A part of a mark may be followed by the rest.
    !first.is_empty() && !matches!(first[0], b'{' | b'[') && !MARK.starts_with(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_rpc_begins_with_a_brace_or_a_bracket_behind_space_and_a_mark() {
        for text in ["", " \r\n", "{", "[1", " \t{}", "\u{feff}{", "\u{feff} ["] {
            assert!(!is_raw(text.as_bytes()), "{text:?}");
        }
        // A part of the mark.
        assert!(!is_raw(b"\xEF") && !is_raw(b"\xEF\xBB"));
        for bytes in [
            &b"PRI * HTTP/2.0"[..],
            b"Content-Length: 2",
            b"\x16\x03\x01",
            b"\xEF\xBBx",
            b"7",
        ] {
            assert!(is_raw(bytes), "{bytes:?}");
        }
    }
}
