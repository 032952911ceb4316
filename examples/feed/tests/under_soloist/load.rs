//! Clients of a web server that never rest, and count what became of every request.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

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
    /// One for as long as the server has it, with a pause of this length between requests.
    KeepAlive(Duration),
}

/// What became of all requests.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    answered: AtomicU64,
    /// Nobody listened: no connection, so no request.
    refused: AtomicU64,
    /// The server said `connection: close`.
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
            thread::spawn(move || client.ask_all(&questions, &is_over))
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

struct Client {
    address: SocketAddr,
    manner: Manner,
    counts: Arc<Counts>,
}

impl Client {
    fn ask_all(&self, questions: &[Question], is_over: &AtomicBool) {
        let mut kept = None;
        for question in questions.iter().cycle() {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let Some(stream) = kept.take().or_else(|| self.connect()) else {
                thread::sleep(REFUSED_PAUSE);
                continue;
            };
            match self.ask(stream, question) {
                Ok(stream) => {
                    add(&self.counts.answered);
                    kept = stream.and_then(|stream| self.keep(stream));
                }
                Err(error) => {
                    let text = format!("{:?}, {}: {error}", self.manner, question.path);
                    self.counts.cut.lock().unwrap().push(text);
                }
            }
        }
    }

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

    /// The connection, if it can be used once more.
    fn ask(&self, mut stream: TcpStream, question: &Question) -> io::Result<Option<TcpStream>> {
        let wish = match self.manner {
            Manner::Fresh => "close",
            Manner::KeepAlive(_) => "keep-alive",
        };
        let (path, address) = (&question.path, self.address);
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: {wish}\r\n\r\n");
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.write_all(request.as_bytes())?;
        let (head, mut body) = read_head(&mut stream)?;
        let length = field(&head, "content-length").and_then(|text| text.parse().ok());
        let length: usize = length.ok_or_else(|| io::Error::other(format!("no length: {head}")))?;
        let begun = body.len();
        body.resize(length.max(begun), 0);
        stream.read_exact(&mut body[begun..])?;
        if !head.starts_with("http/1.1 200 ") || body != question.body {
            return Err(io::Error::other(format!("a wrong answer: {head}")));
        }
        let may_go_on = field(&head, "connection") != Some("close");
        if let (false, Manner::KeepAlive(_)) = (may_go_on, self.manner) {
            add(&self.counts.announced);
        }
        Ok(may_go_on.then_some(stream))
    }

    /// Pauses. A connection that the server closes meanwhile is not used again.
    fn keep(&self, stream: TcpStream) -> Option<TcpStream> {
        let Manner::KeepAlive(pause) = self.manner else {
            let _ = stream.shutdown(Shutdown::Both);
            return None;
        };
        match pause.is_zero() {
            true => stream.set_nonblocking(true).unwrap(),
            false => stream.set_read_timeout(Some(pause)).unwrap(),
        }
        let looked = stream.peek(&mut [0]);
        stream.set_nonblocking(false).unwrap();
        match looked {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Some(stream),
            Ok(0) => {
                add(&self.counts.closed_idle);
                None
            }
            other => {
                let text = format!("{:?}, without a request: {other:?}", self.manner);
                self.counts.cut.lock().unwrap().push(text);
                None
            }
        }
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// The head in lower case, and what has come of the body with it.
fn read_head(stream: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    const END: &[u8] = b"\r\n\r\n";
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let end = bytes.windows(END.len()).position(|bytes| bytes == END);
        if let Some(end) = end {
            let body = bytes.split_off(end + END.len());
            let head = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
            return Ok((head, body));
        }
        let length = stream.read(&mut chunk)?;
        if length == 0 {
            let text = format!("closed after {} bytes of the answer's head", bytes.len());
            return Err(io::Error::other(text));
        }
        bytes.extend_from_slice(&chunk[..length]);
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(found, _)| *found == name)?;
    Some(value.trim())
}
