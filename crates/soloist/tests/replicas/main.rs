//! Replicas of the real program, with real children, signals and faults: one test per behaviour.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod child;
mod detector;
mod early;
mod elsewhere;
mod ending;
mod everywhere;
mod faults;
mod guard;
mod hardened;
mod harness;
mod held_lease;
mod http;
mod interrupted;
mod leaving;
mod listener;
mod listener_limits;
mod log;
mod loss;
mod metrics;
mod namespaces;
mod notify;
mod once;
mod openmetrics;
mod orders;
mod page;
mod place;
mod prestop;
mod privileges;
mod service_manager;
mod settings;
#[path = "../../../process/tests/common/skipped.rs"]
mod skipped;
mod starting;
mod status;
mod stop;
mod terminal;
mod terms;
mod up;
mod variables;
mod watch;
