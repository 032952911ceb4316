//! The timeline in characters, to scale: a lane for each leader. A gap is a mark across all of them, however short it was.

use std::time::Duration;

use soloist_core::time::{Human, Moment};

use super::history::{Span, Who};

/// Nothing sensible fits into less.
pub(super) const LEAST: Size = Size {
    columns: 40,
    rows: 12,
};

const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
const WIDEST_NAME: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// What a timeline is drawn with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    leads: char,
    another_leads: char,
    gap: char,
}

impl Marks {
    pub(super) const BLOCKS: Self = Self {
        leads: '█',
        another_leads: '·',
        gap: '¦',
    };
    /// For who has no Unicode.
    pub(super) const ASCII: Self = Self {
        leads: '#',
        another_leads: '.',
        gap: '|',
    };
}

/// All lines of the screen: what is known of the lease, the timeline, and the spans in words, as far as there is room.
pub(super) fn screen(
    size: Size,
    marks: Marks,
    known: &str,
    spans: &[&Span],
    now: Moment,
) -> Vec<String> {
    if size.columns < LEAST.columns || size.rows < LEAST.rows {
        let text = format!(
            "the terminal is too small: {} x {}; {} columns and {} rows are needed",
            size.columns, size.rows, LEAST.columns, LEAST.rows
        );
        return wrapped(&text, size);
    }
    let mut lines: Vec<String> = known.lines().map(str::to_owned).collect();
    // The leader and the term are in the first ones; replicas may be many.
    lines.truncate(size.rows / 2);
    lines.push(String::new());
    lines.extend(timeline(
        size,
        marks,
        size.rows - lines.len() - 1,
        spans,
        now,
    ));
    let rest = size.rows.saturating_sub(lines.len() + 1);
    if rest > 2 {
        lines.push(String::new());
        lines.extend(words(rest - 2, spans));
    }
    lines.truncate(size.rows - 1);
    lines.push("Ctrl-C ends this view, and nothing else".into());
    lines
        .into_iter()
        .map(|line| cut(&line, size.columns))
        .collect()
}

/// At most so many lines.
fn timeline(size: Size, marks: Marks, most: usize, spans: &[&Span], now: Moment) -> Vec<String> {
    let first = spans.first().map_or(now, |span| span.from);
    let length = now.since(first).clamp(SHORTEST, LONGEST);
    let begin = now - length;
    let mut leaders: Vec<&str> = Vec::new();
    // The newest first, so that they are there if not all fit.
    for span in spans.iter().rev().filter(|span| span.to > begin) {
        if let Who::Leader(name) = &span.who
            && !leaders.contains(&name.as_str())
        {
            leaders.push(name);
        }
    }
    leaders.truncate(most.saturating_sub(1).max(1));
    leaders.reverse();
    let names = leaders.iter().map(|name| name.chars().count()).max();
    let names = names.unwrap_or(0).clamp(4, WIDEST_NAME);
    let columns = size.columns - names - 2;
    let cells = cells(columns, begin, length, spans);
    let lane = |name: &&str| {
        let bar: String = cells.iter().map(|cell| cell.drawn(name, marks)).collect();
        format!("{:<names$}  {bar}", cut(name, names))
    };
    let mut lines: Vec<String> = leaders.iter().map(lane).collect();
    if leaders.is_empty() {
        lines.push(lane(&"-"));
    }
    let ago = format!("{} ago", Human(Duration::from_secs(length.as_secs())));
    let room = columns.saturating_sub(ago.len());
    lines.push(format!("{:<names$}  {ago}{:>room$}", "", "now"));
    lines
}

/// What a column stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cell {
    Before,
    /// A gap begins, is or ends here.
    Gap,
    Unknown,
    Leader(String),
}

impl Cell {
    fn drawn(&self, lane: &str, marks: Marks) -> char {
        match self {
            Self::Before => ' ',
            Self::Gap => marks.gap,
            Self::Unknown => '?',
            Self::Leader(name) if name == lane => marks.leads,
            Self::Leader(_) => marks.another_leads,
        }
    }
}

fn cells(columns: usize, begin: Moment, length: Duration, spans: &[&Span]) -> Vec<Cell> {
    let parts = u32::try_from(columns).unwrap_or(u32::MAX).max(1);
    let one = length / parts;
    let cell = |index: u32| {
        let (from, to) = (begin + one * index, begin + one * (index + 1));
        let middle = from + one / 2;
        let meets = |span: &&&Span| span.from < to && span.to >= from;
        // However short: whoever looks for gaps finds them.
        if spans
            .iter()
            .filter(meets)
            .any(|span| span.who == Who::Nobody)
        {
            return Cell::Gap;
        }
        let at = spans.iter().find(|s| s.from <= middle && middle <= s.to);
        match at.map(|span| &span.who) {
            None => Cell::Before,
            Some(Who::Nobody) => Cell::Gap,
            Some(Who::Unknown) => Cell::Unknown,
            Some(Who::Leader(name)) => Cell::Leader(name.clone()),
        }
    };
    (0..parts).map(cell).collect()
}

