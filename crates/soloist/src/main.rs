//! soloist keeps exactly one copy of a program running across any number of replicas.

use std::process::ExitCode;

fn main() -> ExitCode {
    soloist::main()
}
