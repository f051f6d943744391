//! Who had the processors.

use std::collections::BTreeMap;
use std::fs::read_to_string;

/// Seconds of processor time, by pid: of a process, its threads, and its children. Beside them
/// ours, as `load`, and what nobody wanted, as `idle`.
#[derive(serde::Serialize)]
pub(crate) struct Busy(BTreeMap<String, f64>);

impl Busy {
    pub(crate) fn now(pids: &[u32]) -> Self {
        let mut all: BTreeMap<_, _> = pids
            .iter()
            .map(|pid| (pid.to_string(), tree(*pid)))
            .collect();
        all.insert("load".into(), own(std::process::id()));
        all.insert("idle".into(), idle().unwrap_or_default());
        Self(all)
    }

    pub(crate) fn since(self, before: &Self) -> Self {
        let since = |(name, now): (String, f64)| {
            let then = before.0.get(&name).copied().unwrap_or_default();
            (name, now - then)
        };
        Self(self.0.into_iter().map(since).collect())
    }
}

fn tree(pid: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let children = tasks.filter_map(|task| read_to_string(task.path().join("children")).ok());
    let pids: Vec<u32> = children
        .flat_map(|all| {
            all.split(' ')
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect();
    own(pid) + pids.into_iter().map(tree).sum::<f64>()
}

fn own(pid: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let had = |task: std::fs::DirEntry| {
        read_to_string(task.path().join("schedstat"))
            .ok()?
            .split(' ')
            .next()?
            .parse::<f64>()
            .ok()
    };
    tasks.filter_map(had).sum::<f64>() / 1e9
}

/// Of all processors, also while they wait for a disk. The kernel counts these in hundredths of a
/// second.
fn idle() -> Option<f64> {
    let stat = read_to_string("/proc/stat").ok()?;
    let fields: Vec<f64> = stat
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    Some((fields.get(3)? + fields.get(4)?) / 100.0)
}
