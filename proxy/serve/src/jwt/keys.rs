//! The issuer's public keys: a JSON Web Key Set (RFC 7517) in a file, which is read again when it
//! has changed.

use std::fs::Metadata;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey};
use mcp_sessiond_process::regular_file;
use serde::Deserialize;

use crate::stderr::warn;

/// Bytes that the file may have.
const FILE_MAX: u64 = 1024 * 1024;

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum NoKeys {
    /// The file can't be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is too large.
    #[error("it has more than {FILE_MAX} bytes")]
    TooLarge,
    /// It is no key set.
    #[error("it is not a JSON Web Key Set: {0}")]
    NoSet(serde_json::Error),
    /// It has nothing of use.
    #[error("it has no public key for RS256, ES256 or EdDSA (Ed25519)")]
    None,
}

/// A public key.
pub(super) struct Key {
    kid: Option<String>,
    /// The only algorithm that it is for.
    pub(super) algorithm: Algorithm,
    pub(super) public: DecodingKey,
}

impl Key {
    /// Whether a token with this `kid` names the key. A token without one can only mean the only
    /// key.
    pub(super) fn is_named(&self, kid: Option<&str>, keys: usize) -> bool {
        match kid {
            Some(_) => self.kid.as_deref() == kid,
            None => keys == 1,
        }
    }

    /// None: it is of a kind that is not taken, or not for signatures.
    fn of(jwk: &Jwk) -> Option<Self> {
        let algorithm = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => Algorithm::RS256,
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
                Algorithm::ES256
            }
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                Algorithm::EdDSA
            }
            _ => return None,
        };
        let common = &jwk.common;
        let fits = common.key_algorithm.is_none_or(|said| match algorithm {
            Algorithm::RS256 => said == KeyAlgorithm::RS256,
            Algorithm::ES256 => said == KeyAlgorithm::ES256,
            _ => said == KeyAlgorithm::EdDSA,
        });
        let signs = common
            .public_key_use
            .as_ref()
            .is_none_or(|said| *said == PublicKeyUse::Signature);
        let verifies = common
            .key_operations
            .as_ref()
            .is_none_or(|all| all.contains(&KeyOperations::Verify));
        if !(fits && signs && verifies) {
            return None;
        }
        Some(Self {
            kid: common.key_id.clone(),
            algorithm,
            public: DecodingKey::from_jwk(jwk).ok()?,
        })
    }
}

/// How a file looked when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen([i64; 4]);

impl Seen {
    fn of(found: &Metadata) -> Self {
        Self([
            found.ino().cast_signed(),
            found.size().cast_signed(),
            found.mtime(),
            found.mtime_nsec(),
        ])
    }
}

/// The keys in a file.
pub(super) struct Keys {
    path: PathBuf,
    known: Mutex<(Option<Seen>, Arc<[Key]>)>,
}

impl Keys {
    /// Those in this file.
    ///
    /// # Errors
    /// [`NoKeys`].
    pub(super) fn of(path: PathBuf) -> Result<Self, NoKeys> {
        let (seen, keys) = read(&path)?;
        Ok(Self {
            path,
            known: Mutex::new((Some(seen), keys)),
        })
    }

    /// Those that are in the file now. If it is missing or can't be read, those that it had before.
    pub(super) fn current(&self) -> Arc<[Key]> {
        let seen = std::fs::metadata(&self.path)
            .ok()
            .map(|found| Seen::of(&found));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != seen {
            known.0 = seen;
            match read(&self.path) {
                Ok((seen, keys)) => *known = (Some(seen), keys),
                Err(NoKeys::None) => {
                    known.1 = Arc::default();
                    warn(format_args!(
                        "{}: {}, so no token is valid",
                        self.path.display(),
                        NoKeys::None
                    ));
                }
                Err(error) => warn(format_args!(
                    "{}: {error}. The keys that it had before stay in force",
                    self.path.display()
                )),
            }
        }
        known.1.clone()
    }
}

fn read(path: &Path) -> Result<(Seen, Arc<[Key]>), NoKeys> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<serde_json::Value>,
    }
    let file = regular_file::open(path)?;
    let seen = Seen::of(&file.metadata()?);
    let mut bytes = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(NoKeys::TooLarge);
    }
    let set: Set = serde_json::from_slice(&bytes).map_err(NoKeys::NoSet)?;
    let jwks = set
        .keys
        .into_iter()
        .filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
    let keys: Arc<[Key]> = jwks.filter_map(|jwk| Key::of(&jwk)).collect();
    if keys.is_empty() {
        Err(NoKeys::None)
    } else {
        Ok((seen, keys))
    }
}
