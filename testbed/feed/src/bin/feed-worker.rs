//! Consumes the feed under soloist: writes every message once, in order.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser};
use feed::writer::Writer;
use soloist::duration::parse as duration;
use soloist_worker::stream::{Consumer, Target, Tls};
use soloist_worker::{Backoff, Role, Worker};
use tracing::info;
use tracing_subscriber::EnvFilter;

/// Consumes the feed under soloist: writes every message once, in order. Exits with 0 after a shutdown in order, 1 when
/// the work cannot go on, 2 when it cannot begin.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
struct Arguments {
    /// The feed: http://HOST:PORT, or https://HOST:PORT for TLS.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:50051")]
    server: String,
    /// Where the messages are written. The worker goes on after its last line.
    #[arg(long, value_name = "PATH")]
    output: PathBuf,
    /// Every message takes this long.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    work: Duration,
    /// Only every second message takes that long.
    #[arg(long)]
    uneven_work: bool,
    /// So many messages are worked on at the same time.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    concurrency: NonZeroUsize,
    /// The first wait before the feed is opened again; doubled each time.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    backoff: Duration,
    /// The longest wait.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    backoff_most: Duration,
    /// The server is asked for a sign of life this often, and is dead without one within half of it.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    keepalive: Duration,
    #[command(flatten)]
    tls: TlsArguments,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
struct TlsArguments {
    /// The authority of the server's certificate, as PEM [default: the system's]
    #[arg(long, value_name = "PATH")]
    ca: Option<PathBuf>,
    /// Our own certificate, as PEM.
    #[arg(long, value_name = "PATH", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Our own private key, as PEM.
    #[arg(long, value_name = "PATH", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The name in the server's certificate [default: the host in the URL]
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter);
    log.with_writer(std::io::stderr).init();
    let prepared = Worker::from_env()
        .map_err(anyhow::Error::from)
        .and_then(|worker| Ok((arguments.consumer()?, arguments.writer(&worker)?, worker)));
    match prepared {
        Ok((consumer, writer, worker)) => {
            info!("going on after {}", writer.last());
            let result = worker.consume(consumer, &writer).await;
            worker.finish(result).await
        }
        Err(error) => {
            eprintln!("feed-worker: {error:#}");
            ExitCode::from(2)
        }
    }
}

impl Arguments {
    fn consumer(&self) -> anyhow::Result<Consumer> {
        let mut target =
            Target::new(&self.server)?.keepalive(self.keepalive, self.keepalive / 2)?;
        if let Some(tls) = self.tls.settings() {
            target = target.tls(tls)?;
        }
        let backoff = Backoff::try_new(self.backoff, self.backoff_most)?;
        Ok(Consumer::new(target)
            .backoff(backoff)
            .concurrency(self.concurrency))
    }

    fn writer(&self, worker: &Worker) -> anyhow::Result<Writer> {
        let role: &Role = worker.role().ok_or_else(|| {
            anyhow::anyhow!(
                "there is no SOLOIST_TOKEN, and the feed wants one; run this as `soloist run -- feed-worker …`"
            )
        })?;
        let writer = Writer::open(&self.output, role)?;
        Ok(writer.work(self.work).uneven(self.uneven_work))
    }
}

impl TlsArguments {
    fn settings(&self) -> Option<Tls> {
        let mut tls = Tls::new();
        if let Some(ca) = &self.ca {
            tls = tls.ca(ca);
        }
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            tls = tls.identity(certificate, key);
        }
        if let Some(name) = &self.server_name {
            tls = tls.server_name(name);
        }
        (tls != Tls::new()).then_some(tls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
