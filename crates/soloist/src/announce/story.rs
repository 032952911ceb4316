//! What of all that happens in a replica is worth an Event, in words.

use soloist_core::election::Loss;
use soloist_core::ids::Identity;
use soloist_core::node::{Notice, TreeCommand, TreeEvent};
use soloist_core::orders::Ordered;
use soloist_core::replica::Exit;
use soloist_elector::orders::timestamp;

use crate::cordon::Move;

/// One Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) reason: &'static str,
    pub(super) warning: bool,
    pub(super) note: String,
}

impl Told {
    const fn normal(reason: &'static str, note: String) -> Self {
        Self {
            reason,
            warning: false,
            note,
        }
    }

    const fn warning(reason: &'static str, note: String) -> Self {
        Self {
            reason,
            warning: true,
            note,
        }
    }
}

/// Remembers what it takes to tell.
#[derive(Debug)]
pub(super) struct Story {
    identity: Identity,
    leads: bool,
    asked_to_stop: bool,
    ordered: Option<Ordered>,
    /// Why we leave our node.
    moves: Option<String>,
    heir: Option<Identity>,
    resigned: bool,
    told_of_pause: bool,
    child: Child,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Child {
    None,
    Running,
    AskedToStop,
}

impl Story {
    pub(super) const fn new(identity: Identity) -> Self {
        Self {
            identity,
            leads: false,
            asked_to_stop: false,
            ordered: None,
            moves: None,
            heir: None,
            resigned: false,
            told_of_pause: false,
            child: Child::None,
        }
    }

    pub(super) const fn asked_to_stop(&mut self) {
        self.asked_to_stop = true;
    }

    pub(super) fn heir_is(&mut self, heir: &Identity) {
        self.heir = Some(heir.clone());
    }

    pub(super) fn moves(&mut self, found: &Move) {
        let Move {
            heir,
            node,
            leaving,
        } = found;
        self.heir_is(heir);
        self.moves = Some(format!(
            "its node {node} {leaving}, and {heir} is ready on another"
        ));
    }

    pub(super) fn notice(&mut self, notice: &Notice, released: bool) -> Option<Told> {
        let who = &self.identity;
        match notice {
            Notice::Elected(elected) => {
                (self.leads, self.resigned) = (true, false);
                (self.ordered, self.heir, self.moves) = (None, None, None);
                let (term, token) = (elected.term, elected.token);
                let note = format!("{who} leads in term {term} (token {token})");
                Some(Told::normal("BecameLeader", note))
            }
            Notice::Lost(Loss::Resigned) => {
                let note = format!(
                    "{who} stops leading: {}; the lease is kept until nothing is left of the child",
                    self.why()
                );
                (self.leads, self.resigned) = (false, true);
                Some(Told::normal("StoppedLeading", note))
            }
            Notice::Lost(loss) => {
                let note = format!("{who} has lost the lease: {}", in_words(loss));
                (self.leads, self.resigned) = (false, false);
                Some(Told::warning("StoppedLeading", note))
            }
            Notice::Left if self.resigned && released => {
                self.resigned = false;
                let heir = match self.heir.take() {
                    Some(heir) => format!("; {heir} is to lead next"),
                    None => String::new(),
                };
                let note = format!("{who} has released the lease{heir}");
                Some(Told::normal("HandedOver", note))
            }
            Notice::Ordered(ordered) => {
                if let Ordered::Handover(heir) = ordered {
                    self.heir.clone_from(heir);
                }
                self.ordered = Some(ordered.clone());
                None
            }
            // All replicas see it; one tells.
            Notice::Paused(Some(pause)) if self.leads => {
                self.told_of_pause = true;
                let until = pause.until.and_then(timestamp);
                let until = until.map_or("it is resumed".into(), |until| until.to_string());
                let child = match pause.stop {
                    true => "the child is stopped and nobody leads",
                    false => "nobody takes over",
                };
                Some(Told::normal(
                    "Paused",
                    format!("paused: {child} until {until}"),
                ))
            }
            Notice::Paused(None) if self.told_of_pause => {
                self.told_of_pause = false;
                Some(Told::normal("Resumed", "the pause is over".into()))
            }
            _ => None,
        }
    }

