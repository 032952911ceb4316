//! The lock that there is one of: whoever finds it taken is a second child.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::exit;

use rustix::io::{FdFlags, fcntl_setfd};

pub(crate) struct Lock(#[allow(dead_code)] File);

impl Lock {
    /// Held until the last process of this tree is dead: what it starts inherits the file.
    pub(crate) fn take(folder: &str) -> Self {
        let path = Path::new(folder).join("lock");
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .expect("a lock file");
        if file.try_lock().is_err() {
            let other = fs::read_to_string(&path).unwrap_or_default();
            let line = format!("OVERLAP {} beside {other}\n", std::process::id());
            let overlap = File::options()
                .append(true)
                .create(true)
                .open(Path::new(folder).join("overlap"));
            overlap
                .and_then(|mut file| file.write_all(line.as_bytes()))
                .expect("a line");
            exit(99);
        }
        fcntl_setfd(&file, FdFlags::empty()).expect("a file to inherit");
        file.set_len(0).expect("an empty file");
        write!(file, "{}", std::process::id()).expect("a line");
        Self(file)
    }
}
