//! The table, its indexes and its time to live.

use std::time::{Duration, Instant};

use aws_sdk_dynamodb::error::ProvideErrorMetadata as _;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, IndexStatus, KeySchemaElement, KeyType,
    Projection, ProjectionType, ScalarAttributeType, TableDescription, TableStatus,
    TimeToLiveSpecification,
};

use super::DynamoDb;
use super::row::name;
use crate::storage::StorageError;

/// The index that lists: the heads that are not dead, by owner, in order of name.
pub(super) const BY_OWNER: &str = "by-owner";

/// The index by time: the heads that are due at all, and the dead.
pub(super) const BY_DUE: &str = "by-due";

/// For how long a table may be in the making.
const MAKING: Duration = Duration::from_secs(120);

/// Why a table can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There is none of this name, and none was to be created.
    #[error(
        "there is no table {0} in DynamoDB, in this account and region: have it created once with `create`, or name another"
    )]
    NoTable(String),
    /// There is one, with other keys or without the indexes.
    #[error(
        "the table {0} in DynamoDB was not created by mcp-sessiond: name another, or delete it"
    )]
    NotOurs(String),
    /// Nothing says in which region the table is.
    #[error("no region is set for DynamoDB: set one, by `region`, AWS_REGION or in the profile")]
    NoRegion,
    /// DynamoDB can't be asked.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl DynamoDb {
    /// Finds the table, or makes it where that is asked for.
    pub(super) async fn ready(&self, create: bool) -> Result<(), OpenError> {
        let mut found = self.description().await?;
        if found.is_none() {
            if !create {
                return Err(OpenError::NoTable(self.table.clone()));
            }
            self.create().await?;
            found = self.description().await?;
        }
        let deadline = Instant::now() + MAKING;
        while !found.as_ref().is_some_and(is_active) {
            if Instant::now() > deadline {
                return Err(StorageError::Unavailable(
                    "the table in DynamoDB does not become active".into(),
                )
                .into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            found = self.description().await?;
        }
        if !found.as_ref().is_some_and(is_ours) {
            return Err(OpenError::NotOurs(self.table.clone()));
        }
        if create {
            self.expire_tombstones().await;
        }
        Ok(())
    }

    async fn description(&self) -> Result<Option<TableDescription>, StorageError> {
        let request = self.client.describe_table().table_name(&self.table);
        let describe = || async {
            match request.clone().send().await {
                Err(error) if error.code() == Some("ResourceNotFoundException") => Ok(None),
                answer => answer.map(|answer| answer.table),
            }
        };
        self.ask::<_, DescribeTableError, _>(describe).await
    }

    async fn create(&self) -> Result<(), StorageError> {
        let request = self
            .client
            .create_table()
            .table_name(&self.table)
            .billing_mode(BillingMode::PayPerRequest)
            .set_attribute_definitions(Some(vec![
                attribute(name::PK, ScalarAttributeType::S),
                attribute(name::SK, ScalarAttributeType::B),
                attribute(name::OWNER, ScalarAttributeType::S),
                attribute(name::NAME, ScalarAttributeType::S),
                attribute(name::QUEUE, ScalarAttributeType::S),
                attribute(name::DUE, ScalarAttributeType::N),
            ]))
            .set_key_schema(Some(keys(name::PK, name::SK)))
            .global_secondary_indexes(index(BY_OWNER, keys(name::OWNER, name::NAME)))
            .global_secondary_indexes(index(BY_DUE, keys(name::QUEUE, name::DUE)));
        let create = || async {
            match request.clone().send().await {
                // Another daemon was faster.
                Err(error) if error.code() == Some("ResourceInUseException") => Ok(()),
                answer => answer.map(|_| ()),
            }
        };
        self.ask(create).await
    }

    /// Has tombstones deleted in time. Whether that can be had is no condition of anything: they
    /// only take up room.
    async fn expire_tombstones(&self) {
        let time_to_live = TimeToLiveSpecification::builder()
            .enabled(true)
            .attribute_name(name::TTL)
            .build();
        let Ok(time_to_live) = time_to_live else {
            return;
        };
        // Refused where it is enabled already; dynalite knows no such operation.
        let _ = self
            .client
            .update_time_to_live()
            .table_name(&self.table)
            .time_to_live_specification(time_to_live)
            .send()
            .await;
    }
}

fn is_active(table: &TableDescription) -> bool {
    let is_index_active = |index: &aws_sdk_dynamodb::types::GlobalSecondaryIndexDescription| {
        index.index_status() == Some(&IndexStatus::Active)
    };
    // A table that was just created is not always known to the server that is asked next; and one
    // that is updated can be used.
    matches!(
        table.table_status(),
        Some(TableStatus::Active | TableStatus::Updating)
    ) && table.global_secondary_indexes().iter().all(is_index_active)
}

fn is_ours(table: &TableDescription) -> bool {
    let names = |keys: &[KeySchemaElement]| -> Vec<String> {
        keys.iter()
            .map(|key| key.attribute_name().to_owned())
            .collect()
    };
    let has_index = |index_name: &str, keys: [&str; 2]| {
        let indexes = table.global_secondary_indexes();
        indexes.iter().any(|index| {
            index.index_name() == Some(index_name) && names(index.key_schema()) == keys
        })
    };
    names(table.key_schema()) == [name::PK, name::SK]
        && has_index(BY_OWNER, [name::OWNER, name::NAME])
        && has_index(BY_DUE, [name::QUEUE, name::DUE])
}

// The builders below have all that they need.

fn attribute(name: &str, kind: ScalarAttributeType) -> AttributeDefinition {
    AttributeDefinition::builder()
        .attribute_name(name)
        .attribute_type(kind)
        .build()
        .expect("name and type")
}

fn keys(partition: &str, sort: &str) -> Vec<KeySchemaElement> {
    let key = |name: &str, kind| {
        KeySchemaElement::builder()
            .attribute_name(name)
            .key_type(kind)
            .build()
            .expect("name and kind")
    };
    vec![key(partition, KeyType::Hash), key(sort, KeyType::Range)]
}

/// An index of heads with what a list tells of them.
fn index(index_name: &str, keys: Vec<KeySchemaElement>) -> GlobalSecondaryIndex {
    let projection = Projection::builder()
        .projection_type(ProjectionType::Include)
        .set_non_key_attributes(Some(
            [name::VERSION, name::HEAD, name::DEAD]
                .map(String::from)
                .into(),
        ))
        .build();
    GlobalSecondaryIndex::builder()
        .index_name(index_name)
        .set_key_schema(Some(keys))
        .projection(projection)
        .build()
        .expect("name and keys")
}
