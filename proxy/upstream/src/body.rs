//! Bodies of responses, as they come. We read them, so their coding is ours: requests ask for
//! `identity`, what comes in gzip or deflate all the same is decoded, and another coding is named (RFC 9110, sections 8.4
//! and 12.5.3).

use std::fmt;

use bytes::{Buf as _, Bytes, BytesMut};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZError, MZFlush, MZStatus};
use reqwest::Response;
use reqwest::header::{CONTENT_ENCODING, HeaderMap};

/// Bytes that are decoded at once: whoever reads bounds what it keeps, however small it was sent.
const DECODED_AT_ONCE: usize = 32 * 1024;

/// How gzip begins.
const MAGIC: [u8; 2] = [0x1F, 0x8B];

/// Bytes of the checksum and the length behind each member of gzip.
const TRAILER: usize = 8;

/// Bytes of a gzip header. It holds names and comments, which are short.
const HEADER_MAX: usize = 64 * 1024;

/// Why a body can't be read.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// The connection broke, or the coding is not what it should be.
    Broken,
    /// It has this coding.
    Coding(String),
}

/// A body.
pub(crate) struct Body {
    chunks: BoxStream<'static, reqwest::Result<Bytes>>,
    /// What has come, and was not decoded yet.
    coded: BytesMut,
    coding: Coding,
}

/// How the rest of a body is read.
enum Coding {
    Identity,
    /// The header of gzip is read first (RFC 1952); how deflate begins tells which of two kinds it is.
    Gzip {
        /// Whether there was none before it: what follows on a whole one may be another, or nothing.
        is_first: bool,
    },
    Deflate,
    Inflating {
        state: Box<InflateState>,
        /// Bytes that follow on the compressed ones.
        trailer: usize,
    },
    /// So many bytes of gzip's checksum and length are still to come.
    Trailer(usize),
    /// What follows is no part of the content.
    Ended,
}

impl fmt::Debug for Body {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Body").finish_non_exhaustive()
    }
}

impl Body {
    /// That of a response.
    ///
    /// # Errors
    /// [`BodyError::Coding`].
    pub(crate) fn of(response: Response) -> Result<Self, BodyError> {
        let coding = Coding::of(response.headers())?;
        Ok(Self {
            chunks: response.bytes_stream().boxed(),
            coded: BytesMut::new(),
            coding,
        })
    }

