//! The text format of Prometheus, version 0.0.4: what is counted by a word has that for a label,
//! and durations are in seconds.

use std::fmt::{Display, Write as _};
use std::sync::atomic::Ordering;

use mcp_sessiond_proto::CODES;
use mcp_sessiond_proto::debug::{self, Bucket};
use mcp_sessiond_proto::service::METHODS;

use super::{Histogram, Meters, OPERATIONS, OUTCOMES};

/// What all names begin with.
const PREFIX: &str = "mcp_sessiond_";

/// Counters that the text has by labels instead: claims by their outcomes.
const LABELLED: [&str; 3] = ["claims_total", "claims_resumed_total", "claims_fresh_total"];

/// What there is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gauge {
    /// Its name, without what all names begin with. Those of one name stand together.
    pub name: &'static str,
    /// What it is, a sentence.
    pub help: &'static str,
    /// What tells it from others of its name.
    pub labels: Vec<(&'static str, String)>,
    /// How many.
    pub value: u64,
}

impl Gauge {
    /// One without labels.
    pub fn new(name: &'static str, help: &'static str, value: u64) -> Self {
        Self {
            name,
            help,
            labels: Vec::new(),
            value,
        }
    }

    /// The same with one more label.
    pub fn of(mut self, label: &'static str, value: impl Into<String>) -> Self {
        self.labels.push((label, value.into()));
        self
    }
}

/// Everything that is counted and measured. `backend` is the name of the storage.
pub fn text(gauges: &[Gauge], meters: &Meters, backend: &str) -> String {
    let mut text = Text::default();
    let mut last = "";
    for gauge in gauges {
        if gauge.name != last {
            text.begin(gauge.name, "gauge", gauge.help);
            last = gauge.name;
        }
        let labels: Vec<(&str, &str)> = gauge
            .labels
            .iter()
            .map(|(label, value)| (*label, value.as_str()))
            .collect();
        text.sample(gauge.name, &labels, gauge.value);
    }
    for (name, help, value) in meters.counters.described() {
        if !LABELLED.contains(&name) {
            text.begin(name, "counter", help);
            text.sample(name, &[], value);
        }
    }
    text.begin(
        "claims_total",
        "counter",
        "Claims that were answered with a lease, by how they came to it.",
    );
    for ((_, outcome), claims) in OUTCOMES.iter().zip(&meters.counters.claims) {
        text.sample(
            "claims_total",
            &[("outcome", outcome)],
            claims.load(Ordering::Relaxed),
        );
    }
    text.begin(
        "refusals_total",
        "counter",
        "Calls that were refused, by the code of the error.",
    );
    for (code, refused) in CODES.iter().zip(&meters.counters.refusals) {
        text.sample(
            "refusals_total",
            &[("code", code)],
            refused.load(Ordering::Relaxed),
        );
    }
    text.begin(
        "request_seconds",
        "histogram",
        "How long calls took, by method; those that were called.",
    );
    for (method, histogram) in METHODS.iter().zip(&meters.requests.0) {
        text.seconds("request_seconds", &[("method", method)], histogram);
    }
    text.begin(
        "storage_operation_seconds",
        "histogram",
        "How long the storage of contents took.",
    );
    for (op, histogram) in OPERATIONS.iter().zip(&meters.storage.0) {
        text.seconds(
            "storage_operation_seconds",
            &[("backend", backend), ("op", op)],
            histogram,
        );
    }
    // The others are durations of calls, which stand above by their methods.
    for (histogram, help) in meters.histograms.described() {
        if !histogram.name.ends_with("_us") {
            text.begin(&histogram.name, "histogram", help);
            let shown = |value: u64| value.to_string();
            text.histogram(&histogram, &[], shown, shown);
        }
    }
    text.0
}

/// Lines so far. Writing into memory can't fail.
#[derive(Default)]
struct Text(String);

