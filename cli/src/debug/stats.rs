//! `debug stats`: counters, and how long things took; for people, or as Prometheus reads it.

use std::fmt::Write as _;

use mcp_sessiond_proto::debug::{Bucket, Counter, Histogram, Stats};

use super::listed;

pub(super) fn text(stats: &Stats) -> String {
    let row = |counter: &Counter| vec![counter.name.clone(), counter.value.to_string()];
    let counters = listed(&["name", "value"], stats.counters.iter().map(row), "No counters.");
    let row = |histogram: &Histogram| {
        let mean = histogram.sum.checked_div(histogram.count);
        let at_most =
            |part: f64| quantile(histogram, part).map_or_else(|| "more".into(), |value| value.to_string());
        vec![
            histogram.name.clone(),
            histogram.count.to_string(),
            mean.map_or_else(|| "-".into(), |mean| mean.to_string()),
            if histogram.count == 0 { "-".into() } else { at_most(0.5) },
            if histogram.count == 0 { "-".into() } else { at_most(0.99) },
        ]
    };
    let heading = ["name", "count", "mean", "half at most", "99 of 100 at most"];
    format!("{counters}\n{}", listed(&heading, stats.histograms.iter().map(row), "No histograms."))
}

/// What a part of the measurements is at most. None: more than the greatest bucket has.
fn quantile(histogram: &Histogram, part: f64) -> Option<u64> {
    #[expect(clippy::cast_precision_loss, reason = "a count of calls is far below 2^53")]
    let enough = |bucket: &&Bucket| bucket.count as f64 >= histogram.count as f64 * part;
    histogram.buckets.iter().find(enough).map(|bucket| bucket.at_most)
}

/// The text format of Prometheus, version 0.0.4: durations in seconds, as its naming asks.
pub(super) fn prometheus(stats: &Stats) -> String {
    let mut text = String::new();
    // Into memory: it can't fail.
    for Counter { name, value } in &stats.counters {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        let _ = write!(text, "# TYPE mcp_sessiond_{name} {kind}\nmcp_sessiond_{name} {value}\n");
    }
    for histogram in &stats.histograms {
        let (name, in_seconds) = match histogram.name.strip_suffix("_us") {
            Some(name) => (format!("mcp_sessiond_{name}_seconds"), true),
            None => (format!("mcp_sessiond_{}", histogram.name), false),
        };
        let value = |value: u64| if in_seconds { seconds(value) } else { value.to_string() };
        let _ = writeln!(text, "# TYPE {name} histogram");
        for Bucket { at_most, count } in &histogram.buckets {
            let _ = writeln!(text, "{name}_bucket{{le=\"{}\"}} {count}", value(*at_most));
        }
        let Histogram { count, sum, .. } = histogram;
        let _ = write!(
            text,
            "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {}\n{name}_count {count}\n",
            value(*sum)
        );
    }
    text
}

/// Microseconds as seconds, exactly.
fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_reads_it() {
        let buckets = vec![Bucket { at_most: 1, count: 0 }, Bucket { at_most: 1_048_576, count: 3 }];
        let stats = Stats {
            counters: vec![
                Counter { name: "hosts".into(), value: 2 },
                Counter { name: "claims_total".into(), value: 7 },
            ],
            histograms: vec![Histogram { name: "append_us".into(), buckets, count: 4, sum: 5_000_001 }],
        };
        let expected = "\
# TYPE mcp_sessiond_hosts gauge
mcp_sessiond_hosts 2
# TYPE mcp_sessiond_claims_total counter
mcp_sessiond_claims_total 7
# TYPE mcp_sessiond_append_seconds histogram
mcp_sessiond_append_seconds_bucket{le=\"0.000001\"} 0
mcp_sessiond_append_seconds_bucket{le=\"1.048576\"} 3
mcp_sessiond_append_seconds_bucket{le=\"+Inf\"} 4
mcp_sessiond_append_seconds_sum 5.000001
mcp_sessiond_append_seconds_count 4
";
        assert_eq!(prometheus(&stats), expected);
        assert_eq!(quantile(&stats.histograms[0], 0.5), Some(1_048_576));
        assert_eq!(quantile(&stats.histograms[0], 0.99), None);
    }
}
