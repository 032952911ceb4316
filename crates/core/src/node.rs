//! One whole replica without I/O: the election and what becomes of the child, as one machine.
//!
//! `soloist run` and the simulator drive this very type, so what the simulator proves is what ships. The driver
//!
//! 1. feeds what happened: `handle_*`, with the local time;
//! 2. then takes what is to be done from [`Node::poll_output`] until there is nothing left, in order;
//! 3. calls [`Node::handle_timeout`] at [`Node::next_deadline`] at the latest, after all that has come from the store by then.
//!
//! Between two inputs nothing is under way inside: what the election says reaches the replica's table, and what that
//! wants reaches the election, before the input has been dealt with. Every command says which request, watch or
//! tree it is about, and so does every answer; what belongs to an earlier one is passed over.

mod candidacy;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unopposed_tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use crate::election::{self, Answer, Config, Elected, Election, Loss, StoreCommand, Tenure};
use crate::ids::{Identity, OpId, Term, Token, TreeId, WatchId};
use crate::orders::{OrderRefusal, Ordered, Pause};
use crate::record::Snapshot;
use crate::replica::{Action, Event, Exit, Outcome, Policy, Replica, SpawnFailure, StateName};
use crate::time::Moment;
use candidacy::{Candidacy, Unopposed};

/// What the driver is to do or to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Ask the store.
    Store(StoreCommand),
    /// Do this with that tree.
    Tree(TreeId, TreeCommand),
    /// Something that people may want to know.
    Notice(Notice),
    /// End the process. Nothing comes after it.
    Exit(Outcome),
}

/// What is to be done with a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeCommand {
    /// Start a guard that waits: the first command for a tree, perhaps long before its term. No child yet.
    Prepare,
    /// Let the guard start the child, if it is not too late. Comes after [`TreeCommand::Prepare`], at most once.
    Start {
        /// For the child's environment.
        term: Term,
        /// For the child's environment.
        token: Token,
        /// The guard's first deadline.
        deadline: Moment,
    },
    /// The guard is not needed after all: let it go. Nothing has been started, and nothing more is said of this tree.
    Discard,
    /// Tell the guard the new deadline.
    Deadline(Moment),
    /// Let the guard send the stop signal to the child's group.
    Stop,
    /// SIGKILL every process of the tree, directly and through the guard, until it is empty.
    Kill,
}

/// What happens to a tree. The last of a tree is [`TreeEvent::SpawnFailed`] or [`TreeEvent::Empty`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeEvent {
    /// The guard or the child could not be started, and nothing is left of either.
    SpawnFailed(SpawnFailure),
    /// The child is up.
    Ready,
    /// A health check passed.
    Healthy,
    /// A health check failed.
    Unhealthy,
    /// The child itself has ended; others of its tree may live on.
    Exited(Exit),
    /// The guard has died.
    GuardLost,
    /// Proven: no process of the tree is left, and none will come.
    Empty,
}

/// What people may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The replica's state changed.
    State {
        /// Before.
        from: StateName,
        /// Now.
        to: StateName,
    },
    /// A term began.
    Elected(Elected),
    /// The term goes on until then.
    Extended {
        /// The new end of the validity.
        valid_until: Moment,
    },
    /// The term ended, or is about to.
    Lost(Loss),
    /// What was held is released, or nothing more can be done about it.
    Left,
    /// Another holder was seen in the record, or none.
    Holder(Option<Identity>),
    /// An order in the record is obeyed.
    Ordered(Ordered),
    /// An order in the record is not obeyed.
    OrderRefused(OrderRefusal),
    /// From now on nobody may take the lease; or, with `None`, somebody may again.
    Paused(Option<Pause>),
    /// The tree was ordered to be killed then, and still is not empty. Said again and again.
    KillTakesLong {
        /// When it was ordered.
        since: Moment,
    },
    /// The store refused this request.
    Refused {
        /// Which.
        op: OpId,
        /// We were refused from the start, and for a minute.
        for_good: bool,
    },
}

/// One replica. See the [module](self).
#[derive(Debug)]
pub struct Node {
    election: Candidacy,
    replica: Replica,
    /// The guard that waits for a term.
    prepared: Option<TreeId>,
    /// The last guard that waited could not be started, or died. The next is not tried before the next term.
    guard_failed: bool,
    /// The tree that was started and is not known to be empty.
    tree: Option<TreeId>,
    trees: u64,
    outputs: VecDeque<Output>,
}

// What happens.
impl Node {
    /// A replica that takes part from now on.
    #[must_use]
    pub fn new(now: Moment, config: Config, policy: Policy) -> Self {
        let election = Box::new(Election::new(config));
        Self::with(now, Candidacy::Contested(election), policy)
    }