/// The last spans, the newest first.
fn words(most: usize, spans: &[&Span]) -> Vec<String> {
    let line = |span: &&Span| {
        let length = match span.length() {
            long if long.as_secs() >= 10 => Duration::from_secs(long.as_secs()),
            short => Duration::from_millis(u64::try_from(short.as_millis()).unwrap_or(u64::MAX)),
        };
        let length = Human(length).to_string();
        match &span.who {
            Who::Leader(name) => format!("{length:>10}  {name} leads, term {}", span.term),
            Who::Nobody => format!("{length:>10}  gap: nobody leads"),
            Who::Unknown => format!("{length:>10}  the store does not answer"),
        }
    };
    spans.iter().rev().take(most).map(line).collect()
}

fn wrapped(text: &str, size: Size) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let lines = characters.chunks(size.columns.max(1));
    let lines = lines.map(|line| line.iter().collect());
    lines.take(size.rows.max(1)).collect()
}

/// No longer than that, and nothing that moves the cursor.
fn cut(text: &str, columns: usize) -> String {
    let plain = text.chars().filter(|c| !c.is_control());
    plain.take(columns).collect()
}

#[cfg(test)]
mod tests {
    use super::super::history::History;
    use super::super::history::tests::{at, record};
    use super::*;

    const SIZE: Size = Size {
        columns: 60,
        rows: 20,
    };

    fn drawn(history: &History, size: Size, now: Moment) -> Vec<String> {
        let spans: Vec<&Span> = history.spans().collect();
        screen(size, Marks::BLOCKS, "lease x\n  leader    b", &spans, now)
    }

    fn handover() -> History {
        let mut history = History::default();
        history.saw(at(0), &record(Some("a"), 1));
        history.saw(at(10_000), &record(None, 1));
        history.saw(at(10_002), &record(Some("b"), 2));
        history.pass(at(20_000), true);
        history
    }

    #[test]
    fn two_leaders_have_a_lane_each_and_a_short_gap_is_seen_in_both() {
        let lines = drawn(&handover(), SIZE, at(20_000));
        let lane = |name: &str| {
            let line = lines.iter().find(|line| line.starts_with(name));
            line.unwrap_or_else(|| panic!("{lines:?}")).clone()
        };
        let (a, b) = (lane("a "), lane("b "));
        let counted = |lane: &str, what: char| lane.matches(what).count();
        let gap = counted(&a, '¦');
        assert!((1..=2).contains(&gap), "a gap of 2 ms has a column: {a}");
        assert_eq!(counted(&b, '¦'), gap, "in both lanes: {b}");
        assert_eq!(counted(&a, '█') + counted(&b, '█') + gap, 54, "{a}{b}");
        assert!(
            counted(&a, '█').abs_diff(counted(&b, '█')) <= 2,
            "to scale: {a}{b}"
        );
        for (a, b) in a.chars().skip(6).zip(b.chars().skip(6)) {
            assert!((a == '█') != (b == '█') || a == '¦', "{a}{b}");
        }
        assert!(
            lines
                .iter()
                .any(|line| line.contains("2ms  gap: nobody leads")),
            "{lines:?}"
        );
        assert!(
            lines
                .iter()
                .any(|line| line.contains("20s ago") && line.ends_with("now"))
        );
    }

    #[test]
    fn nothing_is_wider_or_higher_than_the_terminal() {
        let mut history = History::default();
        for term in 0..40 {
            let name = format!("a-replica-with-a-name-that-is-long-{term}");
            history.saw(at(term * 1000), &record(Some(&name), term));
        }
        for (columns, rows) in [
            (40, 12),
            (41, 13),
            (80, 24),
            (200, 60),
            (2000, 1000),
            (30, 5),
            (1, 1),
        ] {
            let lines = drawn(&history, Size { columns, rows }, at(40_000));
            assert!(lines.len() <= rows, "{columns} x {rows}: {lines:?}");
            let widest = lines.iter().map(|line| line.chars().count()).max();
            assert!(widest <= Some(columns), "{columns} x {rows}: {lines:?}");
        }
    }

    #[test]
    fn a_terminal_that_is_too_small_is_told_what_is_needed() {
        let small = Size {
            columns: 39,
            rows: 30,
        };
        let said = drawn(&handover(), small, at(20_000)).concat();
        assert!(
            said.contains("too small: 39 x 30; 40 columns and 12 rows are needed"),
            "{said}"
        );
    }

    #[test]
    fn without_unicode_it_is_drawn_with_what_every_terminal_has() {
        let history = handover();
        let spans: Vec<&Span> = history.spans().collect();
        let lines = screen(SIZE, Marks::ASCII, "lease x", &spans, at(20_000));
        assert!(lines.iter().all(|line| line.is_ascii()), "{lines:?}");
        let lane = lines.iter().find(|line| line.starts_with("a ")).unwrap();
        assert!(
            lane.contains("###") && lane.contains("...") && lane.contains('|'),
            "{lane}"
        );
    }

    #[test]
    fn what_would_move_the_cursor_is_left_out() {
        let spans: [&Span; 0] = [];
        let lines = screen(SIZE, Marks::BLOCKS, "lease \u{1b}[2Jx\r", &spans, at(0));
        assert_eq!(lines[0], "lease [2Jx");
    }
}
