//! Keys on the terminal, one by one, without Return.

use std::io::{IsTerminal, Read};
use std::thread;

use anyhow::Context;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// The terminal is as it was when this is dropped.
pub(super) struct Keys {
    before: Termios,
    pressed: mpsc::UnboundedReceiver<char>,
}

impl Keys {
    /// `None` without a terminal.
    pub(super) fn open() -> anyhow::Result<Option<Self>> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(&stdin).context("the terminal")?;
        let mut raw = before.clone();
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        tcsetattr(&stdin, OptionalActions::Now, &raw).context("the terminal")?;
        let (sender, pressed) = mpsc::unbounded_channel();
        let keys = Self { before, pressed };
        thread::Builder::new()
            .name("keys".into())
            .spawn(move || {
                let bytes = std::io::stdin().lock().bytes().map_while(Result::ok);
                for byte in bytes {
                    if sender.send(char::from(byte)).is_err() {
                        return;
                    }
                }
            })
            .context("a thread for the keys")?;
        Ok(Some(keys))
    }

    /// Nothing when the terminal is gone.
    pub(super) async fn next(&mut self) -> Option<char> {
        self.pressed.recv().await
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}
