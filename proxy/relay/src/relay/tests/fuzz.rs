//! Whatever lines both sides write, the relay does not panic, and hands out whole lines only.
//! `tests/fuzz` runs this with coverage; as an ordinary test it runs the corpus in `__fuzz__` and
//! some random inputs.

use super::*;

/// Carries out one line of the input: a letter for the event, then its text. Any other line is the
/// host's.
fn happens(bench: &mut Bench, line: &[u8]) {
    let (what, said) = line
        .split_first()
        .map_or((b' ', line), |(what, said)| (*what, said));
    let now = bench.now;
    match what {
        b'b' => bench.backend_sends(said),
        b'l' => bench
            .relay
            .last_from_backend(Bytes::copy_from_slice(said), now),
        b'a' => drop(bench.attach()),
        b'A' => drop(
            bench
                .relay
                .attach(Some(Bytes::copy_from_slice(said)), None, now),
        ),
        b'd' => bench
            .relay
            .detach(said.len() as u64, said.first() == Some(&b'o'), now),
        b'x' => bench
            .relay
            .backend_exited("exit status: 1", std::str::from_utf8(said).ok(), now),
        b's' => bench.relay.backend_started(now),
        b'r' => bench.relay.restart(now),
        b'w' => bench.relay.wind_down(now),
        b'q' => bench.relay.stopping("it is stopped", now),
        b't' => {
            bench.now = bench
                .relay
                .next_deadline()
                .map_or(now, |next| next.max(now));
            bench.relay.tick(bench.now);
        }
        b'F' | b'B' => {
            let (head, tail) = said.split_at(said.len() / 2);
            if what == b'F' {
                bench.relay.oversized_from_front(head, tail, now);
            } else {
                bench.relay.oversized_from_backend(head, tail, now);
            }
        }
        b'f' => bench.front_sends(said),
        _ => bench.front_sends(line),
    }
}

#[test]
fn relayed_lines() {
    bolero::check!().for_each(|input: &[u8]| {
        let mut bench = if input.first() == Some(&b'i') {
            Bench::initialized()
        } else {
            Bench::new()
        };
        for line in input.split(|byte| *byte == b'\n') {
            happens(&mut bench, line);
            let _ = (
                bench.relay.effects(),
                bench.relay.reads_front(),
                bench.relay.reads_backend(),
            );
            let out = [bench.relay.pull_front(), bench.relay.pull_backend()];
            for line in out.iter().flatten() {
                assert!(!line.is_empty() && !line.contains(&b'\n'));
            }
            let _ = (
                bench.relay.view(bench.now),
                bench.relay.lost_and_parked(),
                bench.relay.is_used(),
            );
        }
    });
}
