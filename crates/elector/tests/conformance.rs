//! Every store keeps the same promises.
#![allow(clippy::unwrap_used, reason = "a failing test says where")]

mod common;

mod memory {
    use super::common::Memory;
    soloist_elector::conformance_tests!(Some(Memory::new()));
}

mod file {
    use super::common::File;
    soloist_elector::conformance_tests!(Some(File::new()));
}
