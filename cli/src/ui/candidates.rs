//! Words that a shell may offer.

use clap::builder::StyledStr;
use clap_complete::CompletionCandidate;

use super::table::printable;

/// Names, each once, with what stands beside them. Those that a shell would not take as one word,
/// as they are, are left out.
pub(crate) fn candidates(
    named: impl IntoIterator<Item = (String, String)>,
) -> Vec<CompletionCandidate> {
    let mut all: Vec<(String, String)> = named
        .into_iter()
        .filter(|(name, _)| is_word(name))
        .collect();
    all.sort();
    all.dedup_by(|one, other| one.0 == other.0);
    all.into_iter()
        .map(|(name, about)| {
            let about = (!about.is_empty()).then(|| StyledStr::from(printable(&about)));
            CompletionCandidate::new(name).help(about)
        })
        .collect()
}

fn is_word(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_alphanumeric() || "@%+=:,./_-".contains(letter);
    !name.is_empty() && name.chars().all(is_plain)
}
