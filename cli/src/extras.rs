//! What a build says of an extra that it was made without: a feature of Cargo.toml.

/// Why something can't be done by this build, and what to do.
pub(crate) fn absent(what: &str, feature: &str) -> String {
    format!(
        "this build of mcp-sessiond has no {what}: it was built without the feature `{feature}`; build it without `--no-default-features`"
    )
}

/// The verbs of the feature `http`.
#[cfg(not(feature = "http"))]
const VERBS: [&str; 3] = ["serve", "login", "logout"];

/// What to say about a command line that can't be parsed, where its verb is one that this build does
/// not have.
#[cfg(not(feature = "http"))]
pub(crate) fn absent_verb(mut words: impl Iterator<Item = String>) -> Option<String> {
    let verb = words.find(|word| !word.starts_with('-'))?;
    let is_known = VERBS.contains(&verb.as_str());
    is_known.then(|| absent(&format!("`{verb}`"), "http"))
}

#[cfg(all(test, not(feature = "http")))]
mod tests {
    use super::*;

    #[test]
    fn a_verb_that_is_absent_is_told_from_one_that_nobody_has() {
        let said = |words: &[&str]| absent_verb(words.iter().map(|word| (*word).to_owned()));
        for verb in VERBS {
            let said = said(&["-v", verb, "more"]).expect("a sentence");
            assert!(said.contains(&format!("has no `{verb}`: ")), "{said}");
        }
        assert_eq!(said(&["server"]), None);
        assert_eq!(said(&[]), None);
    }
}
