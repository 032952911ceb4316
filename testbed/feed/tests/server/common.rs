//! A server that does not outlive its test, and requests to it that do not hang.

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use feed::payload;
use feed::proto::feed_client::FeedClient;
use feed::proto::{AckRequest, DrainRequest, DrainResponse, Message, SubscribeRequest};
use rustix::process::{Pid, Signal, kill_process};
use soloist_worker::metadata;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

/// Far more than anything takes, also on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    directory: Option<tempfile::TempDir>,
}

impl Server {
    /// With a store of its own.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut server = Self::start_on(&directory.path().join("store"), flags);
        server.directory = Some(directory);
        server
    }

    pub(crate) fn start_on(store: &Path, flags: &[&str]) -> Self {
        let mut command = command(store, flags);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        // Now, so that it is ended also when it says nothing.
        let mut server = Self {
            child,
            address: String::new(),
            directory: None,
        };
        let (said, line) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).unwrap();
            said.send(line)
        });
        let line = line.recv_timeout(DEADLINE).unwrap();
        let address = line.strip_prefix("feed-server: listening on ");
        server.address = address.expect(&line).trim_end().to_owned();
        server
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.directory.as_ref().unwrap().path().join("store")
    }

    pub(crate) async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        soon(endpoint.connect()).await.unwrap()
    }

    /// With a connection of its own.
    pub(crate) async fn client(&self, token: u64) -> Client {
        Client {
            inner: FeedClient::new(self.channel().await),
            token,
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) async fn wait(mut self) -> ExitStatus {
        let wait = async {
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon(wait).await
    }

    /// SIGKILL, and the process is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn command(store: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feed-server"));
    command
        .args(["--listen", "127.0.0.1:0", "--store"])
        .arg(store);
    command.args(flags);
    command
}

/// One worker, with the token of its term.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) inner: FeedClient<Channel>,
    pub(crate) token: u64,
}

impl Client {
    pub(crate) fn sign<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert(metadata::TOKEN, self.token.into());
        request
    }

    pub(crate) async fn subscribe(&mut self, after: u64) -> Result<Messages, Status> {
        let subscription = "orders".to_owned();
        let request = self.sign(SubscribeRequest {
            subscription,
            after,
        });
        let answer = soon(self.inner.subscribe(request)).await?;
        Ok(Messages {
            inner: answer.into_inner(),
            last: after,
        })
    }

    pub(crate) async fn ack(&mut self, position: u64) -> Result<u64, Status> {
        let request = self.sign(AckRequest { position });
        let answer = soon(self.inner.ack(request)).await?;
        Ok(answer.into_inner().acknowledged)
    }

    pub(crate) async fn drain(&mut self) -> Result<u64, Status> {
        let subscription = "orders".to_owned();
        let request = self.sign(DrainRequest { subscription });
        let answer = soon(self.inner.drain(request)).await?;
        let DrainResponse { last } = answer.into_inner();
        Ok(last)
    }
}

#[derive(Debug)]
pub(crate) struct Messages {
    inner: Streaming<Message>,
    pub(crate) last: u64,
}

impl Messages {
    /// The next message, of which order and payload are right.
    pub(crate) async fn next(&mut self) -> Result<Option<Message>, Status> {
        let message = soon(self.inner.message()).await?;
        if let Some(message) = &message {
            assert_eq!(message.position, self.last + 1);
            let position = message.position;
            assert!(payload::is_right(
                payload::DEFAULT_SEED,
                position,
                &message.payload
            ));
            self.last = position;
        }
        Ok(message)
    }

    pub(crate) async fn read_to(&mut self, position: u64) {
        while self.last < position {
            self.next().await.unwrap().unwrap();
        }
    }

    /// Reads to the end, which is to be OK.
    pub(crate) async fn read_to_end(mut self) -> u64 {
        while self.next().await.unwrap().is_some() {}
        self.last
    }

    /// Reads to the end, which is to be an error.
    pub(crate) async fn error(&mut self) -> Status {
        loop {
            match self.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended with OK after {}", self.last),
                Err(status) => return status,
            }
        }
    }
}

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    let limited = tokio::time::timeout(DEADLINE, future);
    limited.await.expect("it takes too long")
}
