//! Clients of a web server that never rest, and count what became of every request.

use std::fmt;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

mod http1;
mod http2;

/// Shorter than the second after which a SYN is repeated: who is not answered asks anew.
const CONNECT_LIMIT: Duration = Duration::from_millis(500);
/// An answer that takes this long does not come.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Nobody listens; a client that asked again at once would only take the machine's time.
const REFUSED_PAUSE: Duration = Duration::from_millis(5);

/// What to ask for, and what must come.
pub(crate) struct Question {
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
}

/// How a client uses its connections.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manner {
    /// One for every request.
    Fresh,
    /// One for as long as the server has it. The next request follows after this time, as if it were on its way for so
    /// long: what the server does meanwhile comes too late for it.
    KeepAlive(Duration),
    /// The same, but one who notices when the server closes a connection on which nothing is asked.
    Idle(Duration),
    /// HTTP/2: one for as long as the server has it, with so many requests at the same time.
    Http2(usize),
}

/// What became of all requests.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    answered: AtomicU64,
    /// Nobody listened: no connection, so no request.
    refused: AtomicU64,
    /// The server said `connection: close`, or GOAWAY.
    announced: AtomicU64,
    /// The server closed a connection on which nothing was asked.
    closed_idle: AtomicU64,
    /// A connection, but no full and right answer.
    cut: Mutex<Vec<String>>,
}

impl Counts {
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Those without a full and right answer.
    pub(crate) fn cut(&self) -> Vec<String> {
        self.cut.lock().unwrap().clone()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [answered, refused, announced, idle] = [
            &self.answered,
            &self.refused,
            &self.announced,
            &self.closed_idle,
        ]
        .map(|count| count.load(Ordering::Relaxed));
        let cut = self.cut().len();
        write!(
            f,
            "{answered} requests answered, {cut} cut; {refused} connections refused, {announced} closed as announced, {idle} closed while idle"
        )
    }
}

/// Clients that ask until they are dropped.
pub(crate) struct Load {
    pub(crate) counts: Arc<Counts>,
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn begin(address: SocketAddr, questions: Vec<Question>, manners: &[Manner]) -> Self {
        let counts = Arc::new(Counts::default());
        let is_over = Arc::new(AtomicBool::new(false));
        let questions = Arc::new(questions);
        let client = |&manner: &Manner| {
            let client = Client {
                address,
                manner,
                counts: counts.clone(),
            };
            let (is_over, questions) = (is_over.clone(), questions.clone());
            thread::spawn(move || match manner {
                Manner::Http2(many) => http2::ask(&client, many, &questions, &is_over),
                _ => http1::ask(&client, &questions, &is_over),
            })
        };
        let clients = manners.iter().map(client).collect();
        Self {
            counts,
            is_over,
            clients,
        }
    }

    /// Every client has its last answer when this returns.
    pub(crate) fn end(mut self) -> Arc<Counts> {
        self.is_over.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            client.join().unwrap();
        }
        self.counts.clone()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct Client {
    address: SocketAddr,
    manner: Manner,
    counts: Arc<Counts>,
}

impl Client {
    fn connect(&self) -> Option<TcpStream> {
        match TcpStream::connect_timeout(&self.address, CONNECT_LIMIT) {
            Ok(stream) => {
                stream.set_nodelay(true).unwrap();
                Some(stream)
            }
            Err(error) => {
                let kind = error.kind();
                let is_known = matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::TimedOut);
                assert!(is_known, "{error}");
                add(&self.counts.refused);
                None
            }
        }
    }

    fn cut(&self, path: &str, error: &dyn fmt::Display) {
        let text = format!("{:?}, {path}: {error}", self.manner);
        self.counts.cut.lock().unwrap().push(text);
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}
