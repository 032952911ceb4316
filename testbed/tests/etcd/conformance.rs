//! The etcd store keeps the promises that every store keeps.

use crate::harness::Etcd;

soloist_elector::conformance_tests!(Etcd::shared(), harmed: Etcd::own(3));
