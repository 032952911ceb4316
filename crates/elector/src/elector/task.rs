//! The elector's task: turns the election's events into terms.

use std::collections::VecDeque;
use std::future::pending;
use std::mem;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use soloist_core::election::{Elected, Loss};
use soloist_core::ids::Identity;
use soloist_core::time::Moment;
use soloist_core::timings::Timings;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinHandle};
use tracing::{debug, info, warn};

use super::builder::Callbacks;
use super::term::Reign;
use super::{Fate, Leadership, OwnTerm, Term};
use crate::clock::{self, Timer};
use crate::driver::{DriverEvent, DriverHandle};
use crate::repeats::Repeats;
use crate::store::{StoreError, WatchEnded};

#[derive(Debug)]
pub(super) enum Command {
    Lead(oneshot::Sender<Term>),
    Resign,
}

#[derive(Debug)]
enum Phase {
    /// Not a candidate.
    Idle,
    /// A candidate.
    Standing,
    /// Somebody has a term and has not finished it, whether or not it is lost by now.
    Reigning(Reign),
    /// Giving back what we hold.
    Leaving,
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) timings: Timings,
    /// From a shutdown to the end of the term.
    pub(super) drain: Duration,
}

/// Says so if the task panics, before those who wait for it learn that it is gone.
#[derive(Debug)]
struct OnPanic(Arc<OnceLock<Fate>>);

impl Drop for OnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.set(Fate::Died("it panicked".into()));
        }
    }
}

#[derive(Debug)]
pub(super) struct Task {
    /// The first to be dropped.
    _on_panic: OnPanic,
    driver: DriverHandle,
    events: mpsc::Receiver<DriverEvent>,
    commands: mpsc::UnboundedReceiver<Command>,
    leadership: watch::Sender<Leadership>,
    callbacks: Callbacks,
    limits: Limits,
    fate: Arc<OnceLock<Fate>>,
    /// The work of the callback.
    work: Option<JoinHandle<()>>,
    finished: (mpsc::UnboundedSender<()>, mpsc::UnboundedReceiver<()>),
    waiting: VecDeque<oneshot::Sender<Term>>,
    phase: Phase,
    closing: bool,
    /// A term that is not finished by then is left to run out.
    give_up_at: Moment,
    repeats: Repeats,
    /// With callbacks: not before this, so that work that ends at once does not spin.
    stand_at: Moment,
}

enum Woken {
    Command(Option<Command>),
    Event(Option<DriverEvent>),
    Finished,
    Worked(Result<(), JoinError>),
    /// Whoever waited longest has given up.
    GivenUp,
    Time,
}

impl Task {
    pub(super) fn new(
        driver: DriverHandle,
        events: mpsc::Receiver<DriverEvent>,
        commands: mpsc::UnboundedReceiver<Command>,
        leadership: watch::Sender<Leadership>,
        callbacks: Callbacks,
        limits: Limits,
        fate: Arc<OnceLock<Fate>>,
    ) -> Self {
        Self {
            _on_panic: OnPanic(Arc::clone(&fate)),
            driver,
            events,
            commands,
            leadership,
            callbacks,
            limits,
            fate,
            work: None,
            finished: mpsc::unbounded_channel(),
            waiting: VecDeque::new(),
            phase: Phase::Idle,
            closing: false,
            give_up_at: Moment::NEVER,
            repeats: Repeats::default(),
            stand_at: clock::now(),
        }
    }

    pub(super) async fn run(mut self) {
        let Ok(mut timer) = Timer::new() else {
            let reason = "no file descriptor left for a timer".into();
            let _ = self.fate.set(Fate::Died(reason));
            return;
        };
        while self.settle() {
            let wake = match (&self.phase, &self.callbacks.started) {
                (Phase::Idle, Some(_)) => self.stand_at,
                (Phase::Reigning(_), _) => self.give_up_at,
                _ => Moment::NEVER,
            };
            let woken = tokio::select! {
                biased;
                event = self.events.recv() => Woken::Event(event),
                worked = end_of(&mut self.work) => Woken::Worked(worked),
                _ = self.finished.1.recv() => Woken::Finished,
                command = self.commands.recv(), if !self.closing => Woken::Command(command),
                () = given_up(&mut self.waiting) => Woken::GivenUp,
                _ = timer.until(wake) => Woken::Time,
            };
            match woken {
                Woken::Command(command) => self.obey(command),
                Woken::Event(Some(event)) => self.learn(event),
                Woken::Event(None) => {
                    self.mourn().await;
                    return;
                }
                Woken::Finished => self.give_back(),
                Woken::Worked(worked) => self.worked(worked),
                Woken::GivenUp => {
                    self.waiting.pop_front();
                }
                Woken::Time if self.is_unfinished() => {
                    warn!("the term was not finished; its lease has to run out");
                    let _ = self.fate.set(Fate::Unfinished);
                    return;
                }
                Woken::Time => {}
            }
        }
        debug!("the elector has ended");
    }

    /// Stands or leaves as the wishes have changed; `false` when all is done.
    fn settle(&mut self) -> bool {
        let wanted = !self.closing
            && (!self.waiting.is_empty()
                || (self.callbacks.started.is_some() && clock::now() >= self.stand_at));
        match &self.phase {
            Phase::Idle if self.closing => return false,
            Phase::Idle if wanted => {
                self.driver.stand();
                self.phase = Phase::Standing;
            }
            Phase::Standing if !wanted => {
                self.driver.leave();
                self.phase = Phase::Leaving;
            }
            Phase::Idle | Phase::Standing | Phase::Reigning(_) | Phase::Leaving => {}
        }
        true
    }

