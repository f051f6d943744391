// A server in Swift whose session with a broker survives its restarts: server.c says what it reads and writes.
//
//     swiftc -o server main.swift -I . $(pkg-config --cflags --libs mcp-sessiond)

import CMcpSessiond
import Foundation

/// This server's session with the daemon. Threads may share it.
final class Sessiond {
    private var handle: OpaquePointer?

    /// It never fails: where there can be no handle, no call does anything.
    init() {
        mcp_sessiond_init(nil, &handle)
    }

    deinit {
        mcp_sessiond_free(handle)
    }

    /// The token that a former instance has stored, or nil: start afresh.
    func load() -> [UInt8]? {
        var token: OpaquePointer?
        guard mcp_sessiond_load(handle, &token) == MCP_SESSIOND_OK else { return nil }
        defer { mcp_sessiond_token_free(token) }
        return Array(UnsafeBufferPointer(start: mcp_sessiond_token_bytes(token), count: mcp_sessiond_token_size(token)))
    }

    /// Keeps a token that the broker has issued. Returns what went wrong, or nil.
    func store(_ token: [UInt8]) -> String? {
        wrong(mcp_sessiond_store(handle, token, token.count))
    }

    /// Deletes the token that was loaded: the broker has refused it. Returns what went wrong, or nil.
    func reject() -> String? {
        wrong(mcp_sessiond_reject(handle))
    }

    /// Whether resume works, in words.
    var status: String {
        var status = mcp_sessiond_status()
        status.size = MemoryLayout<mcp_sessiond_status>.size
        mcp_sessiond_get_status(handle, &status)
        return withUnsafeBytes(of: status.text) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    }

    private func wrong(_ result: mcp_sessiond_result) -> String? {
        result == MCP_SESSIOND_OK ? nil : String(cString: mcp_sessiond_last_error())
    }
}

func say(_ line: String) {
    print(line)
    fflush(nil)
}

let sessiond = Sessiond()
if let token = sessiond.load() {
    say("resumed " + String(decoding: token, as: UTF8.self))
} else {
    say("fresh")
}
while let line = readLine() {
    if line.hasPrefix("issue ") {
        say(sessiond.store(Array(line.dropFirst(6).utf8)) ?? "ok")
    } else if line == "refuse" {
        say(sessiond.reject() ?? "ok")
    } else if line == "status" {
        say(sessiond.status)
    }
}
