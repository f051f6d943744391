//! A limit of the time that a call takes.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::bundle::{Bundle, Error};
use crate::call::{Call, Target};
use crate::connection::Answer;
use crate::decorate::{Decorator, Time, concerns, setting_name};

pub(super) struct TimedBundle {
    pub(super) inner: Arc<dyn Bundle>,
    pub(super) time: Time,
}

impl Decorator for TimedBundle {
    fn inner(&self) -> &dyn Bundle {
        &*self.inner
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Error>> {
        Box::pin(async move {
            let server = self.time.server.as_deref();
            // A level has requests of its own, which have a limit.
            if call.target == Target::Level || !concerns(&*self.inner, server, &call.target) {
                return self.inner.call(call).await;
            }
            let (id, timeout_ms) = (call.id.clone(), self.time.timeout_ms.get());
            let mut called = self.inner.call(call);
            if let Ok(answer) =
                tokio::time::timeout(Duration::from_millis(timeout_ms.into()), &mut called).await
            {
                return answer;
            }
            // The call must not be dropped before it is given up, or its backend
            // could not be told.
            let setting = setting_name("time.timeout_ms", server);
            let was_sent = self.inner.give_up(
                &id,
                &format!("it took more than {timeout_ms} ms, the limit in {setting}"),
            );
            drop(called);
            Err(Error::TooLong {
                timeout_ms,
                setting,
                was_sent,
            })
        })
    }
}
