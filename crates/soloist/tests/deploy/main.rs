//! `soloist manifests`, and the files under `deploy/` that say the same.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod chart;
mod cluster;
mod documents;
mod generated;
mod helm;
mod inject;
mod kustomize;
mod monitoring;
mod printed;
mod tools;
