//! `soloist run`: one loop around the replica's machine, [`Node`]. What is decided is decided there.

use std::time::Duration;

use anyhow::Context;
use soloist_core::ids::TreeId;
use soloist_core::node::{Node, Notice, Output, TreeEvent};
use soloist_core::replica::{Outcome, StateName};
use soloist_core::time::Moment;
use soloist_elector::carrier::{Arrival, StoreCarrier};
use soloist_elector::clock::{self, Timer};
use soloist_process::{Signal, Terminal};
use tokio::sync::mpsc;
use tracing::{debug, error, info, warn};

use crate::notices::Log;
use crate::settings::Settings;
use crate::signals::{Signalled, StopRequests};
use crate::trees::{Silence, Trees};

/// The exit code when `--wait` has run out.
const WAITED_IN_VAIN: u8 = 4;

/// The exit code when the child's tree may live on: it had to be killed, and nobody saw it die.
const LOST_SIGHT: u8 = 1;

/// So many things that came from the store are heard before time passes.
const MOST_ARRIVALS: usize = 64;

/// The exit code, when that is told.
pub(crate) fn waited_in_vain() -> u8 {
    warn!("we have not led within the time to wait");
    WAITED_IN_VAIN
}

/// One replica, with all that it needs.
pub(crate) struct Runner {
    settings: Settings,
    node: Node,
    carrier: StoreCarrier,
    trees: Trees,
    signals: mpsc::UnboundedReceiver<Signalled>,
    stop_requests: StopRequests,
    terminal: Option<Terminal>,
    log: Log,
    next_status: Moment,
    wait_until: Moment,
    waited_in_vain: bool,
}

fn next_status(every: Duration) -> Moment {
    match every.is_zero() {
        true => Moment::NEVER,
        false => clock::now() + every,
    }
}

enum Woken {
    Arrival(Arrival),
    Tree(Result<Option<(TreeId, TreeEvent)>, Silence>),
    Signal(Signalled),
    Time,
}

impl Runner {
    pub(crate) fn new(
        settings: Settings,
        node: Node,
        carrier: StoreCarrier,
        trees: Trees,
        signals: mpsc::UnboundedReceiver<Signalled>,
        wait_until: Moment,
    ) -> Self {
        let terminal = Terminal::controlling();
        Self {
            node,
            carrier,
            trees,
            signals,
            stop_requests: StopRequests::new(terminal.is_some()),
            terminal,
            log: Log::default(),
            next_status: next_status(settings.log.log_status),
            wait_until,
            waited_in_vain: false,
            settings,
        }
    }

    /// Runs until it is told to stop; the exit code.
    pub(crate) async fn run(mut self) -> anyhow::Result<u8> {
        let mut timer = Timer::new().context("no timer")?;
        loop {
            if let Some(code) = self.carry_out().await {
                return Ok(code);
            }
            let deadline = self.node.next_deadline().unwrap_or(Moment::NEVER);
            let wake = deadline.min(self.next_status).min(self.wait_until);
            // In no order, so that whoever is busy keeps nobody waiting. Time is looked at whatever has woken us.
            let woken = tokio::select! {
                arrival = self.carrier.next() => Woken::Arrival(arrival),
                event = self.trees.next() => Woken::Tree(event),
                Some(signal) = self.signals.recv() => Woken::Signal(signal),
                rung = timer.until(wake) => { rung.context("no timer")?; Woken::Time }
            };
            // Read after waking: a candidate counts from after it saw.
            let now = clock::now();
            match woken {
                Woken::Arrival(arrival) => self.arrived(now, arrival),
                Woken::Tree(Ok(None)) => {}
                Woken::Tree(Ok(Some((tree, event)))) => self.node.handle_tree(now, tree, event),
                Woken::Tree(Err(Silence)) => return Ok(self.lose_sight()),
                Woken::Signal(signal) => self.signalled(now, signal),
                Woken::Time => {}
            }
            self.hear_before_time_passes().await;
            self.pass_time(clock::now());
        }
    }

