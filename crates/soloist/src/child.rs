//! One child: how its guard is prepared and let go, and what is heard of it.

use std::ffi::OsString;
use std::future::pending;
use std::path::PathBuf;

use soloist_core::ids::{Identity, Term, Token};
use soloist_core::node::TreeEvent;
use soloist_core::replica::SpawnFailure;
use soloist_core::time::Moment;
use soloist_elector::file::ProcessRef;
use soloist_process::{Signal, StartError, Supervisor, Tree, TreeEvent as Happening, has_terminal};
use tracing::{info, warn};

use crate::command::command;
use crate::health::Checks;
use crate::listener::Processes;
use crate::notify::{Notice, NotifySocket};
use crate::settings::Settings;
use crate::store::Naming;

/// A guard, and the child that it starts when it may.
pub(crate) struct Child {
    tree: Tree,
    start: Start,
    life: Life,
    notify: Option<NotifySocket>,
    checks: Checks,
    /// While it runs.
    pid: Option<u32>,
}

/// How far the start is.
enum Start {
    /// The guard waits.
    Waiting,
    /// The guard is being named in the lease: it must be there before the child exists.
    Naming(Naming, Role),
    /// The guard has been told to start the child, or never will be.
    Over,
}

/// For which term the child runs, if there are terms, and until when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Role {
    pub(crate) term: Option<(Term, Token)>,
    pub(crate) deadline: Moment,
}

/// What has been heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// These, in order. None of them, if it was nothing that the replica cares about.
    Events(Vec<TreeEvent>),
    /// Nothing more will be heard, though the tree was not said to be empty. It may live.
    Silence,
}

impl Heard {
    fn one(event: TreeEvent) -> Self {
        Self::Events(vec![event])
    }
}

impl Child {
    /// Starts a guard that waits.
    pub(crate) fn prepare(
        supervisor: &Supervisor,
        settings: &Settings,
        identity: &Identity,
    ) -> Result<Self, SpawnFailure> {
        let notify = NotifySocket::open()
            .inspect_err(|error| {
                warn!(%error, "no socket for the child's notices: it is started without, and neither READY=1 nor WATCHDOG=1 is heard");
            })
            .ok();
        let mut command = command(settings, identity, notify.as_ref());
        // In the background too: `fg` then brings both to the front.
        if has_terminal() {
            command = command.in_callers_group();
        }
        let tree = supervisor
            .prepare(&command)
            .map_err(|error| failure(&error))?;
        Ok(Self {
            tree,
            start: Start::Waiting,
            life: Life::of(&settings.command[0]),
            notify,
            checks: Checks::new(settings),
            pid: None,
        })
    }

    pub(crate) fn guard_pid(&self) -> u32 {
        self.tree.guard_pid()
    }

    /// While the child runs.
    pub(crate) fn processes(&self) -> Option<Processes> {
        Some(Processes {
            child: self.pid?,
            guard: self.guard_pid(),
        })
    }

    /// The guard, once it has told of itself. `None` if it is gone before that.
    pub(crate) fn guard(&self) -> impl Future<Output = Option<ProcessRef>> + use<> {
        let pid = self.tree.guard_pid();
        let start = self.tree.guard_start();
        async move { ProcessRef::told(pid, start.await?) }
    }

    /// Lets the guard start the child: at once, or when it has been named.
    pub(crate) fn start(&mut self, role: Role, naming: Option<Naming>) -> Result<(), SpawnFailure> {
        match naming {
            Some(naming) => {
                self.start = Start::Naming(naming, role);
                Ok(())
            }
            None => self.let_go(role),
        }
    }

    pub(crate) fn set_deadline(&mut self, deadline: Moment) {
        match &mut self.start {
            Start::Waiting => {}
            Start::Naming(_, role) => role.deadline = deadline,
            Start::Over => self.tree.set_deadline(deadline),
        }
    }

    /// Who is not started yet never will be.
    pub(crate) fn stop(&mut self, signal: Signal) {
        self.start = Start::Over;
        self.life.waiting = false;
        self.tree.stop(signal);
    }

    /// As [`Child::stop`], with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.start = Start::Over;
        self.life.waiting = false;
        self.tree.kill();
    }

    /// A signal to the child itself.
    pub(crate) fn signal(&self, signal: Signal) {
        self.tree.signal(signal);
    }

    /// Whether the Pod's end is near: who wants to know is told.
    pub(crate) fn set_ending(&mut self, ending: bool) {
        if let Some(notify) = &mut self.notify {
            notify.set_ending(ending);
        }
    }

    pub(crate) fn begin_checks(&mut self) {
        self.checks.begin();
    }

    pub(crate) fn end_checks(&mut self) {
        self.checks.end();
    }

    /// What happens next. May be cancelled.
    ///
    /// It returns after each thing that it has heard, also if that was nothing of interest: a child that talks without end
    /// keeps nobody else from being heard.
    pub(crate) async fn next(&mut self) -> Heard {
        let guard = self.tree.guard_pid();
        tokio::select! {
            named = named(&mut self.start) => self.named(named),
            event = self.tree.next_event() => {
                let heard = self.life.hear(event);
                if let Some(Happening::Exited(_)) = event {
                    self.pid = None;
                }
                if let Some(Happening::Started { pid }) = event {
                    self.pid = Some(pid);
                    info!(pid, guard, "the child has started");
                    return Heard::Events(self.checks.started().into_iter().collect());
                }
                heard
            }
            Some(seen) = self.checks.next() => Heard::one(seen),
            notices = next_notices(&mut self.notify, guard) => self.noticed(notices),
        }
    }

    fn noticed(&mut self, notices: Vec<Notice>) -> Heard {
        let events = notices.into_iter();
        Heard::Events(
            events
                .filter_map(|notice| self.checks.notice(notice))
                .collect(),
        )
    }

    fn named(&mut self, named: anyhow::Result<()>) -> Heard {
        let Start::Naming(_, role) = self.start else {
            return Heard::Events(Vec::new());
        };
        let started = match named {
            Ok(()) => self.let_go(role),
            Err(error) => {
                warn!("the guard cannot be named in the lease: {error:#}");
                Err(SpawnFailure::System)
            }
        };
        let failed = started.err().map(TreeEvent::SpawnFailed);
        Heard::Events(failed.into_iter().collect())
    }

    fn let_go(&mut self, role: Role) -> Result<(), SpawnFailure> {
        self.start = Start::Over;
        self.life.waiting = false;
        let started = match role.term {
            Some((term, token)) => {
                let (term, token) = (term.to_string(), token.to_string());
                let variables = [("SOLOIST_TERM", &*term), ("SOLOIST_TOKEN", &*token)];
                self.tree.start(role.deadline, &variables)
            }
            None => self.tree.start(role.deadline, &[]),
        };
        started.map_err(|error| failure(&error))
    }
}

