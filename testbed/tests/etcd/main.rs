//! The etcd store and elections on it, on a real etcd.
#![allow(clippy::unwrap_used, reason = "a failing test says where")]

#[path = "../shared/disturb.rs"]
mod disturb;

mod access;
mod another;
mod certificates;
mod conformance;
mod faults;
mod harness;
mod links;
mod lone;
mod strangers;
mod watches;
