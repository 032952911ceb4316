//! The task behind a [`Tree`](super::Tree): carries the guard's reports out, and stands in for a guard that
//! is lost or does not answer.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, kill_process, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{Link, TreeEvent};
use crate::message::{Received, Report};
use crate::{procfs, registry, sweep};

/// How long a guard may take for a kill before it is killed itself, if it is not seen to be stopped. The tree
/// does not wait for that: it is killed directly from the start.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two passes of a kill: the first, doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Task {
    guard: Pid,
    link: Link,
    kills: mpsc::UnboundedReceiver<()>,
    events: mpsc::UnboundedSender<TreeEvent>,
    child: watch::Sender<Option<u32>>,
    exited: bool,
    ended: bool,
    /// The child's end, seen with our own eyes.
    sight: Option<AsyncFd<OwnedFd>>,
    /// By then a guard that works has told of it.
    told_by: Option<Instant>,
    /// The guard has closed its end, by dying if by nothing else.
    hung_up: bool,
}

impl Task {
    pub(super) fn new(
        guard: Pid,
        link: Link,
        kills: mpsc::UnboundedReceiver<()>,
        events: mpsc::UnboundedSender<TreeEvent>,
        child: watch::Sender<Option<u32>>,
    ) -> Self {
        Self {
            guard,
            link,
            kills,
            events,
            child,
            exited: false,
            ended: false,
            sight: None,
            told_by: None,
            hung_up: false,
        }
    }
}

/// Runs until the tree is empty and the guard is reaped.
pub(super) async fn run(mut task: Task) {
    let lost = task.with_guard().await;
    if !task.ended {
        tracing::warn!(
            guard = task.guard.as_raw_nonzero(),
            "the guard is gone; killing its tree"
        );
        task.tell(TreeEvent::GuardLost);
        task.without_guard().await;
    }
    drop(lost);
}

impl Task {
    /// Until the guard is reaped.
    async fn with_guard(&mut self) -> Lost {
        let mut killing: Option<Instant> = None;
        let mut handle_alive = true;
        loop {
            if registry::lock().reap_guard(self.guard) {
                let lost = Lost;
                // What it said last.
                self.hear_guard();
                return lost;
            }
            let pass = Instant::now() + FIRST_PAUSE;
            tokio::select! {
                biased;
                order = self.kills.recv(), if handle_alive => match order {
                    Some(()) => killing = killing.or(Some(Instant::now())),
                    // The handle is dropped, and the socket with it.
                    None => {
                        handle_alive = false;
                        killing = killing.or(Some(Instant::now()));
                    }
                },
                ready = self.link.readable.readable(), if !self.hung_up => {
                    if let Ok(mut ready) = ready {
                        ready.clear_ready();
                    }
                    self.hear_guard();
                    self.end_nonsense();
                }
                _ = self.link.children.recv() => {}
                () = end_of(self.sight.as_ref()), if self.told_by.is_none() => {
                    self.told_by = Some(Instant::now() + PATIENCE);
                }
                () = at(self.told_by), if !self.exited && !self.ended => self.end_silence(),
                () = tokio::time::sleep_until(pass), if killing.is_some() && !self.ended => {}
            }
            if let Some(since) = killing
                && !self.ended
            {
                self.kill_directly(since);
            }
        }
    }

    /// The child has ended and the guard does not tell: it is stopped, and would never tell.
    fn end_silence(&mut self) {
        self.told_by = Some(Instant::now() + PATIENCE);
        let registry = registry::lock();
        if registry.has_guard(self.guard) {
            tracing::warn!(
                guard = self.guard.as_raw_nonzero(),
                "the child has ended and its guard does not tell; killing it"
            );
            let _ = kill_process(self.guard, rustix::process::Signal::KILL);
        }
    }

    fn kill_directly(&self, since: Instant) {
        let registry = registry::lock();
        if !registry.has_guard(self.guard) {
            return;
        }
        sweep::kill_below(&[self.guard], self.guard);
        let stopped = procfs::stat(self.guard).is_some_and(|stat| stat.stopped);
        if stopped || since.elapsed() >= PATIENCE {
            tracing::warn!(
                guard = self.guard.as_raw_nonzero(),
                "the guard does not answer; killing it"
            );
            let _ = kill_process(self.guard, rustix::process::Signal::KILL);
        }
    }

    /// Kills and reaps all that the guard has left us.
    async fn without_guard(&mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let left = registry::lock().kill_lost();
            self.tell_exit();
            if !left {
                break;
            }
            tokio::select! {
                _ = self.link.children.recv() => {}
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            }
        }
        self.tell(TreeEvent::Empty);
    }

    fn tell_exit(&mut self) {
        let child = *self.child.borrow();
        if let Some(exit) = child.and_then(|pid| registry::lock().exit_of(pid))
            && !self.exited
        {
            self.exited = true;
            self.tell(TreeEvent::Exited(exit));
        }
    }

    fn hear_guard(&mut self) {
        while !self.hung_up {
            match Report::receive(&self.link.socket) {
                Received::Message(report) => self.hear(report),
                Received::Nothing => break,
                Received::Closed => self.hung_up = true,
            }
        }
    }

    /// A guard that has hung up is dead or not one of ours. The handle's end looks the same, and is not meant.
    fn end_nonsense(&self) {
        let registry = registry::lock();
        if self.hung_up && !self.ended && !self.events.is_closed() && registry.has_guard(self.guard)
        {
            let _ = kill_process(self.guard, rustix::process::Signal::KILL);
        }
    }

    fn hear(&mut self, report: Report) {
        match report {
            Report::Started { pid } => {
                registry::lock().watch(pid);
                self.sight = sight_of(pid);
                self.child.send_replace(Some(pid));
                self.tell(TreeEvent::Started { pid });
            }
            Report::SpawnFailed(error) => {
                self.ended = true;
                self.tell(TreeEvent::SpawnFailed(error));
            }
            Report::Exited(exit) => {
                self.exited = true;
                self.tell(TreeEvent::Exited(exit));
            }
            Report::Empty => {
                self.ended = true;
                self.tell(TreeEvent::Empty);
            }
        }
    }

    fn tell(&self, event: TreeEvent) {
        let _ = self.events.send(event);
    }
}

/// `None` if it is not there any more: then the guard has reaped it, and tells.
fn sight_of(pid: u32) -> Option<AsyncFd<OwnedFd>> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    let fd = pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?;
    // As in [`Link::new`].
    #[allow(deprecated)]
    AsyncFd::with_interest(fd, Interest::READABLE).ok()
}

async fn end_of(sight: Option<&AsyncFd<OwnedFd>>) {
    match sight {
        Some(sight) if sight.readable().await.is_ok() => {}
        Some(_) | None => std::future::pending().await,
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let mut registry = registry::lock();
        registry.forget_guard(self.guard);
        if let Some(pid) = *self.child.borrow() {
            registry.unwatch(pid);
        }
    }
}

/// While a tree has no guard and is not known to be empty; counted since the guard was reaped.
struct Lost;

impl Drop for Lost {
    fn drop(&mut self) {
        registry::lock().end_lost();
    }
}
