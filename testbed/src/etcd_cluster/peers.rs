//! The ways between the members. Each member is reached by the others through a proxy, which knows by the head of the first request who
//! speaks: only so can *one* member be cut off from the others in both directions.

use std::{
    net::Ipv4Addr,
    sync::{Arc, OnceLock, mpsc},
    thread,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::Error;

/// A head is shorter.
const HEAD: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct Peers {
    cut_off: watch::Sender<Option<usize>>,
    ids: Arc<OnceLock<Vec<u64>>>,
    /// The thread ends when this goes.
    _end: tokio::sync::oneshot::Sender<()>,
}

impl Peers {
    /// From each member's port for the others to where it listens.
    pub(super) fn start(ways: Vec<(u16, u16)>) -> Result<Self, Error> {
        let (cut_off, state) = watch::channel(None);
        let ids = Arc::new(OnceLock::new());
        let (end, ended) = tokio::sync::oneshot::channel();
        let (opened, open) = mpsc::channel();
        let known = Arc::clone(&ids);
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build();
            let outcome = runtime.and_then(|runtime| {
                runtime.block_on(async {
                    for (to, (port, server)) in ways.into_iter().enumerate() {
                        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
                        let way = Way {
                            to,
                            server,
                            ids: Arc::clone(&known),
                            state: state.clone(),
                        };
                        tokio::spawn(accept(listener, way));
                    }
                    let _ = opened.send(Ok(()));
                    let _ = ended.await;
                    Ok(())
                })
            });
            if let Err(error) = outcome {
                let _ = opened.send(Err(error));
            }
        };
        thread::Builder::new()
            .name("testbed-etcd-peers".to_owned())
            .spawn(serve)
            .map_err(Error::io("start a thread for", "the ways between members"))?;
        open.recv()
            .expect("the thread says whether its ports are open")
            .map_err(Error::io("open a port for", "the ways between members"))?;
        Ok(Self {
            cut_off,
            ids,
            _end: end,
        })
    }

    /// By which numbers the members call themselves, in order.
    pub(super) fn name(&self, ids: Vec<u64>) {
        let _ = self.ids.set(ids);
    }

    pub(super) fn cut_off(&self, member: usize) {
        self.cut_off.send_replace(Some(member));
    }

    pub(super) fn join(&self) {
        self.cut_off.send_replace(None);
    }
}

#[derive(Clone)]
struct Way {
    to: usize,
    server: u16,
    ids: Arc<OnceLock<Vec<u64>>>,
    state: watch::Receiver<Option<usize>>,
}

async fn accept(listener: TcpListener, way: Way) {
    while let Ok((client, _)) = listener.accept().await {
        let way = way.clone();
        tokio::spawn(async move {
            let _ = way.carry(client).await;
        });
    }
}

impl Way {
    async fn carry(mut self, mut client: TcpStream) -> std::io::Result<()> {
        let mut head = Vec::new();
        while !head.windows(4).any(|four| four == b"\r\n\r\n") && head.len() < HEAD {
            if client.read_buf(&mut head).await? == 0 {
                return Ok(());
            }
        }
        let sender = sender(&String::from_utf8_lossy(&head));
        let (to, ids) = (self.to, self.ids);
        // The members meet before they are known here.
        let is_cut = move |cut: &Option<usize>| {
            let is_sender =
                |cut| ids.get().and_then(|ids: &Vec<u64>| ids.get(cut).copied()) == sender;
            cut.is_some_and(|cut| cut == to || sender.is_some() && is_sender(cut))
        };
        if is_cut(&self.state.borrow()) {
            return Ok(());
        }
        let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.server)).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        server.write_all(&head).await?;
        tokio::select! {
            ended = copy_bidirectional(&mut client, &mut server) => ended.map(drop),
            _ = self.state.wait_for(is_cut) => Ok(()),
        }
    }
}

/// Which member speaks.
fn sender(head: &str) -> Option<u64> {
    let line = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_it = name.eq_ignore_ascii_case("x-server-from");
        is_it.then_some(value.trim())
    });
    u64::from_str_radix(line?, 16).ok()
}
