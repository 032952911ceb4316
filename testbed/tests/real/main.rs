//! The testbed on the real etcd, kube-apiserver and client-go peer.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod audit;
mod faults;
mod leases;
mod links;
mod ownership;
mod peer;
mod rights;
mod skipping;
mod starting;

use std::time::Duration;

const SUITE: &str = "testbed on a real control plane";
const SOON: Duration = Duration::from_secs(30);
