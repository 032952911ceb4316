//! `soloist run`: carries events into the replica's table, and its actions out.

use std::time::Duration;

use anyhow::Context;
use soloist_core::election::{Config, Loss};
use soloist_core::ids::{Identity, InstanceId, PodUid, Term, Token};
use soloist_core::mutant::Defect;
use soloist_core::replica::{Action, Event, Replica, SpawnFailure, StateName};
use soloist_core::time::{Human, Moment};
use soloist_elector::clock::{self, Timer};
use soloist_elector::{DriverEvent, default_identity, random};
use soloist_process::Supervisor;
use tokio::sync::mpsc;
use tracing::{debug, error, info, warn};

use crate::child::{Child, Role};
use crate::settings::Settings;
use crate::signals::{self, Signalled};
use crate::store::Elections;

/// The exit code when `--wait` has run out.
const WAITED_IN_VAIN: u8 = 4;

/// Runs until it is told to stop; the exit code.
pub(crate) async fn run(settings: Settings) -> anyhow::Result<u8> {
    let signals = signals::listen().context("listening to signals")?;
    let supervisor = Supervisor::new()?;
    let instance = InstanceId::from_random(random::bits128()?);
    let identity = match &settings.identity {
        Some(identity) => identity.clone(),
        None => default_identity(instance)?,
    };
    let config = Config {
        identity: identity.clone(),
        instance,
        pod: own_pod(),
        timings: settings.policy.timings,
        seed: random::bits64()?,
        defect: Defect::NONE,
    };
    info!(name = settings.name, %identity, "{}", settings.ladder_in_words());
    let elections = Elections::begin(settings.place.clone(), config).await?;
    let (replica, first) = Replica::new(settings.policy);
    let runner = Runner {
        wait_until: settings
            .wait
            .map_or(Moment::NEVER, |wait| clock::now() + wait),
        next_status: next_status(settings.log.log_status),
        settings,
        identity,
        supervisor,
        elections,
        signals,
        replica,
        child: None,
        leader: None,
        exit: None,
        waited_in_vain: false,
    };
    runner.run(first).await
}

/// The Pod that we are alone in: as its first process, in a PID namespace of our own, whatever a former container of
/// it had started is dead.
fn own_pod() -> Option<PodUid> {
    let first = rustix::process::getpid().is_init();
    let uid = std::env::var("POD_UID").unwrap_or_default();
    PodUid::new(&uid).filter(|_| first)
}

fn next_status(every: Duration) -> Moment {
    match every.is_zero() {
        true => Moment::NEVER,
        false => clock::now() + every,
    }
}

struct Runner {
    settings: Settings,
    identity: Identity,
    supervisor: Supervisor,
    elections: Elections,
    signals: mpsc::UnboundedReceiver<Signalled>,
    replica: Replica,
    child: Option<Child>,
    leader: Option<Identity>,
    next_status: Moment,
    wait_until: Moment,
    waited_in_vain: bool,
    exit: Option<u8>,
}

enum Woken {
    Election(Option<DriverEvent>),
    Child(Event),
    Signal(Option<Signalled>),
    Time,
}

impl Runner {
    async fn run(mut self, first: Vec<Action>) -> anyhow::Result<u8> {
        let mut timer = Timer::new().context("no timer")?;
        self.act(first).await;
        loop {
            if let Some(code) = self.exit {
                return Ok(code);
            }
            let deadline = self.replica.next_deadline().unwrap_or(Moment::NEVER);
            let wake = deadline.min(self.next_status).min(self.wait_until);
            let woken = tokio::select! {
                // A deadline to kill must not wait behind anything.
                biased;
                rung = timer.until(wake) => { rung.context("no timer")?; Woken::Time }
                signal = self.signals.recv() => Woken::Signal(signal),
                event = next_of(&mut self.child) => Woken::Child(event),
                event = self.elections.events.recv() => Woken::Election(event),
            };
            match woken {
                Woken::Time => self.time().await,
                Woken::Signal(signal) => self.signalled(signal).await,
                Woken::Child(event) => self.of_child(event).await,
                Woken::Election(Some(event)) => self.of_election(event).await,
                Woken::Election(None) => anyhow::bail!("the election's task has died"),
            }
        }
    }

    async fn time(&mut self) {
        let now = clock::now();
        let before = self.replica.state();
        let actions = self.replica.handle_timeout(now);
        self.moved(before);
        self.act(actions).await;
        if now >= self.next_status {
            self.next_status = next_status(self.settings.log.log_status);
            let leader = self.leader.as_ref().map_or("nobody", Identity::as_str);
            info!(state = %self.replica.state(), leader, "status");
        }
        if now >= self.wait_until {
            self.wait_until = Moment::NEVER;
            if self.replica.state() == StateName::Follower {
                warn!("we have not led within the time to wait");
                self.waited_in_vain = true;
                self.feed(Event::StopSignal).await;
            }
        }
    }

