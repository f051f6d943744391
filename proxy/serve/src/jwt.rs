//! Bearer tokens that somebody else has issued: JSON Web Tokens (RFC 7519), verified by the
//! issuer's public keys in a file. `serve` never fetches keys: whoever runs it does, and the file
//! is read again when it has changed.
//!
//! A key says which algorithm it is for, and a token that says another one is refused: so nobody
//! can pass a public key off as the secret of a symmetric one, and nobody gets in with `none`.

mod keys;
mod verify;

use std::fmt;
use std::path::PathBuf;

use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Validation, decode, decode_header};
use mcp_sessiond_client::Caller;
use mcp_sessiond_proto::sessions::IDENTITY_MAX;
use serde::Deserialize;

pub use self::keys::NoKeys;
use self::keys::{Key, Keys};

/// By how many seconds the clocks of issuer and `serve` may differ.
const LEEWAY_S: u64 = 30;

/// The claims without which a token is refused.
const REQUIRED: [&str; 4] = ["exp", "iss", "aud", "sub"];

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// It is none.
    #[error("the bearer token can't be read as a JWT")]
    Unreadable,
    /// It needs what is not understood here.
    #[error("the token has critical headers, and none is understood here")]
    Critical,
    /// Its key is not in the file.
    #[error("the token names no key of the issuer's, by `kid`")]
    UnknownKey,
    /// It says another algorithm than its key.
    #[error("the token's algorithm is not that of its key")]
    Algorithm,
    /// It was not signed by its key.
    #[error("the token's signature is wrong")]
    Signature,
    /// It is too old.
    #[error("the token has expired")]
    Expired,
    /// It is too new.
    #[error("the token is not valid yet")]
    NotYet,
    /// Somebody else has issued it.
    #[error("the token is of another issuer")]
    Issuer,
    /// It is for somebody else.
    #[error("the token is for another audience")]
    Audience,
    /// A claim is missing.
    #[error("the token lacks one of exp, iss, aud and sub, or has it in another form")]
    Claims,
}

impl From<Error> for Rejected {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::InvalidAlgorithm | ErrorKind::UnsupportedAlgorithm => Self::Algorithm,
            ErrorKind::InvalidSignature => Self::Signature,
            ErrorKind::ExpiredSignature => Self::Expired,
            ErrorKind::ImmatureSignature => Self::NotYet,
            ErrorKind::InvalidIssuer => Self::Issuer,
            ErrorKind::InvalidAudience => Self::Audience,
            ErrorKind::MissingRequiredClaim(_) | ErrorKind::InvalidClaimFormat(_) => Self::Claims,
            _ => Self::Unreadable,
        }
    }
}

/// The tokens of one issuer, for one audience.
pub struct Jwt {
    issuer: String,
    audience: String,
    keys: Keys,
}

impl fmt::Debug for Jwt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Jwt({}, {})", self.issuer, self.audience)
    }
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
}

impl Jwt {
    /// Takes tokens of this issuer and for this audience, signed by a key of the JSON Web Key Set
    /// (RFC 7517) in this file.
    ///
    /// # Errors
    /// When the file can't be read, or has no key that can be used.
    pub fn new(issuer: String, audience: String, file: PathBuf) -> Result<Self, NoKeys> {
        verify::install();
        Ok(Self {
            issuer,
            audience,
            keys: Keys::of(file)?,
        })
    }

    /// Who issues them, by URL.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// For whom they are.
    pub fn audience(&self) -> &str {
        &self.audience
    }

    /// The caller who shows this token.
    ///
    /// # Errors
    /// When it is not valid.
    pub fn caller(&self, token: &[u8]) -> Result<Caller, Rejected> {
        let header = decode_header(token).map_err(|_| Rejected::Unreadable)?;
        if header.crit.is_some() {
            return Err(Rejected::Critical);
        }
        let keys = self.keys.current();
        let mut rejected = Rejected::UnknownKey;
        // Two keys may have one `kid`, if they are of two kinds.
        for key in keys
            .iter()
            .filter(|key| key.is_named(header.kid.as_deref(), keys.len()))
        {
            match self.claims(token, key) {
                Ok(Claims { iss, sub }) => return Ok(Caller::Identity { iss, sub }),
                Err(Rejected::Algorithm) if rejected != Rejected::UnknownKey => {}
                Err(why) => rejected = why,
            }
        }
        Err(rejected)
    }

    fn claims(&self, token: &[u8], key: &Key) -> Result<Claims, Rejected> {
        let mut validation = Validation::new(key.algorithm);
        validation.leeway = LEEWAY_S;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&REQUIRED);
        let decoded = decode::<serde_json::Value>(token, &key.public, &validation)?;
        let claims: Claims =
            serde_json::from_value(decoded.claims).map_err(|_| Rejected::Claims)?;
        let fits =
            (1..=IDENTITY_MAX).contains(&claims.sub.len()) && claims.iss.len() <= IDENTITY_MAX;
        if fits {
            Ok(claims)
        } else {
            Err(Rejected::Claims)
        }
    }
}

#[cfg(test)]
mod tests;
