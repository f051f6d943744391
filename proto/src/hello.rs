//! The greeting: 32 bytes from the client, 32 bytes from the server, before anything else. Its
//! layout never changes, so that any two versions can at least tell each other why they won't talk.
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 8 | magic: `mcpsessd` |
//! | 8 | 2 | the sender's protocol version |
//! | 10 | 2 | from the server: the client's version, repeated; from the client: 0 |
//! | 12 | 1 | codec: 1 MessagePack, 2 JSON-RPC; 3, on a keeper's socket |
//! | 13 | 1 | from the server: its answer; from the client: 0 |
//! | 14 | 2 | 0 |
//! | 16 | 4 | the largest frame that the sender takes, in bytes |
//! | 20 | 4 | 0 |
//! | 24 | 8 | 0 |
//!
//! Numbers are big-endian. Fields that are 0 here are ignored by the receiver.
//!
//! Behind a hello with the answer 6 there are 16 bytes. The client writes them back, and the server
//! says hello again. That is asked where the kernel can't say who has connected.

use std::io::{self, Read, Write};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::backends::OLDEST_KEEPER_VERSION;
use crate::{OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION};

/// Bytes of a hello, each way.
pub const HELLO_LEN: usize = 32;

/// Bytes behind a hello that asks who the client is.
pub const CHALLENGE_LEN: usize = 16;

/// The first 8 bytes.
pub const MAGIC: [u8; 8] = *b"mcpsessd";

/// The largest frame, in bytes, without its length: the limit that the SDKs of MCP have for a
/// message.
pub const FRAME_MAX: u32 = 4 * 1024 * 1024;

/// How the frames after the hello are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// MessagePack with named fields, for Rust.
    MessagePack = 1,
    /// JSON-RPC 2.0, for every other language.
    JsonRpc = 2,
}

/// The codec's number on the socket of a [keeper](crate::backends), which has frames of its own.
pub const KEEPER: u8 = 3;

/// The server's answer to a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Answer {
    /// Go on.
    Welcome = 0,
    /// The versions don't fit; both are in the answer.
    Version = 1,
    /// The codec is unknown.
    Codec = 2,
    /// Too many connections, of this process or in all: try again later.
    Busy = 3,
    /// The daemon is about to exit: connect again.
    Draining = 4,
    /// The peer's process can't be identified: it is in another pid namespace, it was
    /// [challenged](Answer::Challenge) and is not the one that has connected, or the system refuses
    /// pidfd_open(2).
    Unidentified = 5,
    /// No answer yet: 16 bytes follow, which the peer writes back before it is answered.
    Challenge = 6,
}

/// Why a connection ended with its hello.
#[derive(Debug, thiserror::Error)]
pub enum HelloError {
    /// The stream failed or ended.
    #[error("the connection ended during the hello: {0}")]
    Io(#[from] io::Error),
    /// The other side does not speak this protocol.
    #[error("the peer does not speak mcp-sessiond's protocol")]
    Magic,
    /// The versions don't fit.
    #[error("protocol version {ours} here, {theirs} there; upgrade the older one")]
    Version {
        /// The version of this side.
        ours: u16,
        /// The version of the other side.
        theirs: u16,
    },
    /// The codec is unknown to the server.
    #[error("the daemon does not know codec {0}; there are 1 (MessagePack) and 2 (JSON-RPC 2.0)")]
    Codec(u8),
    /// Too many connections.
    #[error("the daemon has as many connections as its limits allow")]
    Busy,
    /// The daemon is about to exit.
    #[error("the daemon is about to exit")]
    Draining,
    /// The daemon can't tell which process is asking.
    #[error(
        "the daemon can't identify this process: it is in another pid namespace, another process has opened the connection, or the system refuses pidfd_open"
    )]
    Unidentified,
}

/// A hello, as either side sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The sender's protocol version.
    pub version: u16,
    /// From the server, the client's version repeated.
    pub peer_version: u16,
    /// The codec, as a number, since it may be one that this build does not know.
    pub codec: u8,
    /// The server's answer, as a number for the same reason.
    pub answer: u8,
    /// The largest frame that the sender takes, in bytes.
    pub frame_max: u32,
}

