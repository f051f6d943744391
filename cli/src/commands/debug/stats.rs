//! `mcp-sessiond debug stats`: what the daemon counts, and how long things took.

use clap::Args;
use mcp_sessiond_proto::debug::{Bucket, Counter, Histogram, Stats};

use crate::ui::table::listing_or;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Print the text format of Prometheus; durations are in seconds
    #[arg(long, conflicts_with = "json")]
    pub(super) prometheus: bool,
}

pub(super) fn text(stats: &Stats) -> String {
    let row = |counter: &Counter| vec![counter.name.clone(), counter.value.to_string()];
    let counters = listing_or(
        &["name", "value"],
        stats.counters.iter().map(row),
        "No counters.",
    );
    let row = |histogram: &Histogram| {
        let mean = histogram.sum.checked_div(histogram.count);
        let at_most = |part: f64| {
            quantile(histogram, part).map_or_else(|| "more".into(), |value| value.to_string())
        };
        vec![
            histogram.name.clone(),
            histogram.count.to_string(),
            mean.map_or_else(|| "-".into(), |mean| mean.to_string()),
            if histogram.count == 0 {
                "-".into()
            } else {
                at_most(0.5)
            },
            if histogram.count == 0 {
                "-".into()
            } else {
                at_most(0.99)
            },
        ]
    };
    let heading = ["name", "count", "mean", "half at most", "99 of 100 at most"];
    format!(
        "{counters}\n{}",
        listing_or(&heading, stats.histograms.iter().map(row), "No histograms.")
    )
}

/// What a part of the measurements is at most. None: more than the greatest bucket has.
fn quantile(histogram: &Histogram, part: f64) -> Option<u64> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a count of calls is far below 2^53"
    )]
    let enough = |bucket: &&Bucket| bucket.count as f64 >= histogram.count as f64 * part;
    histogram
        .buckets
        .iter()
        .find(enough)
        .map(|bucket| bucket.at_most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_measurements() {
        let buckets = vec![
            Bucket {
                at_most: 1,
                count: 0,
            },
            Bucket {
                at_most: 1_048_576,
                count: 3,
            },
        ];
        let histogram = Histogram {
            name: "append_us".into(),
            buckets,
            count: 4,
            sum: 5_000_001,
        };
        assert_eq!(quantile(&histogram, 0.5), Some(1_048_576));
        assert_eq!(quantile(&histogram, 0.99), None);
    }
}
