//! How often something was at most so much.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mcp_sessiond_proto::debug;

/// The powers of two that the buckets of a histogram end at: 1, 2, 4 … 2^25, which is 34 s in µs
/// and 32 MiB in bytes.
const BUCKETS: usize = 26;

/// How often something was at most 1, 2, 4 … of its unit.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    count: AtomicU64,
    sum: AtomicU64,
}

impl Histogram {
    /// Takes down one measurement.
    pub fn record(&self, value: u64) {
        self.add(value, value);
    }

    /// Takes down a time: its bucket is that of its µs, begun ones too, and the sum is in ns, so
    /// that what takes less than 1 µs counts.
    pub fn record_time(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.add(ns.div_ceil(1_000), ns);
    }

    fn add(&self, value: u64, to_sum: u64) {
        let at = value.max(1).next_power_of_two().trailing_zeros() as usize;
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(to_sum, Ordering::Relaxed);
    }

    /// What was measured so far.
    pub fn read(&self, name: &str) -> debug::Histogram {
        let mut so_far = 0;
        let bucket = |(at, bucket): (usize, &AtomicU64)| {
            so_far += bucket.load(Ordering::Relaxed);
            debug::Bucket {
                at_most: 1 << at,
                count: so_far,
            }
        };
        debug::Histogram {
            name: name.into(),
            buckets: self.buckets.iter().enumerate().map(bucket).collect(),
            count: self.count.load(Ordering::Relaxed),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}
