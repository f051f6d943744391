//! `proto/TYPES.md`: the methods of the protocol and the types that they take and return, made of
//! the code of `proto` and the comments there. The test compares them; `MCP_SESSIOND_WRITE_TYPES=1`
//! writes the page anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{read_to_string, write};

use crate::fixture;

/// The files with what travels.
const FILES: [&str; 13] = [
    "backends",
    "backends/status",
    "debug",
    "facts",
    "json",
    "losses",
    "names",
    "services",
    "sessions",
    "state",
    "streams",
    "tasks",
    "types",
];

/// Types that PROTOCOL.md describes, or that are no more than text.
const ELSEWHERE: [&str; 2] = ["Error", "Token"];

const TOP: &str = "\
# Methods and types

What [the protocol](PROTOCOL.md) has, made of the code by a test (`tests/integration/protocol_types.rs`). `u16` and `u32` are numbers, `u64` is text in JSON
and a number in MessagePack; `json` is text that is one JSON value; times are in ms, `…_ms` of a point in time since the Unix epoch. A `?` marks what may be
absent. Requests with an unknown field are refused; unknown fields of answers must be ignored.

## Methods

| method | takes | returns | |
| --- | --- | --- | --- |
";

#[derive(Debug)]
struct Item {
    doc: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Struct(Vec<Field>),
    /// One value without a name: what it is made of.
    Value(String),
    Enum {
        tag: Option<String>,
        variants: Vec<Variant>,
    },
}

#[derive(Debug)]
struct Field {
    name: String,
    is_optional: bool,
    is: String,
    doc: String,
}

#[derive(Debug)]
struct Variant {
    name: String,
    value: Option<String>,
    fields: Vec<Field>,
    doc: String,
}

/// The comments and attributes before an item, and what follows them.
#[derive(Debug, Default)]
struct Before {
    doc: String,
    attributes: String,
}

impl Before {
    /// Takes a line; true if it belongs here.
    fn take(&mut self, line: &str) -> bool {
        if let Some(doc) = line.strip_prefix("///") {
            let doc = doc.trim();
            if !self.doc.is_empty() && !doc.is_empty() {
                self.doc.push(' ');
            }
            self.doc.push_str(doc);
            return true;
        }
        let is_open = self.attributes.matches('[').count() > self.attributes.matches(']').count();
        let is_attribute = line.starts_with("#[") || is_open;
        if is_attribute {
            self.attributes.push_str(line);
        }
        is_attribute
    }

    fn doc(&self) -> String {
        plain(&self.doc)
    }

    /// The value of a key in the attributes.
    fn value(&self, key: &str) -> Option<String> {
        let (_, after) = self.attributes.split_once(&format!("{key} = \""))?;
        Some(after.split('"').next()?.to_owned())
    }
}

/// A comment without the links of rustdoc.
fn plain(doc: &str) -> String {
    let mut text = doc
        .replace("[`", "`")
        .replace("`]", "`")
        .replace('|', "\\|");
    while let Some(at) = text.find("`(") {
        let end = text[at..].find(')').map_or(text.len(), |end| at + end + 1);
        text.replace_range(at + 1..end, "");
    }
    text.replace(['[', ']'], "")
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// A type of Rust as the page has it.
fn shown(of: &str) -> String {
    let of = of.trim();
    for (outer, words) in [("Option<", ""), ("Box<", ""), ("Vec<", "array of ")] {
        if let Some(inner) = of.strip_prefix(outer) {
            let inner = inner.strip_suffix('>').expect("it is closed");
            return format!("{words}{}", shown(inner));
        }
    }
    if let Some(inner) = of.strip_prefix("BTreeMap<") {
        let inner = inner.strip_suffix('>').expect("it is closed");
        let (key, value) = inner.split_once(", ").expect("two");
        return format!("map from {} to {}", shown(key), shown(value));
    }
    match of {
        "String" | "str" => "text".to_owned(),
        "bool" => "boolean".to_owned(),
        "Json" => "json".to_owned(),
        "Token" => "token".to_owned(),
        "()" => "null".to_owned(),
        other => other.to_owned(),
    }
}

fn field(before: &Before, line: &str) -> Field {
    let line = line.trim_end_matches(',');
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let (name, is) = line.split_once(": ").expect("a field has a type");
    Field {
        name: name.trim_start_matches("r#").to_owned(),
        is_optional: before.attributes.contains("default") || is.starts_with("Option<"),
        is: shown(is),
        doc: before.doc(),
    }
}

/// The variants of an enum, from the line behind its head.
fn variants<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Vec<Variant> {
    let mut found = Vec::new();
    let mut before = Before::default();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if line == "}" {
            break;
        }
        if line.is_empty()
            || line.starts_with("//") && !line.starts_with("///")
            || before.take(line)
        {
            continue;
        }
        let own = std::mem::take(&mut before);
        // What a newer peer may say.
        let is_other = own.attributes.contains("serde(other)");
        let name = line.split(['(', ' ', ',']).next().expect("a name");
        let mut variant = Variant {
            name: snake_case(name),
            value: None,
            fields: Vec::new(),
            doc: own.doc(),
        };
        if line.ends_with('{') {
            let mut before = Before::default();
            for line in lines.by_ref().map(str::trim) {
                if line.starts_with('}') {
                    break;
                }
                if !line.is_empty() && !before.take(line) {
                    variant
                        .fields
                        .push(field(&std::mem::take(&mut before), line));
                }
            }
        } else if let Some((_, value)) = line.split_once('(') {
            let value = value.trim_end_matches([',', ')']);
            let value = value.rsplit("] ").next().expect("a type");
            variant.value = Some(shown(value));
        }
        if !is_other {
            found.push(variant);
        }
    }
    found
}