    /// What is known comes before what time alone would do, whatever has woken us: no child is restarted while the
    /// loss of the lease waits in the queue. Bounded, so that a busy watch does not hold up time.
    async fn hear_before_time_passes(&mut self) {
        for _ in 0..MOST_ARRIVALS {
            if !self.node.is_due(clock::now()) {
                return;
            }
            let Some(arrival) = self.carrier.try_next().await else {
                return;
            };
            // Read after it came, again: a candidate counts from after it saw.
            self.arrived(clock::now(), arrival);
        }
    }

    fn arrived(&mut self, now: Moment, arrival: Arrival) {
        self.log.arrived(now, &arrival);
        match arrival {
            Arrival::Answer { op, answer, .. } => self.node.handle_answer(now, op, answer),
            Arrival::Change { watch, snapshot } => self.node.handle_watch(now, watch, snapshot),
            Arrival::WatchEnded { watch, .. } => self.node.handle_watch_broken(now, watch),
        }
    }

    fn signalled(&mut self, now: Moment, signal: Signalled) {
        match signal {
            Signalled::Stop(signal) if self.stop_requests.is_new(now, signal) => {
                info!(%signal, "asked to stop");
                self.node.handle_stop_signal(now);
            }
            Signalled::Stop(signal) => debug!(%signal, "belongs to the request to stop"),
            Signalled::PassOn(signal) if self.is_hang_up(signal) => {
                info!("the terminal is closed: asked to stop");
                self.node.handle_stop_signal(now);
            }
            Signalled::PassOn(signal) => {
                if let Some(tree) = self.node.tree() {
                    debug!(%signal, "passed on to the child");
                    self.trees.signal(tree, signal);
                }
            }
        }
    }

    /// Whether it is sent because our terminal was closed, and not by somebody who wants the child to do something.
    fn is_hang_up(&self, signal: Signal) -> bool {
        signal == Signal::HUP && self.terminal.as_ref().is_some_and(Terminal::is_closed)
    }

    fn pass_time(&mut self, now: Moment) {
        if self.node.is_due(now) {
            self.node.handle_timeout(now);
        }
        if now >= self.next_status {
            self.next_status = next_status(self.settings.log.log_status);
            self.log.status(now, &self.node);
        }
        if now >= self.wait_until {
            self.wait_until = Moment::NEVER;
            if self.node.state() == StateName::Follower {
                waited_in_vain();
                self.waited_in_vain = true;
                self.node.handle_stop_signal(now);
            }
        }
    }

    /// Does what there is to do; the exit code, when that is all.
    async fn carry_out(&mut self) -> Option<u8> {
        while let Some(output) = self.node.poll_output() {
            match output {
                Output::Store(command) => self.carrier.carry(command),
                Output::Tree(tree, command) => self.trees.obey(&self.settings, tree, command),
                Output::Notice(notice) => self.noticed(&notice),
                Output::Exit(outcome) => return Some(self.exit(outcome)),
            }
        }
        // The write that ends a term or begins one goes first.
        if self.trees.has_housework() {
            self.carrier.hand_on().await;
            self.trees.do_housework(&self.settings);
        }
        None
    }

    fn noticed(&mut self, notice: &Notice) {
        self.log.notice(notice);
        match notice {
            Notice::Elected(_) => self.wait_until = Moment::NEVER,
            Notice::State {
                to: StateName::Leader,
                ..
            } => {
                if let Some(tree) = self.node.tree() {
                    self.trees.begin_checks(tree);
                }
            }
            Notice::State {
                from: StateName::Leader,
                ..
            } => self.trees.end_checks(),
            _ => {}
        }
    }

    fn exit(&self, outcome: Outcome) -> u8 {
        let code = match self.waited_in_vain {
            true => WAITED_IN_VAIN,
            false => outcome.code(),
        };
        info!(?outcome, code, "exiting");
        code
    }

    /// Nobody knows whether the tree is empty, so nothing may be released: the lease has to run out.
    fn lose_sight(&mut self) -> u8 {
        error!(
            "the task that watched the child's tree has died, so nobody knows what is left of it; its guard is told to kill \
             it, and the lease is left to run out"
        );
        self.trees.kill_all();
        LOST_SIGHT
    }
}