impl Text {
    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', " ");
        let _ = write!(
            self.0,
            "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}\n"
        );
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let escaped = |value: &str| {
            value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n")
        };
        let labels: Vec<String> = labels
            .iter()
            .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
            .collect();
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", labels.join(","))
        };
        let _ = writeln!(self.0, "{PREFIX}{name}{labels} {value}");
    }

    /// Durations. Nothing, where nothing was measured.
    fn seconds(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        let histogram = histogram.read(name);
        if histogram.count > 0 {
            self.histogram(&histogram, labels, seconds, nanoseconds);
        }
    }

    fn histogram(
        &mut self,
        histogram: &debug::Histogram,
        labels: &[(&str, &str)],
        shown: fn(u64) -> String,
        sum_shown: fn(u64) -> String,
    ) {
        let debug::Histogram {
            name,
            buckets,
            count,
            sum,
        } = histogram;
        let bucket = format!("{name}_bucket");
        let mut at_most = |bound: &str, count: u64| {
            self.sample(&bucket, &[labels, &[("le", bound)]].concat(), count);
        };
        for Bucket {
            at_most: bound,
            count,
        } in buckets
        {
            at_most(&shown(*bound), *count);
        }
        // What is measured meanwhile may be in a bucket and not yet in the count.
        let count = buckets.last().map_or(*count, |last| last.count.max(*count));
        at_most("+Inf", count);
        self.sample(&format!("{name}_sum"), labels, sum_shown(*sum));
        self.sample(&format!("{name}_count"), labels, count);
    }
}

/// Microseconds as seconds, exactly.
fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

/// Nanoseconds as seconds, exactly.
fn nanoseconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mcp_sessiond_proto::Error;
    use mcp_sessiond_proto::types::Outcome;

    use super::*;

    #[test]
    fn what_is_counted_by_a_word_has_it_for_a_label() {
        let meters = Meters::default();
        meters.counters.claimed(Outcome::Resumed);
        meters.counters.refused(&Error::UnknownSession);
        meters.counters.refused(&Error::UnknownTask);
        meters.counters.refused(&Error::TaskEnded);
        meters.requested("claim", Duration::from_micros(5_000_001));
        meters.stored("read", Duration::from_nanos(400));
        meters.histograms.append_bytes.record(9);
        let gauges = [
            Gauge::new("sessions", "Sessions, by who owns them.", 2).of("owner", "host"),
            Gauge::new("sessions", "Sessions, by who owns them.", 3).of("owner", "a \"b\" \\"),
        ];
        let text = text(&gauges, &meters, "memory");
        for lines in [
            "# HELP mcp_sessiond_sessions Sessions, by who owns them.\n# TYPE mcp_sessiond_sessions gauge\n\
             mcp_sessiond_sessions{owner=\"host\"} 2\nmcp_sessiond_sessions{owner=\"a \\\"b\\\" \\\\\"} 3\n",
            "# HELP mcp_sessiond_tokens_stored_total Tokens written.\n",
            "mcp_sessiond_claims_total{outcome=\"resumed\"} 1\n",
            "mcp_sessiond_refusals_total{code=\"unknown_session\"} 1\n",
            "mcp_sessiond_refusals_total{code=\"unknown_task\"} 1\n",
            "mcp_sessiond_refusals_total{code=\"task_ended\"} 1\n",
            "mcp_sessiond_request_seconds_bucket{method=\"claim\",le=\"4.194304\"} 0\n",
            "mcp_sessiond_request_seconds_bucket{method=\"claim\",le=\"+Inf\"} 1\n\
             mcp_sessiond_request_seconds_sum{method=\"claim\"} 5.000001000\n\
             mcp_sessiond_request_seconds_count{method=\"claim\"} 1\n",
            "mcp_sessiond_storage_operation_seconds_bucket{backend=\"memory\",op=\"read\",le=\"0.000001\"} 1\n",
            "mcp_sessiond_storage_operation_seconds_sum{backend=\"memory\",op=\"read\"} 0.000000400\n",
            "mcp_sessiond_append_bytes_bucket{le=\"16\"} 1\n",
        ] {
            assert!(text.contains(lines), "{lines} is not in:\n{text}");
        }
        assert!(
            !text.contains("method=\"ping\"") && !text.contains("\nmcp_sessiond_claims_total "),
            "{text}"
        );
    }
}
