//! Every statement that there is, and a connection that has them prepared.
//!
//! None may depend on statistics: a record with a hundred thousand items must not be read whole
//! because most have ten. So what looks for keys does it in a subquery by itself (`OFFSET 0` keeps
//! it one), for which there is only the index.

use futures::future::try_join_all;
use tokio_postgres::{Client, Error, Statement};

use super::schema::in_schema;

/// Makes a record. Of one that was not there, there are no items.
const CREATE: &str = "
    WITH changed AS (
        INSERT INTO {schema}.record (owner, name, version, head, due_ms) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT DO NOTHING
        RETURNING owner, name
    ), put AS (
        INSERT INTO {schema}.item (owner, name, key, tag, value)
        SELECT changed.owner, changed.name, one.key, one.tag, one.value
        FROM changed, unnest($6::bytea[], $7::text[], $8::bytea[]) AS one (key, tag, value)
    )
    SELECT count(*) FROM changed";

/// Changes a record. What goes are ranges of keys but for what is put, so no row is touched twice.
/// Items change with their record alone: where it has the version that was named, they are where
/// the statement's snapshot has them.
const UPDATE: &str = "
    WITH changed AS (
        UPDATE {schema}.record SET version = $3, head = $4, due_ms = $5
        WHERE owner = $1 AND name = $2 AND version = $9
        RETURNING owner, name
    ), gone AS (
        DELETE FROM {schema}.item WHERE ctid = ANY (ARRAY(
            SELECT found.ctid FROM changed, unnest($10::bytea[], $11::bytea[]) AS range (low, high), LATERAL (
                SELECT ctid FROM {schema}.item
                WHERE owner = changed.owner AND name = changed.name AND key >= range.low AND key < range.high
                AND key <> ALL ($6::bytea[])
                OFFSET 0
            ) AS found
        ))
    ), put AS (
        INSERT INTO {schema}.item (owner, name, key, tag, value)
        SELECT changed.owner, changed.name, one.key, one.tag, one.value
        FROM changed, unnest($6::bytea[], $7::text[], $8::bytea[]) AS one (key, tag, value)
        ON CONFLICT (owner, name, key) DO UPDATE SET tag = excluded.tag, value = excluded.value
    )
    SELECT count(*) FROM changed";

const DELETE: &str = "
    WITH changed AS (
        DELETE FROM {schema}.record WHERE owner = $1 AND name = $2 AND version = $3 RETURNING 1
    )
    SELECT count(*) FROM changed";

const RECORD: &str = "SELECT version, head FROM {schema}.record WHERE owner = $1 AND name = $2";

const VERSION: &str = "SELECT version FROM {schema}.record WHERE owner = $1 AND name = $2";

const ITEMS: &str = "
    SELECT found.key, found.tag, found.value FROM unnest($3::bytea[]) AS wanted (key), LATERAL (
        SELECT key, tag, value FROM {schema}.item
        WHERE owner = $1 AND name = $2 AND key = wanted.key
        OFFSET 0
    ) AS found";

/// The window is computed as the rows are read, in the order of the index, and no further than the
/// limit.
const SCAN: &str = "
    SELECT key, tag, value FROM (
        SELECT key, tag, value,
            sum(octet_length(value)) OVER (ORDER BY key ROWS UNBOUNDED PRECEDING) - octet_length(value) AS before
        FROM {schema}.item
        WHERE owner = $1 AND name = $2 AND key >= $3 AND key < $4
        AND (cardinality($5::text[]) = 0 OR tag = ANY ($5::text[]))
        ORDER BY key
        LIMIT $6
    ) AS found
    WHERE before < $7::bigint
    ORDER BY key";

const LIST: &str = "
    SELECT owner, name, version, head FROM {schema}.record
    WHERE owner = $1 AND name > $2 ORDER BY name LIMIT $3";

const LIST_ALL: &str = "
    SELECT owner, name, version, head FROM {schema}.record
    WHERE (owner, name) > ($1, $2) ORDER BY owner, name LIMIT $3";

const DUE: &str = "
    SELECT owner, name, version, head FROM {schema}.record
    WHERE due_ms <= $1 ORDER BY due_ms, owner, name LIMIT $2";

const COUNT: &str =
    "SELECT count(*) FROM (SELECT FROM {schema}.record WHERE owner = $1 LIMIT $2) AS counted";

/// The statements, as one connection knows them.
pub(super) struct Statements {
    pub(super) create: Statement,
    pub(super) update: Statement,
    pub(super) delete: Statement,
    pub(super) record: Statement,
    pub(super) version: Statement,
    pub(super) items: Statement,
    pub(super) scan: Statement,
    pub(super) list: Statement,
    pub(super) list_all: Statement,
    pub(super) due: Statement,
    pub(super) count: Statement,
}

impl Statements {
    /// Has them prepared, all in one round trip.
    pub(super) async fn prepare(client: &Client, schema: &str) -> Result<Self, Error> {
        let prepare = |text: &str| {
            let text = in_schema(text, schema);
            async move { client.prepare(&text).await }
        };
        let all = [
            CREATE, UPDATE, DELETE, RECORD, VERSION, ITEMS, SCAN, LIST, LIST_ALL, DUE, COUNT,
        ]
        .map(prepare);
        let all = try_join_all(all).await?;
        let [
            create,
            update,
            delete,
            record,
            version,
            items,
            scan,
            list,
            list_all,
            due,
            count,
        ] = <[Statement; 11]>::try_from(all)
            .unwrap_or_else(|_| unreachable!("as many as were asked for"));
        Ok(Self {
            create,
            update,
            delete,
            record,
            version,
            items,
            scan,
            list,
            list_all,
            due,
            count,
        })
    }
}
