//! Digests of several things together.

use sha2::{Digest, Sha256};

/// SHA-256 over fields that each come with their length, and lists that come with their number, so
/// that no two different sequences are the same bytes.
pub struct Encoder(Sha256);

impl Encoder {
    /// `domain` keeps digests for different purposes apart.
    pub fn new(domain: &str) -> Self {
        let mut encoder = Self(Sha256::new());
        encoder.field(domain.as_bytes());
        encoder
    }

    /// Adds one field.
    pub fn field(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
        self
    }

    /// Adds a list.
    pub fn list(&mut self, items: &[impl AsRef<[u8]>]) -> &mut Self {
        self.0.update((items.len() as u64).to_be_bytes());
        for item in items {
            self.field(item.as_ref());
        }
        self
    }

    /// The digest of everything that was added.
    pub fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}
