//! YAML as a tree that knows where each scalar stands in the text: Goose keeps its servers in such
//! a file.

use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::{Map, Value};

/// How deep a file may be: a host's is five deep, and each level costs stack.
const DEEPEST: usize = 64;

/// A value, and where it stands. A list without brackets has no end of its own.
#[derive(Debug)]
pub(crate) struct Yaml {
    pub(crate) range: Range<usize>,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Text(String),
    /// A text over several lines, which can't be moved as it is.
    LongText(String),
    Null,
    /// A number or a truth value.
    Other(Value),
    List(Vec<Yaml>),
    Table(Vec<(String, Yaml)>),
    /// It has an anchor or a tag, is an alias, or takes the members of another table.
    Marked,
}

impl Yaml {
    /// Reads a text. None: there is nothing in it.
    ///
    /// # Errors
    /// When it is not YAML, or not of the kind that hosts write. What is in it is never part of the
    /// sentence.
    pub(crate) fn read(text: &str) -> Result<Option<Self>, String> {
        let mut builder = Builder {
            offsets: offsets(text),
            text,
            open: Vec::new(),
            root: None,
        };
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| {
                format!(
                    "it is not YAML at line {} column {}",
                    error.marker().line(),
                    error.marker().col() + 1
                )
            })?;
            builder.take(event, span)?;
        }
        Ok(builder.root)
    }

    /// As a program reads it. What is marked is null.
    pub(crate) fn value(&self) -> Value {
        match &self.kind {
            Kind::Text(text) | Kind::LongText(text) => Value::from(text.as_str()),
            Kind::Other(value) => value.clone(),
            Kind::List(items) => items.iter().map(Self::value).collect(),
            Kind::Table(members) => Value::Object(
                members
                    .iter()
                    .map(|(name, value)| (name.clone(), value.value()))
                    .collect::<Map<_, _>>(),
            ),
            Kind::Null | Kind::Marked => Value::Null,
        }
    }

    /// Whether there is anything in it that is not what it seems to be where it stands.
    pub(crate) fn has_marks(&self) -> bool {
        match &self.kind {
            Kind::Marked => true,
            Kind::List(items) => items.iter().any(Self::has_marks),
            Kind::Table(members) => members.iter().any(|(_, value)| value.has_marks()),
            _ => false,
        }
    }

    /// A member of a table: the last one of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let Kind::Table(members) = &self.kind else {
            return None;
        };
        members
            .iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }
}

/// Where each character begins, and where the text ends: the parser counts characters.
fn offsets(text: &str) -> Vec<usize> {
    text.char_indices()
        .map(|(at, _)| at)
        .chain([text.len()])
        .collect()
}

/// A list or a table that is not complete yet.
struct Open {
    start: usize,
    /// Where its last member ends.
    end: usize,
    is_marked: bool,
    /// Of a table: the name whose value comes next.
    name: Option<String>,
    members: Members,
}

enum Members {
    List(Vec<Yaml>),
    Table(Vec<(String, Yaml)>),
}

