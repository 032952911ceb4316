use anyhow::ensure;
use std::{
    io,
    path::{Path, PathBuf},
    process::Command,
};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Relocations are packed (the C library must be glibc 2.36 or later), and functions that are the same are one.
const SMALL: &str = "-C link-arg=-Wl,-z,pack-relative-relocs -C link-arg=-Wl,--icf=all";

/// Builds soloist as a static program, and returns the folder that it is in.
///
/// Paths of this machine are no part of it.
pub fn build_static(checkout: &Path) -> io::Result<PathBuf> {
    build_static_package(checkout, "soloist")
}

/// The same for the programs of another package. Each is built by itself, as users build it: together they would have each
/// other's features.
pub fn build_static_package(checkout: &Path, package: &str) -> io::Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let home = home.ok_or_else(|| io::Error::other("neither CARGO_HOME nor HOME is set"))?;
    let flags = format!(
        "-C target-feature=+crt-static {SMALL} --remap-path-prefix={}=/soloist --remap-path-prefix={}=/cargo",
        checkout.display(),
        home.display()
    );
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--locked", "--release", "--target", TARGET])
        .args(["-p", package, "--bins"])
        .current_dir(checkout)
        .env("RUSTFLAGS", flags)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()?;
    if !status.success() {
        let what = format!("cargo did not build {package} ({status})");
        return Err(io::Error::other(what));
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| checkout.join("target"), PathBuf::from);
    Ok(target.join(TARGET).join("release"))
}

/// What starts without anything else in its file system.
///
/// # Errors
/// When it does not.
pub fn ensure_static(program: &[u8]) -> anyhow::Result<()> {
    ensure!(is_static(program), "this is not a static program");
    Ok(())
}

/// An ELF program that names no interpreter.
fn is_static(program: &[u8]) -> bool {
    const INTERPRETER: u32 = 3;
    let number = |at: usize, length: usize| -> Option<u64> {
        let bytes = program.get(at..at + length)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |number, &byte| number << 8 | u64::from(byte)),
        )
    };
    let segments = || {
        let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        (0..count)
            .map(|index| number(usize::try_from(table + index * size).ok()?, 4))
            .collect::<Option<Vec<_>>>()
    };
    program.starts_with(b"\x7fELF")
        && segments().is_some_and(|kinds| !kinds.contains(&u64::from(INTERPRETER)))
}
