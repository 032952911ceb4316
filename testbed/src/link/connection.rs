use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::{State, Way};

type View = watch::Receiver<State>;

/// Carries one client's connection until both sides have closed it, one has reset it, or the link resets it.
///
/// `resets` is how often the link had been reset when this one was accepted.
pub(super) async fn carry(client: TcpStream, server: SocketAddr, view: View, resets: u64) {
    let mut link = view.clone();
    tokio::select! {
        _ = link.wait_for(|state| state.resets != resets) => {}
        _ = connect_and_pump(End::new(client), server, &view) => {}
    }
}

async fn connect_and_pump(mut client: End, server: SocketAddr, view: &View) -> Result<(), Broken> {
    // As with a lost SYN, a connection made while nothing passes reaches the server after the fault.
    let mut first = view.clone();
    first
        .wait_for(|state| matches!(state.to_server, Way::Pass { .. }))
        .await
        .map_err(|_| Broken)?;
    let mut server = End::new(TcpStream::connect(server).await?);
    client.stream.set_nodelay(true)?;
    server.stream.set_nodelay(true)?;
    {
        let (from_client, to_client) = client.stream.split();
        let (from_server, to_server) = server.stream.split();
        tokio::try_join!(
            pump(from_client, to_server, view.clone(), |state| state
                .to_server),
            pump(from_server, to_client, view.clone(), |state| state
                .to_client),
        )?;
    }
    client.in_order = true;
    server.in_order = true;
    Ok(())
}

/// One end of the connection: dropped, it is reset unless the connection ended in order.
struct End {
    stream: TcpStream,
    in_order: bool,
}

impl End {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            in_order: false,
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.in_order {
            let _ = self.stream.set_zero_linger();
        }
    }
}

/// The connection ends with a reset instead of a close.
struct Broken;

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Self
    }
}

enum Chunk {
    Bytes(Vec<u8>),
    End,
    Broken,
}

async fn pump(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    view: View,
    way: fn(&State) -> Way,
) -> Result<(), Broken> {
    // Bounded, so that a stalled half pushes back on its sender as a full socket does.
    let (chunks, arrivals) = mpsc::channel(16);
    let (_, outcome) = tokio::join!(read(from, chunks), write(to, arrivals, view, way));
    outcome
}

async fn read(mut from: ReadHalf<'_>, chunks: mpsc::Sender<(Instant, Chunk)>) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let chunk = match from.read(&mut buffer).await {
            Ok(0) => Chunk::End,
            Ok(length) => Chunk::Bytes(buffer[..length].to_vec()),
            Err(_) => Chunk::Broken,
        };
        let last = !matches!(chunk, Chunk::Bytes(_));
        if chunks.send((Instant::now(), chunk)).await.is_err() || last {
            return;
        }
    }
}

async fn write(
    mut to: WriteHalf<'_>,
    mut arrivals: mpsc::Receiver<(Instant, Chunk)>,
    mut view: View,
    way: fn(&State) -> Way,
) -> Result<(), Broken> {
    let mut silent = false;
    while let Some((arrived, chunk)) = arrivals.recv().await {
        let passes = pass(arrived, &mut view, way).await;
        silent |= !passes;
        match chunk {
            Chunk::Bytes(_) if silent => {}
            Chunk::Bytes(bytes) => to.write_all(&bytes).await?,
            Chunk::End if !silent => return Ok(to.shutdown().await?),
            Chunk::End | Chunk::Broken => {
                let _ = view
                    .wait_for(|state| matches!(way(state), Way::Pass { .. }))
                    .await;
                return Err(Broken);
            }
        }
    }
    Err(Broken)
}

/// Waits until it is decided what becomes of something that arrived then: true if it passes, false if it is lost.
async fn pass(arrived: Instant, view: &mut View, way: fn(&State) -> Way) -> bool {
    loop {
        let now = way(&view.borrow_and_update());
        let due = match now {
            Way::Swallow => return false,
            Way::Pass {
                delay: Duration::ZERO,
            } => return true,
            Way::Pass { delay } => Some(arrived + delay),
            Way::Hold => None,
        };
        let changed = view.changed();
        match due {
            Some(due) => tokio::select! {
                () = sleep_until(due) => return true,
                changed = changed => if changed.is_err() { return false },
            },
            None => {
                if changed.await.is_err() {
                    return false;
                }
            }
        }
    }
}