impl Hello {
    /// The hello of a client of this build.
    #[must_use]
    pub fn client(codec: Codec) -> Self {
        Self {
            version: PROTOCOL_VERSION,
            peer_version: 0,
            codec: codec as u8,
            answer: 0,
            frame_max: FRAME_MAX,
        }
    }

    /// The hello of a client on the socket of a keeper that speaks `version`.
    #[must_use]
    pub fn keeper(version: u16) -> Self {
        Self {
            version,
            codec: KEEPER,
            ..Self::client(Codec::JsonRpc)
        }
    }

    /// What a server of this build answers to `self`.
    #[must_use]
    pub fn reply(&self, answer: Answer) -> Self {
        Self {
            version: PROTOCOL_VERSION,
            peer_version: self.version,
            codec: self.codec,
            answer: answer as u8,
            frame_max: FRAME_MAX,
        }
    }

    /// The bytes of this hello where it asks who the client is, which has to write `challenge` back.
    #[must_use]
    pub fn challenging(&self, challenge: &[u8; CHALLENGE_LEN]) -> [u8; HELLO_LEN + CHALLENGE_LEN] {
        let asking = Self {
            answer: Answer::Challenge as u8,
            ..*self
        };
        let mut bytes = [0; HELLO_LEN + CHALLENGE_LEN];
        bytes[..HELLO_LEN].copy_from_slice(&asking.encode());
        bytes[HELLO_LEN..].copy_from_slice(challenge);
        bytes
    }

    /// Whether 16 bytes follow, which are to be written back.
    #[must_use]
    pub fn is_challenge(&self) -> bool {
        self.answer == Answer::Challenge as u8
    }

    /// The codec that a client of the daemon asks for, or why it can't be served.
    ///
    /// # Errors
    /// The [`Answer`] to refuse with.
    pub fn accept(&self) -> Result<Codec, Answer> {
        if !(OLDEST_PROTOCOL_VERSION..=PROTOCOL_VERSION).contains(&self.version) {
            return Err(Answer::Version);
        }
        match self.codec {
            1 => Ok(Codec::MessagePack),
            2 => Ok(Codec::JsonRpc),
            _ => Err(Answer::Codec),
        }
    }

    /// Whether a keeper that speaks the versions up to `newest` can serve this client.
    ///
    /// # Errors
    /// The [`Answer`] to refuse with.
    pub fn accept_keeper(&self, newest: u16) -> Result<(), Answer> {
        if !(OLDEST_KEEPER_VERSION..=newest).contains(&self.version) {
            return Err(Answer::Version);
        }
        if self.codec == KEEPER {
            Ok(())
        } else {
            Err(Answer::Codec)
        }
    }

    /// What the server's answer to a hello means.
    ///
    /// # Errors
    /// [`HelloError`], typed as the server answered.
    pub fn welcome(self, ours: u16, codec: u8) -> Result<Self, HelloError> {
        match self.answer {
            0 => Ok(self),
            1 => Err(HelloError::Version {
                ours,
                theirs: self.version,
            }),
            2 => Err(HelloError::Codec(codec)),
            4 => Err(HelloError::Draining),
            5 => Err(HelloError::Unidentified),
            _ => Err(HelloError::Busy),
        }
    }

    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.peer_version.to_be_bytes());
        bytes[12] = self.codec;
        bytes[13] = self.answer;
        bytes[16..20].copy_from_slice(&self.frame_max.to_be_bytes());
        bytes
    }

    /// Reads the bytes.
    ///
    /// # Errors
    /// [`HelloError::Magic`] when they are no hello.
    pub fn decode(bytes: &[u8; HELLO_LEN]) -> Result<Self, HelloError> {
        if bytes[..8] != MAGIC {
            return Err(HelloError::Magic);
        }
        let short = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        Ok(Self {
            version: short(8),
            peer_version: short(10),
            codec: bytes[12],
            answer: bytes[13],
            frame_max: u32::from_be_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]),
        })
    }

    /// Reads a hello from a stream.
    ///
    /// # Errors
    /// [`HelloError::Io`] and [`HelloError::Magic`].
    pub async fn read<R: AsyncRead + Unpin>(stream: &mut R) -> Result<Self, HelloError> {
        let mut bytes = [0; HELLO_LEN];
        stream.read_exact(&mut bytes).await?;
        Self::decode(&bytes)
    }

    /// Writes a hello to a stream.
    ///
    /// # Errors
    /// Those of the stream.
    pub async fn write<W: AsyncWrite + Unpin>(&self, stream: &mut W) -> io::Result<()> {
        stream.write_all(&self.encode()).await?;
        stream.flush().await
    }
}

