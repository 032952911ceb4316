//! The Kubernetes store keeps the promises that every store keeps.

use crate::harness::Cluster;

soloist_elector::conformance_tests!(Cluster::shared().await, set_back: Cluster::own().await);
