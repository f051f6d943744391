//! Event ids: opaque, naming their stream, impossible to guess, and nothing in another session.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use mcp_sessiond_proto::StreamId;
use mcp_sessiond_proto::streams::{EVENT_ID_MAX, EventId};
use sha2::Sha256;

/// Bytes of the code that stands before what an id says: 128 bits can't be guessed.
const CODE_LEN: usize = 16;

/// Bytes that a number takes at most.
const NUMBER_MAX: usize = 10;

/// What an event id says, to who made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Position {
    /// The stream.
    pub(super) stream: StreamId,
    /// The event's place in the stream, from 1.
    pub(super) position: u64,
    /// Its number in the session, from 1.
    pub(super) number: u64,
    /// The number of the first event that was appended with it: where a scan has to begin.
    pub(super) chunk: u64,
}

/// Makes and reads the ids of one session.
pub(super) struct EventIds(Hmac<Sha256>);

impl EventIds {
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        // RFC 2104: a key that is shorter than a block has zeros behind it.
        let mut key = [0; 64];
        key[..secret.len()].copy_from_slice(secret);
        Self(Hmac::new(&key.into()))
    }

    pub(super) fn make(&self, place: &Position) -> EventId {
        let mut id = Vec::with_capacity(CODE_LEN + 3 * NUMBER_MAX + place.stream.as_str().len());
        id.extend([0; CODE_LEN]);
        put(&mut id, place.number);
        put(&mut id, place.number - place.chunk);
        put(&mut id, place.position);
        id.extend_from_slice(place.stream.as_str().as_bytes());
        let code = self
            .0
            .clone()
            .chain_update(&id[CODE_LEN..])
            .finalize()
            .into_bytes();
        id[..CODE_LEN].copy_from_slice(&code[..CODE_LEN]);
        EventId(BASE64.encode(id))
    }

    /// None: it is none of this session's.
    pub(super) fn read(&self, id: &EventId) -> Option<Position> {
        let bytes = BASE64
            .decode(Some(&id.0).filter(|id| id.len() <= EVENT_ID_MAX)?)
            .ok()?;
        let (code, mut rest) = bytes.split_at_checked(CODE_LEN)?;
        // In constant time, so that nobody can find out a code byte by byte.
        self.0
            .clone()
            .chain_update(rest)
            .verify_truncated_left(code)
            .ok()?;
        let number = take(&mut rest)?;
        let chunk = number.checked_sub(take(&mut rest)?)?;
        let position = take(&mut rest)?;
        let stream = std::str::from_utf8(rest).ok()?.parse().ok()?;
        Some(Position {
            stream,
            position,
            number,
            chunk,
        })
    }
}

/// LEB128: small numbers are short.
fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push((value & 0x7f) as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_in_its_own_session_only() {
        let ids = EventIds::new(&[1; 32]);
        for (number, stream) in [(1, "_GET_stream"), (300, "a_b_c"), (u64::MAX, "~")] {
            let place = Position {
                stream: stream.parse().expect("an id"),
                position: number / 2 + 1,
                number,
                chunk: number - number / 3,
            };
            let id = ids.make(&place);
            assert!(id.0.bytes().all(|byte| byte.is_ascii_graphic()), "{id:?}");
            assert_eq!(ids.read(&id), Some(place));
            assert_eq!(EventIds::new(&[2; 32]).read(&id), None, "another session");
            for at in 0..id.0.len() {
                let mut wrong = id.0.clone().into_bytes();
                wrong[at] = if wrong[at] == b'A' { b'B' } else { b'A' };
                let wrong = EventId(String::from_utf8(wrong).expect("ASCII"));
                assert_eq!(ids.read(&wrong), None, "{at}");
            }
        }
        for wrong in ["", "AAAA", "_GET_stream_1", &"A".repeat(1000)] {
            assert_eq!(ids.read(&EventId(wrong.into())), None);
        }
    }
}
