//! The signals that soloist gets.

use std::io;
use std::pin::Pin;

use soloist_process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signalled {
    /// SIGTERM or SIGINT: stop, and the second time at once.
    Stop(Signal),
    /// For the child.
    PassOn(Signal),
}

const STOPPING: [&str; 2] = ["TERM", "INT"];
const PASSED_ON: [&str; 7] = ["HUP", "QUIT", "USR1", "USR2", "WINCH", "ALRM", "URG"];

/// Listens from now on.
pub(crate) fn listen() -> io::Result<mpsc::UnboundedReceiver<Signalled>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let stop = STOPPING
        .iter()
        .map(|name| (name, Signalled::Stop as fn(Signal) -> Signalled));
    let pass = PASSED_ON
        .iter()
        .map(|name| (name, Signalled::PassOn as fn(Signal) -> Signalled));
    for (name, meaning) in stop.chain(pass) {
        let which: Signal = name.parse().map_err(io::Error::other)?;
        let mut stream = Box::pin(signal(SignalKind::from_raw(which.number()))?);
        let sender = sender.clone();
        tokio::spawn(async move {
            while Pin::as_mut(&mut stream).get_mut().recv().await.is_some() {
                if sender.send(meaning(which)).is_err() {
                    return;
                }
            }
        });
    }
    Ok(receiver)
}
