//! soloist itself.

use std::process::ExitCode;

fn main() -> ExitCode {
    soloist::main()
}