    fn obey(&mut self, command: Option<Command>) {
        match command {
            Some(Command::Lead(waiting)) => self.waiting.push_back(waiting),
            Some(Command::Resign) => self.driver.resign(),
            None => self.close(),
        }
    }

    fn close(&mut self) {
        self.closing = true;
        self.give_up_at = clock::now() + self.limits.drain;
        self.waiting.clear();
        self.driver.resign();
    }

    fn is_unfinished(&self) -> bool {
        matches!(self.phase, Phase::Reigning(_)) && clock::now() >= self.give_up_at
    }

    /// Work that panicked has ended, too, but nobody should take that for an end in order.
    fn worked(&mut self, worked: Result<(), JoinError>) {
        self.work = None;
        if let Err(error) = worked {
            warn!(%error, "the work died");
            let _ = self.fate.set(Fate::Died(error.to_string()));
            self.close();
        }
    }

    fn learn(&mut self, event: DriverEvent) {
        match event {
            DriverEvent::Elected(elected) => self.begin(&elected),
            DriverEvent::Extended { valid_until } => {
                if let Phase::Reigning(reign) = &self.phase {
                    reign.extend(valid_until);
                }
            }
            DriverEvent::Lost(loss) => self.lose(&loss),
            DriverEvent::Left => {
                if matches!(self.phase, Phase::Leaving) {
                    self.phase = Phase::Idle;
                }
            }
            DriverEvent::Holder(holder) => self.see(holder),
            DriverEvent::Ordered(ordered) => info!(?ordered, "the term ends by order"),
            DriverEvent::OrderRefused(refusal) => warn!("{refusal}"),
            DriverEvent::Paused(Some(pause)) => info!(?pause, "paused: nobody takes over"),
            DriverEvent::Paused(None) => info!("the pause is over"),
            DriverEvent::Refused { error, .. } => self.complain(&error.to_string()),
            DriverEvent::Answered { error, .. } => self.note(error),
            DriverEvent::WatchEnded(ended @ WatchEnded::Refused(_)) => {
                self.complain(&ended.to_string());
            }
            DriverEvent::WatchEnded(ended) => debug!(%ended),
        }
    }

    fn begin(&mut self, elected: &Elected) {
        // Elected in the very moment in which we stopped wanting it: the release is under way.
        if !matches!(self.phase, Phase::Standing) {
            return;
        }
        let own = OwnTerm {
            number: elected.term,
            token: elected.token,
        };
        info!(term = %own.number, token = %own.token, claim = ?elected.claim, "leading");
        let (reign, term) = Reign::begin(
            elected,
            self.limits.timings.kill_margin(),
            self.finished.0.clone(),
        );
        self.phase = Phase::Reigning(reign);
        self.leadership.send_modify(|l| l.term = Some(own));
        self.hand_over(term);
    }

    fn hand_over(&mut self, mut term: Term) {
        while let Some(waiting) = self.waiting.pop_front() {
            match waiting.send(term) {
                Ok(()) => return,
                Err(back) => term = back,
            }
        }
        if let Some(started) = &mut self.callbacks.started {
            self.work = Some(tokio::spawn(started(term)));
        }
    }

    fn lose(&mut self, loss: &Loss) {
        if let Phase::Reigning(reign) = &self.phase {
            info!(?loss, "not leading any more");
            reign.cancel();
        }
        self.tell_stopped();
    }

    /// The work has ended.
    fn give_back(&mut self) {
        self.tell_stopped();
        if matches!(self.phase, Phase::Reigning(_)) {
            self.phase = Phase::Leaving;
            self.driver.leave();
            self.stand_at = clock::now() + self.limits.timings.retry_period();
        }
    }

    fn tell_stopped(&mut self) {
        let Phase::Reigning(reign) = &mut self.phase else {
            return;
        };
        if !mem::replace(&mut reign.stopped_told, true) {
            self.leadership.send_modify(|l| l.term = None);
            if let Some(stopped) = &mut self.callbacks.stopped {
                stopped();
            }
        }
    }

    fn see(&mut self, holder: Option<Identity>) {
        if let (Some(leader), Some(tell)) = (&holder, &mut self.callbacks.new_leader) {
            tell(leader);
        }
        match &holder {
            Some(leader) => info!(%leader, "the leader is"),
            None => info!("nobody leads"),
        }
        self.leadership.send_modify(|l| {
            l.leader = holder;
            l.since = SystemTime::now();
        });
    }

    fn complain(&mut self, refusal: &str) {
        if self.repeats.are_due(clock::now(), refusal) {
            warn!("{refusal}");
        }
    }

    fn note(&mut self, error: Option<StoreError>) {
        let trouble = error.filter(|e| !matches!(e, StoreError::LostRace(_)));
        self.leadership.send_if_modified(|l| {
            let changed = l.trouble != trouble;
            // A refusal has a line of its own.
            let told = matches!(&trouble, Some(StoreError::Refused(_)));
            if changed
                && !told
                && let Some(error) = &trouble
            {
                warn!(%error, "the store is in trouble");
            }
            l.trouble = trouble;
            changed
        });
    }

    /// The driver's task has ended though nobody asked it to.
    async fn mourn(self) {
        let reason = match self.driver.join().await {
            Ok(()) => "the election's task ended by itself".into(),
            Err(error) => error.to_string(),
        };
        warn!(%reason, "the election's task died");
        let _ = self.fate.set(Fate::Died(reason));
    }
}

async fn end_of(work: &mut Option<JoinHandle<()>>) -> Result<(), JoinError> {
    match work {
        Some(work) => work.await,
        None => pending().await,
    }
}

async fn given_up(waiting: &mut VecDeque<oneshot::Sender<Term>>) {
    match waiting.front_mut() {
        Some(front) => front.closed().await,
        None => pending().await,
    }
}
