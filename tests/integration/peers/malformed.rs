//! Calls in JSON that can't be made.

/// What is no call that the daemon knows, and the code of the answer.
pub(super) const MALFORMED: [(&str, i64); 15] = [
    ("", -32700),
    ("{", -32700),
    ("\u{0}", -32700),
    ("[]", -32600),
    (
        "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
        -32600,
    ),
    ("{}", -32600),
    ("{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", -32600),
    (
        "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}",
        -32600,
    ),
    ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}", -32600),
    (
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"drop_tables\"}",
        -32601,
    ),
    (
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"claim\",\"params\":[]}",
        -32602,
    ),
    (
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"claim\",\"params\":{\"pid\":1}}",
        -32602,
    ),
    (
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"store_token\"}",
        -32602,
    ),
    (
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"release\",\"params\":{\"session\":\"\",\"epoch\":\"1\"}}",
        -32602,
    ),
    (
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"release\",\"params\":{\"session\":\"x\",\"epoch\":\"-1\"}}",
        -32602,
    ),
];
