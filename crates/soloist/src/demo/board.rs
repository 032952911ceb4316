//! What the page is told: how it is now, and the story so far.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};
use soloist_core::time::Moment;
use soloist_elector::clock;
use tokio::sync::watch;

use super::faults::Fault;
use super::proof::Proof;
use super::replicas::NAMES;

/// Between two pictures.
const EVERY: Duration = Duration::from_millis(100);
/// Older lines, switches and children are left out.
const LINES: usize = 100;
const SWITCHES: usize = 40;
const CHILDREN: usize = 60;

/// What was done to a replica and is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Well,
    Dead,
    Frozen,
    CutOff,
}

/// The writer's side.
pub(super) struct Board {
    begun: Moment,
    pub(super) conditions: [Condition; NAMES.len()],
    under_way: Option<Fault>,
    lines: VecDeque<Value>,
    last: Option<Moment>,
    picture: watch::Sender<Picture>,
}

/// The reader's side of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Picture {
    pub(super) now: String,
    pub(super) story: String,
    pub(super) is_busy: bool,
    pub(super) is_over: bool,
}

impl Board {
    pub(super) fn new(begun: Moment) -> Self {
        Self {
            begun,
            conditions: [Condition::Well; NAMES.len()],
            under_way: None,
            lines: VecDeque::new(),
            last: None,
            picture: watch::Sender::new(Picture::default()),
        }
    }

    pub(super) fn reader(&self) -> watch::Receiver<Picture> {
        self.picture.subscribe()
    }

    pub(super) fn tell(&mut self, since: &str, what: &str) {
        if self.lines.len() >= LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(json!({ "at": since, "what": what }));
        let story: Value = self.lines.iter().cloned().collect();
        self.picture
            .send_modify(|picture| picture.story = story.to_string());
    }

    /// One at a time.
    pub(super) fn is_under_way(&mut self, fault: Option<Fault>) {
        self.under_way = fault;
        self.last = None;
        self.picture
            .send_modify(|picture| picture.is_busy = fault.is_some());
    }

    pub(super) fn is_due(&self, now: Moment) -> bool {
        self.last.is_none_or(|last| now.since(last) >= EVERY)
    }

    pub(super) fn show(&mut self, proof: &Proof, causes: &[Option<Fault>], refused: u64) {
        let now = clock::now();
        self.last = Some(now);
        let text = self.now(now, proof, causes, refused).to_string();
        self.picture.send_modify(|picture| picture.now = text);
    }

    /// The last picture is there.
    pub(super) fn close(&self) {
        self.picture.send_modify(|picture| picture.is_over = true);
    }

    fn now(&self, now: Moment, proof: &Proof, causes: &[Option<Fault>], refused: u64) -> Value {
        let since = |at: Moment| at.since(self.begun).as_secs_f64();
        let current = proof.current();
        let replicas = NAMES.iter().zip(self.conditions).map(|(name, condition)| {
            let leads = current.is_some_and(|current| current.author.replica == *name);
            let state = match (condition, leads) {
                (Condition::Dead, _) => "dead",
                (Condition::Frozen, _) => "frozen",
                (Condition::CutOff, _) => "cut off",
                (Condition::Well, true) => "leads",
                (Condition::Well, false) => "stands by",
            };
            json!({ "name": name, "state": state })
        });
        let causes = causes.iter().copied().chain(std::iter::repeat(None));
        let switches: Vec<Value> = proof
            .switches()
            .iter()
            .zip(causes)
            .map(|(switch, cause)| {
                json!({
                    "cause": cause.map(Fault::name), "from": switch.from, "to": switch.to, "token": switch.token,
                    "seconds": switch.silence.as_secs_f64(),
                })
            })
            .collect();
        let children: Vec<Value> = proof
            .children()
            .map(|child| {
                json!({
                    "replica": child.author.replica, "token": child.author.token, "pid": child.author.pid,
                    "from": since(child.began), "to": since(child.last_line), "messages": child.handled,
                })
            })
            .collect();
        json!({
            "seconds": since(now),
            "fault": self.under_way.map(Fault::name),
            "replicas": replicas.collect::<Value>(),
            "children": last(children, CHILDREN),
            "proof": proof.json(refused),
            "switches": last(switches, SWITCHES),
        })
    }
}

fn last(mut all: Vec<Value>, most: usize) -> Value {
    all.drain(..all.len().saturating_sub(most));
    all.into()
}
