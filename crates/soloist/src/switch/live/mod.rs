//! `soloist status --watch` on a terminal: a view that is drawn anew, with a timeline.

mod drawing;
mod history;

use std::io::{self, Write};
use std::time::Duration;

use rustix::termios::tcgetwinsize;
use soloist_core::record::Record;
use soloist_core::time::Moment;
use soloist_elector::clock;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use super::NotDone;
use super::follow::Follow;
use super::lease::Lease;
use super::pods::LOOK;
use super::status::Seen;
use crate::terminal;
use drawing::{Marks, Size};
use history::{History, Span};

const EVERY: Duration = Duration::from_secs(1);

/// Another screen, and the one before it when this is dropped.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const TO_END_OF_LINE: &str = "\x1b[K";
const TO_END: &str = "\x1b[J";

pub(super) fn is_possible() -> bool {
    terminal::draws(&io::stdout())
}

/// Until somebody interrupts it.
pub(super) async fn show(lease: &Lease, record: Record) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let screen = Screen::enter()?;
    tokio::select! {
        shown = keep_drawing(&screen, lease, record) => shown,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        _ = hang_up.recv() => Ok(()),
    }
}

async fn keep_drawing(screen: &Screen, lease: &Lease, record: Record) -> anyhow::Result<()> {
    let mut resized = signal(SignalKind::window_change())?;
    let mut follow = Follow::new(lease);
    let mut history = History::default();
    history.saw(clock::now(), &record);
    let mut last = record;
    let mut known = Seen::look(lease, &last).await.table();
    let mut looked = clock::now();
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let now = clock::now();
        history.pass(now, follow.is_answered());
        screen.draw(&known, &history, now)?;
        tokio::select! {
            found = follow.next() => {
                let found = found.ok_or_else(|| NotDone::NoLease(lease.describe()))?;
                history.saw(clock::now(), &found);
                let says_the_same = last.holder == found.holder
                    && last.transitions == found.transitions
                    && last.orders == found.orders;
                last = found;
                if says_the_same {
                    continue;
                }
            }
            _ = tick.tick() => if clock::now().since(looked) < LOOK { continue },
            _ = resized.recv() => continue,
        }
        // The leader first: to look at the Pods takes a moment.
        history.pass(clock::now(), follow.is_answered());
        screen.draw(&known, &history, clock::now())?;
        known = Seen::look(lease, &last).await.table();
        looked = clock::now();
    }
}

struct Screen {
    marks: Marks,
}

impl Screen {
    fn enter() -> io::Result<Self> {
        write(ENTER)?;
        let marks = match terminal::shows_unicode() {
            true => Marks::BLOCKS,
            false => Marks::ASCII,
        };
        Ok(Self { marks })
    }

    fn draw(&self, known: &str, history: &History, now: Moment) -> io::Result<()> {
        let spans: Vec<&Span> = history.spans().collect();
        let lines = drawing::screen(size(), self.marks, known, &spans, now);
        let lines: Vec<_> = lines
            .iter()
            .map(|line| format!("{line}{TO_END_OF_LINE}"))
            .collect();
        write(&format!("{HOME}{}{TO_END}", lines.join("\r\n")))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = write(LEAVE);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Of whom nobody knows the size has the usual one.
fn size() -> Size {
    match tcgetwinsize(io::stdout()) {
        Ok(found) if found.ws_col > 0 && found.ws_row > 0 => Size {
            columns: found.ws_col.into(),
            rows: found.ws_row.into(),
        },
        _ => Size {
            columns: 80,
            rows: 24,
        },
    }
}