    fn why(&self) -> String {
        match &self.ordered {
            _ if self.asked_to_stop => "it was asked to stop".into(),
            Some(Ordered::Handover(Some(heir))) => format!("a handover to {heir} was ordered"),
            Some(Ordered::Handover(None)) => "a handover was ordered".into(),
            Some(Ordered::Stop) => "a pause was ordered that stops the child".into(),
            None if self.moves.is_some() => self.moves.clone().unwrap_or_default(),
            None => "its child has ended or cannot go on here".into(),
        }
    }

    pub(super) fn command(&mut self, command: TreeCommand) -> Option<Told> {
        match command {
            TreeCommand::Start { .. } => self.child = Child::Running,
            TreeCommand::Stop if self.child == Child::Running => self.child = Child::AskedToStop,
            TreeCommand::Kill if self.child != Child::None => {
                let note = match self.child {
                    Child::AskedToStop => "it was asked to stop and is not gone in time",
                    Child::Running | Child::None => "it may not run any longer",
                };
                self.child = Child::None;
                let note = format!("the child of {} is killed: {note}", self.identity);
                return Some(Told::warning("ChildKilled", note));
            }
            _ => {}
        }
        None
    }

    pub(super) fn child(&mut self, event: TreeEvent) -> Option<Told> {
        let TreeEvent::Exited(exit) = event else {
            return None;
        };
        let before = std::mem::replace(&mut self.child, Child::None);
        let how = match exit {
            _ if before != Child::Running => return None,
            Exit::Code(code) => format!("with code {code}"),
            Exit::Signal(signal) => format!("by signal {signal}"),
        };
        let note = format!("the child of {} has ended by itself, {how}", self.identity);
        Some(match exit {
            Exit::Code(0) => Told::normal("ChildEnded", note),
            Exit::Code(_) | Exit::Signal(_) => Told::warning("ChildCrashed", note),
        })
    }
}

fn in_words(loss: &Loss) -> String {
    match loss {
        Loss::RenewDeadline => "it could not be renewed in time".into(),
        Loss::Resigned => "it was given away".into(),
        Loss::Expired => "it ran out".into(),
        Loss::Taken(by) => format!("{by} holds it"),
        Loss::Emptied => "somebody emptied it".into(),
        Loss::Deleted => "somebody deleted it".into(),
        Loss::WrittenBack => "somebody wrote back an earlier state of it".into(),
    }
}

/// Why a term has ended, as its Event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    /// Renewals did not get through in time.
    TooLate,
    /// Another hand has taken, emptied, deleted or reset the lease.
    OtherHand,
    /// Somebody wanted it: a signal, a handover, a pause.
    Asked,
    /// The child could not go on.
    Child,
}

