//! The proof: each message once and in order, never two children. Counted from the journal alone.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use soloist_core::time::Moment;

use super::journal::{Author, Event, Line};

/// So many of what is wrong are told in words.
const TOLD: usize = 5;
/// So many children that are no more are remembered, for the picture.
const FORMER: usize = 60;

/// What is known from the lines so far.
#[derive(Debug, Default)]
pub(super) struct Proof {
    last_number: u64,
    children: u64,
    overlaps: u64,
    wrong_messages: u64,
    stale_tokens: u64,
    unreadable: u64,
    current: Option<Current>,
    /// Those before it, the last of them.
    former: VecDeque<Current>,
    switches: Vec<Switch>,
    told: Vec<String>,
}

/// The child that runs, or ran last.
#[derive(Clone, Debug)]
pub(super) struct Current {
    pub(super) author: Author,
    pub(super) began: Moment,
    pub(super) handled: u64,
    pub(super) last_line: Moment,
}

/// From one child to the next.
#[derive(Clone, Debug)]
pub(super) struct Switch {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) token: u64,
    /// From the last line of the one to the first of the other: at least as long as there was no child.
    pub(super) silence: Duration,
}

impl Proof {
    pub(super) fn add(&mut self, line: Result<Line, String>) {
        match line {
            Ok(line) => self.add_line(&line),
            Err(text) => {
                self.unreadable += 1;
                self.tell(format!("a line that cannot be read: {text:?}"));
            }
        }
    }

    fn add_line(&mut self, line: &Line) {
        let Line { at, author, event } = line;
        match event {
            Event::Start => return self.begin(*at, author),
            Event::FoundAnother => {
                self.overlaps += 1;
                self.tell(format!("{} found another child alive", name(author)));
                return;
            }
            Event::Handled(_) | Event::End => {}
        }
        match &mut self.current {
            Some(current) if current.author == *author => current.last_line = *at,
            current => {
                let other = current.as_ref().map(|current| name(&current.author));
                let other = other.unwrap_or_else(|| "nobody".into());
                self.overlaps += 1;
                self.tell(format!(
                    "{} wrote although {other} was the child",
                    name(author)
                ));
            }
        }
        if let Event::Handled(number) = event {
            self.handled(*number, author);
        }
    }

    fn begin(&mut self, at: Moment, author: &Author) {
        self.children += 1;
        if let Some(last) = &self.current {
            let stale = author.token < last.author.token;
            let backwards = at < last.last_line;
            let switch = Switch {
                from: last.author.replica.clone(),
                to: author.replica.clone(),
                token: author.token,
                silence: at.since(last.last_line),
            };
            let last = name(&last.author);
            if stale {
                self.stale_tokens += 1;
                self.tell(format!("{} came after {last}", name(author)));
            }
            if backwards {
                self.overlaps += 1;
                self.tell(format!("{} began before {last} had ended", name(author)));
            }
            self.switches.push(switch);
        }
        let next = Current {
            author: author.clone(),
            began: at,
            handled: 0,
            last_line: at,
        };
        if let Some(last) = self.current.replace(next) {
            if self.former.len() >= FORMER {
                self.former.pop_front();
            }
            self.former.push_back(last);
        }
    }

    fn handled(&mut self, number: u64, author: &Author) {
        let expected = self.last_number + 1;
        if number != expected {
            self.wrong_messages += 1;
            self.tell(format!(
                "{} handled message {number}, not {expected}",
                name(author)
            ));
        }
        self.last_number = self.last_number.max(number);
        if let Some(current) = &mut self.current {
            current.handled += 1;
        }
    }

    fn tell(&mut self, what: String) {
        if self.told.len() < TOLD {
            self.told.push(what);
        }
    }

    pub(super) fn current(&self) -> Option<&Current> {
        self.current.as_ref()
    }

    /// The last ones, the oldest first.
    pub(super) fn children(&self) -> impl Iterator<Item = &Current> {
        self.former.iter().chain(&self.current)
    }

    pub(super) fn switches(&self) -> &[Switch] {
        &self.switches
    }

    /// Without a message there is nothing to prove.
    pub(super) fn holds(&self) -> bool {
        let wrong = self.overlaps + self.wrong_messages + self.stale_tokens + self.unreadable;
        self.last_number > 0 && wrong == 0
    }

