//! The arguments of a tool, as they are typed at a shell.

use serde_json::{Map, Value};

use crate::exit_code::USAGE;
use crate::mcp_client::CallFailure;

/// What was typed.
#[derive(Debug, PartialEq)]
pub(super) enum ToolArguments {
    /// One JSON object.
    Object(Value),
    /// KEY=VALUE, whose types the tool's schema says.
    Words(Vec<(String, String)>),
}

fn wrong(sentence: String) -> CallFailure {
    CallFailure::new(USAGE, sentence)
}

impl ToolArguments {
    /// Reads the words behind the tool.
    ///
    /// # Errors
    /// Exit code 64 where a word is neither.
    pub(super) fn read(words: &[String]) -> Result<Self, CallFailure> {
        if let [only] = words
            && only.trim_start().starts_with('{')
        {
            return match serde_json::from_str(only) {
                Ok(object) => Ok(Self::Object(object)),
                // The parser quotes nothing.
                Err(error) => Err(wrong(format!("the arguments are not JSON: {error}"))),
            };
        }
        let pair = |word: &String| match word.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(wrong(
                "an argument is KEY=VALUE, or all of them are one JSON object in quotes".to_owned(),
            )),
        };
        words
            .iter()
            .map(pair)
            .collect::<Result<_, _>>()
            .map(Self::Words)
    }
}

/// The values with the types that the schema has for them.
///
/// # Errors
/// Exit code 64 where a key is none of the tool's, or a value is not of its type.
pub(super) fn typed(words: &[(String, String)], schema: &Value) -> Result<Value, CallFailure> {
    let properties = schema["properties"].as_object();
    let mut values = Map::new();
    for (key, text) in words {
        let property = properties.and_then(|properties| properties.get(key));
        let others_are_refused = schema["additionalProperties"] == false;
        if property.is_none()
            && let Some(properties) = properties.filter(|_| others_are_refused)
        {
            let keys: Vec<&str> = properties.keys().map(String::as_str).collect();
            return Err(wrong(format!(
                "the tool has no argument `{key}`; it has {}",
                keys.join(", ")
            )));
        }
        let types = property.map(types_of).unwrap_or_default();
        let value = value_of(text, &types).ok_or_else(|| {
            wrong(format!(
                "the value of `{key}` must be of type {}",
                types.join(" or ")
            ))
        })?;
        if values.insert(key.clone(), value).is_some() {
            return Err(wrong(format!(
                "`{key}` is given twice; give a list as JSON: `{key}=[…]`"
            )));
        }
    }
    Ok(Value::Object(values))
}

/// The types that a schema allows. Empty: any.
fn types_of(schema: &Value) -> Vec<&str> {
    let own = match &schema["type"] {
        Value::String(only) => vec![only.as_str()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let choices = ["anyOf", "oneOf"]
        .into_iter()
        .filter_map(|choice| schema[choice].as_array())
        .flatten();
    own.into_iter().chain(choices.flat_map(types_of)).collect()
}

/// The value of one of these types that a text stands for. A text that is JSON of an allowed type
/// is that; what may be a string is one otherwise.
fn value_of(text: &str, types: &[&str]) -> Option<Value> {
    let parsed: Option<Value> = serde_json::from_str(text).ok();
    let is_allowed = |value: &Value| {
        types.iter().any(|of| match (*of, value) {
            ("integer", Value::Number(number)) => !number.is_f64(),
            ("number", Value::Number(_))
            | ("boolean", Value::Bool(_))
            | ("null", Value::Null)
            | ("array", Value::Array(_))
            | ("object", Value::Object(_)) => true,
            _ => false,
        })
    };
    let string = || Value::String(text.to_owned());
    match parsed {
        Some(value) if is_allowed(&value) => Some(value),
        // Nothing is known of it.
        parsed if types.is_empty() => Some(parsed.unwrap_or_else(string)),
        _ => types.contains(&"string").then(string),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_the_types_of_the_schema() {
        let schema = json!({"additionalProperties": false, "properties": {
            "text": {"type": "string"}, "count": {"type": "integer"}, "deep": {"type": ["boolean", "null"]},
            "list": {"type": "array"}, "either": {"anyOf": [{"type": "number"}, {"type": "string"}]}, "any": {},
        }});
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            match ToolArguments::read(&words) {
                Ok(ToolArguments::Words(words)) => typed(&words, &schema).ok(),
                Ok(ToolArguments::Object(object)) => Some(object),
                Err(_) => None,
            }
        };
        let words = [
            "text=1",
            "count=2",
            "deep=null",
            "list=[1]",
            "either=x=y",
            "any=true",
        ];
        assert_eq!(
            of(&words),
            Some(
                json!({"text": "1", "count": 2, "deep": null, "list": [1], "either": "x=y", "any": true})
            )
        );
        assert_eq!(of(&["either=1.5"]), Some(json!({"either": 1.5})));
        assert_eq!(of(&[r#"{"a": 1}"#]), Some(json!({"a": 1})));
        assert_eq!(of(&[]), Some(json!({})));
        for wrong in [
            "count=x",
            "count=1.5",
            "deep=1",
            "list=1",
            "other=1",
            "word",
            "=x",
            "{",
        ] {
            assert_eq!(of(&[wrong]), None, "{wrong}");
        }
        assert_eq!(of(&["text=1", "text=2"]), None);
    }
}
