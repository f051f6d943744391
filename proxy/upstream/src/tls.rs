//! Which cryptography TLS uses.

/// The cryptography of TLS is ring's. Where the process has chosen another, that stays.
pub(super) fn use_ring() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
