//! In a table of DynamoDB, which any number of daemons share.
//!
//! Every change is one conditional update of one row, the record's *head*: there are no
//! transactions. The head has the version, the bytes of the head, and the *pending change*: what
//! the commit puts and removes. That is applied to the items afterwards, by whoever made the
//! commit, or by whoever makes the next one. Who reads lays the pending change of the head over the
//! items below it; so it makes no difference when it is applied, or whether its author has died.
//!
//! An item is written only over what an earlier commit has written, and a removed one leaves a
//! tombstone for a day. So a pending change may be applied by many, late, and again.
//!
//! The items of a record are in a partition that is named for its *generation*. To clear a record
//! is to give it another generation. The head remembers the older ones until their partitions are
//! empty. A deleted record is a head that is *dead*, until its items are gone.
//!
//! Values that would make the head too large for a row are written before the commit, in *parts*,
//! which the pending change refers to. When a daemon dies right then, they stay until the
//! generation goes; those of a record that was never created stay for good.
//!
//! Lists come from indexes, which may be behind the heads by a moment: whoever acts upon one of
//! them names the version.

mod call;
mod commit;
#[cfg(feature = "fault-points")]
mod fault;
mod head;
mod items;
mod list;
mod pending;
mod purge;
mod read;
mod row;
mod table;

use mcp_sessiond_proto::time::now_ms;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Mutex;
use std::time::Duration;

use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use futures::future::{BoxFuture, FutureExt as _};
use mcp_sessiond_proto::Lock as _;
use tokio::sync::Semaphore;

#[cfg(feature = "fault-points")]
pub use fault::Late;
pub use table::OpenError;

use super::retry::Health;
use super::{
    Answer, Change, Durable, Item, Key, Listed, MemoryUsage, Record, RecordId, Scan, Storage,
    StorageError, Version,
};
use head::Facts;

/// How long one attempt may take; see [`super::retry`] for all of them.
const ATTEMPT: Duration = Duration::from_secs(3);

/// As many records are known as the latest to have been committed.
const KNOWN: usize = 4096;

/// As many records as change at once, by and large.
const CHANGING: usize = 256;

/// Where the table is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Its name.
    pub table: String,
    /// The service's URL, where that is not the region's own.
    pub endpoint: Option<String>,
    /// The region; None: as the environment or the profile says.
    pub region: Option<String>,
    /// Whether to create the table, its indexes and its time to live when there is none. It is
    /// billed by request.
    pub create: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            table: "mcp-sessiond".into(),
            endpoint: None,
            region: None,
            create: false,
        }
    }
}

/// Records in DynamoDB.
pub struct DynamoDb {
    client: Client,
    table: String,
    health: Health,
    turns: Semaphore,
    /// Held while a record is changed, so that this daemon's own commits of it find out about each
    /// other without a question. A record takes the one that its place falls on.
    changing: Vec<tokio::sync::Mutex<()>>,
    /// Of records that this daemon was the last to commit: facts that spare reading the head once
    /// more. What is pending there has been applied. Another daemon's commit makes another version,
    /// so none of this is ever wrong.
    known: Mutex<HashMap<RecordId, Facts>>,
    #[cfg(feature = "fault-points")]
    abandoned: std::sync::atomic::AtomicBool,
}

