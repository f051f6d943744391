//! Patterns of names.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A pattern: `*` stands for any text, also an empty one, `?` for one character, anything else for
/// itself. There is no escape: no name that a model's interface takes has either.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Glob(String);

/// Text that is not a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a pattern is empty; \"*\" fits everything")]
pub struct NoGlob;

impl TryFrom<String> for Glob {
    type Error = NoGlob;

    fn try_from(text: String) -> Result<Self, NoGlob> {
        if text.is_empty() {
            Err(NoGlob)
        } else {
            Ok(Self(text))
        }
    }
}

impl FromStr for Glob {
    type Err = NoGlob;

    fn from_str(text: &str) -> Result<Self, NoGlob> {
        text.to_owned().try_into()
    }
}

impl From<Glob> for String {
    fn from(glob: Glob) -> Self {
        glob.0
    }
}

impl Glob {
    /// Whether the whole name fits. Takes at most the product of both lengths.
    pub fn fits(&self, name: &str) -> bool {
        let (mut pattern, mut rest) = (self.0.chars(), name.chars());
        // What is behind the last star, and what of the name it had not taken yet. A former star
        // never has to take more.
        let mut star: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
        loop {
            let (before, untaken) = (pattern.clone(), rest.clone());
            match (pattern.next(), rest.next()) {
                (None, None) => return true,
                (Some('*'), _) => {
                    star = Some((pattern.clone(), untaken.clone()));
                    rest = untaken;
                }
                (Some('?'), Some(_)) => {}
                (Some(wanted), Some(found)) if wanted == found => {}
                (_, None) if before.as_str().is_empty() => return true,
                _ => {
                    let Some((behind, taken)) = &mut star else {
                        return false;
                    };
                    if taken.next().is_none() {
                        return false;
                    }
                    (pattern, rest) = (behind.clone(), taken.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fits(pattern: &str, name: &str) -> bool {
        Glob::try_from(pattern.to_owned())
            .expect("a pattern")
            .fits(name)
    }

    /// The definition, word by word.
    fn fits_by_definition(pattern: &[char], name: &[char]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            (['*', behind @ ..], _) => {
                (0..=name.len()).any(|taken| fits_by_definition(behind, &name[taken..]))
            }
            (['?', behind @ ..], [_, rest @ ..]) => fits_by_definition(behind, rest),
            ([wanted, behind @ ..], [found, rest @ ..]) => {
                wanted == found && fits_by_definition(behind, rest)
            }
            _ => false,
        }
    }

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("search", "search", true),
            ("search", "search_all", false),
            ("search*", "search", true),
            ("*_delete", "file_delete", true),
            ("*_delete", "file_delete_all", false),
            ("r?n", "run", true),
            ("r?n", "rn", false),
            ("a*b*c", "abcbc", true),
            ("*://*", "file:///x", true),
            ("[ab]", "a", false),
            ("?", "é", true),
            ("*", "", true),
            ("?", "", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
        assert_eq!(Glob::try_from(String::new()), Err(NoGlob));
    }

    #[test]
    fn one_that_is_made_to_take_long_does_not() {
        let stars = "*a".repeat(500) + "b";
        assert!(!fits(&stars, &"a".repeat(5_000)));
    }

    proptest! {
        #[test]
        fn a_pattern_fits_what_its_definition_says(pattern in "[ab*?é]{1,8}", name in "[abé*]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(fits(&pattern, &name), fits_by_definition(&chars(&pattern), &chars(&name)));
        }

        #[test]
        fn a_name_fits_itself_and_what_it_is_made_into(name in "[a-z_]{1,20}", from in 0_usize..20, stars in 1_usize..4) {
            let from = from.min(name.len() - 1);
            prop_assert!(fits(&name, &name));
            let starred = format!("{}{}{}", &name[..from], "*".repeat(stars), &name[from + 1..]);
            let asked = format!("{}?{}", &name[..from], &name[from + 1..]);
            let longer = name.clone() + "x";
            prop_assert!(fits(&starred, &name) && fits(&asked, &name) && !fits(&asked, &longer));
        }
    }
}
