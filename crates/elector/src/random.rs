//! Random numbers from the kernel, for those who drive an election themselves: an
//! [`InstanceId`](soloist_core::ids::InstanceId) takes 128 bits, an election's seed 64.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// 128 random bits.
///
/// # Errors
/// When the kernel has none to give.
pub fn bits128() -> io::Result<u128> {
    Ok(u128::from_ne_bytes(bytes()?))
}

/// 64 random bits.
///
/// # Errors
/// When the kernel has none to give.
pub fn bits64() -> io::Result<u64> {
    Ok(u64::from_ne_bytes(bytes()?))
}

fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}
