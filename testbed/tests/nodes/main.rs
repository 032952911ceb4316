//! soloist in Pods on two real nodes, and what happens to the nodes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod cordoned;
mod deaths;
mod documents;
mod everywhere;
mod faults;
mod group;
mod handover;
mod images;
mod journal;
mod ladder;
mod leftovers;
mod load;
mod refusals;
mod rollouts;
mod serving;
mod switches;
mod token;
mod tools;
mod web;
mod without_rebuilding;

use std::time::Duration;

const SUITE: &str = "testbed with nodes";

/// For what takes a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(180);
