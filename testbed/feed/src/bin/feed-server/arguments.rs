//! The command line.

use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser};
use feed::payload::{self, Recipe};
use feed::server::{Faults, Settings, Tls};
use tonic::Code;

/// Serves a feed of numbered messages over gRPC.
#[derive(Parser)]
pub(crate) struct Arguments {
    /// The address to listen on. Port 0 is any free one; the line on stdout says which.
    #[arg(long, default_value = "127.0.0.1:50051")]
    pub(crate) listen: SocketAddr,
    /// Write the port into this file when the server listens.
    #[arg(long, value_name = "PATH")]
    pub(crate) port_file: Option<PathBuf>,
    /// What the server must still know after it was killed. A second file, PATH.acks, stands beside it.
    #[arg(long, value_name = "PATH")]
    pub(crate) store: PathBuf,
    /// Messages per second; 0: as fast as the client takes them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    rate: u64,
    /// The last position to produce. Streams stay open after it.
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    messages: u64,
    /// Bytes in every message.
    #[arg(long, value_name = "BYTES", default_value_t = 32)]
    payload_size: usize,
    /// What the messages' bytes depend on, beside their position and size.
    #[arg(long, value_name = "N", default_value_t = payload::DEFAULT_SEED)]
    seed: u64,
    #[command(flatten)]
    tls: TlsArguments,
    #[command(flatten)]
    faults: FaultArguments,
}

#[derive(Args)]
#[command(next_help_heading = "TLS")]
struct TlsArguments {
    /// The server's certificate, as PEM.
    #[arg(long, value_name = "PATH", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The server's private key, as PEM.
    #[arg(long, value_name = "PATH", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Clients must show a certificate of this authority.
    #[arg(long, value_name = "PATH", requires = "tls_cert")]
    client_ca: Option<PathBuf>,
}

#[derive(Args)]
#[command(next_help_heading = "Faults, for tests")]
struct FaultArguments {
    /// Every stream breaks with UNAVAILABLE after N messages.
    #[arg(long, value_name = "N")]
    break_every: Option<NonZeroU64>,
    /// Every stream stays open and silent after N messages.
    #[arg(long, value_name = "N")]
    stall_after: Option<u64>,
    /// In the place of the message at P there are bytes that are none.
    #[arg(long, value_name = "P")]
    malformed_at: Option<u64>,
    /// The message at P has 5 MiB.
    #[arg(long, value_name = "P")]
    oversized_at: Option<u64>,
    /// Every Subscribe is refused with this gRPC code, such as UNAVAILABLE.
    #[arg(long, value_name = "CODE", value_parser = code)]
    refuse: Option<Code>,
    /// A stream ends this long after its Drain.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = soloist::duration::parse)]
    drain_delay: Duration,
    /// An Ack is noted and answered this long after it came.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = soloist::duration::parse)]
    ack_delay: Duration,
}

impl Arguments {
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        let faults = &self.faults;
        let recipe = Recipe::try_new(self.seed, self.payload_size).context("--payload-size")?;
        Ok(Settings {
            rate: self.rate,
            messages: self.messages,
            recipe,
            faults: Faults {
                break_every: faults.break_every,
                stall_after: faults.stall_after,
                malformed_at: faults.malformed_at,
                oversized_at: faults.oversized_at,
                refuse: faults.refuse,
                drain_delay: faults.drain_delay,
                ack_delay: faults.ack_delay,
            },
        })
    }

    pub(crate) fn tls(&self) -> anyhow::Result<Option<Tls>> {
        let read = |flag: &str, path: &Path| {
            let file = fs::read(path);
            file.with_context(|| format!("cannot read the file {} of {flag}", path.display()))
        };
        let TlsArguments {
            tls_cert,
            tls_key,
            client_ca,
        } = &self.tls;
        let (Some(certificate), Some(key)) = (tls_cert, tls_key) else {
            return Ok(None);
        };
        let client_ca = client_ca.as_deref();
        Ok(Some(Tls {
            certificate: read("--tls-cert", certificate)?,
            key: read("--tls-key", key)?,
            client_ca: client_ca
                .map(|path| read("--client-ca", path))
                .transpose()?,
        }))
    }
}

/// In the order of their numbers, from 1.
const CODES: [&str; 16] = [
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

fn code(text: &str) -> Result<Code, String> {
    let numbered = (1..).zip(CODES);
    let found = numbered.into_iter().find(|(_, name)| *name == text);
    let (number, _) = found.ok_or_else(|| format!("one of {}", CODES.join(", ")))?;
    Ok(Code::from_i32(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_code_but_ok_has_its_name() {
        assert_eq!(code("CANCELLED"), Ok(Code::Cancelled));
        assert_eq!(code("FAILED_PRECONDITION"), Ok(Code::FailedPrecondition));
        assert_eq!(code("UNAUTHENTICATED"), Ok(Code::Unauthenticated));
        assert!(code("OK").is_err() && code("unavailable").is_err());
    }

    #[test]
    fn a_key_without_a_certificate_is_refused() {
        for flags in [
            ["--tls-key", "k"],
            ["--tls-cert", "c"],
            ["--client-ca", "a"],
        ] {
            let all = ["feed-server", "--store", "s"].into_iter().chain(flags);
            assert!(Arguments::try_parse_from(all).is_err(), "{flags:?}");
        }
    }
}
