//! Bounds in size and in time. Time is paused: it moves on by itself when everybody waits.

use std::io::ErrorKind;
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};
use tokio::time::{Instant, timeout};

use super::*;

const MAX: usize = 1 << 20;

/// Frames are bytes. One that begins with `?` is answered with itself.
struct Echo;

impl FrameCodec for Echo {
    type In = Vec<u8>;
    type Out = Vec<u8>;

    fn decode(&mut self, frame: &[u8], outbound: &mut BytesMut) -> io::Result<Decoded<Vec<u8>>> {
        if frame.first() == Some(&b'?') {
            self.encode(frame.to_vec(), outbound)?;
            return Ok(Decoded::Answered);
        }
        Ok(Decoded::Item(frame.to_vec()))
    }

    fn encode(&mut self, item: Vec<u8>, outbound: &mut BytesMut) -> io::Result<()> {
        put_frame(outbound, MAX, |writer| io::Write::write_all(writer, &item))
    }
}

fn pair(pipe: usize, budget: Budget) -> (Frames<DuplexStream, Echo>, DuplexStream) {
    let (ours, theirs) = duplex(pipe);
    (Frames::new(ours, Echo, MAX, budget), theirs)
}

fn frame(body: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(body.len())
        .expect("short")
        .to_be_bytes()
        .to_vec();
    bytes.extend_from_slice(body);
    bytes
}

async fn failure(frames: &mut Frames<DuplexStream, Echo>) -> ErrorKind {
    frames
        .next()
        .await
        .expect("not the end")
        .expect_err("no frame")
        .kind()
}

#[tokio::test(start_paused = true)]
async fn frames_arrive_as_they_were_sent() {
    let (mut frames, mut peer) = pair(16, Budget::new(MAX));
    let large = vec![b'x'; SMALL + 1];
    let send = async {
        for body in [&b""[..], b"a", &large] {
            peer.write_all(&frame(body)).await.expect("sent");
        }
        drop(peer);
    };
    let receive = async {
        assert_eq!(frames.next().await.expect("one").expect("whole"), b"");
        assert_eq!(frames.next().await.expect("two").expect("whole"), b"a");
        assert_eq!(frames.next().await.expect("three").expect("whole"), large);
        assert!(
            frames.next().await.is_none(),
            "an end between frames is an end"
        );
    };
    tokio::join!(send, receive);
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_is_too_large_is_refused_before_its_body_is_read() {
    let (mut frames, mut peer) = pair(16, Budget::new(usize::MAX));
    peer.write_all(&u32::try_from(MAX + 1).expect("fits").to_be_bytes())
        .await
        .expect("sent");
    assert_eq!(failure(&mut frames).await, ErrorKind::InvalidData);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_too_large_is_not_sent_and_leaves_no_trace() {
    let mut outbound = BytesMut::new();
    Echo.encode(b"a".to_vec(), &mut outbound).expect("fits");
    let before = outbound.clone();
    assert!(Echo.encode(vec![0; MAX + 1], &mut outbound).is_err());
    assert_eq!(outbound, before);
}

#[tokio::test(start_paused = true)]
async fn a_truncated_frame_is_no_end() {
    for sent in [&frame(b"hello")[..6], &[0, 0]] {
        let (mut frames, mut peer) = pair(16, Budget::new(MAX));
        peer.write_all(sent).await.expect("sent");
        drop(peer);
        assert_eq!(failure(&mut frames).await, ErrorKind::UnexpectedEof);
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_must_be_finished_and_an_idle_peer_need_not_begin_one() {
    let (mut frames, mut peer) = pair(16, Budget::new(MAX));
    assert!(
        timeout(STALL_TIMEOUT * 100, frames.next()).await.is_err(),
        "idle"
    );
    peer.write_all(&frame(b"hello")[..6]).await.expect("sent");
    let before = Instant::now();
    assert_eq!(failure(&mut frames).await, ErrorKind::TimedOut);
    assert_eq!(before.elapsed().as_secs(), STALL_TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_trickles_is_not_waited_for_either() {
    let (mut frames, mut peer) = pair(16, Budget::new(MAX));
    let trickle = async {
        for byte in frame(&[0; 1000]) {
            peer.write_all(&[byte]).await.expect("sent");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        kind = failure(&mut frames) => assert_eq!(kind, ErrorKind::TimedOut),
        () = trickle => panic!("it was waited for"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_is_not_read_from() {
    let (mut frames, mut peer) = pair(1024, Budget::new(MAX));
    let question = frame(&[b'?'; 1000]);
    let mut sent = 0;
    let ask = async {
        loop {
            peer.write_all(&question).await.expect("sent");
            sent += question.len();
        }
    };
    tokio::select! {
        kind = failure(&mut frames) => assert_eq!(kind, ErrorKind::TimedOut),
        () = ask => unreachable!("it goes on for ever"),
    }
    assert!(
        sent <= OUTBOUND_MAX + 2 * READ_CHUNK,
        "{sent} bytes were taken"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_reads_ends_the_connection() {
    let (mut frames, _peer) = pair(16, Budget::new(MAX));
    let failed = frames.send(vec![b'x'; 1000]).await.expect_err("never read");
    assert_eq!(failed.kind(), ErrorKind::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn large_frames_share_a_budget() {
    let budget = Budget::new(SMALL * 3);
    let body = vec![b'x'; SMALL * 2];
    let (mut first, mut first_peer) = pair(MAX, budget.clone());
    let (mut second, mut second_peer) = pair(MAX, budget.clone());
    let whole = frame(&body);
    first_peer.write_all(&whole[..10]).await.expect("sent");
    assert!(
        timeout(Duration::from_secs(1), first.next()).await.is_err(),
        "under way"
    );
    second_peer.write_all(&whole).await.expect("sent");
    assert_eq!(failure(&mut second).await, ErrorKind::QuotaExceeded);
    first_peer.write_all(&whole[10..]).await.expect("sent");
    assert!(first.next().await.expect("a frame").is_ok());
    let (mut third, mut third_peer) = pair(MAX, budget.clone());
    third_peer.write_all(&whole).await.expect("sent");
    assert!(third.next().await.expect("a frame").is_ok(), "given back");
    drop((first, second, third));
    assert_eq!(budget.used.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn one_peers_share_leaves_room_for_others() {
    let budget = Budget::new(SMALL * 8);
    let (greedy, modest) = (budget.share(SMALL * 3), budget.share(SMALL * 3));
    let whole = frame(&vec![b'x'; SMALL * 2]);
    let (mut first, mut first_peer) = pair(MAX, greedy.clone());
    first_peer.write_all(&whole[..10]).await.expect("sent");
    assert!(
        timeout(Duration::from_secs(1), first.next()).await.is_err(),
        "under way"
    );
    let (mut second, mut second_peer) = pair(MAX, greedy);
    second_peer.write_all(&whole).await.expect("sent");
    assert_eq!(failure(&mut second).await, ErrorKind::QuotaExceeded);
    let (mut other, mut other_peer) = pair(MAX, modest);
    other_peer.write_all(&whole).await.expect("sent");
    assert!(
        other.next().await.expect("a frame").is_ok(),
        "another peer's"
    );
    drop((first, second, other));
    assert_eq!(
        budget.used.load(Ordering::Relaxed),
        0,
        "also what was refused by the share is given back"
    );
}
