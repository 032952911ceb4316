//! Every store keeps the same promises.

mod common;

mod memory {
    use super::common::Memory;
    soloist_elector::conformance_tests!(Memory::new());
}

mod file {
    use super::common::File;
    soloist_elector::conformance_tests!(File::new());
}
