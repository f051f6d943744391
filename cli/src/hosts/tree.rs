//! A host's file as a tree that knows where each value stands in the text, so that an edit touches
//! nothing else: comments, order, line ends and commas stay as they are.

use std::collections::BTreeSet;
use std::ops::Range;

use jsonc_parser::ast;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::yaml::{self, Yaml};

/// A value, and where its literal stands.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) range: Range<usize>,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Text(String),
    List(Vec<Node>),
    Table(Vec<(String, Node)>),
    Null,
    /// A text over several lines of YAML, which can't be moved as it is.
    LongText,
    /// Something of YAML that is not what it seems to be where it stands: an alias, say.
    Marked,
    Other,
}

impl Node {
    pub(crate) fn text(&self) -> Option<&str> {
        if let Kind::Text(text) = &self.kind {
            Some(text)
        } else {
            None
        }
    }

    pub(crate) fn list(&self) -> Option<&[Self]> {
        if let Kind::List(items) = &self.kind {
            Some(items)
        } else {
            None
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Null)
    }

    pub(crate) fn has_marks(&self) -> bool {
        match &self.kind {
            Kind::Marked => true,
            Kind::List(items) => items.iter().any(Self::has_marks),
            Kind::Table(members) => members.iter().any(|(_, value)| value.has_marks()),
            _ => false,
        }
    }

    /// The members of a table.
    ///
    /// # Errors
    /// When a name is there twice: hosts take the last one, people read the first.
    pub(crate) fn members(&self) -> Result<Option<&[(String, Self)]>, String> {
        let Kind::Table(members) = &self.kind else {
            return Ok(None);
        };
        let mut seen = BTreeSet::new();
        match members.iter().find(|(name, _)| !seen.insert(name)) {
            Some((name, _)) => Err(format!("it has {name:?} twice in one place; remove one")),
            None => Ok(Some(members)),
        }
    }

    /// Looks for names that are twice in one table, in this value and below it.
    ///
    /// # Errors
    /// When there is one.
    pub(crate) fn check_names(&self) -> Result<(), String> {
        match &self.kind {
            Kind::List(items) => items.iter().try_for_each(Self::check_names),
            _ => self
                .members()?
                .unwrap_or_default()
                .iter()
                .try_for_each(|(_, value)| value.check_names()),
        }
    }

    /// A member of a table.
    ///
    /// # Errors
    /// When a name is there twice.
    pub(crate) fn get(&self, name: &str) -> Result<Option<&Self>, String> {
        let members = self.members()?.unwrap_or_default();
        Ok(members
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value))
    }
}

/// The tree of a text that is JSON as hosts read it: with comments and trailing commas. None: there
/// is nothing in it.
///
/// # Errors
/// When it is not JSON. What is in it is never part of the sentence.
pub(crate) fn json(text: &str, options: &ParseOptions) -> Result<Option<Node>, String> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), options).map_err(|error| {
        format!(
            "it is not JSON at line {} column {}",
            error.line_display(),
            error.column_display()
        )
    })?;
    Ok(parsed.value.map(of_json))
}

fn of_json(value: ast::Value<'_>) -> Node {
    use jsonc_parser::common::Ranged as _;
    let range = value.range();
    let kind = match value {
        ast::Value::StringLit(text) => Kind::Text(text.value.into_owned()),
        ast::Value::Array(array) => Kind::List(array.elements.into_iter().map(of_json).collect()),
        ast::Value::Object(object) => {
            let member =
                |member: ast::ObjectProp<'_>| (member.name.into_string(), of_json(member.value));
            Kind::Table(object.properties.into_iter().map(member).collect())
        }
        ast::Value::NullKeyword(_) => Kind::Null,
        _ => Kind::Other,
    };
    Node {
        range: range.start..range.end,
        kind,
    }
}

/// The tree of a text that is TOML.
///
/// # Errors
/// When it is not TOML. What is in it is never part of the sentence.
pub(crate) fn toml(text: &str) -> Result<Node, String> {
    let table = DeTable::parse(text).map_err(|error| {
        let before = error
            .span()
            .map_or("", |span| text.get(..span.start).unwrap_or_default());
        format!(
            "it is not TOML at line {}",
            before.matches('\n').count() + 1
        )
    })?;
    Ok(Node {
        range: table.span(),
        kind: of_table(table.into_inner()),
    })
}

fn of_table(table: DeTable<'_>) -> Kind {
    let members = table
        .into_iter()
        .map(|(name, value)| (name.into_inner().into_owned(), of_toml(value)));
    Kind::Table(members.collect())
}

fn of_toml(value: Spanned<DeValue<'_>>) -> Node {
    let range = value.span();
    let kind = match value.into_inner() {
        DeValue::String(text) => Kind::Text(text.into_owned()),
        DeValue::Array(items) => Kind::List(items.into_iter().map(of_toml).collect()),
        DeValue::Table(table) => of_table(table),
        _ => Kind::Other,
    };
    Node { range, kind }
}

/// The tree of a text that is YAML. None: there is nothing in it.
///
/// # Errors
/// When it is not YAML. What is in it is never part of the sentence.
pub(crate) fn yaml(text: &str) -> Result<Option<Node>, String> {
    Ok(Yaml::read(text)?
        .map(of_yaml)
        .filter(|node| !node.is_null()))
}

fn of_yaml(value: Yaml) -> Node {
    let kind = match value.kind {
        yaml::Kind::Text(text) => Kind::Text(text),
        yaml::Kind::LongText(_) => Kind::LongText,
        yaml::Kind::Null => Kind::Null,
        yaml::Kind::Other(_) => Kind::Other,
        yaml::Kind::Marked => Kind::Marked,
        yaml::Kind::List(items) => Kind::List(items.into_iter().map(of_yaml).collect()),
        yaml::Kind::Table(members) => Kind::Table(
            members
                .into_iter()
                .map(|(name, value)| (name, of_yaml(value)))
                .collect(),
        ),
    };
    Node {
        range: value.range,
        kind,
    }
}