impl Why {
    /// What the note of a `StoppedLeading` says.
    pub(crate) fn of(note: &str) -> Option<Self> {
        let says = |part: &str| note.contains(part);
        let is_lost = says(" has lost the lease: ");
        Some(match () {
            () if is_lost && (says("renewed in time") || says("it ran out")) => Self::TooLate,
            () if is_lost && says("it was given away") => Self::Asked,
            () if is_lost => Self::OtherHand,
            () if says("its child has ended") => Self::Child,
            () if says(" stops leading: ") => Self::Asked,
            () => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use soloist_core::ids::{Term, Token};
    use soloist_core::orders::Pause;
    use soloist_core::time::Moment;

    use super::*;
    use crate::cordon::Leaving;

    fn identity(name: &str) -> Identity {
        Identity::try_new(name).unwrap()
    }

    fn start() -> TreeCommand {
        TreeCommand::Start {
            term: Term::new(1),
            token: Token::new(5),
            deadline: Moment::NEVER,
        }
    }

    fn leader() -> Story {
        let mut story = Story::new(identity("a"));
        story.leads = true;
        story.command(start());
        story
    }

    #[test]
    fn who_stops_leading_says_why_and_then_to_whom() {
        let resigned = Notice::Lost(Loss::Resigned);
        let mut story = leader();
        story.asked_to_stop();
        let told = story.notice(&resigned, false).unwrap();
        assert_eq!(told.reason, "StoppedLeading");
        assert!(told.note.contains("it was asked to stop"), "{}", told.note);
        story.heir_is(&identity("b"));
        let told = story.notice(&Notice::Left, true).unwrap();
        assert_eq!(told.note, "a has released the lease; b is to lead next");
        assert_eq!(story.notice(&Notice::Left, true), None);

        let mut story = leader();
        let ordered = Ordered::Handover(Some(identity("c")));
        assert_eq!(story.notice(&Notice::Ordered(ordered), false), None);
        let told = story.notice(&resigned, false).unwrap();
        assert!(told.note.contains("a handover to c was ordered"));
        assert_eq!(
            story.notice(&Notice::Left, false),
            None,
            "it did not release"
        );
    }

    #[test]
    fn who_leaves_its_node_says_which_and_to_whom() {
        let mut story = leader();
        story.moves(&Move {
            heir: identity("b"),
            node: "one".into(),
            leaving: Leaving::Cordoned,
        });
        let resigned = Notice::Lost(Loss::Resigned);
        let told = story.notice(&resigned, false).unwrap().note;
        let why = "a stops leading: its node one is cordoned, and b is ready on another;";
        assert!(told.starts_with(why), "{told}");
        assert_eq!(Why::of(&told), Some(Why::Asked));
        let told = story.notice(&Notice::Left, true).unwrap();
        assert_eq!(told.note, "a has released the lease; b is to lead next");
    }

    #[test]
    fn a_lost_lease_is_a_warning_with_the_reason_and_no_handover() {
        let mut story = leader();
        let lost = Notice::Lost(Loss::Taken(identity("b")));
        let told = story.notice(&lost, false).unwrap();
        assert!(told.warning);
        assert_eq!(told.note, "a has lost the lease: b holds it");
        assert_eq!(story.notice(&Notice::Left, true), None);
    }

    #[test]
    fn a_child_that_ends_by_itself_has_crashed_and_one_that_was_asked_to_has_not() {
        let crash = TreeEvent::Exited(Exit::Code(7));
        let mut story = leader();
        assert_eq!(story.child(crash).unwrap().reason, "ChildCrashed");
        assert_eq!(story.command(TreeCommand::Kill), None, "what is left of it");
        story.command(start());
        story.command(TreeCommand::Stop);
        assert_eq!(story.child(crash), None);
        story.command(start());
        story.command(TreeCommand::Stop);
        let killed = story.command(TreeCommand::Kill).unwrap();
        assert!(killed.note.contains("asked to stop and is not gone"));
        assert_eq!(story.command(TreeCommand::Kill), None, "once is enough");
    }

    #[test]
    fn of_all_that_see_a_pause_the_leader_tells() {
        let pause = Notice::Paused(Some(Pause {
            stop: false,
            until: None,
        }));
        let mut standby = Story::new(identity("b"));
        assert_eq!(standby.notice(&pause, false), None);
        assert_eq!(standby.notice(&Notice::Paused(None), false), None);
        let mut story = leader();
        assert_eq!(
            story.notice(&pause, false).unwrap().note,
            "paused: nobody takes over until it is resumed"
        );
        let over = story.notice(&Notice::Paused(None), false).unwrap();
        assert_eq!(over.reason, "Resumed");
    }

    #[test]
    fn why_a_term_has_ended_can_be_read_from_what_was_told() {
        let told = |loss: Loss| {
            let mut story = Story::new(identity("a"));
            let notice = Notice::Lost(loss);
            story.notice(&notice, false).unwrap().note
        };
        let other = identity("b");
        for (loss, why) in [
            (Loss::RenewDeadline, Why::TooLate),
            (Loss::Expired, Why::TooLate),
            (Loss::Taken(other), Why::OtherHand),
            (Loss::Emptied, Why::OtherHand),
            (Loss::Deleted, Why::OtherHand),
            (Loss::WrittenBack, Why::OtherHand),
            (Loss::Resigned, Why::Child),
        ] {
            let note = told(loss);
            assert_eq!(Why::of(&note), Some(why), "{note}");
        }
        let mut story = Story::new(identity("a"));
        story.asked_to_stop();
        let note = story
            .notice(&Notice::Lost(Loss::Resigned), false)
            .unwrap()
            .note;
        assert_eq!(Why::of(&note), Some(Why::Asked), "{note}");
        assert_eq!(Why::of("x stopped leading"), None);
    }
}
