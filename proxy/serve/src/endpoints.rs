//! Beside the servers of a list as one, each of them for itself, at `/servers/NAME`. Each has
//! sessions of its own: those of a service whose name tells it from the others, so that no session
//! is found at another place than where it has begun.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::Response;
use axum::http::uri::{PathAndQuery, Uri};
use axum::routing::any;
use futures::future::join_all;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use mcp_sessiond_client::{Options, ServiceName, Sessions};
use mcp_sessiond_process::digest;

use crate::bundles::{BundleOptions, Bundles};
use crate::counts::Counts;
use crate::http::{At, PATH, missing, single};
use crate::live::Shared;
use crate::settings::Settings;
use crate::start_error::{StartError, not_leased};
use crate::stderr::warn;
use crate::table::Table;

/// Where each server is, by its name.
const SINGLE: &str = "/servers/{name}";

/// Bytes of the digest that stands for a server's name, which may have any characters.
const DIGEST_LEN: usize = 6;

/// Where one server is served.
#[derive(Clone)]
struct Endpoint {
    table: Arc<Table>,
    router: Router,
}

/// Each server of a list.
#[derive(Clone)]
pub(crate) struct Endpoints(Arc<Inner>);

struct Inner {
    settings: Arc<Settings>,
    bundle: Option<BundleOptions>,
    all: RwLock<BTreeMap<String, Endpoint>>,
}

impl Endpoints {
    /// With no server yet.
    pub(crate) fn new(settings: Arc<Settings>, bundle: Option<BundleOptions>) -> Self {
        Self(Arc::new(Inner {
            settings,
            bundle,
            all: RwLock::default(),
        }))
    }

    fn all(&self) -> Vec<Endpoint> {
        self.0
            .all
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    /// Serves each server that is in the list now, and no other. The sessions of one that was
    /// removed end.
    ///
    /// # Errors
    /// When the name of a service can't be leased. The others are served nevertheless.
    pub(crate) async fn update(&self) -> Result<(), StartError> {
        let Some(bundle) = &self.0.bundle else {
            return Ok(());
        };
        let wanted: BTreeSet<String> = bundle
            .listing
            .borrow()
            .servers
            .iter()
            .map(|server| server.name.clone())
            .collect();
        let (there, gone): (Vec<_>, Vec<_>) = {
            let mut all = self.0.all.write().unwrap_or_else(PoisonError::into_inner);
            let gone: Vec<String> = all
                .keys()
                .filter(|name| !wanted.contains(*name))
                .cloned()
                .collect();
            let gone = gone.iter().filter_map(|name| all.remove(name)).collect();
            (all.keys().cloned().collect(), gone)
        };
        for endpoint in gone {
            tokio::spawn(async move { endpoint.table.end().await });
        }
        let mut first = Ok(());
        for name in wanted.into_iter().filter(|name| !there.contains(name)) {
            match self.endpoint(bundle, &name).await {
                Ok(endpoint) => {
                    let mut all = self.0.all.write().unwrap_or_else(PoisonError::into_inner);
                    all.insert(name, endpoint);
                }
                Err(error) if first.is_ok() => first = Err(error),
                Err(_) => {}
            }
        }
        first
    }

    async fn endpoint(&self, bundle: &BundleOptions, name: &str) -> Result<Endpoint, StartError> {
        let settings = &self.0.settings;
        let service = service(&settings.service, name)?;
        let leased = Bundles::lease(settings, service.clone(), bundle, Some(name.to_owned())).await;
        let backends = leased.map_err(|error| not_leased(error, &service))?;
        let options = Options::default()
            .start(settings.start.clone())
            .timeout(settings.hold);
        let table = Arc::new(Table::new(Shared {
            settings: settings.clone(),
            sessions: Sessions::of_service(service, options),
            backends: Arc::new(backends),
            counts: Counts::default(),
        }));
        Ok(Endpoint {
            router: single(&table),
            table,
        })
    }

    /// The routes of all servers as one, and those of each.
    pub(crate) fn merged_into(&self, whole: Router) -> Router {
        if self.0.bundle.is_none() {
            return whole;
        }
        whole.merge(
            Router::new()
                .route(SINGLE, any(pass))
                .with_state(self.clone()),
        )
    }

    /// Follows the edits of the list, and ends sessions that are idle for too long, until it is
    /// dropped.
    pub(crate) async fn follow(&self) {
        let Some(bundle) = &self.0.bundle else {
            return std::future::pending().await;
        };
        let mut edits = bundle.listing.clone();
        edits.mark_changed();
        loop {
            let idle = join_all(self.all().into_iter().map(|endpoint| async move {
                endpoint.table.end_idle().await;
            }));
            tokio::select! {
                // Without a server no session can be idle.
                _ = idle, if !self.all().is_empty() => {}
                edited = edits.changed() => {
                    if edited.is_err() {
                        return std::future::pending().await;
                    }
                    if let Err(error) = self.update().await {
                        warn(error);
                    }
                }
            }
        }
    }

    /// As [`Table::close`].
    pub(crate) fn close(&self) {
        self.all()
            .iter()
            .for_each(|endpoint| endpoint.table.close());
    }

    /// As [`Table::end`].
    pub(crate) async fn end(&self) {
        let all = self.all();
        join_all(all.iter().map(|endpoint| endpoint.table.end())).await;
    }
}

/// The service of one server's sessions.
fn service(whole: &ServiceName, name: &str) -> Result<ServiceName, StartError> {
    let digest = digest("mcp-sessiond serve server", name.as_bytes());
    let digest: String = digest
        .iter()
        .take(DIGEST_LEN)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let plain = format!("{whole}/{name}").parse();
    plain
        .or_else(|_| format!("{whole}/{digest}").parse())
        .map_err(|error| StartError::List(format!("--name is too long: {error}")))
}

/// Passes a request on to the endpoint that it is for.
async fn pass(
    State(endpoints): State<Endpoints>,
    Path(name): Path<String>,
    mut request: Request,
) -> Response<Body> {
    let endpoint = {
        let all = endpoints
            .0
            .all
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        all.get(&name).cloned()
    };
    let router = endpoint.map_or_else(
        || missing(&endpoints.0.settings, &name),
        |endpoint| endpoint.router,
    );
    let at = At(request.uri().path().to_owned());
    request.extensions_mut().insert(at);
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::from_static(PATH));
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    match TowerToHyperService::new(router).call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
