//! A server that says what it is told to, byte for byte: `raw HEARD CONTROL [modern]`.
//!
//! Every line that it reads is appended to the file HEARD. A line that has `"say":"…"` in it is
//! answered with those bytes (base64); any other request with `{}`, what is no JSON with an error,
//! and the rest with nothing. Some methods are its own:
//!
//! | method | what becomes of it |
//! | --- | --- |
//! | `hold` | no answer: its id and its progress token are kept, and `$ID0`, `$TOKEN0` and so on stand for them in whatever is said later; `$ID` stands for the id of the line that is answered |
//! | `deaf` | no answer: standard input is closed, which is appended as `closed`, and it lives on |
//! | `pad {bytes}` | a line of that many bytes |
//! | `flood {lines, bytes}` | so many notifications, each with a number and so many bytes, and then the answer |
//!
//! With `modern` it answers `server/discover` as a server of MCP 2026-07-28, and `tools/list` by
//! two pages, of which the second has the tool `query`: it wants its argument `region` in the
//! header `Mcp-Param-Region`.
//!
//! Each line that is written to the FIFO CONTROL is said as it is, also while nobody asks for it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// How many bytes of a line are looked at for its method, its id, and what it asks for.
const HEAD: usize = 4096;

/// Ids and progress tokens of what is held, as their bytes.
type Held = Arc<Mutex<Vec<(Vec<u8>, Vec<u8>)>>>;

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [heard, control, rest @ ..] = &words[..] else {
        return Err(io::Error::other("usage: raw HEARD CONTROL [modern]"));
    };
    let heard = OpenOptions::new().create(true).append(true).open(heard)?;
    // Open for writing, too, so that it never ends.
    let control = OpenOptions::new().read(true).write(true).open(control)?;
    let raw = Raw {
        heard,
        held: Held::default(),
        is_modern: rest.iter().any(|word| word == "modern"),
    };
    let held = raw.held.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(control).split(b'\n') {
            say(&held, &line.expect("a FIFO"), b"");
        }
    });
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        (&raw.heard).write_all(&line)?;
        raw.answer(line.strip_suffix(b"\n").unwrap_or(&line))?;
        line.clear();
    }
    Ok(())
}

fn say(held: &Held, text: &[u8], own: &[u8]) {
    // One line at a time, whoever says it.
    let held = held.lock().unwrap_or_else(PoisonError::into_inner);
    let mut line = Vec::with_capacity(text.len() + 1);
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'$') {
        line.extend_from_slice(&rest[..at]);
        let (stands_for, len) = placeholder(&rest[at..], &held, own);
        line.extend_from_slice(stands_for);
        rest = &rest[at + len..];
    }
    line.extend_from_slice(rest);
    line.push(b'\n');
    let mut output = io::stdout().lock();
    let _ = output.write_all(&line).and_then(|()| output.flush());
}

/// What stands at the start of a text for something else, and how long it is.
fn placeholder<'a>(
    text: &'a [u8],
    held: &'a [(Vec<u8>, Vec<u8>)],
    own: &'a [u8],
) -> (&'a [u8], usize) {
    for name in ["$ID", "$TOKEN"] {
        let Some(rest) = text.strip_prefix(name.as_bytes()) else {
            continue;
        };
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = std::str::from_utf8(&rest[..digits]).ok();
        let number: Option<usize> = number.and_then(|number| number.parse().ok());
        if let Some((id, token)) = number.and_then(|number| held.get(number)) {
            let stands_for = if name == "$ID" { id } else { token };
            return (stands_for, name.len() + digits);
        }
        if name == "$ID" {
            return (own, name.len());
        }
    }
    (&text[..1], 1)
}

/// Where something stands in the first bytes of a line. What follows is payload.
fn find(line: &[u8], what: &str) -> Option<usize> {
    let head = &line[..line.len().min(HEAD)];
    head.windows(what.len())
        .position(|here| here == what.as_bytes())
}

/// What is behind the first `"name":`, up to its end: a string with its quotes, or a word.
fn value<'a>(line: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let key = format!("\"{name}\"");
    let mut rest = line;
    loop {
        let at = find(rest, &key)?;
        rest = &rest[at + key.len()..];
        if let Some(value) = rest.trim_ascii_start().strip_prefix(b":") {
            return Some(first(value.trim_ascii_start()));
        }
    }
}

