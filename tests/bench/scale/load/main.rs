//! The load of tests/bench/scale.py and tests/bench/fleet.py: one order, as JSON in the only
//! argument; what came of it, as JSON on standard output. What is asked is up and has a socket
//! already.

mod asks;
mod busy;
mod line;
mod order;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use asks::Asks;
use busy::Busy;
use line::Line;
use order::{Order, What};

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let argument = std::env::args()
        .skip(1)
        .find(|argument| argument.starts_with('{'));
    let order: Order =
        serde_json::from_str(&argument.ok_or("no order: see tests/bench/scale/load.py")?)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let came = runtime.block_on(async {
        match order.what {
            What::Fill => fill(order).await,
            What::Latency => latency(&order).await,
            What::Rate => rate(order).await,
        }
    })?;
    Ok(writeln!(std::io::stdout(), "{came}")?)
}

/// Makes sessions, and what they hold, as fast as some callers can.
async fn fill(order: Order) -> Outcome<serde_json::Value> {
    let order = Arc::new(order);
    let next = Arc::new(AtomicU64::new(order.from));
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..order.callers {
        let (order, next) = (order.clone(), next.clone());
        tasks.spawn(async move {
            let at = order.at(index);
            let mut line = Line::to(at).await?;
            let asks = Asks::new(at, &order);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= order.until {
                    return Outcome::Ok(());
                }
                for request in asks.filling(number)? {
                    line.ask(&request).await?;
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(serde_json::json!({}))
}

/// The µs that calls of one caller took, each to any session.
async fn latency(order: &Order) -> Outcome<serde_json::Value> {
    let at = order.at(0);
    let mut line = Line::to(at).await?;
    let asks = Asks::new(at, order);
    let mut took = Vec::with_capacity(order.calls);
    // The first ones find caches cold.
    for call in 0..order.calls + order.calls / 10 {
        let request = asks.one(fastrand::u64(order.from..order.until)).await?;
        let began = Instant::now();
        line.ask(&request).await?;
        if call >= order.calls / 10 {
            took.push(began.elapsed().as_secs_f64() * 1e6);
        }
    }
    took.sort_by(f64::total_cmp);
    let at = |share: f64| took[((took.len() as f64 * share) as usize).min(took.len() - 1)];
    Ok(serde_json::json!({"p50": at(0.5), "p99": at(0.99)}))
}

/// Calls a second of all callers together, each on a connection of its own and with a session of
/// its own; and who was busy meanwhile.
async fn rate(order: Order) -> Outcome<serde_json::Value> {
    let (done, is_over) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut callers = Vec::new();
    for index in 0..order.callers {
        let at = order.at(index);
        let asks = Asks::new(at, &order);
        let mut line = Line::to(at).await?;
        let request = asks.one(order.from + index as u64).await?;
        line.ask(&request).await?;
        callers.push((line, request));
    }
    let mut tasks = tokio::task::JoinSet::new();
    for (mut line, request) in callers {
        let (done, is_over) = (done.clone(), is_over.clone());
        tasks.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                line.ask(&request).await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Outcome::Ok(())
        });
    }
    // The callers go on by themselves: this is how long they warm up, until the daemon's pools of
    // connections have grown, and then how long they are counted.
    tokio::time::sleep(Duration::from_secs_f64(order.seconds / 4.0)).await;
    let (began, before, busy) = (
        Instant::now(),
        done.load(Ordering::Relaxed),
        Busy::now(&order.pids),
    );
    tokio::time::sleep(Duration::from_secs_f64(order.seconds)).await;
    let (spent, after) = (began.elapsed().as_secs_f64(), done.load(Ordering::Relaxed));
    let busy = Busy::now(&order.pids).since(&busy);
    is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let calls = (after - before) as f64;
    Ok(serde_json::json!({"rate": calls / spent, "calls": calls, "seconds": spent, "busy": busy}))
}
