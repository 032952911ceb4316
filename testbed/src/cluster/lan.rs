//! The network between nodes: a namespace with a switch, and ways between it and the control plane, which stays on loopback.

use std::{
    fs::File,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener as StdListener},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::Stdio,
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream, UnixListener},
    sync::oneshot,
};

use super::machine::{network_of, run};
use crate::{
    Error,
    process::{Component, guarded},
};

/// The address of the API server on the nodes' network.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 1);

/// A node's address, by its number from 1 on.
pub(crate) fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 10, 0, 10 + number)
}

/// The network of a node's Pods, without its last number.
pub(crate) fn pod_network(number: u8) -> String {
    format!("10.20.{number}")
}

/// How the API server gets at kubelets and Pods.
pub(crate) fn egress(folder: &Path) -> String {
    format!(
        "apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: {}
",
        egress_socket(folder).display()
    )
}

fn egress_socket(folder: &Path) -> PathBuf {
    folder.join("egress.sock")
}

/// It ends with the process that holds its namespace, which is killed when this process ends.
#[derive(Debug)]
pub(crate) struct Lan {
    _to_apiserver: Carrier,
    _to_nodes: Carrier,
    holder: Component,
}

impl Lan {
    pub(crate) fn start(folder: &Path, apiserver: SocketAddr) -> Result<Self, Error> {
        let mut command = guarded("unshare");
        command.args(["--net", "--", "sh", "-c"]);
        command.arg("ip link set lo up && ip link add lan type bridge && ip address add \"$1\" dev lan && ip link set lan up && : >lan.up && exec sleep infinity");
        command.arg("lan").arg(format!("{GATEWAY}/24"));
        let mut holder = Component::start_command("lan", command, folder, Stdio::null())?;
        while !folder.join("lan.up").exists() {
            holder.check()?;
            thread::sleep(Duration::from_millis(5));
        }
        let network = network_of(holder.pid());
        Ok(Self {
            _to_apiserver: carry_to_apiserver(&network, apiserver)?,
            _to_nodes: carry_to_nodes(&network, &egress_socket(folder))?,
            holder,
        })
    }

    /// Plugs in the node with this number, whose first process this is.
    pub(crate) fn connect(&self, number: u8, first_process: u32) -> Result<(), Error> {
        let (port, pid) = (port(number), first_process.to_string());
        self.ip(&[
            "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &pid,
        ])?;
        self.ip(&["link", "set", &port, "master", "lan", "up"])?;
        let pods = format!("{}.0/24", pod_network(number));
        let node = address(number).to_string();
        self.ip(&["route", "add", &pods, "via", &node])
    }

    /// Pulls the plug, or puts it back.
    pub(crate) fn set_plugged(&self, number: u8, plugged: bool) -> Result<(), Error> {
        let state = if plugged { "up" } else { "down" };
        self.ip(&["link", "set", &port(number), state])
    }

    fn ip(&self, arguments: &[&str]) -> Result<(), Error> {
        let mut command = guarded("nsenter");
        command.arg(format!("--net={}", network_of(self.holder.pid()).display()));
        command.arg("ip").args(arguments);
        run(command, &format!("ip {}", arguments.join(" ")), &[]).map(drop)
    }
}

fn port(number: u8) -> String {
    format!("node-{number}")
}

/// A thread that carries connections from one side to the other until it is dropped.
#[derive(Debug)]
struct Carrier {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Carrier {
    fn start<F>(
        name: &str,
        network: Option<PathBuf>,
        serve: impl FnOnce() -> F + Send + 'static,
    ) -> Result<Self, Error>
    where
        F: Future<Output = io::Result<()>>,
    {
        let (stop, stopped) = oneshot::channel();
        let (begun, begin) = mpsc::channel();
        let work = move || {
            let runtime = network
                .map_or(Ok(()), |network| enter(&network))
                .and_then(|()| {
                    tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build()
                });
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(begun.send(Err(error))),
            };
            let _ = begun.send(Ok(()));
            runtime.block_on(async {
                tokio::select! {
                    outcome = serve() => if let Err(error) = outcome {
                        tracing::warn!(%error, "the network's way to or from the control plane has ended");
                    },
                    _ = stopped => {}
                }
            });
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
        let thread = thread.map_err(Error::io("start a thread for", name))?;
        let outcome = begin
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("its thread has ended")));
        outcome.map_err(Error::io("open", name))?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A socket is of the network in which its thread was when it made it.
fn enter(network: &Path) -> io::Result<()> {
    let file = File::open(network)?;
    Ok(move_into_link_name_space(
        file.as_fd(),
        Some(LinkNameSpaceType::Network),
    )?)
}

fn carry_to_apiserver(network: &Path, apiserver: SocketAddr) -> Result<Carrier, Error> {
    let (there, port) = (network.to_owned(), apiserver.port());
    let listen = move || {
        enter(&there)?;
        let listener = StdListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    let listener = thread::spawn(listen)
        .join()
        .expect("listening does not panic");
    let listener = listener.map_err(Error::io("listen in", network))?;
    Carrier::start("testbed-to-apiserver", None, move || async move {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let Ok((mut client, _)) = listener.accept().await else {
                continue;
            };
            tokio::spawn(async move {
                // Whose server is gone sees it by the end of the connection.
                let mut server = TcpStream::connect(apiserver).await?;
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                copy_bidirectional(&mut client, &mut server).await
            });
        }
    })
}

fn carry_to_nodes(network: &Path, socket: &Path) -> Result<Carrier, Error> {
    let listener =
        std::os::unix::net::UnixListener::bind(socket).map_err(Error::io("listen on", socket))?;
    listener
        .set_nonblocking(true)
        .map_err(Error::io("listen on", socket))?;
    Carrier::start(
        "testbed-to-nodes",
        Some(network.to_owned()),
        move || async move {
            let listener = UnixListener::from_std(listener)?;
            loop {
                let Ok((mut client, _)) = listener.accept().await else {
                    continue;
                };
                tokio::spawn(async move {
                    let target = connect_request(&mut client).await?;
                    let mut node = TcpStream::connect(&target).await?;
                    let _ = node.set_nodelay(true);
                    client
                        .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                        .await?;
                    copy_bidirectional(&mut client, &mut node).await
                });
            }
        },
    )
}

/// Reads `CONNECT HOST:PORT` and its headers, byte by byte: what follows is not ours.
async fn connect_request(client: &mut (impl AsyncReadExt + Unpin)) -> io::Result<String> {
    const LIMIT: usize = 8192;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < LIMIT {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head);
    let mut words = head.split_whitespace();
    match (words.next(), words.next()) {
        (Some("CONNECT"), Some(target)) => Ok(target.to_owned()),
        _ => Err(io::Error::other(format!("not a CONNECT: {head:?}"))),
    }
}
