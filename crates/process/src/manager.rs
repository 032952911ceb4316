//! Start, stop with a timeout, wait: one child at a time, and nothing happens twice.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use soloist_core::replica::Exit;
use soloist_core::time::Moment;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::command::Command;
use crate::message::SpawnError;
use crate::signal::Signal;
use crate::supervisor::{StartError, Supervisor};
use crate::tree::{Tree, TreeEvent};

/// One program that is started and stopped, again and again.
///
/// A start while it starts or runs does nothing, and neither does a stop while it stops or is stopped. A
/// child that ends by itself takes the rest of its tree along.
#[derive(Debug)]
pub struct ProcessManager {
    supervisor: Supervisor,
    command: Command,
    stop_signal: Signal,
    orders: Mutex<mpsc::UnboundedSender<Order>>,
    status: watch::Sender<Status>,
}

/// Where the program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing of it exists.
    Stopped,
    /// It is about to exist.
    Starting,
    /// It runs.
    Running,
    /// It has been told to end, or has ended; something of its tree may be left.
    Stopping,
}

/// What came of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// There was nothing to stop, or somebody else was already stopping it.
    Nothing,
    /// It ended in time, with all its tree.
    Ended,
    /// It had to be killed.
    Killed,
}

#[derive(Clone, Copy, Debug)]
struct Status {
    state: State,
    /// Grows with every start.
    run: u64,
    /// Of the present run, or of the last one until there is a result of the present.
    end: End,
}

#[derive(Clone, Copy, Debug, Default)]
struct End {
    result: Option<Result<Exit, SpawnError>>,
    killed: bool,
}

#[derive(Debug)]
enum Order {
    Stop(Signal, Duration),
    Kill,
    Deadline(Moment),
    Signal(Signal),
}

impl ProcessManager {
    /// A manager of this program, which is stopped by SIGTERM.
    #[must_use]
    pub fn new(supervisor: Supervisor, command: Command) -> Self {
        let status = Status {
            state: State::Stopped,
            run: 0,
            end: End::default(),
        };
        Self {
            supervisor,
            command,
            stop_signal: Signal::TERM,
            orders: Mutex::new(mpsc::unbounded_channel().0),
            status: watch::Sender::new(status),
        }
    }

    /// Stops it by another signal.
    #[must_use]
    pub fn with_stop_signal(mut self, signal: Signal) -> Self {
        self.stop_signal = signal;
        self
    }

    /// Starts the program under a guard that kills it at `deadline`, unless it is told otherwise. Tells
    /// whether there was anything to start.
    ///
    /// # Errors
    /// When the guard cannot be started. That the program cannot be run is told by [`ProcessManager::wait`].
    pub fn start(&self, deadline: Moment) -> Result<bool, StartError> {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if self.state() != State::Stopped {
            return Ok(false);
        }
        let tree = self.supervisor.spawn(&self.command, deadline)?;
        let (sender, receiver) = mpsc::unbounded_channel();
        *orders = sender;
        self.status.send_modify(|status| {
            status.state = State::Starting;
            status.run += 1;
        });
        tokio::spawn(drive(tree, receiver, self.status.clone()));
        Ok(true)
    }

    /// Sends the stop signal to the child's group and waits until nothing is left of its tree. What is left
    /// after `timeout` is killed, also if the caller has stopped waiting.
    pub async fn stop(&self, timeout: Duration) -> Stop {
        let begun = self.status.send_if_modified(|status| {
            let stoppable = matches!(status.state, State::Starting | State::Running);
            if stoppable {
                status.state = State::Stopping;
            }
            stoppable
        });
        if !begun {
            return Stop::Nothing;
        }
        self.order(Order::Stop(self.stop_signal, timeout));
        match self.stopped().await.killed {
            true => Stop::Killed,
            false => Stop::Ended,
        }
    }

    /// Whether the program runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state() == State::Running
    }

    /// Where the program is.
    #[must_use]
    pub fn state(&self) -> State {
        self.status.borrow().state
    }

    /// Waits until it is stopped. Tells how the child ended or why it could not be run; `None` if it was
    /// never started, or too late.
    pub async fn wait(&self) -> Option<Result<Exit, SpawnError>> {
        self.stopped().await.result
    }

    /// Moves the guard's deadline.
    pub fn set_deadline(&self, deadline: Moment) {
        self.order(Order::Deadline(deadline));
    }

    /// Sends a signal to the child.
    pub fn signal(&self, signal: Signal) {
        self.order(Order::Signal(signal));
    }

    /// Kills the whole tree.
    pub fn kill(&self) {
        self.order(Order::Kill);
    }

    fn order(&self, order: Order) {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a child there is nobody to tell.
        let _ = orders.send(order);
    }

    /// Until this run has ended, even if the next one has begun by the time that we look.
    async fn stopped(&self) -> End {
        let mut status = self.status.subscribe();
        let run = status.borrow().run;
        let stopped = |status: &Status| status.state == State::Stopped || status.run != run;
        match status.wait_for(stopped).await {
            Ok(status) => status.end,
            // The sender is ours, and we are here.
            Err(_) => self.status.borrow().end,
        }
    }
}

async fn drive(
    mut tree: Tree,
    mut orders: mpsc::UnboundedReceiver<Order>,
    status: watch::Sender<Status>,
) {
    let mut end = End::default();
    let mut stop_ends: Option<Instant> = None;
    let mut managed = true;
    loop {
        tokio::select! {
            event = tree.next_event() => match event {
                Some(event) => hear(event, &mut end, &status),
                None => break,
            },
            order = orders.recv(), if managed => match order {
                Some(Order::Stop(signal, timeout)) => {
                    tree.stop(signal);
                    stop_ends = Some(Instant::now() + timeout);
                }
                Some(Order::Deadline(at)) => tree.set_deadline(at),
                Some(Order::Signal(signal)) => tree.signal(signal),
                Some(Order::Kill) => {
                    end.killed = true;
                    tree.kill();
                }
                None => {
                    managed = false;
                    tree.kill();
                }
            },
            () = tokio::time::sleep_until(stop_ends.unwrap_or_else(Instant::now)),
                if stop_ends.is_some() && !end.killed =>
            {
                end.killed = true;
                tree.kill();
            }
        }
    }
    status.send_modify(|status| {
        status.state = State::Stopped;
        status.end = end;
    });
}

fn hear(event: TreeEvent, end: &mut End, status: &watch::Sender<Status>) {
    let state = match event {
        TreeEvent::Started { .. } => State::Running,
        TreeEvent::SpawnFailed(error) => {
            end.result = Some(Err(error));
            State::Stopping
        }
        TreeEvent::Exited(exit) => {
            end.result = Some(Ok(exit));
            State::Stopping
        }
        TreeEvent::GuardLost | TreeEvent::Empty => State::Stopping,
    };
    status.send_if_modified(|status| {
        let forward = status.state != State::Stopping;
        if forward {
            status.state = state;
        }
        forward
    });
}
