//! What every backend must do alike: the same cases, once for each.
//!
//! Whatever stands above a backend counts on the promises of
//! [`mcp_sessiond_daemon::storage::Storage`] and asks no further which backend is below. So each
//! promise has a case here, and a backend is done when all of them pass. Tests are named for the
//! backend, the layer and the promise: `contract::memory::storage::create_twice`.
//!
//! A backend is a line in [`contract!`]'s invocation and a [`backends::Backend`]. A layer is a
//! module whose macro `cases` lists its cases, and a line in `contract!` itself. A case that is in
//! no list is dead code, and told as such.

mod backends;
mod sessions;
mod storage;

/// Makes tests of cases. A layer's own macro `cases` ends in this one.
macro_rules! tests {
    ($needs:ident $backend:ty, $layer:path, $($case:ident)*) => {
        use $layer as layer;
        $(crate::needs! { $needs
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                layer::$case(<$backend as crate::contract::backends::Backend>::open().await).await;
            }
        })*
    };
}
use tests;

/// Every layer's cases, for each backend.
macro_rules! contract {
    ($($(#[$only:meta])* $name:ident($needs:ident): $backend:ty;)*) => {$(
        $(#[$only])*
        mod $name {
            mod storage {
                crate::contract::storage::cases!($needs $backend);
            }
            mod sessions {
                crate::contract::sessions::cases!($needs $backend);
            }
        }
    )*};
}

contract! {
    memory(nothing): crate::contract::backends::InMemory;
    sqlite(nothing): crate::contract::backends::InSqlite<false>;
    #[cfg(target_os = "linux")]
    sqlite_redo(nothing): crate::contract::backends::InSqlite<true>;
    postgres(postgresql): crate::contract::backends::InPostgres;
    #[cfg(feature = "dynamodb")]
    dynamodb_dynalite(nothing): crate::contract::backends::InDynamoDb<crate::dynamodb::Dynalite>;
    #[cfg(feature = "dynamodb")]
    dynamodb_moto(nothing): crate::contract::backends::InDynamoDb<crate::dynamodb::Moto>;
}
