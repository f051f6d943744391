//! What `${env:NAME}`, `${file:PATH}` and `${keyring:SERVICE/ACCOUNT}` stand for, looked up just
//! before a server starts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mcp_sessiond_process::regular_file;
use mcp_sessiond_proto::paths;
use mcp_sessiond_proxy::server::shared::VARIABLES;

use super::entry::{Entry, Kind, is_http};
use super::keyring;

/// Bytes of a file that `${file:PATH}` stands for.
const SECRET_MAX: u64 = 1024 * 1024;

impl Entry {
    /// How to reach the server, with all that stands for something else looked up. `cwd` is a path
    /// from the root. It may wait for a file or for the user, so call it where that keeps nobody
    /// waiting.
    ///
    /// # Errors
    /// A sentence that names what could not be looked up, and never what it holds.
    pub(crate) fn resolve(&self) -> Result<Kind, String> {
        // What one host has in its environment is none of the others' business.
        let only = self.options().shared.then_some(&VARIABLES[..]);
        let text = |text: &String| expanded(text, &self.base, only);
        let texts = |all: &[String]| all.iter().map(text).collect::<Result<Vec<_>, _>>();
        match self.kind() {
            Kind::Stdio {
                command,
                args,
                env,
                cwd,
            } => {
                let command = text(command)?;
                if command.is_empty() || command.starts_with('@') {
                    return Err("`command` is the program to run".to_owned());
                }
                let args = texts(args)?;
                let env = env
                    .iter()
                    .map(|(name, value)| Ok((name.clone(), text(value)?)));
                let env: BTreeMap<_, _> = env.collect::<Result<_, String>>()?;
                let nul = |text: &String| text.contains('\0');
                if nul(&command) || args.iter().chain(env.values()).any(nul) {
                    return Err("it has a NUL character, which no program can be given".to_owned());
                }
                let cwd = cwd
                    .as_ref()
                    .map(|directory| self.directory(directory, only))
                    .transpose()?;
                Ok(Kind::Stdio {
                    command,
                    args,
                    env,
                    cwd,
                })
            }
            Kind::Http { url, headers } => {
                let headers = headers.iter().map(|(name, value)| {
                    let value = text(value)?;
                    if value.contains(['\r', '\n', '\0']) {
                        return Err(format!("the header {name} would have more than one line"));
                    }
                    Ok((name.clone(), value))
                });
                let headers = headers.collect::<Result<_, _>>()?;
                let url = text(url)?;
                if !is_http(&url) {
                    return Err("`url` must begin with https:// or http://".to_owned());
                }
                Ok(Kind::Http { url, headers })
            }
        }
    }

    /// What a start would miss, as far as that can be told from here: a host may have other
    /// variables, and a keyring may ask.
    pub(crate) fn missing(&self) -> Option<String> {
        let has_more = |text: &str| text.contains("${env:") || text.contains("${keyring:");
        let mut texts: Vec<&String> = Vec::new();
        match self.kind() {
            Kind::Stdio {
                command,
                args,
                env,
                cwd,
            } => {
                texts.push(command);
                texts.extend(args);
                texts.extend(env.values());
                let cwd = cwd.as_ref().filter(|cwd| !has_more(&cwd.to_string_lossy()));
                if let Some(why) = cwd.and_then(|cwd| self.directory(cwd, None).err()) {
                    return Some(why);
                }
            }
            Kind::Http { url, headers } => {
                texts.push(url);
                texts.extend(headers.values());
            }
        }
        texts
            .into_iter()
            .filter(|text| !has_more(text))
            .find_map(|text| expanded(text, &self.base, None).err())
    }

    fn directory(&self, written: &Path, only: Option<&[&str]>) -> Result<PathBuf, String> {
        let directory = from_base(
            &expanded(&written.to_string_lossy(), &self.base, only)?,
            &self.base,
        );
        if !directory.is_dir() {
            return Err(format!(
                "`cwd` is {}, which is not a directory",
                directory.display()
            ));
        }
        Ok(directory)
    }
}

/// A path of the file's: `~/…` in the home directory, others from the directory of the file.
fn from_base(path: &str, base: &Path) -> PathBuf {
    match (path.strip_prefix("~/"), paths::user_directories()) {
        (Some(rest), Some(user)) => user.home.join(rest),
        _ => base.join(path),
    }
}

/// The text with what `${…:…}` stands for; of variables it may be `only` these. An error names
/// them, and never what they hold.
pub(crate) fn expanded(text: &str, base: &Path, only: Option<&[&str]>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let Some((inside, behind)) = after.split_once('}') else {
            out.push_str("${");
            rest = after;
            continue;
        };
        match inside.split_once(':') {
            Some(("env", name)) if only.is_some_and(|only| !only.contains(&name)) => {
                return Err(format!(
                    "it is shared, and ${{env:{name}}} is a variable of one host; write the value down, or use ${{file:PATH}} or \
                     ${{keyring:SERVICE/ACCOUNT}}"
                ));
            }
            Some(("env", name)) => match std::env::var(name) {
                Ok(value) => out.push_str(&value),
                Err(_) => {
                    return Err(format!(
                        "${{env:{name}}} is not set where the host has started this, or is not UTF-8"
                    ));
                }
            },
            Some(("file", path)) => {
                let path = from_base(path, base);
                let read = regular_file::read_text(&path, SECRET_MAX);
                let value =
                    read.map_err(|error| format!("could not read {}: {error}", path.display()))?;
                out.push_str(
                    value
                        .strip_suffix('\n')
                        .map_or(&*value, |line| line.strip_suffix('\r').unwrap_or(line)),
                );
            }
            Some(("keyring", name)) => out.push_str(&keyring::secret(name)?),
            Some((kind @ ("input" | "command"), _)) => {
                return Err(format!(
                    "${{{kind}:…}} is not known here; there are ${{env:NAME}}, ${{file:PATH}} and ${{keyring:SERVICE/ACCOUNT}}"
                ));
            }
            // A shell's, or the server's own.
            _ => {
                out.push_str("${");
                rest = after;
                continue;
            }
        }
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_s_own_variables_are_left_alone() {
        let base = Path::new("/");
        for text in ["${HOME}/x", "a ${x:-b} $y", "${", "${env", "}"] {
            assert_eq!(expanded(text, base, None).as_deref(), Ok(text));
        }
        let path = std::env::var("PATH").expect("a path");
        assert_eq!(
            expanded("<${env:PATH}${HOME}>", base, Some(&VARIABLES)),
            Ok(format!("<{path}${{HOME}}>"))
        );
    }
}
