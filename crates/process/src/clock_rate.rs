//! By how much the kernel was told to let its clocks run faster or slower.

use std::io;

use crate::sys;

/// A tick that nobody has changed, in microseconds.
const TICK: i64 = 10_000;

/// The correction of the clocks' rate that is in force, in millionths: what an NTP client has found the hardware to be wrong by, and what
/// it adds to that for a while to bring the clock to the right time.
///
/// # Errors
/// A sandbox may refuse to tell.
pub fn told_clock_rate() -> io::Result<f64> {
    let (tick, frequency) = sys::clock_adjustment()?;
    Ok(rate(tick, frequency))
}

fn rate(tick: i64, frequency: i64) -> f64 {
    let per_tick = 1e6 / TICK as f64;
    (tick - TICK) as f64 * per_tick + frequency as f64 / 65_536.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_tick_and_a_correction_add_up() {
        for (tick, frequency, expected) in [
            (10_000, 0, 0.0),
            (10_000, -1_311_334, -20.009_368_896_484_375),
            (10_833, 0, 83_300.0),
            (9_167, 32_768_000, -82_800.0),
        ] {
            let found = rate(tick, frequency);
            assert!(
                (found - expected).abs() < 1e-6,
                "{tick} {frequency}: {found}"
            );
        }
    }

    #[test]
    fn this_machine_tells_it() {
        // The kernel itself goes no further than a tenth.
        assert!(told_clock_rate().is_ok_and(|ppm| ppm.abs() <= 101_000.0));
    }
}
