//! Credentials, of which only the hash travels.

use mcp_sessiond_proto::sessions::{Caller, CredentialHash};
use sha2::{Digest as _, Sha256};

/// A caller that is known by a credential: an API key, an opaque token. Only its hash ever leaves
/// this process.
#[must_use]
pub fn credential(credential: &[u8]) -> Caller {
    Caller::Credential {
        hash: hash(credential),
    }
}

pub(crate) fn hash(credential: &[u8]) -> CredentialHash {
    CredentialHash(Sha256::digest(credential).into())
}
