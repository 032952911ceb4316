//! Replicas for the tests.

use std::time::Duration;

use soloist_elector::core::election::{Config, Loss};
use soloist_elector::core::ids::{Identity, InstanceId};
use soloist_elector::core::timings::Timings;
use soloist_elector::testing::in_time;
use soloist_elector::{Driver, DriverEvent, DriverHandle, Elector, LeaseStore, Term};
use tokio::sync::mpsc;

/// The shortest lease there is.
pub(crate) fn quick() -> Timings {
    let ms = Duration::from_millis;
    Timings::try_new(ms(2000), ms(1500), ms(200)).unwrap()
}

pub(crate) fn name(text: &str) -> Identity {
    Identity::try_new(text).unwrap()
}

pub(crate) fn elector(store: impl LeaseStore, identity: &str) -> Elector {
    Elector::builder(store)
        .identity(name(identity))
        .timings(quick())
        .spawn()
        .unwrap()
}

pub(crate) async fn lead(elector: &Elector) -> Term {
    in_time(elector.lead()).await.unwrap()
}

/// Waits until this replica has seen that leader.
pub(crate) async fn sees(elector: &Elector, leader: Option<&str>) {
    let mut leadership = elector.leadership();
    let seen = leadership.wait_for(|l| l.leader == leader.map(name));
    in_time(seen).await.unwrap();
}

/// A replica at the level of the driver.
pub(crate) struct Replica {
    pub(crate) handle: DriverHandle,
    pub(crate) events: mpsc::Receiver<DriverEvent>,
}

impl Replica {
    pub(crate) fn new(store: impl LeaseStore, identity: &str, instance: u128) -> Self {
        let config = Config {
            identity: name(identity),
            instance: InstanceId::from_random(instance),
            pod: None,
            timings: quick(),
            seed: u64::try_from(instance).unwrap(),
        };
        let (handle, events) = Driver::spawn(store, config).unwrap();
        Self { handle, events }
    }

    /// The next event that `pick` takes.
    pub(crate) async fn next<T>(&mut self, mut pick: impl FnMut(&DriverEvent) -> Option<T>) -> T {
        in_time(async {
            loop {
                let event = self.events.recv().await.expect("the driver has ended");
                if let Some(picked) = pick(&event) {
                    return picked;
                }
            }
        })
        .await
    }

    pub(crate) async fn elected(&mut self) -> soloist_elector::core::election::Elected {
        self.next(|event| match event {
            DriverEvent::Elected(elected) => Some(*elected),
            _ => None,
        })
        .await
    }

    pub(crate) async fn lost(&mut self) -> Loss {
        self.next(|event| match event {
            DriverEvent::Lost(loss) => Some(loss.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn left(&mut self) {
        self.next(|event| (*event == DriverEvent::Left).then_some(()))
            .await;
    }
}
