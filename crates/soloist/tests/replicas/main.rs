//! Replicas of the real program, with real children, signals and faults: one test per behaviour.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod child;
mod detector;
mod early;
mod elsewhere;
mod faults;
mod guard;
mod hardened;
mod harness;
mod leaving;
mod log;
mod loss;
mod namespaces;
mod notify;
mod once;
mod orders;
mod place;
mod privileges;
mod service_manager;
mod settings;
#[path = "../../../process/tests/common/skipped.rs"]
mod skipped;
mod starting;
mod status;
mod stop;
mod terminal;
mod up;
mod variables;
