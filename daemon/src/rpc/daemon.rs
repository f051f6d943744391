//! What every connection shares, and the RPCs about the daemon as a whole.

use std::sync::Arc;

use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::backends::Backend;
use mcp_sessiond_proto::debug::{
    About, ContentInfo, ContentPage, Counter, Ended, HostInfo, PAGE_MAX, Page, SessionInfo,
    SessionParts, Setting, Stats, SweepRequest, TokenInfo,
};
use mcp_sessiond_proto::facts::{Facts, FactsRequest, LearnRequest};
use mcp_sessiond_proto::services::{ServiceLoss, ServiceLossesRequest};

use crate::connections::Connections;
use crate::contents::{Contents, SweptSession};
use crate::counters::{self, Meters};
use crate::engine::Engine;
use crate::fleet::Fleet;
use crate::parts::Parts;
use crate::storage::RecordId;
use crate::wills::Wills;

/// What every connection shares.
#[derive(Debug)]
pub struct Daemon {
    /// Hosts, leases and tokens.
    pub engine: Arc<Engine>,
    /// What sessions contain.
    pub contents: Arc<Contents>,
    /// The last wills of streams and tasks.
    pub wills: Arc<Wills>,
    /// Which parts of sessions can't be used.
    pub parts: Parts,
    /// What it does for the other daemons that share its storage.
    pub fleet: Arc<Fleet>,
    /// What is counted and measured.
    pub meters: Arc<Meters>,
    /// The connections.
    pub connections: Arc<Connections>,
    /// What does not change while the daemon runs; the uptime is filled in when asked.
    pub about: About,
}

impl Daemon {
    pub(super) async fn about(&self) -> About {
        let store = self.contents.store();
        About {
            uptime_ms: self.engine.now(),
            storage: store.redacted(),
            storage_failure: store.check().err().map(|error| error.to_string()),
            faults: self.engine.faults(),
            advice: self.engine.advice(),
            ..self.about.clone()
        }
    }

    pub(super) async fn settings(&self) -> Vec<Setting> {
        self.engine.settings().loaded.settings()
    }

    pub(super) async fn list_hosts(&self) -> Vec<HostInfo> {
        self.engine.hosts()
    }

    pub(super) async fn list_service_losses(
        &self,
        request: ServiceLossesRequest,
    ) -> Vec<ServiceLoss> {
        self.engine.service_losses(&request)
    }

    pub(super) async fn list_sessions(&self, page: Page) -> Vec<SessionInfo> {
        self.engine.sessions(page.after.as_ref(), PAGE_MAX)
    }

    pub(super) async fn list_tokens(&self, page: Page) -> Vec<TokenInfo> {
        self.engine.token_files(page.after.as_ref(), PAGE_MAX)
    }

    pub(super) async fn list_backends(&self, page: Page) -> Vec<Backend> {
        self.engine.backends(page.after.as_ref())
    }

    pub(super) async fn find_facts(&self, request: FactsRequest) -> Facts {
        self.engine.facts(&request.server)
    }

    pub(super) async fn learn_fact(&self, request: LearnRequest) {
        self.engine.learn(&request.server, request.learned);
    }

    pub(super) async fn list_contents(&self, page: ContentPage) -> Result<Vec<ContentInfo>, Error> {
        let after = page.after.map(|(owner, session)| RecordId {
            owner,
            name: session.to_string(),
        });
        let page = self.contents.inventory(after.as_ref(), PAGE_MAX).await?;
        Ok(page.into_iter().map(|(_, info)| info).collect())
    }

    pub(super) async fn list_parts(&self, page: ContentPage) -> Vec<SessionParts> {
        self.parts.list(page)
    }