struct Builder<'a> {
    text: &'a str,
    offsets: Vec<usize>,
    open: Vec<Open>,
    root: Option<Yaml>,
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), String> {
        let range = self.range(span);
        match event {
            Event::Alias(_) => self.put(Yaml {
                range,
                kind: Kind::Marked,
            })?,
            Event::Scalar(text, style, anchor, tag) => {
                let range = range.start..self.end(&range, style);
                let kind = if anchor > 0 || tag.is_some() {
                    Kind::Marked
                } else {
                    scalar(
                        &text,
                        style,
                        self.text.get(range.clone()).unwrap_or_default(),
                    )
                };
                self.scalar(Yaml { range, kind }, &text)?;
            }
            Event::SequenceStart(anchor, tag) => {
                self.begin(
                    range.start,
                    anchor > 0 || tag.is_some(),
                    Members::List(Vec::new()),
                )?;
            }
            Event::MappingStart(anchor, tag) => {
                self.begin(
                    range.start,
                    anchor > 0 || tag.is_some(),
                    Members::Table(Vec::new()),
                )?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else {
                    return Ok(());
                };
                // A bracket, which is there only in one style.
                let end = if range.is_empty() {
                    open.end
                } else {
                    range.end
                };
                let kind = match open.members {
                    _ if open.is_marked => Kind::Marked,
                    Members::List(items) => Kind::List(items),
                    Members::Table(members) => Kind::Table(members),
                };
                self.put(Yaml {
                    range: open.start..end.max(open.start),
                    kind,
                })?;
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn range(&self, span: Span) -> Range<usize> {
        let at = |index: usize| self.offsets.get(index).copied().unwrap_or(self.text.len());
        at(span.start.index())..at(span.end.index()).max(at(span.start.index()))
    }

    /// Where a scalar ends. The parser takes what follows a closing quote for a part of it, a
    /// comment too.
    fn end(&self, range: &Range<usize>, style: ScalarStyle) -> usize {
        let quote = match style {
            ScalarStyle::SingleQuoted => b'\'',
            ScalarStyle::DoubleQuoted => b'"',
            _ => return range.end,
        };
        let bytes = self.text.as_bytes();
        let mut at = range.start + 1;
        while let Some(byte) = bytes.get(at) {
            let is_escaped = match quote {
                b'"' => *byte == b'\\',
                _ => *byte == quote && bytes.get(at + 1) == Some(&quote),
            };
            if is_escaped {
                at += 1;
            } else if *byte == quote {
                return at + 1;
            }
            at += 1;
        }
        range.end
    }

    fn begin(&mut self, start: usize, is_marked: bool, members: Members) -> Result<(), String> {
        if self.open.len() == DEEPEST {
            return Err(format!("it is more than {DEEPEST} levels deep"));
        }
        self.open.push(Open {
            start,
            end: start,
            is_marked,
            name: None,
            members,
        });
        Ok(())
    }

    /// A scalar is a name, or a value.
    fn scalar(&mut self, value: Yaml, text: &str) -> Result<(), String> {
        if let Some(Open {
            members: Members::Table(_),
            name: name @ None,
            is_marked,
            ..
        }) = self.open.last_mut()
        {
            *is_marked |= text == "<<" || matches!(value.kind, Kind::Marked);
            *name = Some(text.to_owned());
            return Ok(());
        }
        self.put(value)
    }

    fn put(&mut self, value: Yaml) -> Result<(), String> {
        let Some(open) = self.open.last_mut() else {
            if self.root.is_some() {
                return Err("it has more than one document".to_owned());
            }
            self.root = Some(value);
            return Ok(());
        };
        open.end = value.range.end;
        match (&mut open.members, open.name.take()) {
            (Members::List(items), _) => items.push(value),
            (Members::Table(members), Some(name)) => members.push((name, value)),
            (Members::Table(_), None) => return Err("a name in it is not a string".to_owned()),
        }
        Ok(())
    }
}

/// A scalar that is written so.
fn scalar(text: &str, style: ScalarStyle, literal: &str) -> Kind {
    let is_one_line = !literal.contains(['\n', '\r']);
    let is_where_it_seems = match style {
        ScalarStyle::Plain => literal == text,
        ScalarStyle::SingleQuoted => {
            literal.len() > 1 && literal.starts_with('\'') && literal.ends_with('\'')
        }
        ScalarStyle::DoubleQuoted => {
            literal.len() > 1 && literal.starts_with('"') && literal.ends_with('"')
        }
        ScalarStyle::Literal | ScalarStyle::Folded => false,
    };
    match plain(text).filter(|_| style == ScalarStyle::Plain) {
        Some(Value::Null) => Kind::Null,
        Some(value) => Kind::Other(value),
        None if is_one_line && is_where_it_seems => Kind::Text(text.to_owned()),
        None => Kind::LongText(text.to_owned()),
    }
}

/// What a scalar without quotes is, where it is no text: the core schema of YAML 1.2.
fn plain(text: &str) -> Option<Value> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Some(Value::Null),
        "true" | "True" | "TRUE" => return Some(true.into()),
        "false" | "False" | "FALSE" => return Some(false.into()),
        ".inf" | "-.inf" | "+.inf" | ".nan" | ".NaN" | ".NAN" => return Some(Value::Bool(false)),
        _ => {}
    }
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0o")) {
        let radix = if text.starts_with("0x") { 16 } else { 8 };
        return u64::from_str_radix(digits, radix).ok().map(Value::from);
    }
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
        && text
            .chars()
            .all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    if !is_number {
        return None;
    }
    text.parse::<i64>()
        .map(Value::from)
        .ok()
        .or_else(|| text.parse::<f64>().ok().map(Value::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scalar_is_found_where_it_stands() {
        let text = "# mü\r\na:\r\n  cmd: npx  # x\r\n  'n': \"ä\\n\" # y\r\n  args:\r\n  - -y\r\n  - 'it''s'\r\n  flow: [x, {k: \"v\"}]\r\nb: ~\r\n";
        let tree = Yaml::read(text).expect("YAML").expect("a value");
        let a = tree.get("a").expect("a member");
        let literal = |value: &Yaml| text[value.range.clone()].to_owned();
        assert_eq!(literal(a.get("cmd").expect("a member")), "npx");
        assert_eq!(literal(a.get("n").expect("a member")), "\"ä\\n\"");
        assert_eq!(literal(a.get("flow").expect("a member")), "[x, {k: \"v\"}]");
        let Kind::List(items) = &a.get("args").expect("a member").kind else {
            panic!("no list")
        };
        assert_eq!(
            items.iter().map(literal).collect::<Vec<_>>(),
            ["-y", "'it''s'"]
        );
        assert_eq!(
            tree.value(),
            serde_json::json!({"a": {"cmd": "npx", "n": "ä\n", "args": ["-y", "it's"], "flow": ["x", {"k": "v"}]}, "b": null})
        );
    }

    #[test]
    fn what_is_not_plain_is_marked_or_refused() {
        for text in [
            "a: &x b",
            "a: *x",
            "a: !t b",
            "<<: {k: v}",
            "a: {<<: [b]}",
            "a: [&x b]",
        ] {
            let text = format!("x: &x 1\nin:\n  {text}\n");
            let tree = Yaml::read(&text).expect("YAML").expect("a value");
            assert!(tree.get("in").is_some_and(Yaml::has_marks), "{text}");
        }
        for (text, says) in [
            ("a: b\n---\nc: d\n", "more than one document"),
            ("a: [\n", "it is not YAML at line"),
            ("a:\n\tb:\n\t\tc: d\n", "it is not YAML at line 2"),
            ("? [a]\n: b\n", "a name in it is not a string"),
        ] {
            let why = Yaml::read(text).expect_err(text);
            assert!(why.contains(says), "{text:?}: {why}");
        }
        let error = Yaml::read(&("- ".repeat(1 << 10) + "x")).expect_err("too deep");
        assert!(error.contains("levels deep"), "{error}");
        assert!(
            Yaml::read("# nothing\n")
                .expect("YAML")
                .is_none_or(|value| matches!(value.kind, Kind::Null))
        );
    }

    #[test]
    fn scalars_without_quotes_are_what_the_core_schema_says() {
        for (text, value) in [
            ("npx", None),
            ("-y", None),
            ("--", None),
            ("1.2.3", None),
            ("-", None),
            ("yes", None),
            ("8080", Some(Value::from(8080))),
            ("0x1f", Some(Value::from(31))),
            ("true", Some(Value::from(true))),
            ("~", Some(Value::Null)),
            ("1e3", Some(Value::from(1000.0))),
        ] {
            assert_eq!(plain(text), value, "{text}");
        }
    }
}