    async fn signalled(&mut self, signal: Option<Signalled>) {
        match signal {
            Some(Signalled::Stop(signal)) => {
                info!(%signal, "asked to stop");
                self.feed(Event::StopSignal).await;
            }
            Some(Signalled::PassOn(signal)) => {
                if let Some(child) = &self.child {
                    debug!(%signal, "passed on to the child");
                    child.tree.signal(signal);
                }
            }
            None => {}
        }
    }

    async fn of_child(&mut self, event: Event) {
        let heard = self.child.as_ref().is_some_and(Child::is_heard);
        match event {
            Event::Unhealthy if heard => return,
            Event::TreeEmpty | Event::SpawnFailed(_) => self.child = None,
            _ => {}
        }
        self.feed(event).await;
    }

    async fn of_election(&mut self, event: DriverEvent) {
        let event = match event {
            DriverEvent::Elected(elected) => {
                self.wait_until = Moment::NEVER;
                let (term, token) = (elected.term, elected.token);
                info!(%term, %token, claim = ?elected.claim, "elected");
                Event::Elected(elected)
            }
            DriverEvent::Extended { valid_until } => Event::Extended(valid_until),
            DriverEvent::Lost(Loss::Resigned) => {
                info!(
                    "the term ends as planned; the lease is kept until nothing is left of the child"
                );
                Event::Lost(Loss::Resigned)
            }
            DriverEvent::Lost(loss) => {
                warn!(?loss, "the lease is lost");
                Event::Lost(loss)
            }
            DriverEvent::Left => {
                info!("the lease is released");
                Event::Left
            }
            DriverEvent::Refused { error } => {
                error!("{error}");
                Event::Refused
            }
            DriverEvent::Holder(holder) => {
                match &holder {
                    Some(leader) => info!(%leader, "the leader is"),
                    None => info!("nobody leads"),
                }
                self.leader = holder;
                return;
            }
            DriverEvent::Answered {
                request,
                took,
                error: Some(error),
            } => {
                warn!(request = request.as_str(), took = %Human(took), "{error}");
                return;
            }
            DriverEvent::Answered { error: None, .. } => return,
            DriverEvent::WatchEnded(ended) => {
                debug!("{ended}");
                return;
            }
        };
        self.feed(event).await;
    }

    async fn feed(&mut self, event: Event) {
        let before = self.replica.state();
        let actions = self.replica.handle(clock::now(), event);
        self.moved(before);
        self.act(actions).await;
    }

    fn moved(&mut self, before: StateName) {
        let after = self.replica.state();
        if before != after {
            info!(from = %before, to = %after, "state");
            if after == StateName::Leader
                && let Some(child) = &mut self.child
            {
                child.begin_checks();
            }
            if before == StateName::Leader
                && let Some(child) = &mut self.child
            {
                child.end_checks();
            }
        }
    }

    async fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Stand => self.elections.handle.stand(),
                Action::Resign => self.elections.handle.resign(),
                Action::Leave => self.elections.handle.leave(),
                Action::Spawn {
                    term,
                    token,
                    deadline,
                } => {
                    if let Err(failure) = self.spawn(term, token, deadline).await {
                        Box::pin(self.feed(Event::SpawnFailed(failure))).await;
                    }
                }
                Action::Deadline(deadline) => {
                    if let Some(child) = &self.child {
                        child.tree.set_deadline(deadline);
                    }
                }
                Action::StopChild => {
                    if let Some(child) = &self.child {
                        let signal = self.settings.stop_signal;
                        info!(%signal, "asking the child to stop");
                        child.tree.stop(signal);
                    }
                }
                Action::KillTree => {
                    if let Some(child) = &self.child {
                        info!("killing the child's tree");
                        child.tree.kill();
                    }
                }
                Action::Exit(outcome) => {
                    let code = match self.waited_in_vain {
                        true => WAITED_IN_VAIN,
                        false => outcome.code(),
                    };
                    info!(?outcome, code, "exiting");
                    self.exit = Some(code);
                }
            }
        }
    }

    async fn spawn(
        &mut self,
        term: Term,
        token: Token,
        deadline: Moment,
    ) -> Result<(), SpawnFailure> {
        let role = Role {
            identity: &self.identity,
            term,
            token,
        };
        let child = Child::prepare(&self.supervisor, &self.settings, &role)?;
        // Whoever would succeed us at once if we died must know of the guard before the child exists.
        // Nothing else is done meanwhile, so it must not take long.
        let limit = self.settings.policy.timings.attempt_limit();
        let naming = self.elections.name_guard(child.tree.guard_pid());
        let named = match tokio::time::timeout(limit, naming).await {
            Ok(named) => named,
            Err(_) => Err(anyhow::anyhow!("no answer within {}", Human(limit))),
        };
        if let Err(error) = named {
            warn!("the guard cannot be named in the lease: {error:#}");
            return Err(SpawnFailure::System);
        }
        child.tree.set_deadline(deadline);
        self.child = Some(child);
        Ok(())
    }
}

async fn next_of(child: &mut Option<Child>) -> Event {
    match child {
        Some(child) => child.next().await,
        None => std::future::pending().await,
    }
}
