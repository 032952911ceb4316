//! Serves the worker's output over HTTP: a child that is a server, and finishes what it has accepted.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::get;
use clap::Parser;
use feed::output::Line;
use soloist::duration::parse as duration;
use soloist_worker::Worker;
use soloist_worker::server::Server;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;

/// Serves the worker's output over HTTP: GET /messages/POSITION is the line of that message. Under soloist it is ready
/// when it listens, and finishes every request that it has accepted.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
struct Arguments {
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: std::net::SocketAddr,
    /// What feed-worker writes.
    #[arg(long, value_name = "PATH")]
    output: PathBuf,
    /// Every answer takes at least this long.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    work: Duration,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter);
    log.with_writer(std::io::stderr).init();
    let worker = match Worker::from_env() {
        Ok(worker) => worker,
        Err(error) => {
            eprintln!("feed-web: {error}");
            return ExitCode::from(2);
        }
    };
    let result = serve(&worker, arguments).await;
    worker.finish(result).await
}

async fn serve(worker: &Worker, arguments: Arguments) -> anyhow::Result<()> {
    let address = arguments.listen;
    let listener = TcpListener::bind(address).await;
    let listener =
        listener.map_err(|error| anyhow::anyhow!("cannot listen on {address}: {error}"))?;
    let app = axum::Router::new()
        .route("/messages/{position}", get(message))
        .with_state(Arc::new(arguments));
    worker.ready();
    let drained = Server::new(listener).serve(app, &worker.stream()).await;
    anyhow::ensure!(
        drained.is_complete(),
        "some requests had to be cut: {drained:?}"
    );
    Ok(())
}

#[derive(serde::Deserialize)]
struct Shape {
    /// So many lines instead of one.
    #[serde(default = "one")]
    lines: usize,
}

fn one() -> usize {
    1
}

async fn message(
    State(arguments): State<Arc<Arguments>>,
    Path(position): Path<u64>,
    Query(shape): Query<Shape>,
) -> Result<String, (StatusCode, String)> {
    tokio::time::sleep(arguments.work).await;
    let failed = |error: std::io::Error| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"));
    let file = File::open(&arguments.output).await.map_err(failed)?;
    let mut lines = BufReader::new(file).lines();
    let mut found = String::new();
    let mut left = shape.lines;
    while left > 0 {
        let Some(line) = lines.next_line().await.map_err(failed)? else {
            break;
        };
        let is_wanted = Line::parse(line.as_bytes()).is_ok_and(|line| line.position >= position);
        if is_wanted {
            found.push_str(&line);
            found.push('\n');
            left -= 1;
        }
    }
    match found.is_empty() {
        true => Err((StatusCode::NOT_FOUND, "not yet\n".to_owned())),
        false => Ok(found),
    }
}
