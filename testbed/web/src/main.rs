//! `web ADDRESS`: HTTP and gRPC on one port, by the SDK's server.
//!
//! `POST /count` counts. gRPC has the health service, whose `Check` is at the same time a call of any length: of the service
//! `work/250` it is answered after 250 ms.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use soloist_worker::server::Server;
use soloist_worker::{Part, Worker};
use tokio::net::TcpListener;
use tonic::codegen::tokio_stream::Pending;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let worker = Worker::from_env()?;
    let address = std::env::args().nth(1).ok_or("web ADDRESS")?;
    let listener = TcpListener::bind(&address).await?;
    println!("listening on {}", listener.local_addr()?);

    let http = Router::new()
        .route("/count", post(increase))
        .with_state(Arc::default());
    let app = Routes::new(HealthServer::new(Work)).into_axum_router();
    let server = Part::server("server", Server::new(listener), app.merge(http));
    Ok(worker.run([server]).await)
}

async fn increase(State(count): State<Arc<AtomicU64>>) -> String {
    format!("{}\n", count.fetch_add(1, Ordering::Relaxed) + 1)
}

struct Work;

#[tonic::async_trait]
impl Health for Work {
    type WatchStream = Pending<Result<HealthCheckResponse, Status>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        if let Some(millis) = service.strip_prefix("work/") {
            let millis = millis.parse();
            let millis = millis.map_err(|_| Status::invalid_argument("work/MILLISECONDS"))?;
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        Ok(Response::new(HealthCheckResponse {
            status: ServingStatus::Serving.into(),
        }))
    }

    async fn watch(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("watch"))
    }
}
