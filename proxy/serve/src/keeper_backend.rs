//! A server that a keeper holds: it survives a kill of this process, with everything that it is
//! doing.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use mcp_sessiond_client::{Session, SessionId};
use mcp_sessiond_http_session::messages::Id;
use mcp_sessiond_proxy::program::Program;
use mcp_sessiond_proxy::server::service::{
    self, Command, Gone, NoBackend, NotLeased, Options, Service,
};

use crate::backend::{Backend, Backends, Ended, Losses, ServerLine, ServerLoss};
use crate::refusal::{Refusal, elsewhere, no_server};
use crate::settings::Settings;

/// The keepers of one service's sessions. Only the process that has leased the service may attach
/// to them.
#[derive(Debug)]
pub struct Keepers {
    service: Service,
    command: Command,
}

impl Keepers {
    /// Leases the service. `descriptors`: the most that a server may have.
    ///
    /// # Errors
    /// When another process has leased it, or there is no daemon.
    pub async fn of(
        settings: &Settings,
        program: Program,
        descriptors: Option<u64>,
    ) -> Result<Self, NotLeased> {
        let control = mcp_sessiond_client::Options::default().start(settings.start.clone());
        let options = Options {
            control: Some(control),
            descriptors,
            ..Options::default()
        };
        let service = Service::lease(settings.service.clone(), options).await?;
        let command = Command {
            program,
            environment: Vec::new(),
            home: None,
        };
        Ok(Self { service, command })
    }
}

impl Backends for Keepers {
    fn backend<'a>(
        &'a self,
        session: &'a Session,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>, Refusal>> {
        async move {
            let backend = self.service.backend(session.id(), &self.command).await;
            let backend = backend.map_err(refused)?;
            let losses = Losses::default();
            losses
                .note_recorded(&self.service, session.id(), None)
                .await;
            let backend = Arc::new(backend);
            let incarnation = format!("{}-{:x}", backend.keeper(), backend.incarnation());
            let backend: Arc<dyn Backend> = Arc::new(KeeperBackend {
                backend,
                incarnation,
                losses,
            });
            Ok(backend)
        }
        .boxed()
    }

    fn claim<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<bool, Refusal>> {
        claim(&self.service, session).boxed()
    }

    fn note_probe(&self) -> BoxFuture<'_, bool> {
        self.service.note_probe(&self.command).boxed()
    }

    fn stop_all(&self) -> BoxFuture<'_, Vec<SessionId>> {
        self.service.stop_all().boxed()
    }
}

/// As [`Backends::claim`].
pub(crate) async fn claim(service: &Service, session: &Session) -> Result<bool, Refusal> {
    match service.claim(session.id()).await {
        Ok(()) => Ok(true),
        Err(NoBackend::Elsewhere) => Ok(false),
        Err(error) => Err(refused(error)),
    }
}

/// Why there is no server, for a client.
pub(crate) fn refused(error: NoBackend) -> Refusal {
    match error {
        NoBackend::NoSession => Refusal::unknown_session(),
        NoBackend::Elsewhere => elsewhere(),
        error => no_server(error),
    }
}

#[derive(Debug)]
struct KeeperBackend {
    backend: Arc<service::Backend>,
    incarnation: String,
    losses: Losses,
}

impl Backend for KeeperBackend {
    fn send(&self, line: Bytes) -> BoxFuture<'_, Result<(), Ended>> {
        async { self.backend.send(line).await.map_err(ended) }.boxed()
    }

    fn next(&self) -> BoxFuture<'_, Option<ServerLine>> {
        async {
            let message = self.backend.next().await?;
            Some(ServerLine {
                number: message.number,
                line: message.line,
                stream: None,
            })
        }
        .boxed()
    }

    fn confirm(&self, number: u64) {
        self.backend.confirm(number);
    }

    fn open_calls(&self) -> BoxFuture<'_, Result<Vec<Id>, Ended>> {
        async {
            let calls = self.backend.open_calls().await.map_err(ended)?;
            Ok(calls.into_iter().map(|id| id.to_string().into()).collect())
        }
        .boxed()
    }

    fn losses(&self) -> Vec<ServerLoss> {
        let mut losses = self.losses.take();
        let ends = self.backend.ends().into_iter();
        losses.extend(ends.map(|why| ServerLoss::ended(None, &why, &self.backend)));
        losses
    }

    fn end(&self) -> BoxFuture<'_, ()> {
        self.backend.end().boxed()
    }

    fn gone(&self) -> BoxFuture<'_, ()> {
        self.backend.gone().boxed()
    }

    fn incarnation(&self) -> &str {
        &self.incarnation
    }

    fn continues(&self) -> bool {
        self.backend.is_initialized()
    }
}

fn ended(gone: Gone) -> Ended {
    Ended {
        may_have_arrived: gone.may_have_arrived,
    }
}