fn first(text: &[u8]) -> &[u8] {
    let mut is_escaped = false;
    let end = if text.starts_with(b"\"") {
        let end = text.iter().skip(1).position(|byte| {
            let ends = *byte == b'"' && !is_escaped;
            is_escaped = *byte == b'\\' && !is_escaped;
            ends
        });
        end.map(|end| end + 2)
    } else {
        text.iter()
            .position(|byte| b",}]".contains(byte) || byte.is_ascii_whitespace())
    };
    &text[..end.unwrap_or(text.len())]
}

fn number(line: &[u8], name: &str) -> usize {
    let value = value(line, name).and_then(|value| std::str::from_utf8(value).ok());
    value
        .and_then(|value| value.parse().ok())
        .expect("a number")
}

fn is_json(line: &[u8]) -> bool {
    std::str::from_utf8(line)
        .is_ok_and(|line| serde_json::from_str::<serde::de::IgnoredAny>(line).is_ok())
}

struct Raw {
    heard: File,
    held: Held,
    is_modern: bool,
}

impl Raw {
    fn result(&self, own: &[u8], result: &str) {
        let text = [
            br#"{"jsonrpc":"2.0","id":"#,
            own,
            br#","result":{"#,
            result.as_bytes(),
            b"}}",
        ];
        say(&self.held, &text.concat(), own);
    }

    fn answer(&self, line: &[u8]) -> io::Result<()> {
        let has = |text: &str| find(line, text).is_some();
        let own = value(line, "id").unwrap_or_default();
        if let Some(told) = value(line, "say") {
            let told = STANDARD.decode(&told[1..told.len() - 1]);
            say(&self.held, &told.expect("base64"), own);
        } else if has(r#""method":"hold""#) {
            let token = value(line, "progressToken").unwrap_or_default();
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.push((own.to_vec(), token.to_vec()));
        } else if has(r#""method":"deaf""#) {
            nix::unistd::close(0)?;
            (&self.heard).write_all(b"closed\n")?;
            loop {
                std::thread::park();
            }
        } else if has(r#""method":"pad""#) {
            let frame = br#"{"jsonrpc":"2.0","id":,"result":{"pad":""}}"#.len() + own.len();
            let padding = "x".repeat(number(line, "bytes") - frame);
            self.result(own, &format!(r#""pad":"{padding}""#));
        } else if has(r#""method":"flood""#) {
            let padding = "x".repeat(number(line, "bytes"));
            for n in 0..number(line, "lines") {
                let text = format!(
                    r#"{{"jsonrpc":"2.0","method":"flood","params":{{"n":{n},"x":"{padding}"}}}}"#
                );
                say(&self.held, text.as_bytes(), own);
            }
            self.result(own, "");
        } else if !is_json(line) {
            let error =
                br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#;
            say(&self.held, error, own);
        } else if has(r#""initialize""#) {
            let capabilities = r#""capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"raw","version":"1.0.0"}"#;
            let start = br#"{ "jsonrpc": "2.0",  "id":"#;
            let end = format!(r#","result":{{"protocolVersion":"2025-06-18",{capabilities}}}}}"#);
            say(&self.held, &[start, own, end.as_bytes()].concat(), own);
        } else if self.is_modern && has(r#""server/discover""#) {
            self.result(own, r#""supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete""#);
        } else if self.is_modern && has(r#""tools/list""#) {
            let region = r#"{"type":"string","x-mcp-header":"Region"}"#;
            let query = format!(
                r#"{{"name":"query","inputSchema":{{"type":"object","properties":{{"region":{region}}}}}}}"#
            );
            let is_second = has(r#""cursor":"2""#);
            let page = if is_second {
                format!(r#""tools":[{query}]"#)
            } else {
                r#""tools":[],"nextCursor":"2""#.to_owned()
            };
            self.result(own, &page);
        } else if !own.is_empty() && has(r#""method""#) {
            self.result(own, "");
        }
        Ok(())
    }
}
