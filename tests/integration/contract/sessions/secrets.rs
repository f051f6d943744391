//! The secret of a service.

use std::collections::HashSet;

use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::services::{SecretRequest, ServiceSecret};

use super::bench::{Bench, request, sweep};
use crate::contract::backends::Backend;

const DAY_MS: u64 = 24 * 3_600_000;

fn of(service: &str) -> SecretRequest {
    SecretRequest {
        service: service.parse().expect("a service"),
        rotate: false,
        request: None,
    }
}

fn rotation(service: &str, by: &str) -> SecretRequest {
    SecretRequest {
        rotate: true,
        request: Some(request(by)),
        ..of(service)
    }
}

pub(crate) async fn all_daemons_tell_the_same_secret<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    let asking: Vec<_> = [
        bench.contents.clone(),
        bench.beside().await,
        bench.beside().await,
    ]
    .map(|contents| tokio::spawn(async move { contents.service_secret(&of("shop")).await }))
    .into();
    let mut told = HashSet::new();
    for asked in asking {
        let secret = asked.await.expect("asked").expect("a secret");
        assert_eq!((secret.current.0.len(), secret.former.len()), (43, 0));
        told.insert(secret.current.0);
    }
    assert_eq!(told.len(), 1, "whoever made it first");
    assert!(
        !told.contains(
            &bench
                .contents
                .service_secret(&of("other"))
                .await
                .expect("a secret")
                .current
                .0
        )
    );
    bench.clock.advance(1_000 * DAY_MS);
    assert_eq!(sweep(&bench.contents).await, []);
    assert!(
        bench
            .contents
            .inventory(None, 10)
            .await
            .expect("a list")
            .is_empty()
    );
    if B::DURABLE {
        bench.reopen().await;
    }
    assert!(
        told.contains(
            &bench
                .contents
                .service_secret(&of("shop"))
                .await
                .expect("a secret")
                .current
                .0
        )
    );
}

pub(crate) async fn a_key_that_was_rotated_out_counts_for_a_day<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let other = bench.beside().await;
    let first = bench
        .contents
        .service_secret(&of("shop"))
        .await
        .expect("a secret")
        .current;
    let second = other
        .service_secret(&rotation("shop", "r1"))
        .await
        .expect("rotated");
    assert_eq!(second.former, std::slice::from_ref(&first));
    assert_ne!(second.current, first);
    // Repeated, as after a lost answer.
    assert_eq!(
        other.service_secret(&rotation("shop", "r1")).await,
        Ok(second.clone())
    );
    bench.clock.advance(DAY_MS / 2);
    let third = bench
        .contents
        .service_secret(&rotation("shop", "r2"))
        .await
        .expect("rotated");
    assert_eq!(third.former, [second.current.clone(), first]);
    bench.clock.advance(DAY_MS / 2);
    let left = ServiceSecret {
        former: vec![second.current],
        ..third.clone()
    };
    assert_eq!(other.service_secret(&of("shop")).await, Ok(left));
    bench.clock.advance(DAY_MS / 2);
    assert_eq!(
        other.service_secret(&of("shop")).await,
        Ok(ServiceSecret {
            former: vec![],
            ..third
        })
    );
    for round in 0..8 {
        other
            .service_secret(&rotation("shop", &format!("x{round}")))
            .await
            .expect("rotated");
    }
    let refused = other.service_secret(&rotation("shop", "x8")).await;
    assert!(
        matches!(refused, Err(Error::QuotaExceeded { limit: 8, .. })),
        "{refused:?}"
    );
    let shown = format!("{:?}", other.service_secret(&of("shop")).await);
    assert!(
        shown.len() < 200 && shown.contains("current: SecretKey,"),
        "{shown}"
    );
}
