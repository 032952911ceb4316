//! The consumer of streams beside a bare loop over the same feed, and the memory that it takes.
//!
//! The bare loop acknowledges nothing and survives nothing: it is what a stream can give at most.

mod client;
mod counter;
mod process;
mod server;

use clap::Parser;
use serde_json::{Value, json};

use client::{Plan, Report, Way};
use server::Server;

/// Positions from here on take the same number of bytes, so that later runs are not slower than earlier ones.
const BEGIN: u64 = 1 << 21;
const COLUMNS: [(Way, &str); 4] = [
    (Way::Bare, "bare"),
    (Way::One, "consumer"),
    (Way::Many, "concurrency 16"),
    (Way::Narrow, "window 10,000"),
];

/// What this program does when the benchmark starts it again.
#[derive(Debug, Parser)]
#[command(name = Self::NAME)]
pub(crate) enum Part {
    /// Serves the feed until it is killed.
    Server(server::Arguments),
    /// Reads the feed once and reports.
    Client(Plan),
}

impl Part {
    const NAME: &str = "stream-part";

    pub(crate) fn asked_for() -> Option<Self> {
        let mut words = std::env::args_os().skip(1).peekable();
        let is_ours = words.peek().is_some_and(|word| word == Self::NAME);
        is_ours.then(|| Self::parse_from(words))
    }

    // Threads as in a user's program.
    #[tokio::main]
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Server(arguments) => server::serve(&arguments).await,
            Self::Client(plan) => client::run(plan).await,
        }
    }
}

pub(crate) async fn measure(rounds: u32, messages: u64) -> anyhow::Result<Value> {
    let mut server = Server::start(BEGIN).await?;
    let mut runs = COLUMNS.map(|_| Vec::new());
    println!("\nStream, {messages} messages of 32 bytes a run, messages a second");
    println!("round {}", cells(COLUMNS.map(|(_, name)| name.to_owned())));
    for round in 1..=rounds {
        for ((way, _), reports) in COLUMNS.into_iter().zip(&mut runs) {
            reports.push(server.read(way, messages).await?);
        }
        let latest = runs.each_ref().map(|reports| {
            let rate = reports.last().map_or(0.0, Report::rate);
            format!("{rate:.0}")
        });
        println!("{round:<5} {}", cells(latest));
    }
    let rates = runs.each_ref().map(|reports| median(reports, Report::rate));
    let costs = runs.each_ref().map(|reports| median(reports, Report::cost));
    let ratios = rates.map(|rate| rate / rates[0]);
    println!("median{}", cells(rates.map(|rate| format!("{rate:.0}"))));
    println!("ratio {}", cells(ratios.map(|ratio| format!("{ratio:.3}"))));
    let costs_text = costs.map(|cost| format!("{cost:.0}"));
    println!("CPU   {}   ns a message", cells(costs_text));

    let steady = server.read(Way::Watched, messages).await?.rss_kib;
    let slow = server.read(Way::Slow, messages).await?.rss_kib;
    println!("\nMemory of the consumer, RSS in KiB");
    println!("{messages} messages, at 10, 50 and 100 %: {steady:?}");
    let [first, last, most] = span(&slow);
    println!("a slow handler, 10 s: first {first}, last {last}, most {most}");

    let column = |index: usize| {
        let reports: &[Report] = &runs[index];
        json!({
            "rates": reports.iter().map(Report::rate).collect::<Vec<_>>(),
            "median": rates[index],
            "ratio": ratios[index],
            "cpu_ns_per_message": costs[index],
        })
    };
    Ok(json!({
        "messages": messages,
        "bare": column(0),
        "consumer": column(1),
        "consumer_concurrency_16": column(2),
        "consumer_window_10000": column(3),
        "memory": {
            "rss_kib_at_10_50_100_percent": steady,
            "slow_rss_kib": {"first": first, "last": last, "max": most},
        },
    }))
}

fn cells<const N: usize>(texts: [String; N]) -> String {
    texts.map(|text| format!("{text:>16}")).concat()
}

/// The upper one of two.
fn median(reports: &[Report], figure: fn(&Report) -> f64) -> f64 {
    let mut figures: Vec<_> = reports.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

/// First, last and most.
fn span(values: &[u64]) -> [u64; 3] {
    let ends = [values.first(), values.last(), values.iter().max()];
    ends.map(|value| value.copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_and_measured() {
        let report = |seconds| Report {
            messages: 10,
            seconds,
            ..Report::default()
        };
        let reports = [10.0, 1.0, 5.0].map(report);
        assert_eq!(median(&reports, Report::rate), 2.0);
        assert_eq!(median(&[], Report::rate), 0.0);
    }

    #[test]
    fn a_span_has_its_ends_and_its_peak() {
        assert_eq!(span(&[3, 9, 4]), [3, 4, 9]);
    }
}
