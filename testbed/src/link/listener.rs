use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::mpsc,
    time::Duration,
};

use rustix::net::{Shutdown, shutdown};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{mpsc as inbox, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{Command, Direction, Order, State, Way, connection};
use crate::Error;

pub(super) struct Proxy {
    server: SocketAddr,
    address: SocketAddr,
    listener: Option<TcpListener>,
    state: watch::Sender<State>,
    connections: JoinSet<()>,
    heal_at: Option<Instant>,
    /// Bound and never listening: keeps the port ours while the link is cut.
    _port: TcpSocket,
}

impl Proxy {
    /// Works until the link is dropped. Says on `opened` where it listens.
    pub(super) fn run(
        server: SocketAddr,
        state: watch::Sender<State>,
        orders: inbox::UnboundedReceiver<Order>,
        opened: &mpsc::Sender<Result<SocketAddr, Error>>,
    ) {
        let runtime = match tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
        {
            Ok(runtime) => runtime,
            Err(error) => {
                return drop(opened.send(Err(Error::io("start a runtime for", "a link")(error))));
            }
        };
        runtime.block_on(async {
            match Self::open(server, state) {
                Ok(proxy) => {
                    let _ = opened.send(Ok(proxy.address));
                    proxy.serve(orders).await;
                }
                Err(error) => drop(opened.send(Err(Error::io("open a port for", "a link")(error)))),
            }
        });
    }

    fn open(server: SocketAddr, state: watch::Sender<State>) -> io::Result<Self> {
        let port = bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = port.local_addr()?;
        let listener = Some(bind(address)?.listen(1024)?);
        let connections = JoinSet::new();
        Ok(Self {
            server,
            address,
            listener,
            state,
            connections,
            heal_at: None,
            _port: port,
        })
    }

    async fn serve(mut self, mut orders: inbox::UnboundedReceiver<Order>) {
        loop {
            tokio::select! {
                // Orders first: after `cut` returns, no connection may be accepted.
                biased;
                order = orders.recv() => {
                    let Some((command, done)) = order else { break };
                    let outcome = self.obey(command).await;
                    let _ = done.send(outcome);
                }
                () = wait_for(self.heal_at) => self.clear(),
                stream = accept(self.listener.as_ref()) => {
                    let resets = self.state.borrow().resets;
                    self.connections.spawn(connection::carry(stream, self.server, self.state.subscribe(), resets));
                }
                Some(_) = self.connections.join_next() => {}
            }
        }
        self.reset().await;
    }

    async fn obey(&mut self, command: Command) -> Result<(), Error> {
        self.heal_at = None;
        match command {
            Command::Cut => {
                if let Some(listener) = self.listener.take() {
                    // Closing is not enough: a process that is being started elsewhere has a copy until its exec.
                    let _ = shutdown(&listener, Shutdown::Both);
                }
                self.state.send_modify(|state| state.cut = true);
                self.reset().await;
                Ok(())
            }
            Command::Reset => {
                self.reset().await;
                Ok(())
            }
            Command::Heal => {
                self.clear();
                self.listen()
            }
            Command::Set(direction, way) => self.fault(direction, way),
            Command::StallFor(time) => {
                self.heal_at = Some(Instant::now() + time);
                self.fault(Direction::Both, Way::Hold)
            }
        }
    }

    fn fault(&mut self, direction: Direction, way: Way) -> Result<(), Error> {
        self.state.send_modify(|state| {
            *state = State {
                resets: state.resets,
                ..State::CLEAR
            };
            state.set(direction, way);
        });
        self.listen()
    }

    fn clear(&mut self) {
        self.heal_at = None;
        self.state.send_modify(|state| {
            *state = State {
                resets: state.resets,
                ..State::CLEAR
            }
        });
    }

    fn listen(&mut self) -> Result<(), Error> {
        if self.listener.is_none() {
            let listener = bind(self.address).and_then(|socket| socket.listen(1024));
            self.listener = Some(listener.map_err(Error::io("open again the port of", "a link"))?);
        }
        Ok(())
    }

    async fn reset(&mut self) {
        self.state.send_modify(|state| state.resets += 1);
        while self.connections.join_next().await.is_some() {}
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "a link cannot accept");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

async fn wait_for(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
