//! Opening a table that there is, that there is not, and that is another's.

use mcp_sessiond_daemon::storage::dynamodb::{OpenError, Options};
use mcp_sessiond_daemon::storage::{DynamoDb, Storage as _, StorageError};

use super::{Server, Table};

super::cases! { missing created_once opened_without_create }

async fn missing<S: Server>(table: Table<S>) {
    let options = Options {
        create: false,
        ..table.options()
    };
    let error = DynamoDb::open(options)
        .await
        .expect_err("there is no table");
    assert_eq!(error, OpenError::NoTable(table.name.clone()));
    let sentence = error.to_string();
    assert!(
        sentence.contains(&table.name) && sentence.contains("`create`"),
        "{sentence}"
    );
}

async fn created_once<S: Server>(table: Table<S>) {
    let opened = futures::future::join_all((0..4).map(|_| DynamoDb::open(table.options()))).await;
    for opened in opened {
        assert_eq!(
            opened.expect("opened").check(),
            Ok(()),
            "whichever of them created it"
        );
    }
}

async fn opened_without_create<S: Server>(table: Table<S>) {
    table.connected().await;
    let opened = DynamoDb::open(Options {
        create: false,
        ..table.options()
    })
    .await
    .expect("opened");
    assert_eq!(
        (opened.name(), opened.is_shared(), opened.usage("owner")),
        ("dynamodb", true, None)
    );
}

/// Nothing listens there: it is tried again for a while, and said without a word of what was to be
/// written.
#[tokio::test]
async fn nobody_answers() {
    let endpoint = Some("http://127.0.0.1:1".into());
    let options = Options {
        endpoint,
        region: Some("us-east-1".into()),
        ..Options::default()
    };
    let error = DynamoDb::open(options).await.expect_err("nobody listens");
    let sentence = "DynamoDB can't be connected to".to_owned();
    assert_eq!(
        error,
        OpenError::Storage(StorageError::Unavailable(sentence))
    );
}
