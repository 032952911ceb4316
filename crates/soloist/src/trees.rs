//! The trees of this replica by their numbers: commands in, events out.

use std::collections::{BTreeMap, VecDeque};
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use soloist_core::ids::{Identity, TreeId};
use soloist_core::node::{TreeCommand, TreeEvent};
use soloist_core::replica::SpawnFailure;
use soloist_process::{Signal, Supervisor};
use tracing::{debug, info};

use crate::child::{Child, Heard, Role};
use crate::listener::Processes;
use crate::settings::Settings;
use crate::store::GuardNames;

/// At most two: the one that runs, and a guard that waits for the next term.
pub(crate) struct Trees {
    supervisor: Supervisor,
    identity: Identity,
    names: GuardNames,
    children: BTreeMap<TreeId, Child>,
    /// Its guard is to be started when there is time.
    to_prepare: Option<TreeId>,
    /// What is left of children that are no more: files and sockets, to be cleared away when there is time.
    remains: Vec<Child>,
    /// What has happened and was not fetched yet.
    events: VecDeque<(TreeId, TreeEvent)>,
    /// The Pod's end is near.
    ending: bool,
}

/// Nothing more will be heard of a tree that was not said to be empty.
#[derive(Debug)]
pub(crate) struct Silence;

impl Trees {
    pub(crate) fn new(supervisor: Supervisor, identity: Identity, names: GuardNames) -> Self {
        Self {
            supervisor,
            identity,
            names,
            children: BTreeMap::new(),
            to_prepare: None,
            remains: Vec::new(),
            events: VecDeque::new(),
            ending: false,
        }
    }

    pub(crate) fn obey(&mut self, settings: &Settings, tree: TreeId, command: TreeCommand) {
        match command {
            TreeCommand::Prepare => self.to_prepare = Some(tree),
            TreeCommand::Discard => {
                self.to_prepare.take_if(|waiting| *waiting == tree);
                if let Some(child) = self.children.remove(&tree) {
                    debug!("the guard is not needed");
                    self.remains.push(child);
                }
            }
            TreeCommand::Start {
                term,
                token,
                deadline,
            } => {
                self.prepare(settings);
                let has_terms = !settings.location.is_nowhere();
                let role = Role {
                    term: has_terms.then_some((term, token)),
                    deadline,
                };
                self.start(tree, role);
            }
            TreeCommand::Deadline(deadline) => {
                if let Some(child) = self.children.get_mut(&tree) {
                    child.set_deadline(deadline);
                }
            }
            TreeCommand::Stop => {
                if let Some(child) = self.children.get_mut(&tree) {
                    let signal = settings.stop_signal;
                    info!(%signal, "asking the child to stop");
                    child.stop(signal);
                }
            }
            TreeCommand::Kill => {
                if let Some(child) = self.children.get_mut(&tree) {
                    info!("killing the child's tree");
                    child.kill();
                }
            }
        }
    }

    /// The replica's name.
    pub(crate) const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The child and its guard, once the child runs.
    pub(crate) fn processes(&self, tree: TreeId) -> Option<Processes> {
        self.children.get(&tree)?.processes()
    }

    /// Whether there is something to do that takes milliseconds, in which nothing else is done, and that can wait.
    pub(crate) fn has_housework(&self) -> bool {
        self.to_prepare.is_some() || !self.remains.is_empty()
    }

    /// Clears away what is left of earlier children, and starts the guard that is to be prepared.
    pub(crate) fn do_housework(&mut self, settings: &Settings) {
        self.remains.clear();
        self.prepare(settings);
    }

    fn prepare(&mut self, settings: &Settings) {
        let Some(tree) = self.to_prepare.take() else {
            return;
        };
        match Child::prepare(&self.supervisor, settings, &self.identity) {
            Ok(mut child) => {
                debug!(process = child.guard_pid(), "a guard waits");
                child.set_ending(self.ending);
                self.children.insert(tree, child);
            }
            Err(failure) => self.fail(tree, failure),
        }
    }

    /// A signal for the program.
    pub(crate) fn signal(&self, tree: TreeId, signal: Signal) {
        if let Some(child) = self.children.get(&tree) {
            child.signal(signal);
        }
    }

    /// Whether the Pod's end is near, for children that want to know.
    pub(crate) fn set_ending(&mut self, ending: bool) {
        if std::mem::replace(&mut self.ending, ending) != ending {
            let children = self.children.values_mut();
            children.for_each(|child| child.set_ending(ending));
        }
    }

    /// The child is up.
    pub(crate) fn begin_checks(&mut self, tree: TreeId) {
        if let Some(child) = self.children.get_mut(&tree) {
            child.begin_checks();
        }
    }

    /// No child is up.
    pub(crate) fn end_checks(&mut self) {
        self.children.values_mut().for_each(Child::end_checks);
    }

    /// Kills whatever there is.
    pub(crate) fn kill_all(&mut self) {
        self.children.values_mut().for_each(Child::kill);
    }

    /// What happens next; `None` if it was nothing that the replica cares about. May be cancelled.
    pub(crate) async fn next(&mut self) -> Result<Option<(TreeId, TreeEvent)>, Silence> {
        if self.events.is_empty() {
            match hear(&mut self.children).await {
                (_, Heard::Silence) => return Err(Silence),
                (tree, Heard::Events(events)) => {
                    let events = events.into_iter().map(|event| (tree, event));
                    self.events.extend(events);
                }
            }
        }
        let next = self.events.pop_front();
        if let Some((tree, TreeEvent::SpawnFailed(_) | TreeEvent::Empty)) = next {
            self.remains.extend(self.children.remove(&tree));
        }
        Ok(next)
    }

    fn start(&mut self, tree: TreeId, role: Role) {
        let Some(child) = self.children.get_mut(&tree) else {
            return;
        };
        let naming = self.names.name(child.guard());
        if let Err(failure) = child.start(role, naming) {
            self.fail(tree, failure);
        }
    }

    fn fail(&mut self, tree: TreeId, failure: SpawnFailure) {
        self.events
            .push_back((tree, TreeEvent::SpawnFailed(failure)));
    }
}

async fn hear(children: &mut BTreeMap<TreeId, Child>) -> (TreeId, Heard) {
    type Next<'a> = Pin<Box<dyn Future<Output = Heard> + 'a>>;
    let next = |(tree, child): (&TreeId, _)| (*tree, Box::pin(Child::next(child)) as Next<'_>);
    let mut all: Vec<(TreeId, Next<'_>)> = children.iter_mut().map(next).collect();
    if all.is_empty() {
        return pending().await;
    }
    poll_fn(|context| {
        for (tree, next) in &mut all {
            if let Poll::Ready(heard) = next.as_mut().poll(context) {
                return Poll::Ready((*tree, heard));
            }
        }
        Poll::Pending
    })
    .await
}
