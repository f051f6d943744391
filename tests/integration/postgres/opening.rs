//! Databases as they are found.

use std::sync::Arc;

use futures::future::join_all;
use mcp_sessiond_daemon::storage::postgres::{OpenError, Options};
use mcp_sessiond_daemon::storage::{Change, Head, Postgres, RecordId, Storage, Version};

use super::{Schema, connect, server, tls_server, with_options};

async fn open(url: &str) -> Result<Postgres, OpenError> {
    Postgres::open(url, Options::default()).await
}

async fn refused(url: &str) -> OpenError {
    open(url).await.expect_err("refused")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgresql"]
async fn many_daemons_start_at_once() {
    let schema = Schema::new();
    let url = schema.url();
    let place = RecordId {
        owner: "owner".into(),
        name: "name".into(),
    };
    let stores: Vec<_> = join_all((0..8).map(|_| open(&url)))
        .await
        .into_iter()
        .map(|store| store.expect("opened"))
        .collect();
    let head = Head {
        bytes: "head".into(),
        due_ms: u64::MAX,
    };
    let change = Change {
        head: Some(head),
        ..Change::default()
    };
    let made = join_all(
        stores
            .iter()
            .zip(0..)
            .map(|(store, n)| store.commit(&place, None, Version(n), change.clone())),
    )
    .await;
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1);
    for store in stores {
        assert_eq!(store.count("owner", 10).await, Ok(1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgresql"]
async fn what_a_newer_daemon_has_migrated_is_refused() {
    let schema = Schema::new();
    drop(open(&schema.url()).await.expect("opened"));
    let newer = format!("INSERT INTO {}.migration (number) VALUES (1000)", schema.0);
    connect()
        .await
        .batch_execute(&newer)
        .await
        .expect("inserted");
    assert_eq!(
        refused(&schema.url()).await,
        OpenError::Newer {
            found: 1000,
            known: 1
        }
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgresql"]
async fn a_role_that_may_create_nothing_is_enough() {
    let schema = Schema::new();
    drop(open(&schema.url()).await.expect("opened"));
    let (role, client) = (&schema.0, connect().await);
    let grant = format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {role} TO {role};
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {role} TO {role}"
    );
    client.batch_execute(&grant).await.expect("granted");
    let store = Arc::new(
        open(&with_options(&schema.url(), &format!("user={role}")))
            .await
            .expect("opened"),
    );
    let place = RecordId {
        owner: "owner".into(),
        name: "name".into(),
    };
    let change = Change {
        head: Some(Head {
            bytes: "head".into(),
            due_ms: u64::MAX,
        }),
        ..Change::default()
    };
    store
        .commit(&place, None, Version(1), change)
        .await
        .expect("committed");
    let drop = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    client.batch_execute(&drop).await.expect("dropped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgresql"]
async fn the_password_is_never_told() {
    let url = "postgres://somebody:letmein@127.0.0.1:1/base";
    let error = refused(url).await;
    let told = format!("{error} {error:?}");
    assert!(
        told.contains("refused") && !told.contains("letmein"),
        "{told}"
    );
    let schema = Schema::new();
    let store = open(&with_options(&schema.url(), "password=letmein"))
        .await
        .expect("opened");
    assert_eq!(format!("{store:?}"), format!("Postgres({})", schema.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgresql"]
async fn databases_that_are_not_there_are_told_at_once() {
    let url = with_options(&server(), "dbname=nowhere");
    let started = std::time::Instant::now();
    let error = refused(&url).await.to_string();
    assert!(
        error.contains("nowhere") && error.contains("3D000"),
        "{error}"
    );
    assert!(
        started.elapsed().as_secs() < 2,
        "there is nothing to wait for"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgresql"]
async fn an_encoding_that_has_not_every_character_is_refused() {
    let schema = Schema::new();
    let client = connect().await;
    let base = &schema.0;
    let create = format!("CREATE DATABASE {base} ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'");
    client.batch_execute(&create).await.expect("created");
    let error = refused(&with_options(&schema.url(), &format!("dbname={base}"))).await;
    assert_eq!(error, OpenError::Encoding("LATIN1".into()));
    client
        .batch_execute(&format!("DROP DATABASE {base} WITH (FORCE)"))
        .await
        .expect("dropped");
}

/// Whoever asks for TLS, or just meets it, wants to know whom it is with.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgresql"]
async fn tls_is_with_the_server_that_was_meant() {
    let schema = Schema::new();
    let trusting = with_options(&tls_server(), &schema.options());
    for mode in ["prefer", "require", "verify-full"] {
        let store = open(&with_options(&trusting, &format!("sslmode={mode}")))
            .await
            .expect("opened");
        assert_eq!(store.count("owner", 1).await, Ok(0));
    }
    let query = format!(
        "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = '{}'",
        schema.0
    );
    let store = open(&trusting).await.expect("opened");
    assert_eq!(store.count("owner", 1).await, Ok(0));
    assert!(
        connect()
            .await
            .query_one(&query, &[])
            .await
            .expect("listed")
            .get::<_, bool>(0),
        "it is TLS"
    );
    let (base, _) = trusting.split_once('?').expect("options");
    let unknown = refused(base).await.to_string();
    assert!(
        unknown.contains("UnknownIssuer") && unknown.contains("sslrootcert"),
        "{unknown}"
    );
    let other_name = refused(&trusting.replace("@localhost", "@127.0.0.1"))
        .await
        .to_string();
    assert!(other_name.contains("127.0.0.1"), "{other_name}");
    let nobody = with_options(base, "sslmode=require&sslrootcert=/dev/null");
    assert_eq!(refused(&nobody).await, OpenError::Certificates);
    open(&with_options(
        base,
        &format!("{}&sslmode=disable", schema.options()),
    ))
    .await
    .expect("opened");
}