    pub(super) fn json(&self, refused: u64) -> Value {
        json!({
            "messages": self.last_number, "wrong_messages": self.wrong_messages, "children": self.children,
            "overlaps": self.overlaps, "stale_tokens": self.stale_tokens, "unreadable": self.unreadable,
            "refused": refused, "holds": self.holds(), "wrong": self.told,
        })
    }

    /// In one line.
    pub(super) fn so_far(&self) -> String {
        format!(
            "messages 1 to {}: {}; children {}, overlaps {}",
            self.last_number,
            self.order(),
            self.children,
            self.overlaps
        )
    }

    fn order(&self) -> String {
        match self.wrong_messages {
            0 => "each once and in order".into(),
            wrong => format!("{wrong} lost, repeated or out of order"),
        }
    }

    pub(super) fn summary(&self) -> String {
        let mut text = String::from("The proof, from what the children wrote themselves\n");
        let _ = writeln!(
            text,
            "  messages  1 to {}: {}",
            self.last_number,
            self.order()
        );
        let _ = writeln!(
            text,
            "  children  {} one after the other, overlaps {}",
            self.children, self.overlaps
        );
        let tokens = match self.stale_tokens {
            0 => "never went back".into(),
            stale => format!("went back {stale} times"),
        };
        let _ = writeln!(text, "  tokens    {tokens}");
        for what in &self.told {
            let _ = writeln!(text, "  WRONG     {what}");
        }
        let verdict = match (self.holds(), self.last_number) {
            (true, _) => "The proof holds.",
            (false, 0) => "There is no proof: no message was handled.",
            (false, _) => "THE PROOF DOES NOT HOLD.",
        };
        let _ = writeln!(text, "  {verdict}");
        text
    }
}

fn name(author: &Author) -> String {
    format!("{}'s child {}", author.replica, author.pid) + &format!(" (token {})", author.token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(lines: &[(&str, u64, Event)]) -> Proof {
        let mut proof = Proof::default();
        for (millis, (replica, token, event)) in (0u64..).zip(lines) {
            proof.add(Ok(Line {
                at: Moment::since_boot(Duration::from_millis(millis * 10)),
                author: Author {
                    replica: (*replica).into(),
                    pid: 1,
                    token: *token,
                },
                event: *event,
            }));
        }
        proof
    }

    #[test]
    fn one_child_after_the_other_and_each_message_once_is_what_is_to_be_proved() {
        let proof = proof(&[
            ("a", 1, Event::Start),
            ("a", 1, Event::Handled(1)),
            ("b", 2, Event::Start),
            ("b", 2, Event::Handled(2)),
            ("b", 2, Event::End),
        ]);
        assert!(proof.holds(), "{}", proof.summary());
        let [switch] = proof.switches() else {
            panic!("{:?}", proof.switches());
        };
        assert_eq!(switch.silence, Duration::from_millis(10));
        assert!(proof.summary().contains("overlaps 0"));
    }

    #[test]
    fn a_child_that_writes_after_the_next_has_begun_is_an_overlap() {
        let proof = proof(&[
            ("a", 1, Event::Start),
            ("a", 1, Event::Handled(1)),
            ("b", 2, Event::Start),
            ("a", 1, Event::Handled(2)),
        ]);
        assert!(!proof.holds());
        assert!(proof.so_far().contains("overlaps 1"), "{}", proof.summary());
    }

    #[test]
    fn a_child_that_found_another_alive_is_an_overlap() {
        let proof = proof(&[
            ("a", 1, Event::Start),
            ("a", 1, Event::Handled(1)),
            ("b", 2, Event::FoundAnother),
        ]);
        assert!(!proof.holds(), "{}", proof.summary());
    }

    #[test]
    fn a_message_twice_or_left_out_is_found() {
        for numbers in [[1, 1], [1, 3], [2, 1]] {
            let [first, second] = numbers.map(Event::Handled);
            let proof = proof(&[("a", 1, Event::Start), ("a", 1, first), ("a", 1, second)]);
            assert!(!proof.holds(), "{numbers:?}: {}", proof.summary());
            assert!(proof.summary().contains("out of order"));
        }
    }

    #[test]
    fn a_token_that_goes_back_is_found() {
        let proof = proof(&[
            ("a", 2, Event::Start),
            ("a", 2, Event::Handled(1)),
            ("b", 1, Event::Start),
        ]);
        assert!(!proof.holds(), "{}", proof.summary());
    }

    #[test]
    fn nothing_handled_proves_nothing() {
        assert!(!proof(&[("a", 1, Event::Start)]).holds());
    }
}
