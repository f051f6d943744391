//! What the daemon does against what others do, all in one run and in turns, as ratios. One caller
//! and fifty.
//!
//! Claim, load, store, state and events against an empty tarpc call on the same socket, a bare Unix
//! socket, and Redis and Valkey on Unix sockets; `token load` against `/bin/true`; the contents of
//! sessions, without a socket, against the crate that does this today.

mod caller;
mod peers;
mod tables;
mod work;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use caller::{Caller, Outcome};
use peers::{Daemon, Echo, Redis, Scratch};
use work::{Ask, Work};

/// Rounds, in which everything is measured in turn, so that a machine that slows down slows all
/// alike.
const ROUNDS: usize = 9;
/// Calls of one caller in a round.
const CALLS: usize = 2_000;
/// Calls of each of many callers in a round.
const CALLS_OF_MANY: usize = 200;
/// The many.
const MANY: usize = 50;
/// The program of the Redis that others are held against.
const REDIS: &str = "redis-server";
/// Starts of a process in a round.
const STARTS: usize = 10;

/// What was measured in each round, by what it was.
type Rounds = BTreeMap<String, Vec<f64>>;

fn main() -> Outcome<()> {
    if let Some(path) = std::env::args()
        .skip_while(|argument| argument != "--echo")
        .nth(1)
    {
        return peers::echo(&path);
    }
    let scratch = Scratch::new("/tmp")?;
    // As `/run/user/UID`, which most users' runtime directory is in: a file system in memory.
    let memory = Scratch::new("/dev/shm")?;
    let daemon = Daemon::start(&memory, "d", &[])?;
    let disk = Daemon::start(&scratch, "d", &[])?;
    let database = format!(
        "storage.url=sqlite:{}",
        scratch.path().join("power.db").display()
    );
    let power = Daemon::start(&scratch, "p", &[&database, "storage.durability=power"])?;
    let echo = Echo::start(&scratch)?;
    let redis = Redis::start(REDIS, &scratch, "redis", &["--appendonly", "no"])?;
    let synced = Redis::start(
        REDIS,
        &scratch,
        "synced",
        &["--appendonly", "yes", "--appendfsync", "always"],
    )?;
    let valkey = match std::env::var_os("VALKEY_SERVER") {
        Some(program) => Some(Redis::start(
            program,
            &scratch,
            "valkey",
            &["--appendonly", "no"],
        )?),
        None => {
            let _ = writeln!(
                std::io::stderr(),
                "NOT RUN: Valkey, since VALKEY_SERVER is not set"
            );
            None
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ours = |name, ask| Work::new(name, ask, &daemon.directory, &daemon.process);
    let on_disk = |name, ask| Work::new(name, ask, &disk.directory, &disk.process);
    let durable = |name, ask| Work::new(name, ask, &power.directory, &power.process).synced();
    let theirs = |name, ask| Work::new(name, ask, &redis.path, &redis.process);
    let safe = |name, ask| Work::new(name, ask, &synced.path, &synced.process).synced();
    let mut all = vec![
        Work::new("bare socket", Ask::Echo, &echo.path, &echo.process),
        ours("ping", Ask::Ping),
        ours("claim", Ask::Claim),
        ours("load", Ask::Load),
        ours("claim, by the client library", Ask::Library),
        theirs("redis GET", Ask::RedisGet),
        ours("state get", Ask::StateGet),
        theirs("redis SET", Ask::RedisSet),
        ours("state set", Ask::StateSet),
        on_disk("state set, on a disk", Ask::StateSet),
        theirs("redis XADD", Ask::RedisXadd(1)),
        ours("append of 1", Ask::Append(1)),
        on_disk("append of 1, on a disk", Ask::Append(1)),
        theirs("redis XADD, 64 pipelined", Ask::RedisXadd(64)),
        ours("append of 64", Ask::Append(64)),
        on_disk("append of 64, on a disk", Ask::Append(64)),
        theirs("redis XRANGE of 100", Ask::RedisXrange(100)),
        ours("replay of 100", Ask::Replay(100)),
        theirs("redis XRANGE of 1000", Ask::RedisXrange(1_000)),
        ours("replay of 1000", Ask::Replay(1_000)),
        ours("store", Ask::Store),
        on_disk("store, on a disk", Ask::Store).synced(),
        safe("redis SET, appendfsync always", Ask::RedisSet),
        durable("state set, power", Ask::StateSet),
        safe("redis XADD, appendfsync always", Ask::RedisXadd(1)),
        durable("append of 1, power", Ask::Append(1)),
        safe(
            "redis XADD, 64 pipelined, appendfsync always",
            Ask::RedisXadd(64),
        ),
        durable("append of 64, power", Ask::Append(64)),
    ];
    if let Some(Redis { path, process }) = &valkey {
        all.extend([
            Work::new("valkey GET", Ask::RedisGet, path, process),
            Work::new("valkey SET", Ask::RedisSet, path, process),
            Work::new("valkey XADD", Ask::RedisXadd(1), path, process),
        ]);
    }
    // Names of works, or parts of names: nothing but these then, and what they are held against.
    let only: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let wanted = |work: &&Work| {
        let named = only.is_empty() || only.iter().any(|part| work.name.contains(part.as_str()));
        named || ["bare socket", "ping", "redis SET"].contains(&work.name)
    };
    let everywhere = format!("0-{}", std::thread::available_parallelism()?.get() - 1);
    let (mut one, mut many, mut busy) = (Rounds::new(), Rounds::new(), Rounds::new());
    let mut starts = Rounds::new();
    runtime.block_on(async {
        let mut callers = Vec::new();
        for work in all.iter().filter(wanted) {
            let mut of_work = Vec::new();
            for index in 0..MANY {
                of_work.push(work.caller(index).await?);
            }
            callers.push((work, of_work));
        }
        for _ in 0..ROUNDS {
            for (work, callers) in &mut callers {
                let pids = [std::process::id(), work.process.id()];
                pin(&pids, "0")?;
                let took = latency(&mut callers[0], work.calls).await?;
                pin(&pids, &everywhere)?;
                one.entry(work.name.into()).or_default().push(took);
                let before = work.process.busy();
                many.entry(work.name.into())
                    .or_default()
                    .push(throughput(callers, work.each).await?);
                let spent = (work.process.busy() - before) / (MANY * work.each) as f64;
                busy.entry(work.name.into()).or_default().push(spent);
            }
            if !only.is_empty() {
                continue;
            }
            for (name, mut command) in [
                ("token load", daemon.token_load()),
                ("/bin/true", Command::new("/bin/true")),
            ] {
                starts
                    .entry(name.into())
                    .or_default()
                    .push(process(&mut command)?);
            }
        }
        Outcome::Ok(())
    })?;
    tables::sockets(&one, &many)?;
    tables::pairs(&one, &many, &busy)?;
    if only.is_empty() {
        tables::starts(&one, &starts)?;
    }
    Ok(())
}

/// The median latency of one caller's calls, in µs.
async fn latency(caller: &mut Caller, calls: usize) -> Outcome<f64> {
    let mut took = Vec::with_capacity(calls);
    for _ in 0..calls {
        let began = Instant::now();
        caller.call().await?;
        took.push(micros(began.elapsed()));
    }
    Ok(median(&took))
}

/// Calls a second of all callers together.
async fn throughput(callers: &mut Vec<Caller>, each: usize) -> Outcome<f64> {
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    let total = callers.len() * each;
    for mut caller in callers.drain(..) {
        tasks.spawn(async move {
            for _ in 0..each {
                caller.call().await?;
            }
            Outcome::Ok(caller)
        });
    }
    while let Some(done) = tasks.join_next().await {
        callers.push(done??);
    }
    Ok(total as f64 / began.elapsed().as_secs_f64())
}

/// The median time from the start of a process to its end, in µs.
fn process(command: &mut Command) -> Outcome<f64> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
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

/// Puts all threads of these processes on these processors. Of one caller's calls both sides are on
/// the same one: a thread that is woken on another takes 30 µs longer on a virtual machine, and
/// which it is would change from run to run.
fn pin(pids: &[u32], processors: &str) -> Outcome<()> {
    for pid in pids {
        let mut command = Command::new("taskset");
        command
            .args([
                "--all-tasks",
                "--cpu-list",
                "--pid",
                processors,
                &pid.to_string(),
            ])
            .stdout(Stdio::null());
        if !command.status()?.success() {
            return Err(format!("{command:?} failed").into());
        }
    }
    Ok(())
}

/// The median over the rounds of what `a` and `b` were in the same round, as `of` puts them
/// together.
fn paired(a: &[f64], b: &[f64], of: impl Fn(f64, f64) -> f64) -> f64 {
    median(&a.iter().zip(b).map(|(a, b)| of(*a, *b)).collect::<Vec<_>>())
}