    /// A replica that runs its child whatever others do: the same supervisor without an election, without a store and without
    /// a lease that could be lost. The guard has no deadline; it kills the tree when soloist is gone.
    #[must_use]
    pub fn unopposed(now: Moment, policy: Policy) -> Self {
        Self::with(now, Candidacy::Unopposed(Unopposed::default()), policy)
    }

    fn with(now: Moment, election: Candidacy, policy: Policy) -> Self {
        let (replica, first) = Replica::new(policy);
        let mut node = Self {
            election,
            replica,
            prepared: None,
            guard_failed: false,
            tree: None,
            trees: 0,
            outputs: VecDeque::new(),
        };
        node.settle(now, first);
        node
    }

    /// The answer to a request.
    pub fn handle_answer(&mut self, now: Moment, op: OpId, answer: Answer) {
        self.election.handle_answer(now, op, answer);
        self.settle(now, Vec::new());
    }

    /// A change that the watch reported.
    pub fn handle_watch(&mut self, now: Moment, watch: WatchId, snapshot: Snapshot) {
        self.election.handle_watch(now, watch, snapshot);
        self.settle(now, Vec::new());
    }

    /// The watch has ended or is known to have missed something.
    pub fn handle_watch_broken(&mut self, now: Moment, watch: WatchId) {
        self.election.handle_watch_broken(now, watch);
        self.settle(now, Vec::new());
    }

    /// Something happened to a tree.
    pub fn handle_tree(&mut self, now: Moment, tree: TreeId, event: TreeEvent) {
        let over = matches!(event, TreeEvent::SpawnFailed(_) | TreeEvent::Empty);
        if over && self.prepared.take_if(|waiting| *waiting == tree).is_some() {
            self.guard_failed = true;
        }
        if self.tree != Some(tree) {
            return;
        }
        if over {
            self.tree = None;
        }
        self.feed(
            now,
            match event {
                TreeEvent::SpawnFailed(failure) => Event::SpawnFailed(failure),
                TreeEvent::Ready => Event::Ready,
                TreeEvent::Healthy => Event::Healthy,
                TreeEvent::Unhealthy => Event::Unhealthy,
                TreeEvent::Exited(exit) => Event::Exited(exit),
                TreeEvent::GuardLost => Event::GuardLost,
                TreeEvent::Empty => Event::TreeEmpty,
            },
        );
    }

    /// The first SIGTERM or SIGINT, or one more.
    pub fn handle_stop_signal(&mut self, now: Moment) {
        self.feed(now, Event::StopSignal);
    }

    /// Whoever ends us gives us only so long from now on: a stop that is under way, or begins, becomes shorter by it, never longer.
    pub fn handle_grace(&mut self, now: Moment, left: Duration) {
        let actions = self.replica.shorten_stop(now, left);
        self.settle(now, actions);
    }

    /// Somebody asks us to let another replica lead: this one, or anyone.
    pub fn handle_handover(&mut self, now: Moment, heir: Option<Identity>) {
        if let Some(heir) = heir {
            self.name_heir(heir);
        }
        self.feed(now, Event::HandOver);
    }

    /// Who is to lead when our term ends, if it ends in order.
    pub fn name_heir(&mut self, heir: Identity) {
        self.election.name_heir(heir);
    }

    /// Whether this replica will soon end, so that any other one had better take the lease.
    pub fn give_way(&mut self, gives_way: bool) {
        self.election.give_way(gives_way);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Moment) {
        self.election.handle_timeout(now);
        // What the election lost by now comes before what the replica would do at its own deadlines.
        self.settle(now, Vec::new());
        let before = self.replica.state();
        let actions = self.replica.handle_timeout(now);
        self.note_state(before);
        self.settle(now, actions);
    }
}

// What to do, and state.
impl Node {
    /// The next thing to do or to know.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to call [`Node::handle_timeout`], if nothing else happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Moment> {
        let deadlines = [self.election.next_deadline(), self.replica.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Whether a deadline has been reached: what has come and was not fed yet goes first, then [`Node::handle_timeout`].
    #[must_use]
    pub fn is_due(&self, now: Moment) -> bool {
        self.next_deadline().is_some_and(|at| at <= now)
    }

    /// Where we are.
    #[must_use]
    pub const fn state(&self) -> StateName {
        self.replica.state()
    }

    /// The term whose tree we run or are to run.
    #[must_use]
    pub const fn term(&self) -> Option<(Term, Token)> {
        self.replica.term()
    }

    /// The tree that was started and is not known to be empty.
    #[must_use]
    pub const fn tree(&self) -> Option<TreeId> {
        self.tree
    }

    /// The lease that we hold.
    #[must_use]
    pub const fn tenure(&self) -> Option<&Tenure> {
        self.election.tenure()
    }

    /// A candidate: over how long it spreads its takeover after a release, because its group is large.
    #[must_use]
    pub fn crowd(&self) -> Option<Duration> {
        self.election.crowd()
    }

    /// Who holds the lease, as far as we have seen.
    #[must_use]
    pub fn holder(&self) -> Option<&Identity> {
        self.election.holder()
    }
}

// Inside.
impl Node {
    fn feed(&mut self, now: Moment, event: Event) {
        let before = self.replica.state();
        let actions = self.replica.handle(now, event);
        self.note_state(before);
        self.settle(now, actions);
    }

