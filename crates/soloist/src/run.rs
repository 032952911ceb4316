//! `soloist run`: one loop around the replica's machine, [`Node`]. What is decided is decided there.

use std::fmt;
use std::future::pending;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use soloist_core::ids::{Identity, TreeId};
use soloist_core::node::{Node, Notice, Output, TreeCommand, TreeEvent};
use soloist_core::replica::{Outcome, StateName};
use soloist_core::time::{Human, Moment};
use soloist_elector::carrier::{Arrival, StoreCarrier};
use soloist_elector::clock::{self, Timer};
use soloist_process::{Signal, Terminal};
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use crate::control::protocol::{self, Request};
use crate::control::{Asked, Control};
use crate::cordon::Move;
use crate::ending::Ending;
use crate::in_cluster::{Due, InCluster};
use crate::listener::ListenAddress;
use crate::observers::Observers;
use crate::service_manager::ServiceManager;
use crate::settings::Settings;
use crate::signals::{Signalled, StopRequests};
use crate::trees::{Silence, Trees};

/// The exit code when `--wait` has run out.
const WAITED_IN_VAIN: u8 = 4;

/// So many things that came from the store are heard before time passes.
const MOST_ARRIVALS: usize = 64;

/// A tree's task has died without having said that the tree is empty.
#[derive(Debug)]
pub(crate) struct LostSight;

impl fmt::Display for LostSight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the task that watched the child's tree has died, so nobody knows what is left of it; all of it is killed, and the \
             lease, if there is one, is left to run out",
        )
    }
}

impl std::error::Error for LostSight {}

/// The exit code, when that is told.
pub(crate) fn waited_in_vain() -> u8 {
    warn!("we have not led within the time to wait");
    WAITED_IN_VAIN
}

/// Who may want something of us.
pub(crate) struct Inputs {
    pub(crate) signals: mpsc::UnboundedReceiver<Signalled>,
    pub(crate) control: Option<Control>,
}

/// One replica, with all that it needs.
pub(crate) struct Runner {
    settings: Settings,
    node: Node,
    /// `None` if there is no election.
    carrier: Option<StoreCarrier>,
    trees: Trees,
    signals: mpsc::UnboundedReceiver<Signalled>,
    control: Option<Control>,
    cluster: InCluster,
    ending: Ending,
    stop_requests: StopRequests,
    terminal: Option<Terminal>,
    observers: Observers,
    service_manager: ServiceManager,
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
    Arrival(Box<Arrival>),
    Tree(Result<Option<(TreeId, TreeEvent)>, Silence>),
    Signal(Signalled),
    Asked(Asked),
    Due(Due),
    /// The grace period that the Pod really has.
    Grace(Duration),
    Time,
}

impl Runner {
    pub(crate) fn new(
        settings: Settings,
        node: Node,
        carrier: Option<StoreCarrier>,
        trees: Trees,
        inputs: Inputs,
        cluster: InCluster,
        observers: Observers,
    ) -> Self {
        let Inputs { signals, control } = inputs;
        let terminal = Terminal::controlling();
        Self {
            observers,
            node,
            carrier,
            trees,
            signals,
            control,
            cluster,
            ending: Ending::new(settings.grace_period, settings.prestop)
                .by_kubelet(settings.kubelet_grace_period),
            stop_requests: StopRequests::new(terminal.is_some()),
            terminal,
            service_manager: ServiceManager::of_this_process(clock::now()),
            next_status: next_status(settings.log.log_status),
            wait_until: Moment::NEVER,
            waited_in_vain: false,
            settings,
        }
    }

    /// Who does not lead by then gives up.
    pub(crate) const fn waits_until(mut self, wait_until: Moment) -> Self {
        self.wait_until = wait_until;
        self
    }

