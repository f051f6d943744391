//! A session that is bound to a caller is nobody else's.

use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::sessions::{Binding, Caller, CreateRequest, CredentialHash, OnMismatch};

use super::bench::{Bench, endless, request};
use super::visit::Visit;
use crate::contract::backends::Backend;

fn identity(iss: &str, sub: &str) -> Caller {
    Caller::Identity {
        iss: iss.into(),
        sub: sub.into(),
    }
}

fn credential(byte: u8) -> Caller {
    Caller::Credential {
        hash: CredentialHash([byte; 32]),
    }
}

fn bound_to(caller: Caller, on_mismatch: OnMismatch) -> CreateRequest {
    CreateRequest {
        binding: Some(Binding {
            caller,
            on_mismatch,
        }),
        request: Some(request("r")),
        ..endless()
    }
}

/// Every call but `create` is refused to this caller.
async fn refused(session: &Visit, caller: Option<Caller>) {
    let visit = session.on_behalf_of(caller);
    assert_eq!(visit.get().await, Err(Error::BindingMismatch));
    assert_eq!(visit.open().await, Err(Error::BindingMismatch));
    assert_eq!(visit.set("k", "1").await, Err(Error::BindingMismatch));
    assert_eq!(
        visit.append("_GET_stream", &["1"]).await,
        Err(Error::BindingMismatch)
    );
    assert_eq!(visit.attach().await, Err(Error::BindingMismatch));
    assert_eq!(visit.terminate().await, Err(Error::BindingMismatch));
}

pub(crate) async fn to_an_identity<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    let me = identity("https://issuer", "me");
    let session = bench.visit("s").on_behalf_of(Some(me.clone()));
    let created = session
        .create_with(bound_to(me.clone(), OnMismatch::Refuse))
        .await
        .expect("created");
    assert!(created.bound);
    for _ in 0..2 {
        let session = bench.visit("s").on_behalf_of(Some(me.clone()));
        session.set("k", "1").await.expect("mine");
        for other in [
            None,
            Some(identity("https://issuer", "you")),
            Some(identity("https://issuerm", "e")),
            Some(identity("https://other", "me")),
            Some(credential(1)),
        ] {
            refused(&session, other).await;
        }
        assert!(session.get().await.is_ok(), "which does nothing to it");
        // It stays the same when a token is refreshed.
        let refused = session
            .rotate([1; 32], None)
            .await
            .expect_err("nothing to rotate");
        assert_eq!(refused.code(), "invalid_argument");
        if !B::DURABLE {
            break;
        }
        bench.reopen().await;
    }
    // A creation that is repeated is answered to whom it is bound to.
    let again = bench
        .visit("s")
        .create_with(bound_to(me.clone(), OnMismatch::Refuse))
        .await;
    assert_eq!(again, Err(Error::BindingMismatch));
    let visit = bench.visit("s").on_behalf_of(Some(me.clone()));
    assert!(
        visit
            .create_with(bound_to(me, OnMismatch::Refuse))
            .await
            .is_ok()
    );
    let long = identity(&"x".repeat(2_049), "me");
    let refused = bench
        .visit("t")
        .create_with(bound_to(long.clone(), OnMismatch::Refuse))
        .await;
    assert_eq!(refused.expect_err("too long").code(), "invalid_argument");
    assert_eq!(
        visit
            .on_behalf_of(Some(long))
            .get()
            .await
            .expect_err("too long")
            .code(),
        "invalid_argument"
    );
}

pub(crate) async fn to_a_credential_that_is_rotated<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    let session = bench.visit("s").on_behalf_of(Some(credential(1)));
    session
        .create_with(bound_to(credential(1), OnMismatch::Refuse))
        .await
        .expect("created");
    session.rotate([2; 32], Some(1_000)).await.expect("rotated");
    if B::DURABLE {
        bench.reopen().await;
    }
    let visit = |byte| bench.visit("s").on_behalf_of(Some(credential(byte)));
    bench.clock.advance(999);
    if B::DURABLE {
        assert!(
            visit(1).get().await.is_ok() && visit(2).get().await.is_ok(),
            "both, for a while"
        );
        visit(1)
            .rotate([2; 32], Some(9_000))
            .await
            .expect("a rotation that is repeated");
        bench.clock.advance(1);
        refused(&visit(2), Some(credential(1))).await;
        assert!(visit(2).get().await.is_ok());
        // As long as configured where nobody says.
        visit(2).rotate([3; 32], None).await.expect("rotated");
        bench.clock.advance(59_999);
        assert!(visit(2).get().await.is_ok());
        bench.clock.advance(1);
        refused(&visit(3), Some(credential(2))).await;
        visit(3).rotate([4; 32], Some(0)).await.expect("rotated");
        refused(&visit(4), Some(credential(3))).await;
    }
}

pub(crate) async fn to_nobody<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    for caller in [None, Some(credential(1)), Some(identity("a", "b"))] {
        assert!(
            session
                .on_behalf_of(caller)
                .get()
                .await
                .is_ok_and(|seen| !seen.bound)
        );
    }
    let sentence = "the session is bound to nobody; `binding` of `create_session` does that".into();
    assert_eq!(
        session.rotate([1; 32], None).await,
        Err(Error::InvalidArgument { sentence })
    );
}

pub(crate) async fn ended_by_a_mismatch<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    for (name, caller) in [
        ("none", None),
        ("other", Some(credential(2))),
        ("kind", Some(identity("a", "b"))),
    ] {
        let session = bench.visit(name).on_behalf_of(Some(credential(1)));
        session
            .create_with(bound_to(credential(1), OnMismatch::Terminate))
            .await
            .expect("created");
        session.set("k", "1").await.expect("written");
        refused(&session, caller.clone()).await;
        assert_eq!(session.set("k", "1").await, Err(Error::SessionTerminated));
        assert_eq!(
            session
                .get()
                .await
                .map(|seen| (seen.bound, seen.state_keys)),
            Ok((true, 0))
        );
        refused(&session, caller).await;
    }
}

pub(crate) async fn ended_while_others_write<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let beside = bench.beside().await;
    let session = bench.visit("s").on_behalf_of(Some(credential(1)));
    session
        .create_with(bound_to(credential(1), OnMismatch::Terminate))
        .await
        .expect("created");
    let writers: Vec<_> = [session.clone(), session.through(&beside)]
        .map(|visit| {
            tokio::spawn(async move {
                loop {
                    if let Err(error) = visit.append("_GET_stream", &["1"]).await {
                        return error;
                    }
                }
            })
        })
        .into();
    tokio::task::yield_now().await;
    assert_eq!(
        session.on_behalf_of(None).get().await,
        Err(Error::BindingMismatch)
    );
    for writer in writers {
        assert_eq!(
            writer.await.expect("a writer that ends well"),
            Error::SessionTerminated
        );
    }
}
