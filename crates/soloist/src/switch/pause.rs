//! `soloist pause` and `soloist resume`.

use std::time::Duration;

use clap::Args;
use soloist_core::ids::Identity;
use soloist_core::orders::{Orders, Pause, WallTime};
use soloist_core::time::Human;
use soloist_elector::{clock, orders};
use tokio::time::timeout;

use super::follow::Follow;
use super::lease::is_paused;
use super::{LeaseArgs, NotDone, say};
use crate::duration::parse as duration;

#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// Stop the child, too, in order; nobody leads until it is resumed
    #[arg(long)]
    pub(crate) stop: bool,
    /// It ends by itself after this long, by the replicas' clocks
    #[arg(long = "for", value_parser = duration, value_name = "DURATION")]
    pub(crate) length: Option<Duration>,
    /// With --stop: wait until the child is gone
    #[arg(long, requires = "stop")]
    pub(crate) wait: bool,
    /// With --wait: give up, with exit code 4, after this long. The order stands
    #[arg(long, value_parser = duration, default_value = "2m", value_name = "DURATION")]
    pub(crate) timeout: Duration,

    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
}

impl PauseArgs {
    pub(crate) async fn order(&self) -> anyhow::Result<()> {
        let lease = self.lease.open().await?;
        let until = self.length.map(|length| {
            let seconds = length.as_secs().max(1);
            WallTime::from_unix_seconds(clock::wall_time().unix_seconds().saturating_add(seconds))
        });
        let pause = Pause {
            stop: self.stop,
            until,
        };
        let follow = Follow::new(&lease);
        let ordered = lease.order(|record| {
            Ok(Orders {
                pause: Some(pause),
                ..record.orders.clone()
            })
        });
        ordered.await?;
        let record = lease.read().await?;
        let leader = record.holder.as_ref().map(Identity::as_str);
        let until = until.and_then(orders::timestamp);
        let until = until.map_or("it is resumed".into(), |until| until.to_string());
        match (self.stop, leader) {
            (true, Some(leader)) => {
                say(format_args!(
                    "paused: {leader} stops its child, and nobody leads until {until}"
                ));
            }
            (false, Some(leader)) => say(format_args!(
                "paused: {leader} goes on, and nobody takes over from it until {until}"
            )),
            (_, None) => say(format_args!("paused: nobody leads until {until}")),
        }
        match self.wait {
            true => self.watch(follow).await,
            false => Ok(()),
        }
    }

    async fn watch(&self, mut follow: Follow) -> anyhow::Result<()> {
        let released = timeout(self.timeout, async {
            while follow.next().await.is_some_and(|r| r.holder.is_some()) {}
        });
        match released.await {
            Ok(()) => {
                say("the child is gone, and the lease is released");
                Ok(())
            }
            Err(_) => Err(NotDone::TookLong {
                what: "the lease was not released".into(),
                limit: Human(self.timeout).to_string(),
            }
            .into()),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
}

impl ResumeArgs {
    pub(crate) async fn order(&self) -> anyhow::Result<()> {
        let lease = self.lease.open().await?;
        let record = lease.read().await?;
        let was_paused = is_paused(&record);
        if record.orders.pause.is_some() {
            let ordered = lease.order(|record| {
                Ok(Orders {
                    pause: None,
                    ..record.orders.clone()
                })
            });
            ordered.await?;
        }
        match was_paused {
            true => say("resumed"),
            false => say("it was not paused"),
        }
        Ok(())
    }
}
