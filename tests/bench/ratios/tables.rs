//! What was measured, as the tables of docs/benchmarks.md.

use std::io::Write as _;

use crate::{Rounds, median, paired};

/// Ours, and what Redis and Valkey do that is the same.
const PAIRS: [(&str, &str); 15] = [
    ("state get", "redis GET"),
    ("state get", "valkey GET"),
    ("state set", "redis SET"),
    ("state set", "valkey SET"),
    ("append of 1", "redis XADD"),
    ("append of 1", "valkey XADD"),
    ("append of 64", "redis XADD, 64 pipelined"),
    ("replay of 100", "redis XRANGE of 100"),
    ("replay of 1000", "redis XRANGE of 1000"),
    ("state set, on a disk", "redis SET"),
    ("append of 1, on a disk", "redis XADD"),
    ("append of 64, on a disk", "redis XADD, 64 pipelined"),
    ("state set, power", "redis SET, appendfsync always"),
    ("append of 1, power", "redis XADD, appendfsync always"),
    (
        "append of 64, power",
        "redis XADD, 64 pipelined, appendfsync always",
    ),
];

/// What has no counterpart, and what everything is held against.
const PLAIN: [&str; 15] = [
    "bare socket",
    "claim",
    "claim, by the client library",
    "load",
    "ping",
    "redis GET",
    "redis SET",
    "valkey GET",
    "valkey SET",
    "state get",
    "state set",
    "state set, on a disk",
    "redis SET, appendfsync always",
    "store",
    "store, on a disk",
];

/// Calls over a socket, against an empty call, Redis, and a bare socket.
pub(crate) fn sockets(one: &Rounds, many: &Rounds) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(
        output,
        "| one caller, p50 | µs | over an empty call | / Redis SET |\n| --- | --- | --- | --- |"
    )?;
    for name in PLAIN {
        let Some(took) = one.get(name) else { continue };
        let over = paired(took, &one["ping"], |a, b| a - b);
        let ratio = paired(took, &one["redis SET"], |a, b| a / b);
        writeln!(
            output,
            "| {name} | {:.0} | {over:+.0} µs | {ratio:.2} |",
            median(took)
        )?;
    }
    writeln!(
        output,
        "\n| fifty callers | calls/s | / Redis SET | / bare socket |\n| --- | --- | --- | --- |"
    )?;
    for name in PLAIN {
        let Some(rate) = many.get(name) else { continue };
        let redis = paired(rate, &many["redis SET"], |a, b| a / b);
        let bare = paired(rate, &many["bare socket"], |a, b| a / b);
        writeln!(
            output,
            "| {name} | {:.0} | {redis:.2} | {bare:.2} |",
            median(rate)
        )?;
    }
    Ok(())
}

/// What Redis and Valkey do too. The processor time is that of who answers, while there are fifty
/// callers.
pub(crate) fn pairs(one: &Rounds, many: &Rounds, busy: &Rounds) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(
        output,
        "\n| ours / theirs | one caller, p50, µs | ratio | fifty callers, calls/s | ratio | processor time of a call, µs | ratio |\n| --- | --- | --- | --- | --- | --- | --- |"
    )?;
    let measured =
        |(ours, theirs): &(&str, &str)| one.contains_key(*ours) && one.contains_key(*theirs);
    for (ours, theirs) in PAIRS.into_iter().filter(measured) {
        write!(output, "| {ours} / {theirs} |")?;
        for of in [one, many, busy] {
            let (ours, theirs) = (&of[ours], &of[theirs]);
            let ratio = paired(ours, theirs, |a, b| a / b);
            write!(
                output,
                " {:.0} / {:.0} | {ratio:.2} |",
                median(ours),
                median(theirs)
            )?;
        }
        writeln!(output)?;
    }
    Ok(())
}

/// What has its own.
pub(crate) fn starts(one: &Rounds, starts: &Rounds) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    let synced = "redis SET, appendfsync always";
    let store = paired(&one["store, on a disk"], &one[synced], |a, b| a / b);
    writeln!(output, "\n| pairs | ratio |\n| --- | --- |")?;
    writeln!(
        output,
        "| store, on a disk / {synced}, one caller | {store:.2} |"
    )?;
    let ratio = paired(&starts["token load"], &starts["/bin/true"], |a, b| a / b);
    let (load, nothing) = (median(&starts["token load"]), median(&starts["/bin/true"]));
    writeln!(
        output,
        "| `token load` / `/bin/true`, start to end ({load:.0} / {nothing:.0} µs) | {ratio:.2} |"
    )
}
