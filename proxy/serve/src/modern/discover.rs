//! Which version of MCP a server speaks.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::envelope::VERSION;
use crate::backend::Backend;
use crate::first_answer::FirstAnswer;
use crate::live::handshake::{EarlyLines, HANDSHAKE_WAIT, first_request};

/// JSON-RPC's codes by which servers of the era before are known to answer: no such method,
/// parameters that can't be taken, no request.
const NO_SUCH_REQUEST: [i64; 3] = [-32601, -32602, -32600];

/// The era of MCP that a server speaks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Era {
    /// The version of this era.
    Modern,
    /// Versions of the era before.
    Older,
    /// It has ended, said nothing, or failed at the question.
    Unknown,
}

/// Asks a server that was just started, for as long as that may take. Returns what it has said
/// before the answer, too.
pub(super) async fn discover(backend: &dyn Backend) -> (Era, EarlyLines) {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "mcp-sessiond", "version": env!("CARGO_PKG_VERSION")},
    });
    let Ok(params) = RawValue::from_string(json!({"_meta": meta}).to_string()) else {
        return (Era::Unknown, Vec::new());
    };
    match first_request(backend, "server/discover", &params, HANDSHAKE_WAIT).await {
        Ok(Some((answer, early))) => (era_of(&answer), early),
        Ok(None) | Err(_) => (Era::Unknown, Vec::new()),
    }
}

fn era_of(answer: &FirstAnswer) -> Era {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Discovered {
        supported_versions: Vec<String>,
    }
    #[derive(Deserialize)]
    struct Failure {
        code: i64,
    }
    match answer {
        FirstAnswer::Result(result) => match serde_json::from_str::<Discovered>(result.get()) {
            Ok(found)
                if found
                    .supported_versions
                    .iter()
                    .any(|version| version == VERSION) =>
            {
                Era::Modern
            }
            _ => Era::Older,
        },
        FirstAnswer::Error(error) => match serde_json::from_str::<Failure>(error.get()) {
            Ok(failure) if NO_SUCH_REQUEST.contains(&failure.code) => Era::Older,
            _ => Era::Unknown,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_what_it_speaks_and_a_failure_says_nothing() {
        let era_of = |answer: &str| {
            let line = answer.replacen('{', r#"{"jsonrpc":"2.0","id":1,"#, 1);
            era_of(&FirstAnswer::read(line.as_bytes(), "1").expect("an answer"))
        };
        assert_eq!(
            era_of(r#"{"result":{"supportedVersions":["2026-07-28"]}}"#),
            Era::Modern
        );
        for older in [
            r#"{"result":{"supportedVersions":["2025-11-25"]}}"#,
            r#"{"result":{"supportedVersions":["2027-01-01"]}}"#,
            r#"{"result":{}}"#,
            r#"{"error":{"code":-32601,"message":"Method not found"}}"#,
            r#"{"error":{"code":-32602,"message":"Received request before initialization was complete"}}"#,
        ] {
            assert_eq!(era_of(older), Era::Older, "{older}");
        }
        for unknown in [
            r#"{"error":{"code":-32603,"message":"Internal error"}}"#,
            r#"{"error":1}"#,
            r#"{"result":NaN}"#,
        ] {
            assert_eq!(era_of(unknown), Era::Unknown, "{unknown}");
        }
    }
}
