//! Asks the soloist that runs in this container.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::geteuid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::address;
use super::protocol::Request;

/// Nobody waits longer for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Of an answer, in bytes.
const LONGEST_ANSWER: u64 = 64 * 1024;

/// Why nobody could be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAsked {
    #[error("no soloist runs here: none has a control socket in this container")]
    Nobody,
    #[error("no soloist of the name {0} runs here")]
    NotThisOne(String),
    #[error("several soloists run here: say which with --identity")]
    Several,
    #[error("the control sockets cannot be looked for in /proc: {0}")]
    CannotLook(io::Error),
}

/// Why a question was not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAnswered {
    #[error("no answer within {PATIENCE:?}")]
    Late,
    #[error("{0}")]
    Broken(#[from] io::Error),
    #[error("the socket belongs to user {0}, who is neither we nor root")]
    Stranger(u32),
    #[error("{0}")]
    Refused(String),
}

/// One soloist that runs here.
#[derive(Debug)]
pub(crate) struct Running {
    address: PathBuf,
}

impl Running {
    /// The only one, or the one of this identity.
    pub(crate) async fn find(identity: Option<&str>) -> Result<Self, NotAsked> {
        let found = address::find().map_err(NotAsked::CannotLook)?;
        let asked = found.into_iter().map(async |address| {
            let running = Self { address };
            // A socket whose owner does not answer is nobody's.
            let status = running.ask(&Request::Status).await.ok()?;
            let is_meant = identity.is_none_or(|identity| status["identity"] == identity);
            is_meant.then_some(running)
        });
        // All at once, so that several that do not answer cost no more than one.
        let mut those: Vec<Self> = join_all(asked).await.into_iter().flatten().collect();
        match (those.pop(), identity) {
            (Some(running), _) if those.is_empty() => Ok(running),
            (Some(_), _) => Err(NotAsked::Several),
            (None, None) => Err(NotAsked::Nobody),
            (None, Some(identity)) => Err(NotAsked::NotThisOne(identity.to_owned())),
        }
    }

    pub(crate) async fn ask(&self, request: &Request) -> Result<Value, NotAnswered> {
        let asking = timeout(PATIENCE, self.exchange(request));
        let answer = asking.await.map_err(|_| NotAnswered::Late)??;
        match answer["error"].as_str() {
            Some(error) => Err(NotAnswered::Refused(error.to_owned())),
            None => Ok(answer),
        }
    }

    async fn exchange(&self, request: &Request) -> Result<Value, NotAnswered> {
        let mut stream = UnixStream::connect(&self.address).await?;
        let owner = stream.peer_cred()?.uid();
        if owner != geteuid().as_raw() && owner != 0 {
            return Err(NotAnswered::Stranger(owner));
        }
        stream.write_all(request.to_line().as_bytes()).await?;
        let mut line = String::new();
        let mut reader = BufReader::new(stream.take(LONGEST_ANSWER));
        reader.read_line(&mut line).await?;
        serde_json::from_str(&line).map_err(|error| NotAnswered::Broken(error.into()))
    }
}
