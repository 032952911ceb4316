//! A connection's bytes: tells HTTP/2 by its first ones, and counts as open until it is dropped.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::activity::Activity;

/// How every HTTP/2 connection begins (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// TCP, a Unix socket, or TLS over one of them.
pub(super) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

pub(super) struct Wire {
    transport: Box<dyn Transport>,
    activity: Arc<Activity>,
    /// What is still to come of the preface. Empty when the question is settled.
    preface: &'static [u8],
    is_blocked: bool,
    _counted: TaskTrackerToken,
}

impl Wire {
    pub(super) fn new(
        transport: Box<dyn Transport>,
        activity: Arc<Activity>,
        counted: TaskTrackerToken,
    ) -> Self {
        Self {
            transport,
            activity,
            preface: PREFACE,
            is_blocked: false,
            _counted: counted,
        }
    }

    fn look(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.activity.heard();
        if self.preface.is_empty() {
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

    fn transport(self: Pin<&mut Self>) -> Pin<&mut dyn Transport> {
        Pin::new(&mut *self.get_mut().transport)
    }

    fn written<T>(mut self: Pin<&mut Self>, polled: Poll<T>) -> Poll<T> {
        let is_blocked = polled.is_pending();
        if self.is_blocked != is_blocked {
            self.is_blocked = is_blocked;
            self.activity.block(is_blocked);
        }
        polled
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let before = buffer.filled().len();
        ready!(self.as_mut().transport().poll_read(cx, buffer))?;
        self.look(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let polled = self.as_mut().transport().poll_write(cx, bytes);
        self.written(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let polled = self.as_mut().transport().poll_write_vectored(cx, slices);
        self.written(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let polled = self.as_mut().transport().poll_flush(cx);
        self.written(polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.transport().poll_shutdown(cx)
    }
}
