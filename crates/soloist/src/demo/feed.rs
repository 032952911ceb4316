//! The feed: numbered messages on a Unix socket, for whoever has the highest token. The consumer says where it goes on.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Between two messages: what a time without a child is read from cannot be finer.
pub(super) const EVERY: Duration = Duration::from_millis(10);

/// To a consumer whose token is not the highest.
pub(super) const FENCED: &str = "fenced";

/// Runs until it is dropped.
pub(super) struct Feed {
    refused: Rc<Cell<u64>>,
    task: JoinHandle<()>,
}

impl Feed {
    /// On a `LocalSet`.
    pub(super) fn serve(path: &Path) -> anyhow::Result<Self> {
        let listener = UnixListener::bind(path)
            .with_context(|| format!("the feed's socket {}", path.display()))?;
        let highest = Rc::new(Cell::new(0));
        let refused = Rc::new(Cell::new(0));
        let counted = refused.clone();
        let task = tokio::task::spawn_local(async move {
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    let (highest, refused) = (highest.clone(), counted.clone());
                    // Who goes away is not waited for.
                    tokio::task::spawn_local(async move {
                        let _ = consumer(stream, &highest, &refused).await;
                    });
                }
            }
        });
        Ok(Self { refused, task })
    }

    /// So many were refused for their token.
    pub(super) fn refused(&self) -> u64 {
        self.refused.get()
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Its token and its position, then an acknowledgement for each message, one by one.
async fn consumer(stream: UnixStream, highest: &Cell<u64>, refused: &Cell<u64>) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    let Some(first) = lines.next_line().await? else {
        return Ok(());
    };
    let numbers = first.split_once(' ');
    let numbers = numbers.and_then(|(token, last)| Some((token.parse().ok()?, last.parse().ok()?)));
    let (token, mut last): (u64, u64) = numbers.ok_or(io::ErrorKind::InvalidData)?;
    loop {
        if token < highest.get() {
            refused.set(refused.get() + 1);
            return write.write_all(format!("{FENCED}\n").as_bytes()).await;
        }
        highest.set(token);
        let next = last + 1;
        write.write_all(format!("{next}\n").as_bytes()).await?;
        match lines.next_line().await? {
            Some(line) if line == next.to_string() => last = next,
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
            None => return Ok(()),
        }
        sleep(EVERY).await;
    }
}
