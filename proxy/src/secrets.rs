//! What looks like a secret, and is left out of what others than the user read.

use std::cmp::Reverse;

/// Bytes of a secret at least: shorter ones stand in a text by chance.
const LEAST: usize = 6;

/// How tokens begin.
const BEGINNINGS: [&str; 7] = [
    "sk-",
    "ghp_",
    "gho_",
    "github_pat_",
    "glpat-",
    "xox",
    "AKIA",
];

/// Whether a variable, a header or an option of this name has a secret for its value.
pub fn is_secret(name: &str, value: &str) -> bool {
    const WORDS: [&str; 10] = [
        "token",
        "secret",
        "password",
        "passwd",
        "credential",
        "auth",
        "cookie",
        "apikey",
        "private",
        "bearer",
    ];
    const PARTS: [&str; 4] = ["key", "pat", "pass", "pwd"];
    if value.is_empty() || value.contains("${") {
        return false;
    }
    let name = name.to_ascii_lowercase();
    WORDS.iter().any(|word| name.contains(word))
        || name.split(['_', '-']).any(|part| PARTS.contains(&part))
        || begins_as_one(value)
}

fn begins_as_one(text: &str) -> bool {
    BEGINNINGS
        .iter()
        .any(|beginning| text.starts_with(beginning))
}

/// The secrets of one server, each with what is shown in its place, the longest first.
#[derive(Debug, Default)]
pub(crate) struct Secrets(Vec<(String, String)>);

impl Secrets {
    /// Those in this process's environment, and in this command line.
    pub(crate) fn own(command: &[String]) -> Self {
        let variables = std::env::vars_os().map(|(name, value)| {
            let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
            (text(name), text(value))
        });
        Self::among(variables, command)
    }

    fn among(variables: impl Iterator<Item = (String, String)>, command: &[String]) -> Self {
        let mut secrets = Self::default();
        for (name, value) in variables {
            secrets.look_at(&name, &value);
        }
        let mut before = "";
        for word in command {
            // What follows an option is its value.
            secrets.look_at(before.trim_start_matches('-'), word);
            before = if word.starts_with('-') { word } else { "" };
            for separator in ["=", ": "] {
                if let Some((name, value)) = word.split_once(separator) {
                    secrets.look_at(name.trim_start_matches('-'), value);
                }
            }
        }
        secrets.0.sort_by_key(|(value, _)| Reverse(value.len()));
        secrets
    }

    /// Notes what is a secret of this.
    fn look_at(&mut self, name: &str, value: &str) {
        if let Some(password) = password_in(value) {
            self.add("password", password);
        }
        if !is_secret(name, value) {
            return;
        }
        let kind = if name.is_empty() { "secret" } else { name };
        // Of a header that says who calls, what stands behind the scheme counts, too.
        let credential = value.split_once(' ').map(|(_, credential)| credential);
        for part in value.lines().chain(credential) {
            self.add(kind, part);
        }
    }

    fn add(&mut self, name: &str, value: &str) {
        let value = value.trim();
        if value.len() >= LEAST {
            self.0.push((value.to_owned(), format!("[{name}]")));
        }
    }

    /// The text without them, and without what begins as tokens do.
    pub(crate) fn hide(&self, text: &str) -> String {
        let hide =
            |text: String, (value, instead): &(String, String)| text.replace(&**value, instead);
        hide_tokens(&self.0.iter().fold(text.to_owned(), hide))
    }
}

/// The password of an address: that in `scheme://user:password@host`.
fn password_in(address: &str) -> Option<&str> {
    let (_, rest) = address.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next()?;
    let (user, _) = host.rsplit_once('@')?;
    let (_, password) = user.split_once(':')?;
    (!password.is_empty()).then_some(password)
}

/// A text of a server of which nothing is known, without what begins as tokens do, and without the
/// passwords of addresses.
pub fn hide_tokens(text: &str) -> String {
    let is_part = |c: char| c.is_whitespace() || "\"'`,;()<>[]{}=".contains(c);
    let mut shown = String::with_capacity(text.len());
    for word in text.split_inclusive(is_part) {
        let bare = word.trim_end_matches(is_part);
        let rest = &word[bare.len()..];
        match password_in(bare) {
            _ if begins_as_one(bare) && bare.len() >= LEAST => shown += "[secret]",
            Some(password) => shown += &bare.replace(&format!(":{password}@"), ":[password]@"),
            None => shown += bare,
        }
        shown += rest;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(variables: &[(&str, &str)], command: &[&str]) -> Secrets {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        Secrets::among(variables.iter().map(owned), &command)
    }

    #[test]
    fn each_way_to_give_a_server_a_secret_is_known() {
        for (variables, command, said, shown) in [
            (
                &[
                    ("GITHUB_TOKEN", "abc-1234567"),
                    ("HOME", "/home/me"),
                    ("LONG_KEY", "abc-1234567/8"),
                ][..],
                &[][..],
                "/home/me abc-1234567 abc-1234567/8",
                "/home/me [GITHUB_TOKEN] [LONG_KEY]",
            ),
            (
                &[],
                &[
                    "x",
                    "--api-key",
                    "abcdef-1",
                    "--token=abcdef-12",
                    "--port",
                    "8080",
                    "--auth",
                    "yes",
                ],
                "abcdef-12 abcdef-1 8080 yes",
                "[token] [api-key] 8080 yes",
            ),
            (
                &[],
                &[
                    "npx",
                    "mcp-remote",
                    "--header",
                    "Authorization: Bearer abcdef-1",
                ],
                "sent Bearer abcdef-1, got abcdef-1",
                "sent [Authorization], got [Authorization]",
            ),
            (
                &[],
                &["docker", "run", "-e", "GITHUB_PAT=abcdef-1", "image"],
                "bad abcdef-1",
                "bad [GITHUB_PAT]",
            ),
            (
                &[("DATABASE_URL", "postgres://me:hunter22@db/x")],
                &["server", "postgresql://me:hunter33@db/x"],
                "no hunter22, no hunter33",
                "no [password], no [password]",
            ),
            (
                &[("SIGNING_KEY", "-----BEGIN\nabcdefgh\n-----END")],
                &[],
                "line abcdefgh",
                "line [SIGNING_KEY]",
            ),
            (&[], &["x", "ghp_1234567"], "ghp_1234567", "[secret]"),
        ] {
            assert_eq!(secrets(variables, command).hide(said), shown, "{said}");
        }
    }

    #[test]
    fn what_looks_like_one_is_hidden_where_nothing_else_is_known() {
        assert_eq!(
            hide_tokens("token \"sk-abcdef\" of http://me:hunter22@x.org/y, sk-1 and skill"),
            "token \"[secret]\" of http://me:[password]@x.org/y, sk-1 and skill"
        );
    }
}
