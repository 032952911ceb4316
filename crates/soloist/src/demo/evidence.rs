//! What is known of the children, from what they write, and what is shown of it.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use soloist_core::time::Moment;
use soloist_elector::clock;
use tokio::time::sleep;

use super::board::{Board, Condition};
use super::faults::Fault;
use super::feed::Feed;
use super::journal::Reader;
use super::proof::Proof;
use super::replicas::{FEED, JOURNAL, NAMES};

/// The times are those of the journal, however rarely it is looked at.
const LOOK: Duration = Duration::from_millis(50);

pub(super) struct Evidence {
    feed: Feed,
    reader: Reader,
    proof: Proof,
    /// The fault that each switch came from, as far as there was one.
    causes: Vec<Option<Fault>>,
    pub(super) board: Board,
}

impl Evidence {
    pub(super) fn open(folder: &Path, begun: Moment) -> anyhow::Result<Self> {
        Ok(Self {
            feed: Feed::serve(&folder.join(FEED))?,
            reader: Reader::open(&folder.join(JOURNAL)).context("the journal")?,
            proof: Proof::default(),
            causes: Vec::new(),
            board: Board::new(begun),
        })
    }

    pub(super) const fn proof(&self) -> &Proof {
        &self.proof
    }

    pub(super) fn causes(&self) -> &[Option<Fault>] {
        &self.causes
    }

    /// So many consumers were refused for their token.
    pub(super) fn refused(&self) -> u64 {
        self.feed.refused()
    }

    /// All switches that are there and have no cause yet have this one.
    pub(super) fn attribute(&mut self, cause: Option<Fault>) {
        self.causes.resize(self.proof.switches().len(), cause);
    }

    pub(super) fn set_condition(&mut self, replica: &str, condition: Condition) {
        let of = NAMES.iter().position(|name| *name == replica);
        if let Some(at) = of {
            self.board.conditions[at] = condition;
        }
    }

    pub(super) fn look(&mut self) -> anyhow::Result<()> {
        for line in self.reader.lines().context("the journal")? {
            self.proof.add(line);
        }
        if self.board.is_due(clock::now()) {
            self.show();
        }
        Ok(())
    }

    /// Until it fails.
    pub(super) async fn keep_looking(&mut self) -> anyhow::Result<Infallible> {
        loop {
            self.look()?;
            sleep(LOOK).await;
        }
    }

    fn show(&mut self) {
        let refused = self.feed.refused();
        self.board.show(&self.proof, &self.causes, refused);
    }

    /// Nothing more will come.
    pub(super) fn close(&mut self) {
        self.show();
        self.board.close();
    }
}
