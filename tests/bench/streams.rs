//! Fifty calls a second for a minute, while a thousand streams are open. By
//! `tests/campaign streams`.
//!
//! Prints how long the calls took, from the moment at which each was due, and asserts that no
//! stream has lost anything.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use mcp_sessiond_tests::Binaries;
use mcp_sessiond_tests::many_sessions::{ManySessions, SESSIONS, Session};

static BINARIES: Binaries = mcp_sessiond_tests::binaries!();

/// Calls a second in all, and of how many threads.
const RATE: u32 = 50;
const WORKERS: u32 = 10;
/// Calls of each thread.
const CALLS: u32 = 60 * RATE / WORKERS;

fn main() -> io::Result<()> {
    let mut many = ManySessions::begin(&BINARIES);
    let start = Instant::now();
    let workers = many
        .sessions
        .chunks_mut(SESSIONS / WORKERS as usize)
        .zip(0..);
    let took: Vec<Vec<Duration>> = std::thread::scope(|scope| {
        let calling: Vec<_> = workers
            .map(|(sessions, worker)| scope.spawn(move || call(sessions, worker, start)))
            .collect();
        calling
            .into_iter()
            .flat_map(|calling| calling.join().expect("each call is answered"))
            .collect()
    });
    let passed = start.elapsed();
    let mut medians: Vec<Duration> = took
        .iter()
        .map(|times| part(&mut times.clone(), 50))
        .collect();
    let mut all = took.concat();
    writeln!(
        io::stdout(),
        "{} calls in {passed:.1?}: p50 {:.2?}, p99 {:.2?}, at most {:.2?}; the median of a session {:.2?} to {:.2?}; {} KiB",
        all.len(),
        part(&mut all, 50),
        part(&mut all, 99),
        part(&mut all, 100),
        part(&mut medians, 0),
        part(&mut medians, 100),
        many.more_kib(),
    )?;
    many.ends_whole();
    Ok(())
}

/// Calls each of these sessions in turn, each call at its own moment. How long the calls of each
/// session took.
fn call(sessions: &mut [Session], worker: u32, start: Instant) -> Vec<Vec<Duration>> {
    let mut took = vec![Vec::new(); sessions.len()];
    for (call, session) in (0..CALLS).zip((0..sessions.len()).cycle()) {
        let due = start + Duration::from_secs(1) * (call * WORKERS + worker) / RATE;
        // The load has a rate. Nothing is waited for.
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        sessions[session].ping();
        took[session].push(due.elapsed());
    }
    took
}

/// What so many of a hundred took at most.
fn part(times: &mut [Duration], of_hundred: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() - 1) * of_hundred / 100]
}
