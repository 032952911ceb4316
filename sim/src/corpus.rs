//! Seeds worth playing again: `sim/corpus.txt`, one a line, with why.

const CORPUS: &str = include_str!("../corpus.txt");

/// The seeds of the corpus.
pub fn seeds() -> impl Iterator<Item = u64> {
    CORPUS
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter(|seed| !seed.is_empty())
        .map(|seed| {
            seed.parse()
                .expect("sim/corpus.txt: a line begins with a seed")
        })
}
