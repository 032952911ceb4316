//! The log, on standard error. Writing it can neither end nor hold up the program: see [`lines`].

mod lines;

use std::io;
use std::str::FromStr;

use tracing::error;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{fmt, registry};

use crate::cli::{LogArgs, LogFormat};
use crate::terminal;
pub(crate) use lines::DroppedLines;
use lines::Lines;

/// What is logged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Filter(Targets);

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} says not what is to be logged: write off, error, warn, info, debug or trace, or soloist=debug,warn"
            )
        };
        // A word that is no level would be taken for the name of a module, and nothing would be logged.
        let is_level = |part: &str| {
            part.contains('=') || !part.is_empty() && part.parse::<LevelFilter>().is_ok()
        };
        if !text.split(',').all(is_level) {
            return Err(wrong());
        }
        text.parse().map(Self).map_err(|_| wrong())
    }
}

/// The log. What is still to be written when it is dropped is written then, as far as that goes quickly.
pub(crate) struct Log(Lines);

impl Log {
    /// How many lines could not be written, at any time.
    pub(crate) fn dropped_lines(&self) -> DroppedLines {
        self.0.dropped()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.flush();
    }
}

pub(crate) fn start(args: &LogArgs) -> io::Result<Log> {
    let lines = Lines::start(args.log)?;
    let filtered = registry().with(args.log_level.0.clone());
    let log = fmt::layer()
        .with_writer(lines.clone())
        // It would write them to standard error itself, and panic if that fails.
        .log_internal_errors(false)
        .with_target(false);
    match args.log {
        LogFormat::Text => {
            let colours = terminal::shows_colours(&io::stderr());
            filtered.with(log.with_ansi(colours)).init();
        }
        LogFormat::Json => filtered.with(log.json().flatten_event(true)).init(),
    }
    // The usual one writes to standard error itself, however long that takes.
    std::panic::set_hook(Box::new(|panic| error!("{panic}")));
    Ok(Log(lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_level_or_says_whose() {
        for text in [
            "info",
            "WARN",
            "off",
            "soloist=debug",
            "warn,soloist_elector=trace",
        ] {
            assert!(text.parse::<Filter>().is_ok(), "{text}");
        }
        for text in [
            "",
            "inof",
            "soloist",
            "soloist=loud",
            "info,nonsense",
            "a=b=c",
        ] {
            assert!(text.parse::<Filter>().is_err(), "{text}");
        }
    }
}
