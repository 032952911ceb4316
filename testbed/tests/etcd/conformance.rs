//! The etcd store keeps the promises that every store keeps.

use crate::harness::Etcd;

soloist_elector::conformance_tests!(Etcd::shared(), set_back: Etcd::own(3));