    /// Ends the sessions that no process can use any more, or those of one service that were not
    /// used for some time.
    pub(super) async fn sweep(&self, request: SweepRequest) -> Result<Vec<Ended>, Error> {
        let swept = match request {
            SweepRequest {
                service: None,
                older_than_ms: None,
            } => {
                self.contents
                    .sweep(|place| self.engine.owner_status(place))
                    .await?
            }
            SweepRequest {
                service: Some(service),
                older_than_ms: Some(older_than_ms),
            } => self.contents.end_unused(&service, older_than_ms).await?,
            _ => {
                let sentence = "`service` and `older_than_ms` go together".into();
                return Err(Error::InvalidArgument { sentence });
            }
        };
        let ended = |swept: SweptSession| {
            let session = swept.place.name.parse().ok()?;
            Some(Ended {
                owner: swept.place.owner,
                session,
                why: swept.why.as_str().into(),
            })
        };
        Ok(swept.into_iter().filter_map(ended).collect())
    }

    /// Everything that is counted and measured, in the text format of Prometheus.
    pub async fn metrics(&self) -> String {
        let mut gauges = vec![
            counters::Gauge::new("build_info", "The daemon that runs.", 1)
                .of("version", self.about.version.as_str())
                .of("protocol", self.about.protocol.to_string()),
        ];
        gauges.extend(self.gauges().await);
        counters::text(&gauges, &self.meters, self.contents.store().name())
    }

    /// The same by names, as far as it is counted without labels.
    pub async fn stats(&self) -> Stats {
        let mut counters: Vec<Counter> = Vec::new();
        for counters::Gauge { name, value, .. } in self.gauges().await {
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

    async fn gauges(&self) -> Vec<counters::Gauge> {
        let Self {
            engine,
            contents,
            connections,
            ..
        } = self;
        let census = engine.census();
        let usage = contents.usage().await.ok();
        let sessions = |owner, value| {
            counters::Gauge::new("sessions", "Sessions that live, by who owns them.", value)
                .of("owner", owner)
        };
        let mut gauges = vec![
            counters::Gauge::new("hosts", "Hosts that own sessions.", census.hosts),
            sessions("host", census.of_hosts),
            sessions("user", census.of_users),
        ];
        // Where the storage does not answer, nothing is said of what it holds.
        gauges.extend(usage.map(|usage| sessions("service", usage.of_services)));
        gauges.extend([
            counters::Gauge::new("leases", "Sessions that a live process holds.", census.held),
            counters::Gauge::new("backends", "Keepers that are registered.", census.backends),
            counters::Gauge::new(
                "claims_waiting",
                "Claims that wait for another holder to be gone.",
                census.waiting,
            ),
            counters::Gauge::new(
                "connections",
                "Connections that are open.",
                connections.open() as u64,
            ),
            counters::Gauge::new(
                "wrap_unkept",
                "Servers that run behind wrap and are not kept.",
                engine.unkept(),
            ),
        ]);
        gauges.extend(self.parts.failed().into_iter().map(|((part, code), count)| {
            let help = "Servers of wrap --all and serve --all that can't be used, by the sessions.";
            counters::Gauge::new("parts_failed", help, count)
                .of("part", part)
                .of("code", code)
        }));
        if let Some(usage) = usage {
            gauges.extend([
                counters::Gauge::new(
                    "stored_sessions",
                    "Sessions that have contents.",
                    usage.of_hosts + usage.of_services,
                ),
                counters::Gauge::new(
                    "stored_events",
                    "Events that can be replayed.",
                    usage.events,
                ),
                counters::Gauge::new(
                    "stored_event_bytes",
                    "Bytes of their messages.",
                    usage.event_bytes,
                ),
                counters::Gauge::new("stored_state_bytes", "Bytes of state.", usage.state_bytes),
            ]);
        }
        if let Some(usage) = contents.store().usage("") {
            let help = "What the contents take in memory.";
            gauges.push(counters::Gauge::new(
                "storage_bytes",
                help,
                usage.total_bytes as u64,
            ));
        }
        let failing = u64::from(contents.store().check().is_err());
        gauges.push(counters::Gauge::new(
            "storage_failing",
            "Whether the storage can't be used.",
            failing,
        ));
        let failing = u64::from(engine.is_failing());
        gauges.push(counters::Gauge::new(
            "records_failing",
            "Whether the records can't be written.",
            failing,
        ));
        gauges
    }
}