    /// What comes next of the content. None: that was all.
    ///
    /// # Errors
    /// [`BodyError::Broken`].
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        loop {
            match self.decoded() {
                Ok(Some(content)) => return Some(Ok(content)),
                Ok(None) => {}
                Err(failed) => return Some(Err(failed)),
            }
            match self.chunks.next().await {
                Some(Ok(chunk)) if matches!(self.coding, Coding::Identity) => {
                    return Some(Ok(chunk));
                }
                Some(Ok(chunk)) => self.coded.extend_from_slice(&chunk),
                Some(Err(_)) => return Some(Err(BodyError::Broken)),
                None => {
                    let has_begun = matches!(self.coding, Coding::Inflating { .. });
                    self.coding = Coding::Ended;
                    let is_whole = !has_begun && self.coded.is_empty();
                    return (!is_whole).then_some(Err(BodyError::Broken));
                }
            }
        }
    }

    /// What can be decoded of what has come. None: more has to come.
    fn decoded(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            let (format, trailer) = match &mut self.coding {
                Coding::Identity => return Ok(None),
                Coding::Ended => {
                    self.coded.clear();
                    return Ok(None);
                }
                Coding::Gzip { is_first }
                    if !MAGIC.starts_with(&self.coded[..self.coded.len().min(2)]) =>
                {
                    if *is_first {
                        return Err(BodyError::Broken);
                    }
                    self.coding = Coding::Ended;
                    continue;
                }
                Coding::Gzip { .. } => match header_length(&self.coded) {
                    Some(length) => {
                        self.coded.advance(length);
                        (DataFormat::Raw, TRAILER)
                    }
                    None if self.coded.len() > HEADER_MAX => return Err(BodyError::Broken),
                    None => return Ok(None),
                },
                Coding::Deflate => match self.coded[..] {
                    // With a header (RFC 1950), as it should be; some send it without.
                    [first, second, ..] if is_zlib(first, second) => (DataFormat::Zlib, 0),
                    [_, _, ..] => (DataFormat::Raw, 0),
                    _ => return Ok(None),
                },
                Coding::Trailer(left) => {
                    let here = self.coded.len().min(*left);
                    self.coded.advance(here);
                    *left -= here;
                    if *left > 0 {
                        return Ok(None);
                    }
                    self.coding = Coding::Gzip { is_first: false };
                    continue;
                }
                Coding::Inflating { state, trailer } => {
                    let mut content = vec![0; DECODED_AT_ONCE];
                    let made = inflate(state, &self.coded, &mut content, MZFlush::None);
                    self.coded.advance(made.bytes_consumed);
                    content.truncate(made.bytes_written);
                    match made.status {
                        Ok(MZStatus::StreamEnd) if *trailer > 0 => {
                            self.coding = Coding::Trailer(*trailer);
                        }
                        Ok(MZStatus::StreamEnd) => self.coding = Coding::Ended,
                        // It needs more.
                        Ok(_) | Err(MZError::Buf) => {}
                        Err(_) => return Err(BodyError::Broken),
                    }
                    return Ok(Some(content.into()).filter(|content: &Bytes| !content.is_empty()));
                }
            };
            let state = InflateState::new_boxed(format);
            self.coding = Coding::Inflating { state, trailer };
        }
    }
}

impl Coding {
    fn of(headers: &HeaderMap) -> Result<Self, BodyError> {
        let said = headers.get_all(CONTENT_ENCODING).into_iter();
        let said: Vec<_> = said
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .collect();
        let said = said.join(", ").to_ascii_lowercase();
        let codings = said.split(',').map(str::trim);
        let mut codings = codings.filter(|it| !matches!(*it, "" | "identity"));
        match (codings.next(), codings.next()) {
            (None, _) => Ok(Self::Identity),
            (Some("gzip" | "x-gzip"), None) => Ok(Self::Gzip { is_first: true }),
            (Some("deflate"), None) => Ok(Self::Deflate),
            (Some(_), _) => {
                let readable = said.chars().filter(|c| !c.is_control());
                Err(BodyError::Coding(readable.take(40).collect()))
            }
        }
    }
}

/// Whether zlib's header begins so (RFC 1950, section 2.2).
fn is_zlib(first: u8, second: u8) -> bool {
    first & 0x0F == 8 && u16::from_be_bytes([first, second]).is_multiple_of(31)
}

