//! The resume token: opaque bytes that a broker issued.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use zeroize::Zeroizing;

/// Bytes that a token may have at most: what a broker's cookie or signed token needs, many times
/// over.
pub const TOKEN_MAX: usize = 65_536;

/// A resume token, 1 to [`TOKEN_MAX`] bytes. It is never shown, and wiped from memory when dropped.
///
/// On the wire it is `bin` in MessagePack and standard base64 (RFC 4648, section 4, padded) in
/// JSON.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Zeroizing<Vec<u8>>);

/// Why some bytes are no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// There were no bytes.
    #[error("a resume token has at least 1 byte; this one is empty")]
    Empty,
    /// There were more than [`TOKEN_MAX`] bytes.
    #[error("a resume token has at most {TOKEN_MAX} bytes; this one has {0}")]
    TooLarge(usize),
}

impl Token {
    /// Takes the bytes as they are.
    ///
    /// # Errors
    /// [`TokenError`] when there are none, or more than [`TOKEN_MAX`].
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, TokenError> {
        let bytes = Zeroizing::new(bytes.into());
        match bytes.len() {
            0 => Err(TokenError::Empty),
            len if len > TOKEN_MAX => Err(TokenError::TooLarge(len)),
            _ => Ok(Self(bytes)),
        }
    }

    /// The bytes, for the one who passes them on to the broker.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Token({} bytes)", self.0.len())
    }
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&Zeroizing::new(BASE64.encode(&*self.0)))
        } else {
            serializer.serialize_bytes(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The message never quotes what was sent: it might be a token.
        let bytes = if deserializer.is_human_readable() {
            let text = Zeroizing::new(String::deserialize(deserializer)?);
            BASE64
                .decode(&*text)
                .map_err(|_| de::Error::custom("a token is standard base64, padded"))?
        } else {
            serde_bytes::ByteBuf::deserialize(deserializer)?.into_vec()
        };
        Self::new(bytes).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_1_to_65536_bytes() {
        assert_eq!(Token::new([]), Err(TokenError::Empty));
        assert_eq!(
            Token::new(vec![0; TOKEN_MAX + 1]),
            Err(TokenError::TooLarge(TOKEN_MAX + 1))
        );
        assert!(Token::new([0]).is_ok() && Token::new(vec![0; TOKEN_MAX]).is_ok());
    }

    #[test]
    fn a_token_is_never_shown() {
        let token = Token::new(*b"hunter2").expect("7 bytes");
        assert_eq!(format!("{token:?}"), "Token(7 bytes)");
        let refused = serde_json::from_str::<Token>("\"hunter2!\"")
            .expect_err("not base64")
            .to_string();
        assert!(!refused.contains("hunter2"), "{refused}");
    }
}