impl DynamoDb {
    /// Opens a table. Credentials are found where AWS's own tools find them: in the environment, in
    /// a profile, by way of a role. What they must permit: DescribeTable, GetItem, BatchGetItem,
    /// PutItem, DeleteItem, BatchWriteItem, Query and Scan, of the table and its indexes; and
    /// CreateTable and UpdateTimeToLive, to create it.
    ///
    /// # Errors
    /// [`OpenError`], which says what to do.
    pub async fn open(options: Options) -> Result<Self, OpenError> {
        let Options {
            table,
            endpoint,
            region,
            create,
        } = options;
        let http = aws_smithy_http_client::Builder::new()
            .tls_provider(Provider::Rustls(CryptoMode::Ring))
            .build_https();
        let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12()).http_client(http);
        if let Some(region) = region {
            loader = loader.region(Region::new(region));
        }
        if let Some(endpoint) = endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        let found = loader.load().await;
        if found.region().is_none() {
            return Err(OpenError::NoRegion);
        }
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(ATTEMPT / 3)
            .operation_attempt_timeout(ATTEMPT);
        // Who asks again must know that there was an answer that was lost: so that is done here,
        // and not in there.
        let config = aws_sdk_dynamodb::config::Builder::from(&found)
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts.build())
            .build();
        let opened = Self {
            client: Client::from_conf(config),
            table,
            health: Health::default(),
            turns: Semaphore::new(call::UNDER_WAY),
            changing: (0..CHANGING)
                .map(|_| tokio::sync::Mutex::default())
                .collect(),
            known: Mutex::default(),
            #[cfg(feature = "fault-points")]
            abandoned: false.into(),
        };
        opened.ready(create).await?;
        Ok(opened)
    }

    /// What is held while this record is changed.
    fn changing(&self, place: &RecordId) -> &tokio::sync::Mutex<()> {
        let mut hasher = DefaultHasher::new();
        place.hash(&mut hasher);
        &self.changing[hasher.finish() as usize % CHANGING]
    }

    /// What is known of a record, which another daemon may have changed since.
    fn known(&self, place: &RecordId) -> Option<Facts> {
        self.known.locked().get(place).cloned()
    }

    /// Notes what was committed and applied.
    fn know(&self, place: &RecordId, facts: Facts) {
        let mut known = self.known.locked();
        if facts.dead {
            known.remove(place);
            return;
        }
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(place.clone(), facts);
    }

    /// Notes that nothing is left of the older generations.
    fn know_clean(&self, place: &RecordId, version: Version) {
        if let Some(facts) = self
            .known
            .locked()
            .get_mut(place)
            .filter(|facts| facts.version == version)
        {
            facts.old.clear();
        }
    }
}

impl Storage for DynamoDb {
    fn name(&self) -> &'static str {
        "dynamodb"
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), StorageError> {
        self.health.check()
    }

    /// There is nothing that others could take away.
    fn look_after(&self) {}

    fn file(&self) -> Option<std::path::PathBuf> {
        None
    }

    /// There is nothing to finish.
    fn close(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    fn read<'a>(&'a self, place: &'a RecordId, keys: &'a [Key]) -> Answer<'a, Option<Record>> {
        self.read_record(place, keys).boxed()
    }

    fn scan<'a>(&'a self, place: &'a RecordId, scan: &'a Scan) -> Answer<'a, Vec<Item>> {
        self.scan_items(place, scan).boxed()
    }

    fn commit<'a>(
        &'a self,
        place: &'a RecordId,
        expected: Option<Version>,
        next: Version,
        change: Change,
    ) -> Answer<'a, Durable> {
        async move {
            self.commit_change(place, expected, next, &change).await?;
            Ok(Durable::Now)
        }
        .boxed()
    }

    fn settled(&self, _: &RecordId) -> Durable {
        Durable::Now
    }

    fn list<'a>(&'a self, owner: &'a str, after: &'a str, most: usize) -> Answer<'a, Vec<Listed>> {
        self.list_of(owner, after, most).boxed()
    }

    fn list_all<'a>(&'a self, after: Option<&'a RecordId>, most: usize) -> Answer<'a, Vec<Listed>> {
        self.list_everything(after, most).boxed()
    }

    fn due<'a>(&'a self, now_ms: u64, most: usize) -> Answer<'a, Vec<Listed>> {
        self.due_at(now_ms, most).boxed()
    }

    fn count<'a>(&'a self, owner: &'a str, most: usize) -> Answer<'a, usize> {
        self.count_of(owner, most).boxed()
    }

    fn usage(&self, _: &str) -> Option<MemoryUsage> {
        None
    }
}

impl fmt::Debug for DynamoDb {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "DynamoDb({})", self.table)
    }
}
