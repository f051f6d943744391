//! The codes of JSON-RPC's errors, and of MCP's.

/// What is not JSON.
pub const UNREADABLE: i64 = -32700;
/// An invalid request.
pub const INVALID_REQUEST: i64 = -32600;
/// A method that does not exist.
pub const NO_METHOD: i64 = -32601;
/// Parameters that don't fit.
pub const INVALID_PARAMS: i64 = -32602;
/// A failure that tells no more.
pub const INTERNAL: i64 = -32603;
/// A failure of the connection, or one that was closed, as the SDKs have it.
pub const CONNECTION: i64 = -32000;
/// A request that took too long, as the SDKs have it.
pub const TIMED_OUT: i64 = -32001;
/// A version of MCP that is not spoken (MCP 2026-07-28, `UnsupportedProtocolVersionError`).
pub const OTHER_VERSION: i64 = -32022;
/// A resource that does not exist (MCP 2025-11-25, Resources, Error Handling).
pub const NO_RESOURCE: i64 = -32002;