/// The numbers that constants of a file stand for, by their names.
fn constants(text: &str, found: &mut BTreeMap<String, u64>) {
    for line in text.lines() {
        let Some((name, value)) = line
            .strip_prefix("pub const ")
            .and_then(|line| line.trim_end_matches(';').split_once(" = "))
        else {
            continue;
        };
        let factors = value
            .split(" * ")
            .map(|factor| factor.replace('_', "").parse::<u64>());
        if let Ok(value) = factors.product::<Result<u64, _>>() {
            let name = name.split(':').next().expect("a name");
            found.insert(name.to_owned(), value);
        }
    }
}

/// A number with commas.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The types of a file.
fn items(text: &str, found: &mut BTreeMap<String, Item>) {
    let mut lines = text.lines();
    let mut before = Before::default();
    while let Some(line) = lines.next() {
        if before.take(line) {
            continue;
        }
        let own = std::mem::take(&mut before);
        let head = |keyword: &str| {
            let rest = line.strip_prefix("pub ")?.strip_prefix(keyword)?;
            let name = rest.split(['(', ' ', '<', ';', '{']).next()?;
            Some((name.to_owned(), &rest[name.len()..]))
        };
        if let Some((name, rest)) = head("struct ") {
            let kind = if let Some(value) = rest.strip_prefix('(') {
                let value = value.trim_end_matches([';', ')']);
                let value = value
                    .rsplit("] ")
                    .next()
                    .expect("a type")
                    .trim_start_matches("pub ");
                let is_text = own.attributes.contains("try_from = \"String\"");
                Kind::Value(if is_text {
                    "text".to_owned()
                } else {
                    shown(value)
                })
            } else if rest.ends_with('{') {
                let mut fields = Vec::new();
                let mut before = Before::default();
                for line in lines.by_ref().map(str::trim) {
                    if line == "}" {
                        break;
                    }
                    if !line.is_empty() && !before.take(line) {
                        fields.push(field(&std::mem::take(&mut before), line));
                    }
                }
                Kind::Struct(fields)
            } else {
                continue;
            };
            found.insert(
                name,
                Item {
                    doc: own.doc(),
                    kind,
                },
            );
        } else if let Some((name, _)) = head("enum ") {
            let kind = Kind::Enum {
                tag: own.value("tag"),
                variants: variants(&mut lines),
            };
            found.insert(
                name,
                Item {
                    doc: own.doc(),
                    kind,
                },
            );
        }
    }
}

/// The names of types in a text, such as `array of Session`.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| word.starts_with(|first: char| first.is_uppercase()))
}

/// What an item names.
fn named(item: &Item) -> BTreeSet<String> {
    let texts: Vec<&String> = match &item.kind {
        Kind::Struct(fields) => fields.iter().map(|field| &field.is).collect(),
        Kind::Value(value) => vec![value],
        Kind::Enum { variants, .. } => (variants.iter())
            .flat_map(|one| {
                one.value
                    .iter()
                    .chain(one.fields.iter().map(|field| &field.is))
            })
            .collect(),
    };
    texts
        .into_iter()
        .flat_map(|text| names(text))
        .map(str::to_owned)
        .collect()
}

