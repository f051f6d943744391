//! What is listed, and under which names.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;

use super::world::World;
use crate::lock::lock;
use crate::*;

/// Remembers names as the daemon does: only if nobody else has done so since.
#[derive(Debug, Default, Clone)]
struct Book {
    page: Arc<Mutex<(u64, Names)>>,
    known: Arc<Mutex<u64>>,
}

impl Book {
    /// The same for another process.
    fn of_another(&self) -> Self {
        Self {
            page: self.page.clone(),
            known: Arc::default(),
        }
    }
}

impl BundleStore for Book {
    fn load(&self) -> BoxFuture<'_, Names> {
        let (version, names) = lock(&self.page).clone();
        *lock(&self.known) = version;
        Box::pin(std::future::ready(names))
    }

    fn save(&self, names: Names) -> BoxFuture<'_, Option<Names>> {
        let (mut page, mut known) = (lock(&self.page), lock(&self.known));
        let theirs = (page.0 != *known).then(|| page.1.clone());
        if theirs.is_none() {
            *page = (page.0 + 1, names);
        }
        *known = page.0;
        Box::pin(std::future::ready(theirs))
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_in_the_file_keeps_the_bare_name_however_slowly_it_starts() {
    let servers: [(&str, &[&str]); 2] = [("a", &["search"]), ("b", &["search"])];
    let slow = World::new(&servers);
    slow.server("a")
        .will(super::world::Start::Takes(std::time::Duration::from_secs(
            1,
        )));
    let made = slow.made().await;
    assert_eq!(made.names(List::Tools).await, ["search", "b_search"]);
    // One that hangs keeps no other from its name, nor from the host's first list.
    let hung = World::new(&servers);
    hung.server("a").will(super::world::Start::Hangs);
    let made = hung.made().await;
    assert_eq!(made.names(List::Tools).await, ["search"]);
    assert_eq!(
        made.calls(1, "search").await.expect("an answer"),
        "b search 1"
    );
}

#[tokio::test(start_paused = true)]
async fn names_are_remembered_whoever_comes_first() {
    let book = Book::default();
    let listed = |mut world: World, book: Book| async move {
        world.settings.init_concurrency = 1;
        let made = world.with(Arc::new(book));
        made.bundle.ready().await;
        let mut names = made.names(List::Tools).await;
        names.sort();
        names
    };
    let servers: [(&str, &[&str]); 2] = [("a", &["search"]), ("b", &["search"])];
    let first = listed(World::new(&servers), book.clone()).await;
    assert_eq!(first, ["b_search", "search"]);
    let late = World::new(&[("c", &["search"]), ("a", &["search"]), ("b", &["search"])]);
    late.server("a")
        .will(super::world::Start::Takes(std::time::Duration::from_secs(
            1,
        )));
    let made = late.with(Arc::new(book.of_another()));
    made.bundle.ready().await;
    assert_eq!(
        made.names(List::Tools).await,
        ["c_search", "search", "b_search"]
    );
    assert_eq!(
        made.calls(1, "search").await.expect("an answer"),
        "a search 1"
    );
}

#[tokio::test(start_paused = true)]
async fn two_processes_that_begin_at_once_agree() {
    let (book, servers): (Book, [(&str, &[&str]); 2]) =
        (Book::default(), [("a", &["search"]), ("b", &["search"])]);
    let worlds = [World::new(&servers), World::new(&servers)];
    worlds[1].server("a").will(super::world::Start::Takes(
        std::time::Duration::from_millis(5),
    ));
    let made = [
        worlds[0].with(Arc::new(book.clone())),
        worlds[1].with(Arc::new(book.of_another())),
    ];
    for made in &made {
        made.bundle.ready().await;
    }
    assert_eq!(
        made[0].names(List::Tools).await,
        made[1].names(List::Tools).await
    );
}

#[tokio::test(start_paused = true)]
async fn names_always_have_their_backend_where_that_is_wanted() {
    let mut world = World::new(&[("a", &["search"]), ("b", &["other"])]);
    world.settings.names = Style::Always;
    assert_eq!(
        world.made().await.names(List::Tools).await,
        ["a_search", "b_other"]
    );
}
