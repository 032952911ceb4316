//! What a member says first. Of an HTTP/2 server that is a SETTINGS frame; whoever says something else is no etcd, and is told by that.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::connection::DialError;

/// The head of a frame: length, type, flags, stream.
const HEAD: usize = 9;
const SETTINGS: u8 = 4;
/// Of what a stranger says this much is shown.
const SHOWN: usize = 40;

/// A stream that passes everything on, and shows what came first.
pub(super) struct Greeted<S> {
    stream: S,
    heard: Vec<u8>,
    told: Option<oneshot::Sender<Vec<u8>>>,
}

/// What comes first.
pub(super) struct Greeting(oneshot::Receiver<Vec<u8>>);

pub(super) fn listen<S>(stream: S) -> (Greeted<S>, Greeting) {
    let (told, heard) = oneshot::channel();
    let greeted = Greeted {
        stream,
        heard: Vec::new(),
        told: Some(told),
    };
    (greeted, Greeting(heard))
}

impl Greeting {
    /// Waits until it has come.
    pub(super) async fn of_an_http2_server(self) -> Result<(), DialError> {
        let heard = self.0.await.unwrap_or_default();
        judge(&heard)
    }
}

fn judge(heard: &[u8]) -> Result<(), DialError> {
    if let [_, _, _, SETTINGS, _, 0, 0, 0, 0, ..] = heard {
        return Ok(());
    }
    Err(match heard {
        [] => DialError::Closed,
        // A TLS alert.
        [0x15, 3, ..] => DialError::Stranger("it wants TLS: give --etcd-ca".into()),
        _ => {
            let shown = &heard[..heard.len().min(SHOWN)];
            let text = String::from_utf8_lossy(shown);
            let line = text.lines().next().unwrap_or_default();
            DialError::Stranger(match heard.starts_with(b"HTTP/1") {
                true => format!(
                    "it speaks HTTP/1 ({line:?}), so this is another server, a proxy that does not pass HTTP/2 on, or wants TLS (--etcd-ca)"
                ),
                false => format!("it does not speak HTTP/2, but says {line:?}"),
            })
        }
    })
}

impl<S: AsyncRead + Unpin> AsyncRead for Greeted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        if self.told.is_some() {
            let new = buffer.filled().get(before..).unwrap_or_default();
            let ended = new.is_empty();
            self.heard.extend(new.iter().take(HEAD.max(SHOWN)));
            if (ended || self.heard.len() >= HEAD)
                && let Some(told) = self.told.take()
            {
                let _ = told.send(std::mem::take(&mut self.heard));
            }
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Greeted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(heard: &[u8]) -> String {
        judge(heard).unwrap_err().to_string()
    }

    #[test]
    fn only_settings_are_the_greeting_of_an_http2_server() {
        assert!(judge(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 5]).is_ok());
        assert!(told(b"HTTP/1.1 400 Bad Request\r\n").contains("speaks HTTP/1"));
        assert!(told(&[0x15, 3, 1, 0, 2, 2, 22]).contains("wants TLS"));
        assert!(told(b"SSH-2.0-OpenSSH_9.2\r\n").contains("but says \"SSH-2.0-OpenSSH_9.2\""));
        assert!(told(b"").contains("without a word"));
        assert!(told(&[0, 0, 6, 0, 0, 0, 0, 0, 1]).contains("does not speak HTTP/2"));
    }
}
