//! The control socket of `soloist run`: whatever acts on a running replica is asked here, and becomes an input of its loop.
//!
//! One request a connection: a line of JSON, and a line of JSON back (`protocol.rs`). Only soloist's own user and root are answered,
//! as the kernel tells them, and only from the same PID namespace. A client that stalls holds up nobody: each has a task of its own,
//! little time and little room, and there are few at a time.

mod address;
pub(crate) mod client;
pub(crate) mod protocol;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::geteuid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::UCred;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use crate::socket_folder::SocketFolder;
pub(crate) use address::PREFIX;
use protocol::{LONGEST, Request, refusal};

/// Whoever has not asked and been answered by then is hung up on.
const PATIENCE: Duration = Duration::from_secs(1);
/// The others wait to be accepted.
const MOST_CLIENTS: usize = 16;
/// No descriptor is left, say: who tries again at once takes all of the machine's time.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);

/// Where requests arrive.
#[derive(Debug)]
pub(crate) struct Control {
    requests: mpsc::Receiver<Asked>,
    listening: JoinHandle<()>,
    // Removed with the socket.
    _folder: Option<SocketFolder>,
}

/// A request whose client waits.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) request: Request,
    answer: oneshot::Sender<Value>,
}

impl Asked {
    /// The client may have gone.
    pub(crate) fn answer(self, answer: Value) {
        let _ = self.answer.send(answer);
    }
}

impl Control {
    /// Where there can be none, everything else works.
    pub(crate) fn open() -> Option<Self> {
        let bound = address::bind();
        let (listener, folder) = bound
            .inspect_err(|error| warn!(%error, "no control socket: this replica cannot be asked for anything, and prestop does not find it"))
            .ok()?;
        let (sender, requests) = mpsc::channel(MOST_CLIENTS);
        Some(Self {
            requests,
            listening: tokio::spawn(listen(listener, sender)),
            _folder: folder,
        })
    }

    /// May be cancelled.
    pub(crate) async fn next(this: &mut Option<Self>) -> Asked {
        let asked = match this {
            Some(control) => control.requests.recv().await,
            None => None,
        };
        match asked {
            Some(asked) => asked,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn listen(listener: UnixListener, requests: mpsc::Sender<Asked>) {
    let places = Arc::new(Semaphore::new(MOST_CLIENTS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let requests = requests.clone();
                tokio::spawn(async move {
                    match timeout(PATIENCE, serve(stream, requests)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => debug!(%error, "a client of the control socket has gone"),
                        Err(_) => debug!("a client of the control socket stalls"),
                    }
                    drop(place);
                });
            }
            Err(error) => {
                debug!(%error, "the control socket cannot accept");
                sleep(PAUSE_AFTER_FAILURE).await;
            }
        }
    }
}

async fn serve(mut stream: UnixStream, requests: mpsc::Sender<Asked>) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    let (reader, mut writer) = stream.split();
    let mut line = String::new();
    let mut reader = BufReader::new(reader.take(LONGEST));
    reader.read_line(&mut line).await?;
    let answer = match Request::parse(&line) {
        _ if !is_believed(&peer) => {
            warn!(
                pid = peer.pid(),
                uid = peer.uid(),
                "a request on the control socket from another user, or from outside, is refused"
            );
            refusal("only soloist's own user and root are answered, from the same PID namespace")
        }
        Err(wrong) => refusal(&wrong),
        Ok(request) => {
            let (answer, answered) = oneshot::channel();
            // The loop has ended: there is nobody to answer.
            if requests.send(Asked { request, answer }).await.is_err() {
                return Ok(());
            }
            answered.await.map_err(io::Error::other)?
        }
    };
    writer.write_all(format!("{answer}\n").as_bytes()).await
}

/// A process of another PID namespace has no number here: on the host's network an abstract socket is everybody's.
fn is_believed(peer: &UCred) -> bool {
    let is_here = peer.pid().is_some_and(|pid| pid > 0);
    is_here && (peer.uid() == geteuid().as_raw() || peer.uid() == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream as StdStream;

    use serde_json::json;
    use tokio::time::Instant;

    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().unwrap()
    }

    async fn answer_to(line: &[u8]) -> String {
        let (mut client, server) = pair();
        let (sender, mut requests) = mpsc::channel(1);
        let serving = tokio::spawn(serve(server, sender));
        client.write_all(line).await.unwrap();
        let answering = async {
            while let Some(asked) = requests.recv().await {
                let request = format!("{:?}", asked.request);
                asked.answer(json!({ "heard": request }));
            }
        };
        let mut answer = String::new();
        tokio::join!(answering, async {
            serving.await.unwrap().unwrap();
        });
        client.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_request_is_answered_by_the_loop_and_nonsense_at_once() {
        let status = Request::Status.to_line();
        assert_eq!(
            answer_to(status.as_bytes()).await,
            "{\"heard\":\"Status\"}\n"
        );
        for nonsense in ["\n", "status\n", "{\"version\":7,\"request\":\"status\"}\n"] {
            let answer = answer_to(nonsense.as_bytes()).await;
            assert!(answer.contains("\"error\""), "{nonsense} {answer}");
        }
        let long = vec![b' '; LONGEST as usize];
        assert!(answer_to(&long).await.contains("\"error\""));
    }

    #[tokio::test]
    async fn a_client_that_stalls_is_hung_up_on_and_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let (sender, mut requests) = mpsc::channel(1);
        let listening = tokio::spawn(listen(listener, sender));
        // More than are served at a time, and none of them says a word.
        let silent: Vec<_> = (0..2 * MOST_CLIENTS)
            .map(|_| StdStream::connect(&path).unwrap())
            .collect();
        let began = Instant::now();
        let asking = async {
            let mut client = UnixStream::connect(&path).await.unwrap();
            client
                .write_all(Request::Status.to_line().as_bytes())
                .await
                .unwrap();
            client
        };
        let (_client, asked) = tokio::join!(asking, requests.recv());
        assert_eq!(asked.unwrap().request, Request::Status);
        assert!(began.elapsed() < 3 * PATIENCE, "{:?}", began.elapsed());
        drop(silent);
        listening.abort();
    }
}