    fn note_state(&mut self, from: StateName) {
        let to = self.replica.state();
        if from != to {
            self.tell(Notice::State { from, to });
        }
    }

    /// Carries what the two machines want of each other, until neither wants anything.
    fn settle(&mut self, now: Moment, actions: Vec<Action>) {
        let mut actions = VecDeque::from(actions);
        loop {
            while let Some(action) = actions.pop_front() {
                self.act(now, action);
            }
            let Some(output) = self.election.poll_output() else {
                break;
            };
            if let Some(event) = self.take_in(output) {
                let before = self.replica.state();
                actions.extend(self.replica.handle(now, event));
                self.note_state(before);
            }
        }
        self.keep_a_guard_ready();
    }

    fn act(&mut self, now: Moment, action: Action) {
        match action {
            Action::Stand => self.election.stand(now),
            Action::Resign => self.election.resign(now),
            Action::Leave => self.election.leave(now),
            Action::Spawn {
                term,
                token,
                deadline,
            } => {
                let tree = self.prepare();
                self.prepared = None;
                self.guard_failed = false;
                self.tree = Some(tree);
                let start = TreeCommand::Start {
                    term,
                    token,
                    deadline,
                };
                self.order(tree, start);
            }
            Action::Deadline(deadline) => self.order_current(TreeCommand::Deadline(deadline)),
            Action::StopChild => self.order_current(TreeCommand::Stop),
            Action::KillTree => self.order_current(TreeCommand::Kill),
            Action::TellOfKill { since } => self.tell(Notice::KillTakesLong { since }),
            Action::Exit(outcome) => {
                self.discard();
                self.outputs.push_back(Output::Exit(outcome));
            }
        }
    }

    /// What the election says, as the replica's table knows it.
    fn take_in(&mut self, output: election::Output) -> Option<Event> {
        match output {
            election::Output::Store(command) => {
                self.outputs.push_back(Output::Store(command));
                None
            }
            election::Output::Elected(elected) => {
                self.tell(Notice::Elected(elected));
                Some(Event::Elected(elected))
            }
            election::Output::Extended { valid_until } => {
                self.tell(Notice::Extended { valid_until });
                Some(Event::Extended(valid_until))
            }
            election::Output::Lost(loss) => {
                self.tell(Notice::Lost(loss.clone()));
                Some(Event::Lost(loss))
            }
            election::Output::Left => {
                self.tell(Notice::Left);
                Some(Event::Left)
            }
            election::Output::Holder(holder) => {
                self.tell(Notice::Holder(holder));
                None
            }
            election::Output::Ordered(ordered) => {
                let event = match &ordered {
                    Ordered::Handover(_) => Event::HandOver,
                    Ordered::Stop => Event::Pause,
                };
                self.tell(Notice::Ordered(ordered));
                Some(event)
            }
            election::Output::NamedHeir => Some(Event::NamedHeir),
            election::Output::OrderRefused(refusal) => {
                self.tell(Notice::OrderRefused(refusal));
                None
            }
            election::Output::Paused(pause) => {
                self.tell(Notice::Paused(pause));
                None
            }
            election::Output::Refused { op, for_good } => {
                self.tell(Notice::Refused { op, for_good });
                for_good.then_some(Event::Refused)
            }
        }
    }

    /// A guard takes longer to start than a takeover's write to be answered, so a candidate has one that waits.
    fn keep_a_guard_ready(&mut self) {
        match self.election.is_candidate() && self.replica.state() == StateName::Follower {
            true if !self.guard_failed => {
                self.prepare();
            }
            true => {}
            false => self.discard(),
        }
    }

    fn prepare(&mut self) -> TreeId {
        if let Some(tree) = self.prepared {
            return tree;
        }
        self.trees += 1;
        let tree = TreeId::new(self.trees);
        self.prepared = Some(tree);
        self.order(tree, TreeCommand::Prepare);
        tree
    }

    fn discard(&mut self) {
        if let Some(tree) = self.prepared.take() {
            self.order(tree, TreeCommand::Discard);
        }
    }

    fn order_current(&mut self, command: TreeCommand) {
        if let Some(tree) = self.tree {
            self.order(tree, command);
        }
    }

    fn order(&mut self, tree: TreeId, command: TreeCommand) {
        self.outputs.push_back(Output::Tree(tree, command));
    }

    fn tell(&mut self, notice: Notice) {
        self.outputs.push_back(Output::Notice(notice));
    }
}