/// Whatever the guard's descendants say.
async fn next_notices(notify: &mut Option<NotifySocket>, guard: u32) -> Vec<Notice> {
    let Some(socket) = notify else {
        return pending().await;
    };
    match socket.next(guard).await {
        Ok(notices) => notices,
        Err(error) => {
            warn!(%error, "the child's notices are not heard any more");
            *notify = None;
            Vec::new()
        }
    }
}

async fn named(start: &mut Start) -> anyhow::Result<()> {
    match start {
        Start::Naming(naming, _) => naming.await,
        Start::Waiting | Start::Over => pending().await,
    }
}

fn failure(error: &StartError) -> SpawnFailure {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    warn!(cause, "the child cannot be started: {error}");
    error.failure()
}

/// What is known of the tree from its own events.
struct Life {
    program: PathBuf,
    /// The guard has been told nothing yet, neither to start the child nor to end.
    waiting: bool,
    guard_lost: bool,
}

impl Life {
    fn of(program: &OsString) -> Self {
        Self {
            program: PathBuf::from(program),
            waiting: true,
            guard_lost: false,
        }
    }

    /// What the replica is to know of it. After the last event the owner has dropped us; `None` before that is silence.
    fn hear(&mut self, event: Option<Happening>) -> Heard {
        match event {
            Some(Happening::Started { .. }) => Heard::Events(Vec::new()),
            Some(Happening::SpawnFailed(error)) => {
                let cause = std::io::Error::from_raw_os_error(error.errno);
                let program = self.program.display();
                warn!(
                    "the child {program} cannot be started: {}: {cause}",
                    error.step
                );
                Heard::one(TreeEvent::SpawnFailed(error.failure))
            }
            Some(Happening::Exited(exit)) => {
                info!(?exit, "the child has ended");
                Heard::one(TreeEvent::Exited(exit))
            }
            Some(Happening::GuardLost) if self.waiting => {
                warn!("the guard that was to start the child is gone");
                self.guard_lost = true;
                Heard::Events(Vec::new())
            }
            Some(Happening::GuardLost) => {
                warn!("the guard is gone; killing what is left of the child");
                Heard::one(TreeEvent::GuardLost)
            }
            // There was no child, and there will be none.
            Some(Happening::Empty) if self.guard_lost => {
                Heard::one(TreeEvent::SpawnFailed(SpawnFailure::System))
            }
            Some(Happening::Empty) => {
                info!("nothing is left of the child");
                Heard::one(TreeEvent::Empty)
            }
            None => Heard::Silence,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use soloist_core::replica::Exit;

    fn life() -> Life {
        Life::of(&OsString::from("program"))
    }

    fn started() -> Life {
        let mut life = life();
        life.waiting = false;
        life
    }

    #[test]
    fn silence_is_not_emptiness() {
        assert_eq!(life().hear(None), Heard::Silence);
        let mut life = started();
        for event in [
            Happening::Started { pid: 7 },
            Happening::GuardLost,
            Happening::Exited(Exit::Code(0)),
        ] {
            let _ = life.hear(Some(event));
            assert_eq!(life.hear(None), Heard::Silence);
        }
    }

    #[test]
    fn a_guard_that_dies_while_it_waits_is_a_child_that_could_not_be_started() {
        let mut life = life();
        let nothing = Heard::Events(Vec::new());
        assert_eq!(life.hear(Some(Happening::GuardLost)), nothing);
        let failed = Heard::one(TreeEvent::SpawnFailed(SpawnFailure::System));
        assert_eq!(life.hear(Some(Happening::Empty)), failed);
    }

    #[test]
    fn a_guard_that_dies_later_is_lost_and_its_tree_is_empty_when_it_is() {
        let mut life = started();
        let lost = Heard::one(TreeEvent::GuardLost);
        assert_eq!(life.hear(Some(Happening::GuardLost)), lost);
        let empty = Heard::one(TreeEvent::Empty);
        assert_eq!(life.hear(Some(Happening::Empty)), empty);
    }

    #[test]
    fn who_was_stopped_before_the_start_is_empty() {
        let empty = Heard::one(TreeEvent::Empty);
        assert_eq!(life().hear(Some(Happening::Empty)), empty);
    }
}
