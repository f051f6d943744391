//! Whatever comes on a keeper's socket: it makes nobody panic, and is read in the same way wherever
//! it is cut.

use super::{EDGE, Frame, FrameBuffer, FrameError, HEADER_LEN, Header};

/// Short enough for inputs that are longer.
const LINE_MAX: usize = 2 * EDGE;

fn read(pieces: &[&[u8]]) -> (Vec<Frame>, Option<FrameError>) {
    let (mut buffer, mut frames) = (FrameBuffer::with_line_max(LINE_MAX), Vec::new());
    for piece in pieces {
        buffer.room().extend_from_slice(piece);
        loop {
            match buffer.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

#[test]
fn keeper_frames() {
    bolero::check!().for_each(|input: &[u8]| {
        let Some((cut, bytes)) = input.split_first() else {
            return;
        };
        let (whole, error) = read(&[bytes]);
        let (head, tail) = bytes.split_at(bytes.len() * usize::from(*cut) / 256);
        assert_eq!(read(&[head, tail]), (whole.clone(), error));
        let pieces: Vec<&[u8]> = bytes.chunks(usize::from(*cut).max(1)).collect();
        assert_eq!(read(&pieces), (whole, error));
        if let Some(first) = bytes.first_chunk::<HEADER_LEN>()
            && let Ok(header) = Header::decode(first)
        {
            assert_eq!(header.encode(), *first);
        }
    });
}