/// The rows of the methods, and the types that they name.
fn methods() -> (String, BTreeSet<String>) {
    let text = read_to_string(fixture("../proto/src/service.rs")).expect("the service");
    let (mut rows, mut found) = (String::new(), BTreeSet::new());
    let mut before = Before::default();
    for line in text.lines().map(str::trim) {
        if before.take(line) {
            continue;
        }
        let own = std::mem::take(&mut before);
        let Some(line) = line
            .strip_prefix("async fn ")
            .filter(|line| !line.starts_with('$'))
        else {
            continue;
        };
        let (name, rest) = line.split_once('(').expect("arguments");
        let (argument, rest) = rest.split_once(')').expect("arguments end");
        let takes = argument.strip_prefix("request: ").unwrap_or_default();
        let returns = rest.trim_start_matches(" -> ").trim_end_matches(';');
        let returns = returns
            .strip_prefix("Result<")
            .and_then(|result| result.strip_suffix(", Error>"))
            .unwrap_or(returns);
        let or_null = if returns.starts_with("Option<") {
            ", or null"
        } else {
            ""
        };
        let returns = if returns.is_empty() { "()" } else { returns };
        let returns = format!("{}{or_null}", shown(returns));
        found.extend(names(takes).chain(names(&returns)).map(str::to_owned));
        let _ = writeln!(rows, "| `{name}` | {takes} | {returns} | {} |", own.doc());
    }
    (rows, found)
}

fn table(page: &mut String, fields: &[Field]) {
    page.push_str("\n| field | type | |\n| --- | --- | --- |\n");
    for field in fields {
        let mark = if field.is_optional { "?" } else { "" };
        let _ = writeln!(
            page,
            "| `{}`{mark} | {} | {} |",
            field.name, field.is, field.doc
        );
    }
}

fn page() -> String {
    let (mut types, mut numbers) = (BTreeMap::new(), BTreeMap::new());
    for file in FILES {
        let path = fixture(&format!("../proto/src/{file}.rs"));
        let text = read_to_string(&path).expect(&path);
        items(&text, &mut types);
        constants(&text, &mut numbers);
    }
    let (rows, mut wanted) = methods();
    wanted.extend(["KeeperRequest", "KeeperReply"].map(str::to_owned));
    let mut reached = BTreeSet::new();
    while let Some(name) = wanted.pop_first() {
        let item = types.get(&name);
        let Some(item) = item.filter(|_| !ELSEWHERE.contains(&&*name)) else {
            continue;
        };
        if reached.insert(name) {
            wanted.extend(named(item));
        }
    }
    let mut page = format!("{TOP}{rows}\n## Types\n");
    for name in reached {
        let item = &types[&name];
        let _ = write!(page, "\n**{name}**");
        match &item.kind {
            Kind::Value(value) => {
                let _ = writeln!(page, " {value}. {}", item.doc);
            }
            Kind::Struct(fields) => {
                let _ = writeln!(page, " {}", item.doc);
                table(&mut page, fields);
            }
            Kind::Enum { tag, variants } => {
                let _ = writeln!(page, " {}", item.doc);
                let head = tag
                    .as_ref()
                    .map_or("word, or the one entry of a map".to_owned(), |tag| {
                        format!("`{tag}`")
                    });
                let _ = write!(page, "\n| {head} | with | |\n| --- | --- | --- |\n");
                for one in variants {
                    let mut with = one.value.clone().unwrap_or_default();
                    for field in &one.fields {
                        let mark = if field.is_optional { "?" } else { "" };
                        let comma = if with.is_empty() { "" } else { "; " };
                        let _ = write!(with, "{comma}`{}`{mark} {}", field.name, field.is);
                        if !field.doc.is_empty() {
                            let _ = write!(with, ": {}", field.doc.trim_end_matches('.'));
                        }
                    }
                    let _ = writeln!(page, "| `{}` | {with} | {} |", one.name, one.doc);
                }
            }
        }
    }
    for (name, number) in numbers {
        page = page.replace(&format!("`{name}`"), &grouped(number));
    }
    page
}

#[test]
fn the_page_of_types_is_that_of_the_code() {
    let (page, path) = (page(), fixture("../proto/TYPES.md"));
    assert!(
        page.matches("\n| `").count() > 300,
        "the types are not found any more"
    );
    if std::env::var_os("MCP_SESSIOND_WRITE_TYPES").is_some() {
        write(&path, &page).expect("written");
    }
    assert!(
        read_to_string(&path).is_ok_and(|written| written == page),
        "proto/TYPES.md is not what the code says: run this test with MCP_SESSIOND_WRITE_TYPES=1"
    );
}
