//! Serves a feed of numbered messages over gRPC.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use arguments::Arguments;
use clap::Parser;
use feed::server::{self, Feed};
use feed::store::Store;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

mod arguments;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt().with_env_filter(filter);
    log.with_writer(std::io::stderr).init();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("feed-server: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let settings = arguments.settings()?;
    let transport = server::transport(arguments.tls()?)?;
    // Before anyone is told that we listen: from then on a signal ends us properly.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let feed = Feed::new(Store::open(&arguments.store)?, settings)?;
    let listener = TcpListener::bind(arguments.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", arguments.listen))?;
    let address = listener.local_addr()?;
    if let Some(path) = &arguments.port_file {
        let written = write_whole(path, &format!("{}\n", address.port()));
        written.with_context(|| format!("cannot write the port file {}", path.display()))?;
    }
    // Who started us may not read it.
    let _ = writeln!(std::io::stdout(), "feed-server: listening on {address}");
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Ok(server::serve(feed, listener, transport, stop).await?)
}

/// Who sees the file sees all of it.
fn write_whole(path: &Path, text: &str) -> anyhow::Result<()> {
    let directory = match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    };
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.persist(path)?;
    Ok(())
}
