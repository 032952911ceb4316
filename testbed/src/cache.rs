use std::{env, path::PathBuf};

/// Where binaries are kept between runs: `SOLOIST_TESTBED_CACHE`, or `soloist-testbed` in the user's cache folder.
pub fn cache_dir() -> PathBuf {
    let from = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    from("SOLOIST_TESTBED_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|dir| dir.join("soloist-testbed")))
        .or_else(|| from("HOME").map(|dir| dir.join(".cache/soloist-testbed")))
        .unwrap_or_else(|| run_dir().join("cache"))
}

/// Where this user's running control planes keep their data and locks.
pub fn run_dir() -> PathBuf {
    env::temp_dir().join(format!(
        "soloist-testbed-{}",
        rustix::process::getuid().as_raw()
    ))
}
