//! From the settings to a replica that runs.

use std::convert::Infallible;
use std::thread;

use anyhow::Context;
use soloist_core::election::Config;
use soloist_core::ids::{InstanceId, PodUid};
use soloist_core::node::Node;
use soloist_core::replica::Outcome;
use soloist_core::time::Moment;
use soloist_elector::clock::{self, Timer};
use soloist_elector::{default_identity, random};
use soloist_process::{HeldSignals, Signal, Supervisor};
use tokio::sync::mpsc;
use tracing::info;

use crate::control::{self, Control};
use crate::in_cluster::InCluster;
use crate::listener::{self, About, BEAT_EVERY, Listener, Publisher};
use crate::logging::DroppedLines;
use crate::observers::Observers;
use crate::own_pod::OwnPod;
use crate::run::{Inputs, Runner, waited_in_vain};
use crate::settings::Settings;
use crate::signals::{self, Signalled};
use crate::socket_folder::clear_leftovers;
use crate::trees::Trees;
use crate::{notify, store, termination_message};

/// Runs until it is told to stop; the exit code.
pub(crate) async fn run(
    settings: Settings,
    held: HeldSignals,
    dropped_lines: DroppedLines,
) -> anyhow::Result<u8> {
    let wait_until = settings
        .wait
        .map_or(Moment::NEVER, |wait| clock::now() + wait);
    let signals = signals::listen(settings.stop_signal, held);
    let mut signals = signals.context("listening to signals")?;
    let listener = settings.listen.as_ref().map(Listener::bind).transpose()?;
    let supervisor = Supervisor::new()?.with_timings(settings.policy.timings);
    let instance = InstanceId::from_random(random::bits128()?);
    let identity = match &settings.identity {
        Some(identity) => identity.clone(),
        None => default_identity(instance)?,
    };
    let config = Config {
        identity: identity.clone(),
        instance,
        pod: own_pod(),
        timings: settings.policy.timings,
        seed: random::bits64()?,
    };
    let (name, store) = (&settings.name, &settings.location);
    info!(name, %identity, %store, "{}", settings.ladder_in_words());
    let about = About {
        name: name.clone(),
        identity: identity.clone(),
        store: store.to_string(),
        elects: !store.is_nowhere(),
        timeouts: settings.timeouts(),
        started: clock::now(),
    };
    let publisher = match listener {
        Some(listener) => {
            let (publisher, published) = listener::publish(about, dropped_lines);
            listener.serve(published)?;
            Some(publisher)
        }
        None => None,
    };
    // Nobody waits for it, or needs it.
    let clearing = thread::Builder::new().name("leftovers".into());
    drop(clearing.spawn(|| clear_leftovers(&[notify::PREFIX, control::PREFIX])));
    let control = Control::open();
    let mut timer = Timer::new().context("no timer")?;
    let connected = tokio::select! {
        connected = store::connect(settings.location.clone(), &config.timings) => connected?,
        // To connect may mean to run a credential plugin, which takes its time.
        signal = stop_signal(&mut signals) => {
            info!(%signal, "asked to stop");
            return Ok(Outcome::of_an_idle_end(settings.policy.once).code());
        }
        never = keep_beating(publisher.as_ref()) => match never {},
        rung = timer.until(wait_until) => {
            rung.context("no timer")?;
            return Ok(waited_in_vain());
        }
    };
    if let Some(store) = &connected.cluster {
        if let Some(pod) = &config.pod {
            termination_message::leave(pod, instance);
        }
        if let Some(pod) = OwnPod::find() {
            store.believe_reported_deaths(instance, &pod.namespace);
        }
    }
    let cluster = InCluster::start(connected.cluster, identity.clone(), settings.in_pod);
    let carrier = connected.carrier;
    let node = match &carrier {
        Some(_) => Node::new(clock::now(), config, settings.policy),
        None => Node::unopposed(clock::now(), settings.policy),
    };
    let candidate = carrier.is_some().then(|| identity.clone());
    let trees = Trees::new(supervisor, identity, connected.guard_names);
    let inputs = Inputs { signals, control };
    let observers = Observers::new(candidate, publisher);
    let runner = Runner::new(settings, node, carrier, trees, inputs, cluster, observers);
    runner.waits_until(wait_until).run().await
}

/// To wait for the store is not to stand still.
async fn keep_beating(publisher: Option<&Publisher>) -> Infallible {
    loop {
        if let Some(publisher) = publisher {
            publisher.beat();
        }
        tokio::time::sleep(BEAT_EVERY).await;
    }
}

/// The Pod that we are alone in: as its first process, in a PID namespace of our own, whatever a former container of
/// it had started is dead.
fn own_pod() -> Option<PodUid> {
    let first = rustix::process::getpid().is_init();
    let uid = std::env::var("POD_UID").unwrap_or_default();
    PodUid::new(&uid).filter(|_| first)
}

/// There is no child yet that the others could be passed on to.
async fn stop_signal(signals: &mut mpsc::UnboundedReceiver<Signalled>) -> Signal {
    loop {
        match signals.recv().await {
            Some(Signalled::Stop(signal)) => return signal,
            Some(Signalled::PassOn(_)) => {}
            None => std::future::pending().await,
        }
    }
}
