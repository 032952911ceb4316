//! What is known comes before what time alone would do.

use soloist_core::election::Config;
use soloist_core::ids::InstanceId;
use soloist_core::ladder::{Ladder, LadderRequest};
use soloist_core::replica::{Exit, OnLoss, OnUnhealthy, Policy, Restarts};
use soloist_core::timings::{Preset, Timings};
use soloist_elector::memory::MemoryStore;

use super::*;

fn node() -> Node {
    let timings = Timings::preset(Preset::Standard);
    let ladder = LadderRequest::from_grace(Duration::from_secs(30));
    let policy = Policy {
        timings,
        ladder: Ladder::try_new(ladder).unwrap(),
        on_loss: OnLoss::Strict,
        start_limit: Duration::from_secs(10),
        restarts: Restarts::STANDARD,
        unhealthy_after: 3,
        on_unhealthy: OnUnhealthy::Restart,
        cool_down: Duration::from_secs(20),
        first_process: false,
        once: false,
    };
    let config = Config {
        identity: Identity::try_new("me").unwrap(),
        instance: InstanceId::from_random(1),
        pod: None,
        timings,
        seed: 1,
    };
    Node::new(clock::now(), config, policy)
}

/// Gives the store its commands; the tree that was to be started, if one was.
fn carry_out(node: &mut Node, carrier: &mut StoreCarrier) -> Option<TreeId> {
    let mut started = None;
    while let Some(output) = node.poll_output() {
        match output {
            Output::Store(command) => carrier.carry(command),
            Output::Tree(tree, TreeCommand::Start { .. }) => started = Some(tree),
            Output::Tree(..) | Output::Notice(_) => {}
            Output::Exit(outcome) => panic!("it exits: {outcome:?}"),
        }
    }
    started
}

fn crash(node: &mut Node, tree: TreeId) {
    for event in [
        TreeEvent::Ready,
        TreeEvent::Exited(Exit::Code(1)),
        TreeEvent::Empty,
    ] {
        node.handle_tree(clock::now(), tree, event);
    }
}

/// A leader whose child has crashed twice, and is to be restarted when the next deadline comes.
async fn waiting_to_restart(store: &MemoryStore) -> (Node, StoreCarrier, Observers) {
    let limit = Duration::from_secs(2);
    let mut carrier = StoreCarrier::new(store.clone(), limit);
    let (mut node, mut observers) = (node(), Observers::new(None, None));
    let first = loop {
        if let Some(tree) = carry_out(&mut node, &mut carrier) {
            break tree;
        }
        let arrival = carrier.next().await;
        feed(&mut node, &mut observers, clock::now(), arrival);
    };
    crash(&mut node, first);
    // The first restart is at once.
    let second = carry_out(&mut node, &mut carrier).unwrap();
    crash(&mut node, second);
    assert_eq!(carry_out(&mut node, &mut carrier), None);
    // Its own writes, as the watch tells them.
    while let Some(arrival) = carrier.try_next().await {
        feed(&mut node, &mut observers, clock::now(), arrival);
    }
    assert_eq!(carry_out(&mut node, &mut carrier), None);
    (node, carrier, observers)
}

async fn wait_until_due(node: &Node) {
    while !node.is_due(clock::now()) {
        let deadline = node.next_deadline().unwrap();
        tokio::time::sleep(deadline.since(clock::now())).await;
    }
}

#[tokio::test]
async fn no_child_is_restarted_while_the_loss_of_the_lease_waits_to_be_heard() {
    let store = MemoryStore::new();
    let (mut node, mut carrier, mut observers) = waiting_to_restart(&store).await;
    wait_until_due(&node).await;
    store.delete();
    hear_before_time_passes(&mut node, &mut carrier, &mut observers).await;
    if node.is_due(clock::now()) {
        node.handle_timeout(clock::now());
    }
    assert_eq!(carry_out(&mut node, &mut carrier), None);
    assert_eq!(node.state(), StateName::Follower);
}

#[tokio::test]
async fn a_child_is_restarted_when_its_time_has_come_and_nothing_else() {
    let store = MemoryStore::new();
    let (mut node, mut carrier, mut observers) = waiting_to_restart(&store).await;
    wait_until_due(&node).await;
    hear_before_time_passes(&mut node, &mut carrier, &mut observers).await;
    node.handle_timeout(clock::now());
    assert!(carry_out(&mut node, &mut carrier).is_some());
}
