//! Directories that a launcher makes anew for each start, by their names within arguments and
//! variables.

use std::ops::Range;

/// What stands for the name that is another one at each start.
const ANY: &[u8] = b"*";

/// How a launcher names such a directory. All of it is one component of a path, but for what stands
/// before.
struct Pattern {
    /// The components before: how they end, with the slash.
    before: &'static [u8],
    /// How the name begins.
    prefix: &'static [u8],
    /// The bytes that the rest of it consists of.
    rest: fn(u8) -> bool,
    /// How many of them there are, at least and at most.
    length: Range<usize>,
}

/// As they were seen in /proc of servers that the same launcher had started twice.
const PATTERNS: [Pattern; 5] = [
    // uv 0.13, `uv run --with X` and `--isolated`: ~/.cache/uv/builds-v0/.tmpaZ2fC0, in argv[0],
    // PATH, VIRTUAL_ENV.
    Pattern {
        before: b"/builds-v0/",
        prefix: b".tmp",
        rest: is_letter,
        length: 6..7,
    },
    // yarn 1.22, every command: /tmp/yarn--1795302200110-0.3478862797675717, in PATH.
    Pattern {
        before: b"/",
        prefix: b"yarn--",
        rest: is_number,
        length: 15..48,
    },
    // yarn 4, every command: /tmp/xfs-09113dce, in PATH, BERRY_BIN_FOLDER, npm_execpath,
    // npm_node_execpath; and `yarn dlx`: /tmp/xfs-0aff9faf/dlx-32021, in arguments, INIT_CWD,
    // PROJECT_CWD, too.
    Pattern {
        before: b"/",
        prefix: b"xfs-",
        rest: is_hex,
        length: 8..9,
    },
    Pattern {
        before: b"/xfs-*/",
        prefix: b"dlx-",
        rest: is_number,
        length: 1..11,
    },
    // xvfb-run of Debian: /tmp/xvfb-run.2Vb6Bi/Xauthority, in XAUTHORITY.
    Pattern {
        before: b"/",
        prefix: b"xvfb-run.",
        rest: is_letter,
        length: 6..7,
    },
];

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_hexdigit()
}

/// Digits, and what is between two numbers.
fn is_number(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
}

/// The text with `*` in the place of what differs at each start for no reason.
pub(super) fn masked(text: &[u8]) -> Vec<u8> {
    let mut masked = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, behind)) = rest.split_first() {
        masked.push(*byte);
        rest = behind;
        if *byte == b'/'
            && let Some((pattern, end)) = PATTERNS
                .iter()
                .find_map(|pattern| pattern.at(&masked, rest))
        {
            masked.extend_from_slice(pattern.prefix);
            masked.extend_from_slice(ANY);
            rest = &rest[end..];
        }
    }
    masked
}

impl Pattern {
    /// Where the component at the beginning of `rest` ends, if that is one of these.
    fn at(&self, before: &[u8], rest: &[u8]) -> Option<(&Self, usize)> {
        let name = rest
            .strip_prefix(self.prefix)
            .filter(|_| before.ends_with(self.before))?;
        let length = name.iter().take_while(|byte| (self.rest)(**byte)).count();
        // A colon ends an entry of PATH.
        let ends = name
            .get(length)
            .is_none_or(|byte| matches!(byte, b'/' | b':'));
        (ends && self.length.contains(&length)).then_some((self, self.prefix.len() + length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_masked(text: &str, expected: &str) {
        assert_eq!(
            String::from_utf8_lossy(&masked(text.as_bytes())),
            expected,
            "{text}"
        );
    }

    #[test]
    fn what_is_made_anew_at_each_start_is_masked() {
        for (text, expected) in [
            (
                "/root/.cache/uv/builds-v0/.tmpaZ2fC0/bin/python",
                "/root/.cache/uv/builds-v0/.tmp*/bin/python",
            ),
            (
                "VIRTUAL_ENV=/root/.cache/uv/builds-v0/.tmpNR57BR",
                "VIRTUAL_ENV=/root/.cache/uv/builds-v0/.tmp*",
            ),
            (
                "PATH=/c/uv/builds-v0/.tmpjJa7nP/bin:/c/uv/archive-v0/rpOJtw5SPEho88Tt/bin:/usr/bin",
                "PATH=/c/uv/builds-v0/.tmp*/bin:/c/uv/archive-v0/rpOJtw5SPEho88Tt/bin:/usr/bin",
            ),
            (
                "PATH=/tmp/yarn--1795302200110-0.3478862797675717:/bin",
                "PATH=/tmp/yarn--*:/bin",
            ),
            ("PATH=/tmp/xfs-09113dce:/x/.bin", "PATH=/tmp/xfs-*:/x/.bin"),
            (
                "npm_execpath=/tmp/xfs-09113dce/yarn",
                "npm_execpath=/tmp/xfs-*/yarn",
            ),
            (
                "file:///tmp/xfs-0aff9faf/dlx-32021/node_modules/tsx/dist/loader.mjs",
                "file:///tmp/xfs-*/dlx-*/node_modules/tsx/dist/loader.mjs",
            ),
            (
                "--import=/tmp/xfs-f0e8e3ae/dlx-1",
                "--import=/tmp/xfs-*/dlx-*",
            ),
            ("/tmp/xfs-09113dce/dlx-prod", "/tmp/xfs-*/dlx-prod"),
            (
                "XAUTHORITY=/tmp/xvfb-run.2Vb6Bi/Xauthority",
                "XAUTHORITY=/tmp/xvfb-run.*/Xauthority",
            ),
            (
                "/a/builds-v0/.tmpaaaaaa:/a/builds-v0/.tmpbbbbbb",
                "/a/builds-v0/.tmp*:/a/builds-v0/.tmp*",
            ),
        ] {
            assert_masked(text, expected);
            assert_masked(expected, expected);
        }
    }

    /// Two servers that differ in a directory of their own choice must not meet.
    #[test]
    fn everything_else_stays_as_it_is() {
        for text in [
            "",
            "/",
            "a b",
            "/root/.cache/uv/archive-v0/rpOJtw5SPEho88Tt/bin",
            "/root/.cache/uv/environments-v2/pp-0bf276729d55d0c8/bin/python",
            "/root/.cache/uv/builds-v0/.tmpaZ2fC/bin",
            "/root/.cache/uv/builds-v0/.tmpaZ2fC01/bin",
            "/root/.cache/uv/builds-v0/.tmpaZ2fC0.d",
            "/root/.cache/uv/builds-v0/.tmpaZ2f_0/bin",
            "/root/.cache/uv/builds-v0/x/.tmpaZ2fC0",
            "/builds/.tmpaZ2fC0/bin",
            "/tmp/.tmpaZ2fC0",
            ".tmpaZ2fC0",
            "/tmp/yarn--prod",
            "/tmp/yarn--1",
            "/tmp/my-yarn--1795302200110-0.3478862797675717",
            "/tmp/xfs-09113dcg",
            "/tmp/xfs-09113dce1",
            "/tmp/dlx-32021/x",
            "/tmp/xvfb-run.prod/Xauthority",
            "xvfb-run.2Vb6Bi",
            "DISPLAY=:99",
        ] {
            assert_masked(text, text);
        }
        let bytes = [0xff, b'/', 0xfe, 0];
        assert_eq!(masked(&bytes), bytes);
    }
}
