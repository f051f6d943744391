//! What a tool has returned, as text, and the files in it.

use std::fs::OpenOptions;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::exit_code::{CANT_CREATE, DATA_ERROR};
use crate::mcp_client::CallFailure;
use crate::ui::output::to_json;
use crate::ui::table::printable;

/// How many files of one name are passed over before it is given up.
const NUMBERS: usize = 10_000;

/// The text of a result. Files in it are written to `output`, a file or a directory, or to here;
/// the text has their names. None that is there is replaced, unless it was named.
///
/// # Errors
/// Exit code 73 where a file can't be written; 65 where one is not what it says.
pub(super) fn text(
    result: &Value,
    tool: &str,
    output: Option<&Path>,
) -> Result<String, CallFailure> {
    let blocks = result["content"].as_array().map_or(&[][..], Vec::as_slice);
    let files = blocks
        .iter()
        .filter(|block| file_of(block).is_some())
        .count();
    let mut text = String::new();
    for block in blocks {
        let line = if let Some((data, kind)) = file_of(block) {
            let path = write(data, kind, tool, output, files == 1)?;
            path.display().to_string()
        } else if let Some(words) = block["text"]
            .as_str()
            .or(block["resource"]["text"].as_str())
        {
            words.to_owned()
        } else if let Some(uri) = block["uri"].as_str() {
            uri.to_owned()
        } else {
            continue;
        };
        text += &line;
        text += "\n";
    }
    // A server of an older client's would have said it in words, too.
    if blocks.is_empty() && !result["structuredContent"].is_null() {
        text = to_json(&result["structuredContent"]);
    }
    Ok(if std::io::stdout().is_terminal() {
        text.split_inclusive('\n')
            .map(|line| match line.strip_suffix('\n') {
                Some(line) => printable(line) + "\n",
                None => printable(line),
            })
            .collect()
    } else {
        text
    })
}

/// The file in a block: its bytes in Base64, and what they are.
fn file_of(block: &Value) -> Option<(&str, &str)> {
    let kind = |of: &'static str| block[of].as_str();
    match kind("type")? {
        "image" | "audio" => Some((kind("data")?, kind("mimeType").unwrap_or_default())),
        "resource" => {
            let resource = &block["resource"];
            let kind = resource["mimeType"].as_str().unwrap_or_default();
            Some((resource["blob"].as_str()?, kind))
        }
        _ => None,
    }
}

fn write(
    data: &str,
    kind: &str,
    tool: &str,
    output: Option<&Path>,
    is_only: bool,
) -> Result<PathBuf, CallFailure> {
    let bytes = STANDARD.decode(data).map_err(|_| {
        CallFailure::new(
            DATA_ERROR,
            "a file that the server sent is not valid Base64".to_owned(),
        )
    })?;
    let failed = |path: &Path, error: std::io::Error| {
        CallFailure::new(CANT_CREATE, format!("{}: {error}", path.display()))
    };
    if let Some(path) = output.filter(|path| is_only && !path.is_dir()) {
        std::fs::write(path, bytes).map_err(|error| failed(path, error))?;
        return Ok(path.to_owned());
    }
    let directory = output.unwrap_or(Path::new("."));
    // A tool's name is the server's word: it must not lead anywhere else.
    let plain = |letter: char| {
        if letter.is_ascii_alphanumeric() || "-_".contains(letter) {
            letter
        } else {
            '_'
        }
    };
    let stem: String = tool.chars().map(plain).take(100).collect();
    let mut path = directory.to_owned();
    for number in 1..NUMBERS {
        path = directory.join(format!("{stem}-{number}.{}", extension(kind)));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(&bytes)
                    .map_err(|error| failed(&path, error))?;
                return Ok(path.strip_prefix("./").map_or(path.clone(), Path::to_owned));
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(&path, error)),
        }
    }
    Err(failed(&path, std::io::ErrorKind::AlreadyExists.into()))
}

/// How the name of a file of this kind ends.
fn extension(kind: &str) -> &'static str {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    match kind {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/svg+xml" => "svg",
        "audio/wav" | "audio/x-wav" => "wav",
        "audio/mpeg" => "mp3",
        "audio/ogg" => "ogg",
        "application/pdf" => "pdf",
        "application/json" => "json",
        "application/zip" => "zip",
        "text/html" => "html",
        "text/plain" => "txt",
        _ => "bin",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_are_written_and_replace_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let image = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
        let result = json!({"content": [{"type": "text", "text": "a"}, image]});
        let named = |output: &Path| {
            let said = text(&result, "../x/y", Some(output)).expect("written");
            let (first, name) = said.split_once('\n').expect("two lines");
            assert_eq!(first, "a");
            PathBuf::from(name.trim_end())
        };
        let (first, second) = (named(directory.path()), named(directory.path()));
        assert_eq!(first, directory.path().join("___x_y-1.png"));
        assert_eq!(second, directory.path().join("___x_y-2.png"));
        let own = directory.path().join("own");
        assert_eq!((named(&own), named(&own)), (own.clone(), own.clone()));
        assert_eq!(std::fs::read(own).expect("there"), b"hi");
        let bad = json!({"content": [{"type": "image", "data": "?"}]});
        assert_eq!(
            text(&bad, "x", Some(directory.path())).map_err(|why| why.code),
            Err(DATA_ERROR)
        );
        let structured = json!({"content": [], "structuredContent": {"a": 1}});
        assert_eq!(
            text(&structured, "x", None).expect("text"),
            "{\n  \"a\": 1\n}\n"
        );
    }
}
