//! What may be typed in the place of a verb: names under which scripts know it.

use std::ffi::OsString;

/// Words at the beginning of a command line, and what they stand for. Of two that fit, the first.
const OTHER_NAMES: [(&[&str], &[&str]); 7] = [
    (&["service", "restart"], &["install", "--restart"]),
    (&["service", "status"], &["install", "--status"]),
    (&["service"], &["install", "--status"]),
    (&["uninstall"], &["install", "--remove"]),
    (&["tools"], &["call"]),
    (&["config"], &["debug", "config"]),
    (&["stats"], &["debug", "stats"]),
];

/// A command line, without the name of the executable, as the parser knows it.
pub(crate) fn expand(words: Vec<OsString>) -> Vec<OsString> {
    let is_help = words.first().is_some_and(|word| word == "help");
    let rest = &words[usize::from(is_help)..];
    let Some((typed, meant)) = OTHER_NAMES.iter().find(|(typed, _)| {
        rest.len() >= typed.len() && rest.iter().zip(*typed).all(|(a, b)| a == b)
    }) else {
        return words;
    };
    // There is no help for an option alone.
    let meant = meant
        .iter()
        .filter(|word| !is_help || !word.starts_with('-'));
    let before = is_help.then(|| OsString::from("help"));
    before
        .into_iter()
        .chain(meant.map(OsString::from))
        .chain(rest[typed.len()..].iter().cloned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_of_verbs() {
        for (typed, meant) in [
            ("service", "install --status"),
            ("service --json", "install --status --json"),
            ("service restart --serve x", "install --restart --serve x"),
            ("uninstall --dry-run", "install --remove --dry-run"),
            ("help uninstall", "help install"),
            ("tools x --json", "call x --json"),
            ("stats --prometheus", "debug stats --prometheus"),
            ("wrap service", "wrap service"),
            ("help", "help"),
            ("", ""),
        ] {
            let words = typed.split_whitespace().map(OsString::from).collect();
            let expanded: Vec<String> = expand(words)
                .into_iter()
                .map(|word| word.into_string().expect("ASCII"))
                .collect();
            assert_eq!(expanded.join(" "), meant);
        }
    }
}
