//! Claim, load and store against an empty tarpc call on the same socket, a bare Unix socket, and Redis on a Unix
//! socket; `token load` against `/bin/true`. One caller and fifty. All in one run, in turns, as ratios.

mod peers;
mod work;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use peers::{Daemon, Echo, Redis, Scratch};
use work::{Caller, Work};

/// Rounds, in which everything is measured in turn, so that a machine that slows down slows all alike.
const ROUNDS: usize = 9;
/// Calls of one caller in a round.
const CALLS: usize = 2_000;
/// Calls of each of many callers in a round.
const CALLS_OF_MANY: usize = 200;
/// The many.
const MANY: usize = 50;
/// Calls that sync a disk are slower by a hundred times.
const SYNCED_CALLS: usize = 50;
/// Starts of a process in a round.
const STARTS: usize = 10;

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    if let Some(path) = std::env::args().skip_while(|argument| argument != "--echo").nth(1) {
        return peers::echo(&path);
    }
    let scratch = Scratch::new()?;
    let daemon = Daemon::start(&scratch)?;
    let echo = Echo::start(&scratch)?;
    let redis = Redis::start(&scratch, "redis", &["--appendonly", "no"])?;
    let synced = Redis::start(&scratch, "synced", &["--appendonly", "yes", "--appendfsync", "always"])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let all = [
        Work::Echo(echo.path.clone()),
        Work::Ping(daemon.directory.clone()),
        Work::Claim(daemon.directory.clone()),
        Work::Load(daemon.directory.clone()),
        Work::Library(daemon.directory.clone()),
        Work::RedisGet(redis.path.clone()),
        Work::RedisSet(redis.path.clone()),
        Work::Store(daemon.directory.clone()),
        Work::RedisSet(synced.path.clone()).named("redis SET, appendfsync always"),
    ];
    let mut one: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut many: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut starts: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    runtime.block_on(async {
        let mut callers = Vec::new();
        for work in &all {
            let mut of_work = Vec::new();
            for index in 0..MANY {
                of_work.push(work.caller(index).await?);
            }
            callers.push((work, of_work));
        }
        for _ in 0..ROUNDS {
            for (work, callers) in &mut callers {
                let (calls, each) =
                    if work.syncs() { (SYNCED_CALLS, SYNCED_CALLS / 10) } else { (CALLS, CALLS_OF_MANY) };
                one.entry(work.name()).or_default().push(latency(&mut callers[0], calls).await?);
                many.entry(work.name()).or_default().push(throughput(callers, each).await?);
            }
            for (name, mut command) in
                [("token load", daemon.token_load()), ("/bin/true", Command::new("/bin/true"))]
            {
                starts.entry(name).or_default().push(process(&mut command)?);
            }
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    })?;
    print(&one, &many, &starts)?;
    Ok(())
}

/// The median latency of one caller's calls, in µs.
async fn latency(caller: &mut Caller, calls: usize) -> Result<f64, Box<dyn std::error::Error + Send + Sync>> {
    let mut took = Vec::with_capacity(calls);
    for _ in 0..calls {
        let began = Instant::now();
        caller.call().await?;
        took.push(micros(began.elapsed()));
    }
    Ok(median(&took))
}

/// Calls a second of all callers together.
async fn throughput(
    callers: &mut Vec<Caller>,
    each: usize,
) -> Result<f64, Box<dyn std::error::Error + Send + Sync>> {
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    let total = callers.len() * each;
    for mut caller in callers.drain(..) {
        tasks.spawn(async move {
            for _ in 0..each {
                caller.call().await?;
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(caller)
        });
    }
    while let Some(done) = tasks.join_next().await {
        callers.push(done??);
    }
    Ok(total as f64 / began.elapsed().as_secs_f64())
}

/// The median time from the start of a process to its end, in µs.
fn process(command: &mut Command) -> Result<f64, Box<dyn std::error::Error + Send + Sync>> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut took = Vec::new();
    for _ in 0..STARTS {
        let began = Instant::now();
        if !command.status()?.success() {
            return Err(format!("{command:?} failed").into());
        }
        took.push(micros(began.elapsed()));
    }
    Ok(median(&took))
}

fn micros(span: Duration) -> f64 {
    span.as_secs_f64() * 1e6
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The median over the rounds of what `a` and `b` were in the same round, as `of` puts them together.
fn paired(a: &[f64], b: &[f64], of: impl Fn(f64, f64) -> f64) -> f64 {
    median(&a.iter().zip(b).map(|(a, b)| of(*a, *b)).collect::<Vec<_>>())
}

fn print(
    one: &BTreeMap<&str, Vec<f64>>,
    many: &BTreeMap<&str, Vec<f64>>,
    starts: &BTreeMap<&str, Vec<f64>>,
) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(
        output,
        "| one caller, p50 | µs | over an empty call | / Redis SET |\n| --- | --- | --- | --- |"
    )?;
    for (name, took) in one {
        let over = paired(took, &one["ping"], |a, b| a - b);
        let ratio = paired(took, &one["redis SET"], |a, b| a / b);
        writeln!(output, "| {name} | {:.0} | {over:+.0} µs | {ratio:.2} |", median(took))?;
    }
    writeln!(
        output,
        "\n| fifty callers | calls/s | / Redis SET | / bare socket |\n| --- | --- | --- | --- |"
    )?;
    for (name, rate) in many {
        let redis = paired(rate, &many["redis SET"], |a, b| a / b);
        let bare = paired(rate, &many["bare socket"], |a, b| a / b);
        writeln!(output, "| {name} | {:.0} | {redis:.2} | {bare:.2} |", median(rate))?;
    }
    let synced = "redis SET, appendfsync always";
    let store = paired(&one["store"], &one[synced], |a, b| a / b);
    writeln!(output, "\n| pairs | ratio |\n| --- | --- |")?;
    writeln!(output, "| store / {synced}, one caller | {store:.2} |")?;
    let ratio = paired(&starts["token load"], &starts["/bin/true"], |a, b| a / b);
    let (load, nothing) = (median(&starts["token load"]), median(&starts["/bin/true"]));
    writeln!(
        output,
        "| `token load` / `/bin/true`, start to end ({load:.0} / {nothing:.0} µs) | {ratio:.2} |"
    )
}
