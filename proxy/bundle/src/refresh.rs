//! Fetches the lists of a backend that have changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::{sleep, timeout};

use crate::backend::{Backend, LiveBackend};
use crate::call::List;
use crate::core::Core;
use crate::pace::Pace;

/// Asks again for lists that a backend has answered with an error, less and less often.
pub(crate) fn spawn_retry(core: &Arc<Core>, backend: &Arc<Backend>, live: &Arc<LiveBackend>) {
    if live.refused().is_empty() || live.is_retried.swap(true, Ordering::SeqCst) {
        return;
    }
    let (core, backend, live) = (core.clone(), backend.clone(), live.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = core.closed() => {}
            () = retry_refused(&core, &backend, &live) => {}
        }
    });
}

async fn retry_refused(core: &Core, backend: &Backend, live: &LiveBackend) {
    let (mut pause, longest) = core.settings.retry;
    while !live.refused().is_empty() {
        sleep(pause).await;
        pause = (pause * 2).min(longest);
        if live.connection.is_over() {
            return;
        }
        let mut got = Vec::new();
        for list in live.refused().into_keys() {
            let fetching = live.fetch(list, core.settings.enough());
            let fetched = timeout(core.settings.init_timeout, fetching).await;
            got.extend(matches!(fetched, Ok(Ok(()))).then_some(list));
        }
        if !got.is_empty() {
            core.give_names(backend.name(), live).await;
            core.tell_changed(got).await;
        }
    }
    live.is_retried.store(false, Ordering::SeqCst);
}

/// Lists that one notification says have changed.
pub(crate) fn lists_changed_by(method: &str) -> Vec<List> {
    List::ALL
        .into_iter()
        .filter(|list| list.changed() == method)
        .collect()
}

/// Gets the lists of a backend that have changed, and tells the host so: one change of one backend
/// is one change of the whole.
pub(crate) async fn refresh(core: Arc<Core>, backend: Arc<Backend>, method: &'static str) {
    tokio::select! {
        () = core.closed() => {}
        () = fetch_changed(&core, &backend, method) => {}
    }
}

async fn fetch_changed(core: &Arc<Core>, backend: &Arc<Backend>, method: &'static str) {
    let Some(live) = backend.live() else { return };
    if !live.pace(method, Pace::begin) {
        return;
    }
    loop {
        sleep(live.pace(method, Pace::pause)).await;
        live.pace(method, Pace::fetch);
        for list in lists_changed_by(method) {
            // What can't be got now stays as it was: the backend is about to be lost, or has
            // answered with an error.
            let fetching = live.fetch(list, core.settings.enough());
            let _ = timeout(core.settings.init_timeout, fetching).await;
        }
        core.give_names(backend.name(), &live).await;
        core.tell_changed(lists_changed_by(method)).await;
        // Something may be missing of them.
        core.states.send_replace(());
        if !live.pace(method, Pace::end) {
            return spawn_retry(core, backend, &live);
        }
    }
}
