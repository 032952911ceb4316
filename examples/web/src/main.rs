//! A web server that must not run twice, and cuts off no request:
//! `soloist run --name counter --ready notify -- example-web 127.0.0.1:8080`.
//!
//! `curl -X POST localhost:8080/count` counts; `?slowly=5` takes five seconds, and is answered even if the server is told to
//! stop meanwhile.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::routing::post;
use soloist_worker::server::Server;
use soloist_worker::{Part, Worker};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let worker = Worker::from_env()?;
    let address = std::env::args().nth(1);
    let address = address.unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(&address)
        .await
        .map_err(|error| format!("cannot listen on {address}: {error}"))?;
    println!("listening on {}", listener.local_addr()?);

    let count = Arc::new(AtomicU64::new(0));
    let app = Router::new()
        .route("/count", post(increase))
        .with_state(count.clone());
    let http = Part::server("http", Server::new(listener), app);
    worker.on_finish("count", async move {
        println!("counted {}", count.load(Ordering::Relaxed));
    });
    Ok(worker.run([http]).await)
}

#[derive(serde::Deserialize)]
struct Pace {
    #[serde(default)]
    slowly: u64,
}

async fn increase(State(count): State<Arc<AtomicU64>>, Query(pace): Query<Pace>) -> String {
    tokio::time::sleep(Duration::from_secs(pace.slowly)).await;
    format!("{}\n", count.fetch_add(1, Ordering::Relaxed) + 1)
}
