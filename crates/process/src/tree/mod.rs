//! One guard and its tree, seen from soloist.

mod task;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::process::Pid;
use soloist_core::keepalive::Keepalive;
use soloist_core::replica::Exit;
use soloist_core::time::Moment;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::message::{Order, SpawnError, Variables};
use crate::registry;
use crate::signal::Signal;
use crate::supervisor::StartError;

/// A guard and the tree that it guards.
///
/// Dropping it ends the tree: the guard takes that for soloist's end.
#[derive(Debug)]
pub struct Tree {
    guard: Pid,
    socket: Arc<OwnedFd>,
    task: mpsc::UnboundedSender<task::Told>,
    events: mpsc::UnboundedReceiver<TreeEvent>,
    child: watch::Receiver<Option<u32>>,
    guard_start: watch::Receiver<Option<u64>>,
}

/// What happens to a tree. The last is [`TreeEvent::SpawnFailed`] or [`TreeEvent::Empty`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeEvent {
    /// The child has become its program.
    Started {
        /// Its process, and its process group.
        pid: u32,
    },
    /// The child could not become its program. Nothing is left of it.
    SpawnFailed(SpawnError),
    /// The child itself has ended; others of its tree may live on.
    Exited(Exit),
    /// The guard is gone without a word, or was killed because it did not answer. The kernel kills the child; soloist is
    /// killing the rest.
    GuardLost,
    /// No process of the tree is left, or none was ever started.
    Empty,
}

/// soloist's end of the socket, and a stream of SIGCHLD: what the tree's task waits for.
pub(crate) struct Link {
    socket: Arc<OwnedFd>,
    readable: AsyncFd<Arc<OwnedFd>>,
    children: tokio::signal::unix::Signal,
}

impl Link {
    pub(crate) fn new(socket: Arc<OwnedFd>) -> io::Result<Self> {
        // Its successor is `unsafe` because of types whose descriptor may change under tokio. This one
        // stays open and the same until it is dropped.
        #[allow(deprecated)]
        let readable = AsyncFd::with_interest(Arc::clone(&socket), Interest::READABLE)?;
        Ok(Self {
            socket,
            readable,
            children: signal(SignalKind::child())?,
        })
    }
}

impl Tree {
    pub(crate) fn watch(guard: Pid, link: Link, keepalive: Keepalive) -> Self {
        let socket = Arc::clone(&link.socket);
        let (task, told) = mpsc::unbounded_channel();
        let (events_in, events) = mpsc::unbounded_channel();
        let (child_in, child) = watch::channel(None);
        let (guard_start_in, guard_start) = watch::channel(None);
        let heard = task::Heard {
            events: events_in,
            child: child_in,
            guard_start: guard_start_in,
        };
        tokio::spawn(task::run(task::Task::new(
            guard, link, told, heard, keepalive,
        )));
        Self {
            guard,
            socket,
            task,
            events,
            child,
            guard_start,
        }
    }

    /// The guard's process.
    #[must_use]
    pub fn guard_pid(&self) -> u32 {
        self.guard.as_raw_nonzero().get().unsigned_abs()
    }

    /// When the guard was started, as itself finds it in `/proc/self/stat`: in clock ticks since boot. `None` if it is gone without
    /// having said so.
    pub fn guard_start(&self) -> impl Future<Output = Option<u64>> + use<> {
        let mut start = self.guard_start.clone();
        async move { *start.wait_for(Option::is_some).await.ok()? }
    }

    /// The child's process, which is its process group too; `None` until it has started.
    #[must_use]
    pub fn child_pid(&self) -> Option<u32> {
        *self.child.borrow()
    }

    /// Lets the guard start the child, unless `deadline` has passed by then: the tree dies at that moment if no other
    /// is set. The variables are added to the command's own.
    ///
    /// # Errors
    /// When the guard cannot be told: then nothing is started. Also for what no program can be given as a variable, and
    /// for more of them than 4080 bytes.
    pub fn start(&self, deadline: Moment, variables: &[(&str, &str)]) -> Result<(), StartError> {
        let start = Variables::try_new(variables).map(|variables| Order::Start {
            deadline,
            variables,
        });
        start
            .and_then(|start| Ok(start.send(&self.socket)?))
            .map_err(StartError::new("it was not told to start the child"))?;
        let _ = self.task.send(task::Told::Start);
        registry::lock().note_strangers();
        Ok(())
    }

    /// Tells the guard to kill the tree at `deadline` instead of what it was told before. It does nothing before
    /// [`Tree::start`].
    ///
    /// Should it not get through, the earlier deadline stands.
    pub fn set_deadline(&self, deadline: Moment) {
        self.order(Order::Deadline(deadline));
        registry::lock().note_strangers();
    }

    /// Sends a signal to the child itself.
    pub fn signal(&self, signal: Signal) {
        self.order(Order::Signal(signal));
    }

    /// Sends the stop signal to the child's process group, and SIGCONT after it, so that a stopped child
    /// can follow it. A child that does not exist yet is never started.
    pub fn stop(&self, signal: Signal) {
        self.order(Order::Stop(signal));
    }

    /// Kills every process of the tree, through the guard and directly. The end of it is
    /// [`TreeEvent::Empty`]. A guard that is stopped or does not answer is killed as well.
    pub fn kill(&self) {
        self.order(Order::Kill);
        let _ = self.task.send(task::Told::Kill);
    }

    /// What happens next; `None` after the last event. May be cancelled: nothing is lost.
    pub async fn next_event(&mut self) -> Option<TreeEvent> {
        self.events.recv().await
    }

    fn order(&self, order: Order) {
        if let Err(errno) = order.send(&self.socket) {
            tracing::debug!(guard = self.guard_pid(), ?order, %errno, "the guard was not told");
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.events.close();
        // The task holds the socket as well, until the guard is reaped.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}
