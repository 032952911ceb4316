//! Replicas of the real program, with real children, signals and faults: one test per behaviour.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod child;
mod detector;
mod faults;
mod harness;
mod loss;
mod once;
mod place;
mod settings;
mod stop;
mod up;
