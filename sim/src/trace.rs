//! A readable timeline of one schedule.

use crate::clock::{MILLI, Nanos, SECOND};

#[derive(Default)]
pub(crate) struct Trace {
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn new(on: bool) -> Self {
        Self {
            lines: on.then(Vec::new),
        }
    }

    pub(crate) fn line(&mut self, now: Nanos, who: &str, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            let (seconds, micros) = (now / SECOND, now % SECOND / (MILLI / 1000));
            lines.push(format!("{seconds:>5}.{micros:06}  {who:<10} {}", text()));
        }
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
