//! Without an election: every replica runs its child.

use core::time::Duration;
use std::vec::Vec;

use super::tests::{orders, policy, t};
use super::*;
use crate::replica::OnLoss;

fn outputs(node: &mut Node) -> Vec<Output> {
    std::iter::from_fn(|| node.poll_output()).collect()
}

/// Its first tree is up since 0.
fn running(policy: Policy) -> Node {
    let mut node = Node::unopposed(t(0.0), policy);
    let start = TreeCommand::Start {
        term: Term::new(1),
        token: Token::new(0),
        deadline: Moment::NEVER,
    };
    let first = outputs(&mut node);
    let expected = [(1, TreeCommand::Prepare), (1, start)];
    assert_eq!(orders(&first), expected, "its child starts at once");
    node.handle_tree(t(0.1), TreeId::new(1), TreeEvent::Ready);
    outputs(&mut node);
    assert_eq!(node.state(), StateName::Leader);
    node
}

#[test]
fn nothing_is_asked_of_a_store_and_no_deadline_ends_the_child() {
    for on_loss in [OnLoss::Strict, OnLoss::Graceful] {
        let mut node = running(Policy {
            on_loss,
            ..policy()
        });
        assert_eq!(node.next_deadline(), None);
        node.handle_timeout(t(1e9));
        assert_eq!(outputs(&mut node), []);
        assert_eq!(node.state(), StateName::Leader);
    }
}

#[test]
fn a_stop_signal_asks_the_child_and_ends_when_nothing_is_left_of_it() {
    let mut node = running(policy());
    node.handle_stop_signal(t(1.0));
    assert_eq!(orders(&outputs(&mut node)), [(1, TreeCommand::Stop)]);
    assert_eq!(node.next_deadline(), Some(t(26.0)));
    let exited = TreeEvent::Exited(Exit::Code(0));
    node.handle_tree(t(2.0), TreeId::new(1), exited);
    node.handle_tree(t(2.0), TreeId::new(1), TreeEvent::Empty);
    let ended = outputs(&mut node);
    assert_eq!(ended.last(), Some(&Output::Exit(Outcome::Clean)));
}

#[test]
fn a_child_that_does_not_end_in_its_time_is_killed_and_the_outcome_says_so() {
    let mut node = running(policy());
    node.handle_stop_signal(t(1.0));
    outputs(&mut node);
    node.handle_timeout(t(26.0));
    assert_eq!(orders(&outputs(&mut node)), [(1, TreeCommand::Kill)]);
    node.handle_tree(t(26.1), TreeId::new(1), TreeEvent::Empty);
    let ended = outputs(&mut node);
    assert_eq!(ended.last(), Some(&Output::Exit(Outcome::Killed)));
}

#[test]
fn a_child_that_crashes_is_started_again_with_growing_waits_and_after_the_cool_down() {
    let mut node = running(policy());
    let mut now = 1.0;
    let mut waits = Vec::new();
    for tree in 1..=7 {
        let exited = TreeEvent::Exited(Exit::Code(1));
        node.handle_tree(t(now), TreeId::new(tree), exited);
        node.handle_tree(t(now), TreeId::new(tree), TreeEvent::Empty);
        let mut wait = Duration::ZERO;
        while node.tree().is_none() {
            let at = node.next_deadline().expect("a time for the next start");
            wait += at.since(t(now));
            node.handle_timeout(at);
            now = at.uptime().as_secs_f64();
        }
        assert_eq!(node.tree(), Some(TreeId::new(tree + 1)));
        node.handle_tree(t(now), TreeId::new(tree + 1), TreeEvent::Ready);
        waits.push(wait.as_secs());
    }
    // Five within the window; then 20 s of rest, and afresh.
    assert_eq!(waits, [0, 1, 2, 4, 8, 20, 0]);
}
