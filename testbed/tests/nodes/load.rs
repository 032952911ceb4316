//! Clients on a node that never rest, and know what became of every request. HTTP/1.1 here, as plain as can be.

mod grpc;
mod http2;

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A connection that takes this long does not come: whoever was sent to a Pod that is gone asks again. A SYN is repeated once by then.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// An answer that takes this long does not come.
const LIMIT: Duration = Duration::from_secs(10);
/// So many of each kind.
const CLIENTS: usize = 4;
/// Between two requests of one client.
const PAUSE: Duration = Duration::from_millis(20);

/// How a client uses its connections.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// One for every request.
    Fresh,
    /// One for as long as the server has it.
    KeepAlive,
    /// HTTP/2: the same.
    Http2,
    /// gRPC: the same, with calls side by side that take their time.
    Grpc,
}

/// Clients that ask until they are told to end.
pub(crate) struct Load {
    answered: Arc<Answered>,
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<Lost>>>,
}

/// A request without a full and right answer.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    /// It was sent, or may have been. Else nobody could be connected to.
    pub(crate) had_a_connection: bool,
    #[allow(dead_code, reason = "for who reads why a test failed")]
    why: String,
}

/// Requests that were answered, of all clients and of those that speak gRPC.
#[derive(Debug, Default)]
struct Answered {
    all: AtomicU64,
    grpc: AtomicU64,
    asked_again: AtomicU64,
    fresh: Mutex<Fresh>,
}

/// Answers to those who connect for each request.
#[derive(Debug, Default)]
struct Fresh {
    last: Option<Instant>,
    longest_gap: Duration,
}

/// What became of all requests.
pub(crate) struct Counts {
    pub(crate) answered: u64,
    /// Of them, by gRPC.
    pub(crate) grpc: u64,
    /// Calls of gRPC that never got to a server, so that the client asked again.
    pub(crate) asked_again: u64,
    pub(crate) lost: Vec<Lost>,
}

impl Load {
    /// From this network namespace to this address.
    pub(crate) fn begin(network: &Path, address: SocketAddr) -> Self {
        let (answered, is_over) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let manners = [
            Manner::Fresh,
            Manner::KeepAlive,
            Manner::Http2,
            Manner::Grpc,
        ]
        .repeat(CLIENTS);
        let clients = manners.into_iter().map(|manner| {
            let network = File::open(network).unwrap();
            let client = Client {
                address,
                manner,
                answered: Arc::clone(&answered),
                is_over: is_over.clone(),
                lost: Vec::new(),
            };
            thread::spawn(move || {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(network.as_fd(), kind).unwrap();
                match manner {
                    Manner::Fresh | Manner::KeepAlive => client.ask(),
                    Manner::Http2 => http2::ask(client),
                    Manner::Grpc => grpc::ask(client),
                }
            })
        });
        Self {
            clients: clients.collect(),
            answered,
            is_over,
        }
    }

    pub(crate) fn answered(&self) -> u64 {
        self.answered.all.load(Ordering::Relaxed)
    }

    /// The longest time since this was last asked in which nobody who connected had an answer.
    pub(crate) fn longest_gap(&self) -> Duration {
        let mut fresh = self.answered.fresh.lock().unwrap();
        std::mem::take(&mut fresh.longest_gap)
    }

    /// Every client has its last answer when this returns.
    pub(crate) fn end(mut self) -> Counts {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.clients.drain(..).map(|client| client.join().unwrap());
        Counts {
            lost: ended.flatten().collect(),
            answered: self.answered(),
            grpc: self.answered.grpc.load(Ordering::Relaxed),
            asked_again: self.answered.asked_again.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

struct Client {
    address: SocketAddr,
    manner: Manner,
    answered: Arc<Answered>,
    is_over: Arc<AtomicBool>,
    lost: Vec<Lost>,
}

impl Client {
    fn ask(mut self) -> Vec<Lost> {
        let mut kept = None;
        while !self.is_over.load(Ordering::Relaxed) {
            let began = Instant::now();
            let connected = match kept.take().filter(is_open) {
                Some(stream) => Ok(stream),
                None => TcpStream::connect_timeout(&self.address, CONNECT_WITHIN),
            };
            match connected.map(|stream| self.ask_once(stream)) {
                Ok(Ok(stream)) => {
                    self.count();
                    kept = stream;
                }
                Ok(Err(error)) => self.lose(began, true, &error),
                Err(error) => self.lose(began, false, &error),
            }
            thread::sleep(PAUSE);
        }
        self.lost
    }

    /// Another one of the same.
    fn share(&self) -> Self {
        Self {
            address: self.address,
            manner: self.manner,
            answered: self.answered.clone(),
            is_over: self.is_over.clone(),
            lost: Vec::new(),
        }
    }

    fn count(&self) {
        self.answered.all.fetch_add(1, Ordering::Relaxed);
        if matches!(self.manner, Manner::Grpc) {
            self.answered.grpc.fetch_add(1, Ordering::Relaxed);
        }
        if matches!(self.manner, Manner::Fresh) {
            let mut fresh = self.answered.fresh.lock().unwrap();
            if let Some(last) = fresh.last.replace(Instant::now()) {
                fresh.longest_gap = fresh.longest_gap.max(last.elapsed());
            }
        }
    }

    fn ask_again(&self) {
        self.answered.asked_again.fetch_add(1, Ordering::Relaxed);
    }

    fn lose(&mut self, began: Instant, had_a_connection: bool, why: &dyn std::fmt::Display) {
        let (manner, took) = (self.manner, began.elapsed());
        let at = std::time::SystemTime::now() - took;
        let at = at.duration_since(std::time::UNIX_EPOCH).unwrap();
        let at = Duration::from_secs(at.as_secs() % 3600)
            + Duration::from_millis(at.subsec_millis().into());
        let why = format!("{manner:?} at {at:?} of the hour, after {took:?}: {why}");
        self.lost.push(Lost {
            had_a_connection,
            why,
        });
    }

    /// The connection, if it can be used once more.
    fn ask_once(&self, mut stream: TcpStream) -> io::Result<Option<TcpStream>> {
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_nodelay(true)?;
        let wish = match self.manner {
            Manner::Fresh => "close",
            Manner::KeepAlive | Manner::Http2 | Manner::Grpc => "keep-alive",
        };
        let request = format!(
            "POST /count HTTP/1.1\r\nhost: web\r\ncontent-length: 0\r\nconnection: {wish}\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let may_go_on = read_answer(&mut stream)?;
        Ok(may_go_on.then_some(stream))
    }
}

/// What the server has closed meanwhile is not used again, as any client with a pool looks.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let seen = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    seen.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Whether the server goes on with the connection.
fn read_answer(stream: &mut TcpStream) -> io::Result<bool> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 1024];
    let (head, begun) = loop {
        if let Some(end) = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            break (head, bytes.len() - end - 4);
        }
        let read = stream.read(&mut chunk)?;
        if read == 0 {
            return Err(io::Error::other(format!(
                "closed after {} bytes",
                bytes.len()
            )));
        }
        bytes.extend_from_slice(&chunk[..read]);
    };
    if !head.starts_with("http/1.1 200 ") {
        return Err(io::Error::other(format!("a wrong answer: {head}")));
    }
    let field = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(':'));
        fields
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value.trim())
    };
    let length = field("content-length").and_then(|text| text.parse::<usize>().ok());
    let length = length.ok_or_else(|| io::Error::other("an answer without a length"))?;
    stream.read_exact(&mut vec![0; length.saturating_sub(begun)])?;
    Ok(field("connection") != Some("close"))
}