    /// Runs until it is told to stop; the exit code.
    pub(crate) async fn run(mut self) -> anyhow::Result<u8> {
        let mut timer = Timer::new().context("no timer")?;
        // A standby is ready, too.
        self.service_manager.ready();
        loop {
            // Whoever is about to be stopped is not ready any more.
            self.turn();
            if let Some(code) = self.carry_out().await {
                self.cluster.finish().await;
                return Ok(code);
            }
            self.turn();
            let deadline = self.node.next_deadline().unwrap_or(Moment::NEVER);
            let wake = deadline
                .min(self.next_status)
                .min(self.wait_until)
                .min(self.observers.next_turn())
                .min(self.service_manager.next());
            // In no order, so that whoever is busy keeps nobody waiting. Time is looked at whatever has woken us.
            let woken = tokio::select! {
                arrival = next_arrival(&mut self.carrier) => Woken::Arrival(Box::new(arrival)),
                event = self.trees.next() => Woken::Tree(event),
                Some(signal) = self.signals.recv() => Woken::Signal(signal),
                asked = Control::next(&mut self.control) => Woken::Asked(asked),
                due = self.cluster.next() => Woken::Due(due),
                grace = self.ending.real_grace() => Woken::Grace(grace),
                rung = timer.until(wake) => { rung.context("no timer")?; Woken::Time }
            };
            // Read after waking: a candidate counts from after it saw.
            let now = clock::now();
            match woken {
                Woken::Arrival(arrival) => {
                    feed(&mut self.node, &mut self.observers, now, *arrival);
                }
                Woken::Tree(Ok(None)) => {}
                Woken::Tree(Ok(Some((tree, event)))) => {
                    self.observers.happened(now, tree, event);
                    if self.node.tree() == Some(tree) {
                        self.cluster.child(now, event);
                    }
                    self.node.handle_tree(now, tree, event);
                }
                Woken::Tree(Err(Silence)) => {
                    // Nothing may be released: the lease has to run out.
                    self.trees.kill_all();
                    return Err(LostSight.into());
                }
                Woken::Signal(signal) => self.signalled(now, signal),
                Woken::Asked(asked) => self.asked(now, asked),
                Woken::Due(Due::Heir(heir)) => self.node.name_heir(heir),
                Woken::Due(Due::Move(found)) => self.move_away(now, found),
                Woken::Due(Due::Stop(tree)) => {
                    self.trees.obey(&self.settings, tree, TreeCommand::Stop);
                }
                Woken::Grace(grace) => {
                    let left = self.ending.left_of(grace, now);
                    if grace < self.settings.grace_period {
                        info!(grace = %Human(grace), left = %Human(left), "the Pod has a shorter grace period");
                    }
                    self.node.handle_grace(now, left);
                }
                Woken::Time => {}
            }
            if let Some(carrier) = &mut self.carrier {
                hear_before_time_passes(&mut self.node, carrier, &mut self.observers).await;
            }
            self.pass_time(clock::now());
        }
    }

    fn turn(&mut self) {
        let ending = self.ending.is_near(clock::now());
        self.trees.set_ending(ending);
        self.cluster.set_ending(ending);
        self.node.give_way(ending);
        let processes = self.node.tree().and_then(|tree| self.trees.processes(tree));
        self.observers.turn(&self.node, ending, processes);
    }

    fn signalled(&mut self, now: Moment, signal: Signalled) {
        match signal {
            Signalled::Stop(signal) if self.stop_requests.is_new(now, signal) => {
                info!(%signal, "asked to stop");
                self.stop(now);
            }
            Signalled::Stop(signal) => debug!(%signal, "belongs to the request to stop"),
            Signalled::PassOn(signal) if self.is_hang_up(signal) => {
                info!("the terminal is closed: asked to stop");
                self.stop(now);
            }
            Signalled::PassOn(signal) => {
                if let Some(tree) = self.node.tree() {
                    debug!(%signal, "passed on to the child");
                    self.trees.signal(tree, signal);
                }
            }
        }
    }

    /// It may be too late for it: what has happened meanwhile comes first.
    fn move_away(&mut self, now: Moment, found: Move) {
        if self.node.state() == StateName::Leader {
            let Move {
                heir,
                node,
                leaving,
            } = &found;
            info!(node, why = %leaving, %heir, "our node is to be emptied: handing over");
            self.cluster.moves(&found);
            self.node.handle_handover(now, Some(found.heir));
        }
    }

    fn stop(&mut self, now: Moment) {
        self.service_manager.stopping();
        if let Some(left) = self.ending.stop(now, self.node.tree().is_some()) {
            info!(left = %Human(left), "left of the grace period after preStop");
            self.node.handle_grace(now, left);
        }
        self.cluster.asked_to_stop(self.node.tenure().is_some());
        self.node.handle_stop_signal(now);
    }

