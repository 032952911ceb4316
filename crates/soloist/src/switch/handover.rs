//! `soloist handover`: the leader drains, releases, and another replica leads.

use std::time::Duration;

use clap::Args;
use soloist_core::ids::{Identity, Term};
use soloist_core::orders::{Handover, Orders};
use soloist_core::record::Record;
use soloist_core::time::{Human, Moment};
use soloist_elector::clock;
use tokio::time::timeout;

use super::follow::Follow;
use super::lease::{Lease, is_paused};
use super::{LeaseArgs, NotDone, pods, say};
use crate::duration::parse as duration;

#[derive(Debug, Args)]
pub(crate) struct HandoverArgs {
    /// Who is to lead next: a replica's name in the lease, on Kubernetes its Pod's. The others stand back for a third of the lease
    #[arg(long, value_name = "REPLICA")]
    pub(crate) to: Option<String>,
    /// Do not look whether there is such a Pod: for replicas whose names are not their Pods'
    #[arg(long, requires = "to")]
    pub(crate) unchecked: bool,
    /// Only in this term: nothing is ordered if another one has begun
    #[arg(long, value_name = "N")]
    pub(crate) term: Option<u64>,
    /// Tell what happens until another replica leads, and how long nobody did
    #[arg(long)]
    pub(crate) wait: bool,
    /// With --wait: give up, with exit code 4, after this long. The order stands
    #[arg(long, value_parser = duration, default_value = "2m", value_name = "DURATION")]
    pub(crate) timeout: Duration,

    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
}

impl HandoverArgs {
    pub(crate) async fn order(&self) -> anyhow::Result<()> {
        let lease = self.lease.open().await?;
        let heir = self.to.as_deref().map(Identity::try_new).transpose()?;
        let record = lease.read().await?;
        let (leader, term) = self.leader(&record, &lease)?;
        if let (Some(heir), Some(store), false) = (&self.to, lease.cluster(), self.unchecked)
            && let Some(warning) = pods::check(store, heir).await?
        {
            say(format_args!("warning: {warning}"));
        }
        let follow = Follow::new(&lease);
        let ordered = lease.order(|record| {
            let (_, now) = self.leader(record, &lease)?;
            if now != term {
                return Err(NotDone::AnotherTerm {
                    wanted: term,
                    term: now,
                    leader: name(record),
                }
                .into());
            }
            Ok(Orders {
                handover: Some(Box::new(Handover {
                    term: Term::new(term),
                    to: heir.clone(),
                })),
                ..record.orders.clone()
            })
        });
        ordered.await?;
        let to = heir.as_ref().map_or("any other replica", Identity::as_str);
        say(format_args!(
            "ordered: {leader} (term {term}) hands over to {to}"
        ));
        match self.wait {
            true => self.watch(follow, term, &leader).await,
            false => Ok(()),
        }
    }

    /// Who is to obey, in which term.
    fn leader(&self, record: &Record, lease: &Lease) -> Result<(String, u64), NotDone> {
        let Some(holder) = &record.holder else {
            return Err(NotDone::NobodyLeads(lease.describe()));
        };
        let (leader, term) = (holder.to_string(), record.transitions);
        if let Some(wanted) = self.term.filter(|wanted| *wanted != term) {
            return Err(NotDone::AnotherTerm {
                wanted,
                term,
                leader,
            });
        }
        if record.signed().is_none() {
            return Err(NotDone::NotASoloist(leader));
        }
        if self.to.as_ref() == Some(&leader) {
            return Err(NotDone::LeadsAlready(leader));
        }
        match is_paused(record) {
            true => Err(NotDone::Paused),
            false => Ok((leader, term)),
        }
    }

    async fn watch(&self, mut follow: Follow, term: u64, leader: &str) -> anyhow::Result<()> {
        let began = clock::now();
        let mut released = None;
        let mut last_held = began;
        let ended = timeout(self.timeout, async {
            loop {
                let Some(record) = follow.next().await else {
                    continue;
                };
                let now = clock::now();
                if record.transitions > term && record.holder.is_some() {
                    return (record, now);
                }
                if record.holder.is_some() {
                    last_held = now;
                } else if released.is_none() {
                    released = Some(now);
                    say(format_args!(
                        "{} {leader} has released the lease",
                        since(began, now)
                    ));
                }
            }
        });
        let Ok((record, now)) = ended.await else {
            let what = match released {
                Some(_) => "nobody took the lease".to_owned(),
                None => format!("{leader} did not release the lease"),
            };
            return Err(NotDone::TookLong {
                what,
                limit: Human(self.timeout).to_string(),
            }
            .into());
        };
        let next = name(&record);
        say(format_args!(
            "{} {next} leads in term {}",
            since(began, now),
            record.transitions
        ));
        let rounded = |gap: Duration| Human(Duration::from_millis(gap.as_millis() as u64));
        match released {
            Some(at) => {
                let gap = rounded(now.since(at));
                say(format_args!("nobody held the lease for {gap}"));
            }
            // A lease file does not show every state.
            None => {
                let most = rounded(now.since(last_held));
                say(format_args!(
                    "nobody held the lease for less than {most}: its release went by unseen"
                ));
            }
        }
        match &self.to {
            Some(heir) if *heir != next => Err(NotDone::HeirPassedOver {
                heir: heir.clone(),
                leader: next,
            }
            .into()),
            _ => Ok(()),
        }
    }
}

fn since(began: Moment, now: Moment) -> String {
    format!("{:>6.2}s", now.since(began).as_secs_f64())
}

fn name(record: &Record) -> String {
    let holder = record.holder.as_ref();
    holder.map_or("nobody", Identity::as_str).to_owned()
}
