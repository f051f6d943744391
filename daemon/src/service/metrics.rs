//! What there is now, and what was counted: for `stats` and for Prometheus.

use mcp_sessiond_proto::debug::{Counter, Stats};

use super::Daemon;
use crate::counters::{self, Gauge};

impl Daemon {
    /// Everything that is counted and measured, in the text format of Prometheus.
    pub async fn metrics(&self) -> String {
        let mut gauges = vec![
            Gauge::new("build_info", "The daemon that runs.", 1)
                .of("version", self.about.version.as_str())
                .of("protocol", self.about.protocol.to_string()),
        ];
        gauges.extend(self.gauges().await);
        counters::text(&gauges, &self.meters, self.contents.storage().name())
    }

    /// The same by names, as far as it is counted without labels.
    pub async fn stats(&self) -> Stats {
        let mut counters: Vec<Counter> = Vec::new();
        for Gauge { name, value, .. } in self.gauges().await {
            match counters.last_mut().filter(|last| last.name == name) {
                Some(last) => last.value += value,
                None => counters.push(Counter {
                    name: name.into(),
                    value,
                }),
            }
        }
        counters.extend(self.meters.counters.list());
        Stats {
            counters,
            histograms: self.meters.histograms.list(),
        }
    }

    async fn gauges(&self) -> Vec<Gauge> {
        let Self {
            edge,
            contents,
            connections,
            ..
        } = self;
        let census = edge.census();
        let tally = contents.tally().await.ok();
        let sessions = |owner, value| {
            Gauge::new("sessions", "Sessions that live, by who owns them.", value)
                .of("owner", owner)
        };
        let mut gauges = vec![
            Gauge::new("hosts", "Hosts that own sessions.", census.hosts),
            sessions("host", census.of_hosts),
            sessions("user", census.of_users),
        ];
        // Where the storage does not answer, nothing is said of what it holds.
        gauges.extend(tally.map(|tally| sessions("service", tally.of_services)));
        gauges.extend([
            Gauge::new("leases", "Sessions that a live process holds.", census.held),
            Gauge::new("backends", "Keepers that are registered.", census.backends),
            Gauge::new(
                "claims_waiting",
                "Claims that wait for another holder to be gone.",
                census.waiting,
            ),
            Gauge::new(
                "connections",
                "Connections that are open.",
                connections.open() as u64,
            ),
            Gauge::new(
                "wrap_unkept",
                "Servers that run behind wrap and are not kept.",
                edge.unkept(),
            ),
        ]);
        if let Some(tally) = tally {
            gauges.extend([
                Gauge::new(
                    "stored_sessions",
                    "Sessions that have contents.",
                    tally.of_hosts + tally.of_services,
                ),
                Gauge::new(
                    "stored_events",
                    "Events that can be replayed.",
                    tally.events,
                ),
                Gauge::new(
                    "stored_event_bytes",
                    "Bytes of their messages.",
                    tally.event_bytes,
                ),
                Gauge::new("stored_state_bytes", "Bytes of state.", tally.state_bytes),
            ]);
        }
        if let Some(usage) = contents.storage().usage("") {
            let help = "What the contents take in memory.";
            gauges.push(Gauge::new("storage_bytes", help, usage.total_bytes as u64));
        }
        let failing = u64::from(contents.storage().check().is_err());
        gauges.push(Gauge::new(
            "storage_failing",
            "Whether the storage can't be used.",
            failing,
        ));
        let failing = u64::from(edge.is_failing());
        gauges.push(Gauge::new(
            "records_failing",
            "Whether the records can't be written.",
            failing,
        ));
        gauges
    }
}
