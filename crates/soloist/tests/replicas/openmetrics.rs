//! The OpenMetrics text format, read as strictly as promtool does.

use std::collections::BTreeSet;

/// One metric as it is declared, with its samples.
#[derive(Debug, Default)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) help: String,
    pub(crate) unit: Option<String>,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: f64,
}

impl Sample {
    fn label(&self, name: &str) -> Option<&str> {
        let mut found = self.labels.iter().filter(|(key, _)| key == name);
        found.next().map(|(_, value)| value.as_str())
    }
}

impl Metric {
    /// As it is asked for in queries.
    pub(crate) fn queried(&self) -> String {
        match self.kind.as_str() {
            "counter" => format!("{}_total", self.name),
            _ => self.name.clone(),
        }
    }

    /// The names of its labels, but for those of a histogram's buckets.
    pub(crate) fn labels(&self) -> BTreeSet<&str> {
        let labels = self.samples.iter().flat_map(|sample| &sample.labels);
        let names = labels.map(|(name, _)| name.as_str());
        names.filter(|name| *name != "le").collect()
    }

    fn suffixes(&self) -> &'static [&'static str] {
        match self.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            kind => panic!("{}: {kind:?} is no type", self.name),
        }
    }

    fn check(&self) {
        let Self { name, samples, .. } = self;
        assert!(is_name(name), "{name:?}");
        assert!(!self.help.is_empty(), "{name} has no help");
        assert!(!self.samples.is_empty(), "{name} has no samples");
        let ends = ["_total", "_bucket", "_sum", "_count"];
        assert!(!ends.iter().any(|end| name.ends_with(end)), "{name}");
        if let Some(unit) = &self.unit {
            assert!(name.ends_with(&format!("_{unit}")), "{name} is in {unit}");
        }
        for sample in samples {
            let suffix = sample.name.strip_prefix(name.as_str());
            let known = suffix.is_some_and(|suffix| self.suffixes().contains(&suffix));
            assert!(known, "{} is none of {name}'s", sample.name);
            let never_negative = self.kind != "gauge";
            assert!(!never_negative || sample.value >= 0.0, "{sample:?}");
        }
        if self.kind == "histogram" {
            self.check_buckets();
        }
    }

    fn check_buckets(&self) {
        let named = |suffix: &str| {
            let name = format!("{}{suffix}", self.name);
            let of = self
                .samples
                .iter()
                .filter(move |sample| sample.name == name);
            of.collect::<Vec<_>>()
        };
        let [count] = named("_count")[..] else {
            panic!("{} has not one count", self.name);
        };
        assert_eq!(named("_sum").len(), 1, "{}", self.name);
        let mut before = (f64::NEG_INFINITY, 0.0);
        for bucket in named("_bucket") {
            let bound = number(bucket.label("le").expect("a bucket has a bound"));
            assert!(bound > before.0 && bucket.value >= before.1, "{bucket:?}");
            before = (bound, bucket.value);
        }
        assert_eq!(before, (f64::INFINITY, count.value), "{}", self.name);
    }
}

/// Reads all of it; whatever is not as it should be ends the test.
pub(crate) fn parse(text: &str) -> Vec<Metric> {
    let body = text.strip_suffix("# EOF\n").expect("it ends with # EOF");
    let mut metrics: Vec<Metric> = Vec::new();
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let mut word = || words.next().unwrap_or_else(|| panic!("{line:?}"));
            let (keyword, name, text) = (word(), word(), word());
            if metrics.last().is_none_or(|metric| metric.name != name) {
                let twice = metrics.iter().any(|metric| metric.name == name);
                assert!(!twice, "{name} is in two places");
                metrics.push(Metric {
                    name: name.into(),
                    ..Metric::default()
                });
            }
            let metric = metrics.last_mut().unwrap();
            assert!(metric.samples.is_empty(), "{line:?} comes too late");
            let field = match keyword {
                "HELP" => &mut metric.help,
                "TYPE" => &mut metric.kind,
                "UNIT" => metric.unit.get_or_insert_default(),
                _ => panic!("{line:?}"),
            };
            assert!(field.is_empty(), "{line:?} is there twice");
            text.clone_into(field);
        } else {
            let metric = metrics.last_mut().expect("a sample has a type");
            metric.samples.push(sample(line));
        }
    }
    let mut seen = BTreeSet::new();
    for metric in &metrics {
        metric.check();
        for sample in &metric.samples {
            let mut labels = sample.labels.clone();
            labels.sort();
            let is_new = seen.insert((sample.name.clone(), labels));
            assert!(is_new, "{sample:?} is there twice");
        }
    }
    metrics
}

fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
    let (name, labels) = match series.split_once('{') {
        None => (series, Vec::new()),
        Some((name, rest)) => {
            let inside = rest.strip_suffix('}').unwrap_or_else(|| panic!("{line:?}"));
            (name, inside.split(',').map(label).collect())
        }
    };
    assert!(is_name(name), "{line:?}");
    Sample {
        name: name.into(),
        labels,
        value: number(value),
    }
}

/// No value of ours has a comma, a quote or a backslash.
fn label(text: &str) -> (String, String) {
    let (name, value) = text.split_once('=').unwrap_or_else(|| panic!("{text:?}"));
    let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
    let value = value.unwrap_or_else(|| panic!("{text:?} is not quoted"));
    assert!(is_name(name) && !name.contains(':'), "{text:?}");
    assert!(!value.contains(['"', '\\']), "{text:?}");
    (name.into(), value.into())
}

fn number(text: &str) -> f64 {
    match text {
        "+Inf" => f64::INFINITY,
        _ => text
            .parse()
            .unwrap_or_else(|_| panic!("{text:?} is no number")),
    }
}

fn is_name(text: &str) -> bool {
    let first = text.chars().next();
    first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The value of the one sample that is called so and has these labels.
pub(crate) fn value(text: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let metrics = parse(text);
    let mut samples = metrics.iter().flat_map(|metric| &metric.samples);
    let found = samples.find(|sample| {
        let has = |(key, value): &(&str, &str)| sample.label(key) == Some(*value);
        sample.name == name && labels.iter().all(has)
    });
    found
        .unwrap_or_else(|| panic!("no {name} {labels:?} in\n{text}"))
        .value
}
