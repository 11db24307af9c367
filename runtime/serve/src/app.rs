//! state shared by all requests: the models, the memory budget of request bodies, whether the server accepts work

use crate::body::Room;
use crate::completions;
use crate::embeddings::{openai, tei};
use crate::grpc;
use crate::kserve;
use crate::metrics::{Metrics, metrics, watch};
use crate::refusal::{Answer, Refusal};
use crate::registry::Registry;
use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use sardonyx_base::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub struct App {
    pub metrics: Arc<Metrics>,
    pub registry: Registry,
    pub room: Room,
    #[cfg(feature = "otlp")]
    pub traces: Option<crate::traces::Traces>,
    is_ending: AtomicBool,
}

/// Bodies larger than this are parsed and serialized with `block_in_place`, so that they do not delay other requests.
const HEAVY_BYTES: usize = 64 << 10;

impl App {
    /// Creates the state of a server. Must be called within the tokio runtime of the server. Errors: E0001 for invalid
    /// options.
    pub fn new(registry: Registry, metrics: Arc<Metrics>) -> Result<App> {
        let limits = &registry.args().limits;
        let room = Room::new(limits.bodies_max.get().saturating_mul(1 << 10), limits.body_bytes_max());
        Ok(App {
            #[cfg(feature = "otlp")]
            traces: registry.args().otlp.as_deref().map(crate::traces::Traces::new).transpose()?,
            metrics,
            registry,
            room,
            is_ending: AtomicBool::new(false),
        })
    }

    /// Marks the server as shutting down: from now on it is not ready and accepts no more work.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
    }

    pub fn check_ready(&self) -> Answer<()> {
        self.check_accepting()
    }

    pub fn check_accepting(&self) -> Answer<()> {
        match self.is_ending.load(Ordering::SeqCst) {
            false => Ok(()),
            true => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Err(Refusal::new(status, "ending", "the server is shutting down", "use another server").retry_after(1))
            }
        }
    }

    /// Runs `work`, whose time grows with the size of a body, so that a large body does not delay other requests.
    pub fn heavy<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        if bytes > HEAVY_BYTES { tokio::task::block_in_place(work) } else { work() }
    }
}

pub fn router(app: Arc<App>) -> Router {
    let unknown = async || Refusal::not_found("there is nothing at this path", "`/v2` is the root of the protocol");
    let router =
        Router::new().merge(kserve::routes()).merge(openai::routes()).merge(tei::routes()).merge(completions::routes());
    let router = router.merge(grpc::routes());
    let router = router.route("/metrics", get(metrics)).fallback(unknown);
    router.layer(from_fn_with_state(app.clone(), watch)).with_state(app)
}
