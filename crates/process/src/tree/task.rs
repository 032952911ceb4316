//! The task behind a [`Tree`](super::Tree): carries the guard's reports out, and stands in for a guard that
//! is lost or does not answer.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, kill_process, pidfd_open, waitid};
use soloist_clock as clock;
use soloist_core::keepalive::{Check, Keepalive};
use soloist_core::time::Moment;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};

use super::{Link, TreeEvent};
use crate::message::{Order, Received, Report};
use crate::{privileges, procfs, registry, sweep};

/// What the handle tells the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The guard was told to start the child.
    Start,
    /// The guard was told to kill the tree.
    Kill,
}

/// What the task tells the handle.
pub(super) struct Heard {
    pub(super) events: mpsc::UnboundedSender<TreeEvent>,
    pub(super) child: watch::Sender<Option<u32>>,
    pub(super) guard_start: watch::Sender<Option<u64>>,
}

pub(super) struct Task {
    guard: Pid,
    link: Link,
    told: mpsc::UnboundedReceiver<Told>,
    events: mpsc::UnboundedSender<TreeEvent>,
    child: watch::Sender<Option<u32>>,
    guard_start: watch::Sender<Option<u64>>,
    keepalive: Keepalive,
    /// Readable when the child has ended.
    child_end: Option<AsyncFd<OwnedFd>>,
    /// The guard has told of it.
    exited: bool,
    /// The guard has said its last word.
    ended: bool,
    /// The guard has closed its end, by dying if by nothing else.
    hung_up: bool,
    guard_killed: bool,
    /// People know that we may not signal them.
    refused: BTreeSet<u32>,
}

/// A kill that is under way.
struct Killing {
    since: Moment,
    next_pass: Moment,
}

impl Killing {
    fn begin() -> Self {
        let since = clock::now();
        Self {
            since,
            next_pass: since,
        }
    }
}