    fn asked(&mut self, now: Moment, asked: Asked) {
        let answer = match &asked.request {
            Request::Status => self.status(now),
            Request::PrestopBegins { max } => {
                info!("preStop: the Pod's end is near");
                let grace = self.settings.grace_period;
                if let Some(max) = max.filter(|max| *max >= grace) {
                    warn!(max = %Human(max), grace = %Human(grace), "the hook's --max is not less than the grace period: the kubelet would end both at once");
                }
                self.ending.prestop_begins(now);
                let mut answer = protocol::done();
                answer["listen_port"] = self.settings.listen.map(ListenAddress::port).into();
                answer
            }
            Request::PrestopSays(text) => {
                warn!("preStop: {}", text.escape_debug());
                protocol::done()
            }
            Request::PrestopEnds { took, report } => {
                info!(took = %Human(*took), "preStop: {}", report.escape_debug());
                self.ending.prestop_ends(now, *took);
                protocol::done()
            }
        };
        asked.answer(answer);
    }

    fn status(&self, now: Moment) -> Value {
        let term = self.node.term();
        json!({
            "version": protocol::VERSION,
            "name": self.settings.name,
            "identity": self.trees.identity().as_str(),
            "state": self.node.state().to_string(),
            "leader": self.node.holder().map(Identity::as_str),
            "term": term.map(|(term, _)| term.to_string()),
            "token": term.map(|(_, token)| token.to_string()),
            "ending": self.ending.is_near(now),
        })
    }

    /// Whether it is sent because our terminal was closed, and not by somebody who wants the child to do something.
    fn is_hang_up(&self, signal: Signal) -> bool {
        signal == Signal::HUP && self.terminal.as_ref().is_some_and(Terminal::is_closed)
    }

    fn pass_time(&mut self, now: Moment) {
        self.service_manager.alive(now);
        if self.node.is_due(now) {
            self.node.handle_timeout(now);
        }
        if now >= self.next_status {
            self.next_status = next_status(self.settings.log.log_status);
            self.observers.status(now, &self.node);
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
                Output::Store(command) => {
                    if let Some(carrier) = &mut self.carrier {
                        carrier.carry(command);
                    }
                }
                Output::Tree(tree, command) => {
                    self.observers.ordered(&self.node, tree, command);
                    if let Some(command) = self.cluster.command(clock::now(), tree, command) {
                        self.trees.obey(&self.settings, tree, command);
                    }
                }
                Output::Notice(notice) => self.noticed(&notice),
                Output::Exit(outcome) => return Some(self.exit(outcome)),
            }
        }
        // The write that ends a term or begins one goes first.
        if self.trees.has_housework() {
            if let Some(carrier) = &mut self.carrier {
                carrier.hand_on().await;
            }
            self.trees.do_housework(&self.settings);
        }
        None
    }

    fn noticed(&mut self, notice: &Notice) {
        let released = self.observers.has_released();
        self.cluster.notice(clock::now(), notice, released);
        self.observers.notice(notice);
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
}

async fn next_arrival(carrier: &mut Option<StoreCarrier>) -> Arrival {
    match carrier {
        Some(carrier) => carrier.next().await,
        None => pending().await,
    }
}

/// What is known comes before what time alone would do, whatever has woken us: no child is restarted while the
/// loss of the lease waits in the queue. Bounded, so that a busy watch does not hold up time.
async fn hear_before_time_passes(
    node: &mut Node,
    carrier: &mut StoreCarrier,
    observers: &mut Observers,
) {
    for _ in 0..MOST_ARRIVALS {
        if !node.is_due(clock::now()) {
            return;
        }
        let Some(arrival) = carrier.try_next().await else {
            return;
        };
        // Read after it came, again: a candidate counts from after it saw.
        feed(node, observers, clock::now(), arrival);
    }
}

fn feed(node: &mut Node, observers: &mut Observers, now: Moment, arrival: Arrival) {
    observers.arrived(now, &arrival);
    match arrival {
        Arrival::Answer { op, answer, .. } => node.handle_answer(now, op, answer),
        Arrival::Change { watch, snapshot } => node.handle_watch(now, watch, snapshot),
        Arrival::WatchEnded { watch, .. } => node.handle_watch_broken(now, watch),
    }
}

#[cfg(test)]
mod tests;