/// Bytes of the header of gzip that this begins with (RFC 1952, section 2.3). None: it is not there to
/// its end.
fn header_length(from: &[u8]) -> Option<usize> {
    const CHECKSUM: u8 = 1 << 1;
    const EXTRA: u8 = 1 << 2;
    const NAME: u8 = 1 << 3;
    const COMMENT: u8 = 1 << 4;
    let flags = *from.get(3)?;
    let mut at = 10;
    if flags & EXTRA != 0 {
        let length = from.get(at..at + 2)?.try_into().ok()?;
        at += 2 + usize::from(u16::from_le_bytes(length));
    }
    for flag in [NAME, COMMENT] {
        if flags & flag != 0 {
            at += from.get(at..)?.iter().position(|byte| *byte == 0)? + 1;
        }
    }
    at += if flags & CHECKSUM == 0 { 0 } else { 2 };
    (at <= from.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use miniz_oxide::deflate::{compress_to_vec, compress_to_vec_zlib};

    use super::*;

    /// A body in this coding that comes in chunks of so many bytes.
    fn body(coding: &str, sent: &[u8], chunk: usize) -> Body {
        let chunks: Vec<_> = sent
            .chunks(chunk)
            .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
            .collect();
        Body {
            chunks: stream::iter(chunks).boxed(),
            coded: BytesMut::new(),
            coding: Coding::of(&headers(coding)).expect("known"),
        }
    }

    fn headers(coding: &str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_ENCODING, coding.parse().expect("a value"))])
    }

    async fn content(mut body: Body) -> Result<Vec<u8>, BodyError> {
        let mut content = Vec::new();
        while let Some(part) = body.next().await {
            content.extend_from_slice(&part?);
        }
        Ok(content)
    }

    /// With everything in its header that there can be.
    fn gzip(content: &[u8], flags: u8) -> Vec<u8> {
        let mut sent = vec![0x1F, 0x8B, 8, flags, 0, 0, 0, 0, 0, 255];
        if flags & 4 != 0 {
            sent.extend([3, 0, 1, 2, 3]);
        }
        if flags & 8 != 0 {
            sent.extend(b"name\0");
        }
        if flags & 16 != 0 {
            sent.extend(b"a comment\0");
        }
        if flags & 2 != 0 {
            sent.extend([1, 2]);
        }
        sent.extend(compress_to_vec(content, 6));
        // Checksum and length, which nobody reads.
        sent.extend([0; 8]);
        sent
    }

    #[tokio::test]
    async fn what_comes_in_gzip_or_deflate_is_read_wherever_it_was_cut() {
        let text: Vec<u8> = (0..100_000_u32)
            .flat_map(|at| at.to_string().into_bytes())
            .collect();
        // In several members, as who compresses each event by itself sends it.
        let members = [gzip(&text[..10], 0), gzip(&text[10..], 8)];
        let sent = [
            ("gzip", gzip(&text, 0)),
            ("X-GZip", gzip(&text, 4 | 8 | 16 | 2)),
            ("identity, gzip", gzip(&text, 8)),
            ("gzip", members.concat()),
            ("gzip", [gzip(&text, 0), vec![0; 20]].concat()),
            ("deflate", compress_to_vec_zlib(&text, 6)),
            ("deflate", compress_to_vec(&text, 6)),
            ("identity", text.clone()),
        ];
        for (coding, sent) in &sent {
            for chunk in [1, 7, 5_000, sent.len()] {
                let content = content(body(coding, sent, chunk)).await;
                assert!(
                    content.is_ok_and(|content| content == text),
                    "{coding} {chunk}"
                );
            }
        }
    }

    #[tokio::test]
    async fn one_that_ends_too_early_is_broken_and_an_empty_one_is_empty() {
        let whole = gzip(b"{}", 0);
        let cut = content(body("gzip", &whole[..whole.len() - 9], 3)).await;
        assert!(matches!(cut, Err(BodyError::Broken)), "{cut:?}");
        assert_eq!(content(body("gzip", b"", 1)).await.expect("empty"), b"");
        for nonsense in [&[0xFF; 100][..], &[0x1F, 0x8B, 8, 0xFF, 0xFF]] {
            let read = content(body("gzip", nonsense, 9)).await;
            assert!(matches!(read, Err(BodyError::Broken)), "{read:?}");
        }
    }

    #[test]
    fn another_coding_is_named() {
        for coding in ["br", "zstd", "gzip, br"] {
            let read = Coding::of(&headers(coding)).err();
            assert!(
                matches!(&read, Some(BodyError::Coding(it)) if it == coding),
                "{read:?}"
            );
        }
    }

    #[tokio::test]
    async fn however_much_was_compressed_little_is_decoded_at_once() {
        let bomb = compress_to_vec_zlib(&vec![0; 20 << 20], 9);
        let mut body = body("deflate", &bomb, bomb.len());
        for _ in 0..3 {
            let part = body.next().await.expect("more").expect("decoded");
            assert!(part.len() <= DECODED_AT_ONCE);
        }
    }
}
