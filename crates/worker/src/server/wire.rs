//! A connection's bytes: tells HTTP/2 by its first ones, and counts as open until it is dropped.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::activity::Activity;

/// How every HTTP/2 connection begins (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    activity: Arc<Activity>,
    /// What is still to come of the preface. Empty when the question is settled.
    preface: &'static [u8],
    _counted: TaskTrackerToken,
}

impl Wire {
    pub(super) fn new(
        stream: TcpStream,
        activity: Arc<Activity>,
        counted: TaskTrackerToken,
    ) -> Self {
        Self {
            stream,
            activity,
            preface: PREFACE,
            _counted: counted,
        }
    }

    fn look(&mut self, bytes: &[u8]) {
        if self.preface.is_empty() || bytes.is_empty() {
            return;
        }
        let length = bytes.len().min(self.preface.len());
        let (expected, rest) = self.preface.split_at(length);
        if bytes[..length] != *expected {
            self.preface = &[];
            return;
        }
        self.preface = rest;
        if rest.is_empty() {
            self.activity.speaks_http2();
        }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let before = buffer.filled().len();
        ready!(self.as_mut().stream().poll_read(cx, buffer))?;
        self.look(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        self.stream().poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