/// The client's side of the greeting. Returns the server's hello.
///
/// # Errors
/// [`HelloError`], typed as the server answered.
pub async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    codec: Codec,
) -> Result<Hello, HelloError> {
    greet_as(stream, &Hello::client(codec)).await
}

/// [`greet`] with any hello.
///
/// # Errors
/// The same.
pub async fn greet_as<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    ours: &Hello,
) -> Result<Hello, HelloError> {
    refused_before(ours.write(stream).await)?;
    let mut theirs = Hello::read(stream).await?;
    if theirs.is_challenge() {
        write_back(stream).await?;
        theirs = Hello::read(stream).await?;
    }
    theirs.welcome(ours.version, ours.codec)
}

/// What has come of writing our hello. A server that has refused and hung up before that has said
/// why, and that is there to be read.
fn refused_before(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Reads a challenge, and answers it.
async fn write_back<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> io::Result<()> {
    let mut challenge = [0; CHALLENGE_LEN];
    stream.read_exact(&mut challenge).await?;
    stream.write_all(&challenge).await?;
    stream.flush().await
}

/// [`greet_as`] on a stream that blocks.
///
/// # Errors
/// The same.
pub fn greet_blocking<S: Read + Write>(stream: &mut S, ours: &Hello) -> Result<Hello, HelloError> {
    let read = |stream: &mut S| {
        let mut bytes = [0; HELLO_LEN];
        stream.read_exact(&mut bytes)?;
        Hello::decode(&bytes)
    };
    refused_before(stream.write_all(&ours.encode()))?;
    let mut theirs = read(stream)?;
    if theirs.is_challenge() {
        let mut challenge = [0; CHALLENGE_LEN];
        stream.read_exact(&mut challenge)?;
        stream.write_all(&challenge)?;
        theirs = read(stream)?;
    }
    theirs.welcome(ours.version, ours.codec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::KEEPER_VERSION;

    #[tokio::test]
    async fn a_mismatch_is_refused_with_both_versions() {
        let (mut ours, mut theirs) = tokio::io::duplex(64);
        let server = async {
            let hello = Hello {
                version: 9,
                ..Hello::read(&mut theirs).await.expect("hello")
            };
            assert_eq!(hello.accept(), Err(Answer::Version));
            let newer = Hello {
                version: 9,
                ..hello.reply(Answer::Version)
            };
            newer.write(&mut theirs).await.expect("written");
        };
        let (refused, ()) = tokio::join!(greet(&mut ours, Codec::MessagePack), server);
        let refused = refused.expect_err("refused").to_string();
        assert!(refused.contains("version 2 here, 9 there"), "{refused}");
    }

    #[test]
    fn an_older_peer_is_refused_by_a_keeper_and_told_so() {
        let older = Hello::keeper(OLDEST_KEEPER_VERSION - 1);
        assert_eq!(older.accept_keeper(KEEPER_VERSION), Err(Answer::Version));
        assert_eq!(
            Hello::keeper(KEEPER_VERSION).accept_keeper(KEEPER_VERSION),
            Ok(())
        );
        let of_keeper = Hello {
            version: KEEPER_VERSION,
            ..older.reply(Answer::Version)
        };
        let refused = of_keeper.welcome(older.version, older.codec);
        let told = refused.expect_err("refused").to_string();
        assert!(told.contains("version 2 here, 3 there"), "{told}");
    }

    #[test]
    fn another_protocol_is_told_apart() {
        let http = *b"GET / HTTP/1.1\r\nHost: localhost\r\n";
        assert!(matches!(
            Hello::decode(http[..32].try_into().expect("32")),
            Err(HelloError::Magic)
        ));
    }
}
