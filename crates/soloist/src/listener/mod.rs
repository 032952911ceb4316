//! `--listen`: read-only HTTP for probes, people and Prometheus.
//!
//! It has a thread and a runtime of its own, and reads what the main loop has published ([`Published`]): whatever its clients do,
//! the loop neither waits for them nor works for them; and when the loop stands still, somebody is left to say so (`/livez`).
//! Nothing here acts: what acts is elsewhere, on a Unix socket.

mod address;
mod child;
mod connections;
mod events;
mod heartbeat;
mod metrics;
mod page;
mod published;
mod routes;
mod status;
mod timeline;
mod timeouts;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::{io, thread};

use anyhow::Context;
use tokio::runtime::Builder;
use tracing::{error, info};

pub(crate) use address::ListenAddress;
pub(crate) use child::Processes;
pub(crate) use heartbeat::BEAT_EVERY;
use published::Published;
pub(crate) use published::{About, Contact, Publisher, publish};
pub(crate) use timeouts::Timeouts;

/// All that the thread needs.
const STACK: usize = 256 << 10;

/// The address cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    #[error(
        "--listen {0}: the address is in use, by another program or by another soloist with the same flag. Name another port, or 0 for any \
         that is free"
    )]
    InUse(ListenAddress),
    #[error(
        "--listen {0}: {1}. Name an address of this machine and a port that this user may have"
    )]
    Refused(ListenAddress, #[source] io::Error),
}

/// A socket that clients can connect to already. They are answered when there is something to say.
pub(crate) struct Listener {
    socket: TcpListener,
}

impl Listener {
    pub(crate) fn bind(address: &ListenAddress) -> Result<Self, ListenError> {
        match address.bind() {
            Ok(socket) => Ok(Self { socket }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(ListenError::InUse(*address))
            }
            Err(error) => Err(ListenError::Refused(*address, error)),
        }
    }

    fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Answers from now on, until the process ends.
    pub(crate) fn serve(self, published: Published) -> anyhow::Result<()> {
        let address = self.address().context("the listener's address")?;
        self.socket.set_nonblocking(true).context("the listener")?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .context("no runtime for the listener")?;
        let serve = move || {
            let served = runtime.block_on(async {
                let socket = tokio::net::TcpListener::from_std(self.socket)?;
                connections::serve(socket, Arc::new(published)).await
            });
            if let Err(error) = served {
                error!(%error, "the listener has failed");
            }
        };
        thread::Builder::new()
            .name("listener".into())
            .stack_size(STACK)
            .spawn(serve)
            .context("no thread for the listener")?;
        info!(%address, "listening");
        Ok(())
    }
}