impl Task {
    pub(super) fn new(
        guard: Pid,
        link: Link,
        told: mpsc::UnboundedReceiver<Told>,
        heard: Heard,
        keepalive: Keepalive,
    ) -> Self {
        Self {
            guard,
            link,
            told,
            events: heard.events,
            child: heard.child,
            guard_start: heard.guard_start,
            keepalive,
            child_end: None,
            exited: false,
            ended: false,
            hung_up: false,
            guard_killed: false,
            refused: BTreeSet::new(),
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
        let mut killing: Option<Killing> = None;
        let mut handle_alive = true;
        loop {
            if registry::lock().reap_guard(self.guard) {
                let lost = Lost;
                // What it said last.
                self.hear_guard();
                return lost;
            }
            let next_pass = killing.as_ref().map(|killing| killing.next_pass);
            tokio::select! {
                biased;
                told = self.told.recv(), if handle_alive => match told {
                    Some(Told::Start) => self.keepalive.begin(),
                    Some(Told::Kill) => {
                        killing.get_or_insert_with(Killing::begin);
                        // Who dies slowly is no reason to do away with the guard; silence is.
                        self.ask_guard();
                    }
                    // The handle is dropped, and the socket with it.
                    None => {
                        handle_alive = false;
                        killing.get_or_insert_with(Killing::begin);
                    }
                },
                ready = self.link.readable.readable(), if !self.hung_up => {
                    if let Ok(mut ready) = ready {
                        ready.clear_ready();
                    }
                    self.hear_guard();
                    self.kill_guard_that_hung_up();
                }
                _ = self.link.children.recv() => {}
                () = end_of(self.child_end.as_ref()) => {
                    // The guard is about to tell of it, if it is there.
                    self.child_end = None;
                    self.ask_guard();
                }
                // Without the socket it cannot answer.
                () = at(self.keepalive.next_deadline()), if handle_alive && !self.ended => {
                    self.check_guard();
                }
                () = at(next_pass), if !self.ended => {}
            }
            if let Some(killing) = &mut killing
                && !self.ended
                && clock::now() >= killing.next_pass
            {
                self.kill_directly();
                let now = clock::now();
                killing.next_pass = now + sweep::pause(now.since(killing.since));
            }
        }
    }

    fn ask_guard(&mut self) {
        let check = self.keepalive.ask(clock::now());
        self.act_on(check);
    }

    fn check_guard(&mut self) {
        // It may have answered while we did not look.
        self.hear_guard();
        let check = self.keepalive.handle_timeout(clock::now());
        self.act_on(check);
    }

    fn act_on(&mut self, check: Option<Check>) {
        match check {
            None => {}
            Some(Check::Ask) => {
                // Should it not get through, there is no answer either.
                let _ = Order::Ping.send(&self.link.socket);
            }
            Some(Check::Replace) if !self.ended => self.kill_mute_guard(),
            Some(Check::Replace) => {}
        }
    }

    /// Its child dies with it, by the kernel's hand; the rest by ours, when it is reaped.
    fn kill_mute_guard(&mut self) {
        if !self.guard_killed {
            tracing::warn!(
                guard = self.guard.as_raw_nonzero(),
                "the guard does not answer; killing it, with its tree"
            );
        }
        self.kill_guard();
    }

    fn kill_guard(&mut self) {
        let registry = registry::lock();
        if registry.has_guard(self.guard) {
            self.guard_killed = true;
            let _ = kill_process(self.guard, rustix::process::Signal::KILL);
        }
    }

    fn kill_directly(&mut self) {
        let registry = registry::lock();
        if !registry.has_guard(self.guard) {
            return;
        }
        let refused = sweep::kill_below(&[self.guard], self.guard);
        let stopped = is_stopped(self.guard);
        drop(registry);
        self.tell_all_not_permitted(&refused);
        if stopped {
            self.kill_mute_guard();
        }
    }

    /// Kills and reaps all that the guard has left us.
    async fn without_guard(&mut self) {
        let since = clock::now();
        loop {
            let (left, refused) = registry::lock().kill_lost();
            self.tell_all_not_permitted(&refused);
            self.tell_exit();
            if !left {
                break;
            }
            tokio::select! {
                _ = self.link.children.recv() => {}
                () = tokio::time::sleep(sweep::pause(clock::now().since(since))) => {}
            }
        }
        self.tell(TreeEvent::Empty);
    }

    fn tell_all_not_permitted(&mut self, refused: &[Pid]) {
        for pid in refused {
            self.tell_not_permitted(pid.as_raw_nonzero().get().unsigned_abs());
        }
    }

    /// Once for each process.
    fn tell_not_permitted(&mut self, pid: u32) {
        if self.refused.insert(pid) {
            privileges::tell_not_permitted(pid);
        }
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
    fn kill_guard_that_hung_up(&mut self) {
        if self.hung_up && !self.ended && !self.events.is_closed() {
            self.kill_guard();
        }
    }

    fn hear(&mut self, report: Report) {
        self.keepalive.heard(clock::now());
        match report {
            Report::Pong => {}
            Report::Ready { started } => drop(self.guard_start.send_replace(Some(started))),
            Report::NotPermitted { pid } => self.tell_not_permitted(pid),
            Report::Started { pid } => {
                registry::lock().watch(pid);
                self.child_end = child_end(pid);
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

/// Whether this child of ours is stopped, by a signal or a debugger.
fn is_stopped(child: Pid) -> bool {
    // It may not be shown to us (`hidepid`), but its parent is told of a signal.
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(child), options), Ok(Some(_)))
        || procfs::stat(child).is_some_and(|stat| stat.stopped)
}

/// `None` if it is not there any more: then the guard has reaped it, and tells.
fn child_end(pid: u32) -> Option<AsyncFd<OwnedFd>> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    let fd = pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?;
    // As in [`Link::new`].
    #[allow(deprecated)]
    AsyncFd::with_interest(fd, Interest::READABLE).ok()
}

async fn end_of(child: Option<&AsyncFd<OwnedFd>>) {
    match child {
        Some(child) if child.readable().await.is_ok() => {}
        Some(_) | None => std::future::pending().await,
    }
}

async fn at(moment: Option<Moment>) {
    match moment {
        Some(moment) => tokio::time::sleep(moment.since(clock::now())).await,
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
