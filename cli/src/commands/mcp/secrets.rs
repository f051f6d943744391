//! What looks like a secret of a server's, and is shown to no model.

use mcp_sessiond_process::{PinnedProcess, environment_of};

use crate::commands::import::convert::is_secret;
use crate::inventory::Server;

/// Bytes of a secret at least: shorter ones stand in a text by chance.
const LEAST: usize = 6;

/// The secrets of one server, each with what is shown in its place, the longest first.
pub(super) struct Secrets(Vec<(String, String)>);

impl Secrets {
    /// Those in the environment of a server and of its keeper, and among its arguments.
    pub(super) fn of(server: &Server) -> Self {
        let processes = [server.pid, server.keeper_pid].into_iter().flatten();
        let open = |pid| PinnedProcess::open(pid).ok();
        let variables = processes
            .filter_map(open)
            .filter_map(|process| environment_of(&process).ok().flatten())
            .flatten();
        let variables = variables.filter_map(|variable| {
            let variable = String::from_utf8_lossy(&variable).into_owned();
            let (name, value) = variable.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        });
        Self::among(variables.chain(options(&server.command)))
    }

    fn among(named: impl Iterator<Item = (String, String)>) -> Self {
        let is_one =
            |(name, value): &(String, String)| value.len() >= LEAST && is_secret(name, value);
        let mut secrets: Vec<_> = named
            .filter(is_one)
            .map(|(name, value)| (value, format!("[{name}]")))
            .collect();
        secrets.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        Self(secrets)
    }

    /// The text without them.
    pub(super) fn hide(&self, text: &str) -> String {
        let hide =
            |text: String, (value, instead): &(String, String)| text.replace(&**value, instead);
        self.0.iter().fold(text.to_owned(), hide)
    }
}

/// The options of a command line that have a value, as `--name=value` and as `--name value`.
fn options(words: &[String]) -> impl Iterator<Item = (String, String)> {
    let option = |word: &str| {
        word.starts_with('-')
            .then(|| word.trim_start_matches('-').to_owned())
    };
    let whole = words.iter().filter_map(move |word| {
        let (name, value) = word.split_once('=')?;
        Some((option(name)?, value.to_owned()))
    });
    let apart = words
        .windows(2)
        .filter_map(move |two| Some((option(&two[0])?, two[1].clone())));
    whole.chain(apart)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_names_that_hold_secrets_are_left_out() {
        let words = [
            "x",
            "--api-key",
            "abcdef-1",
            "--token=abcdef-12",
            "--port",
            "8080",
            "--auth",
            "yes",
        ];
        let words = words.map(str::to_owned);
        let named = [
            ("GITHUB_TOKEN", "ghp_1234567"),
            ("HOME", "/home/me"),
            ("LONG", "ghp_1234567/8"),
        ];
        let named = named.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let secrets = Secrets::among(named.into_iter().chain(options(&words)));
        let text = "abcdef-12 abcdef-1 ghp_1234567 8080 /home/me yes";
        assert_eq!(
            secrets.hide(text),
            "[token] [api-key] [GITHUB_TOKEN] 8080 /home/me yes"
        );
    }
}
