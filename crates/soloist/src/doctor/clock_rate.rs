//! Whether the clock that leases are counted by has the rate of the hardware's own, which nothing adjusts.
//!
//! All replicas count seconds, each by its own clock, and may differ by half a percent (docs/safety.md). What disciplines a clock may
//! let it run much faster or slower for a while to bring it to the right time. The kernel says what it was told to do; what comes of it is
//! measured, also where a sandbox does not let us ask.

use std::thread::sleep;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::report::{Verdict, read};

const WINDOW: Duration = Duration::from_millis(250);
/// Of so many readings the one that was least disturbed.
const READINGS: usize = 20;
/// NTP as the kernel does it goes no further than this.
const USUAL_PPM: f64 = 500.0;
/// Half of what two replicas' clocks may differ by.
const LIMIT_PPM: f64 = 2_500.0;

pub(super) fn check() -> Verdict {
    let read = |clock| nanoseconds(clock_gettime(clock));
    let ppm = difference(
        || read(ClockId::Boottime),
        || read(ClockId::MonotonicRaw),
        || sleep(WINDOW),
    );
    let measured = judge(ppm, "it runs");
    match (measured, soloist_process::told_clock_rate()) {
        (Verdict::Good(_), Ok(told)) if told.abs() > USUAL_PPM => {
            judge(told, "the kernel was told to let it run")
        }
        (measured, _) => measured,
    }
}

fn nanoseconds(time: Timespec) -> i64 {
    time.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(time.tv_nsec)
}

/// By how many millionths `clock` is faster than `reference`, over one `wait`.
fn difference(clock: impl Fn() -> i64, reference: impl Fn() -> i64, wait: impl FnOnce()) -> f64 {
    let pair = || {
        let readings = (0..READINGS).map(|_| {
            let (before, read, after) = (reference(), clock(), reference());
            (after - before, read, before + (after - before) / 2)
        });
        let best = readings.min_by_key(|(took, ..)| *took);
        best.map_or((0, 0), |(_, read, reference)| (read, reference))
    };
    let first = pair();
    wait();
    let second = pair();
    let (counted, real) = (second.0 - first.0, second.1 - first.1);
    (counted - real) as f64 / real.max(1) as f64 * 1e6
}

fn judge(ppm: f64, how: &str) -> Verdict {
    let which = if ppm > 0.0 { "faster" } else { "slower" };
    let found = format!(
        "{how} {:.2} % {which} than the hardware's own clock",
        ppm.abs() / 1e4
    );
    let advice = "Something slews it, or the hardware's clock is wrong. chrony may slew by 8 % unless maxslewrate is set (500 is \
         enough); a virtual machine may need another clock source. A lease that is counted too fast or too slow can be believed in by two";
    match ppm.abs() {
        apart if apart > LIMIT_PPM => Verdict::bad(
            format!("{found}; two replicas' clocks may differ by 0.5 %"),
            advice,
            read::SAFETY,
        ),
        apart if apart > USUAL_PPM => Verdict::warning(
            format!("{found}; NTP by the kernel goes no further than 0.05 %"),
            advice,
            read::SAFETY,
        ),
        apart => Verdict::good(format!("{apart:.0} ppm apart")),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_clock_that_is_slewed_is_found_by_how_much() {
        for (ppm, word) in [
            (0, "good"),
            (-400, "good"),
            (900, "warning"),
            (-83_333, "bad"),
        ] {
            let real = Cell::new(0_i64);
            let clock = || real.get() + real.get() / 1_000_000 * ppm;
            let reference = || {
                real.set(real.get() + 50);
                real.get()
            };
            let found = difference(clock, reference, || real.set(real.get() + 250_000_000));
            assert!((found - ppm as f64).abs() < 10.0, "{ppm}: {found}");
            let verdict = judge(found, "it runs");
            let is = match verdict {
                Verdict::Good(_) => "good",
                Verdict::Warning(_) => "warning",
                Verdict::Bad(_) => "bad",
                Verdict::Unknown(_) => "unknown",
            };
            assert_eq!(is, word, "{ppm}: {verdict:?}");
        }
    }

    #[test]
    fn a_thief_of_time_between_two_readings_is_no_other_rate() {
        let (real, disturbed) = (Cell::new(0_i64), Cell::new(0));
        let clock = || {
            disturbed.set(disturbed.get() + 1);
            // Most readings are interrupted for a while.
            let stolen = if disturbed.get() % 4 == 0 {
                0
            } else {
                3_000_000
            };
            real.set(real.get() + stolen);
            real.get()
        };
        let reference = || {
            real.set(real.get() + 50);
            real.get()
        };
        let found = difference(clock, reference, || real.set(real.get() + 250_000_000));
        assert!(found.abs() < 10.0, "{found}");
    }
}
