//! `soloist prestop`, for the Pod's preStop hook: waits until nobody sends traffic here any more, instead of a time that somebody
//! has guessed.
//!
//! 1. It tells the soloist that runs here that the end is near.
//! 2. It waits until no EndpointSlice shows this Pod as ready: `endpoints.rs`.
//! 3. It waits until no new connection has come for a while: `silence.rs`. This covers what no EndpointSlice shows.
//! 4. It tells soloist how long it took, which leaves the child what is left of the grace period.
//!
//! A hook that fails only makes noise, so it never does. What a hook prints is lost, so soloist's log has it.

mod connections;
mod endpoints;
mod silence;

use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

use clap::builder::Resettable;
use clap::{Args, FromArgMatches};
use serde_json::Value;
use soloist_core::time::Human;
use soloist_elector::clock;
use tokio::time::{Instant, timeout_at};

use crate::control::client::Running;
use crate::control::protocol::Request;
use crate::duration::parse as duration;
use crate::own_pod::OwnPod;
use silence::Counted;

/// Durations are written as 15s, 750ms or 1m30s.
#[derive(Debug, Args)]
pub(crate) struct PrestopArgs {
    /// It takes at most this long. Leave the program enough of the Pod's grace period
    #[arg(long, value_parser = duration, default_value = "15s", value_name = "DURATION")]
    max: Duration,
    /// Over when no new connection has come for so long
    #[arg(long, value_parser = duration, default_value = "1s", value_name = "DURATION")]
    settle: Duration,
    /// Where EndpointSlices may not be read: wait so long instead
    #[arg(long, value_parser = duration, default_value = "5s", value_name = "DURATION")]
    fallback: Duration,
    /// The ports on which new connections count [default: all that something in the Pod listens on; none with hostNetwork]
    #[arg(long, value_delimiter = ',', value_name = "PORT")]
    ports: Vec<u16>,
    /// Connections from these addresses do not count: of the node, if its probes come more often than --settle, and no client's
    /// traffic comes from there
    #[arg(long, value_delimiter = ',', value_name = "ADDRESS")]
    ignore_from: Vec<IpAddr>,
    /// Which soloist to tell, where several run in one container
    #[arg(long, env = "SOLOIST_IDENTITY")]
    identity: Option<String>,
}

impl PrestopArgs {
    /// What these flags alone say, whatever the variables are here.
    pub(crate) fn elsewhere<'a>(
        line: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, clap::Error> {
        let prestop = Self::augment_args(clap::Command::new("soloist prestop"));
        let prestop = prestop.mut_args(|arg| arg.env(Resettable::Reset));
        Self::from_arg_matches(&prestop.try_get_matches_from(line)?)
    }

    pub(crate) const fn max(&self) -> Duration {
        self.max
    }

    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let (began, deadline) = (clock::now(), Instant::now() + self.max);
        let told = Told::find(self.identity.as_deref()).await;
        let begins = Request::PrestopBegins {
            max: Some(self.max),
        };
        let answer = told.ask(&begins).await;
        // Whoever asks soloist is none of the program's clients.
        let listener =
            answer.and_then(|answer| u16::try_from(answer["listen_port"].as_u64()?).ok());

        let pod = OwnPod::find();
        let hosts = async {
            match &pod {
                Some(pod) => pod.has_hosts_network().await,
                None => None,
            }
        };
        let leave = timeout_at(deadline, self.leave_endpoints(pod.as_ref(), &told));
        let (left, on_hosts_network) = tokio::join!(leave, hosts);
        let left = left.unwrap_or_else(|_| "still in the EndpointSlices".into());
        let silent = self.wait_for_silence(listener, on_hosts_network == Some(true));
        let silent = timeout_at(deadline, silent).await;
        let silent =
            silent.unwrap_or_else(|_| "no silence on its ports until the end of --max".into());

        let took = clock::now().since(began);
        let report = format!("{left}; {silent}");
        say(&format!("{}: {report}", Human(rounded(took))));
        // One that did not listen yet when the hook began can still be told what is left.
        let told = match told {
            Told(None) => Told::find(self.identity.as_deref()).await,
            found => found,
        };
        told.ask(&Request::PrestopEnds { took, report }).await;
        Ok(())
    }

    async fn leave_endpoints(&self, pod: Option<&OwnPod>, told: &Told) -> String {
        let began = clock::now();
        let Some(pod) = pod else {
            return "not in a Pod".into();
        };
        match endpoints::leave(pod, self.fallback).await {
            Ok(0) => "in no EndpointSlice".into(),
            Ok(slices) => {
                let took = Human(rounded(clock::now().since(began)));
                format!("out of its EndpointSlices ({slices}) after {took}")
            }
            Err(failure) => {
                let fallback = Human(self.fallback);
                let note = format!(
                    "cannot see the EndpointSlices, waiting for {fallback} instead. It needs the verbs get, list and watch on endpointslices \
                     (discovery.k8s.io) in namespace {}: {failure}",
                    pod.namespace
                );
                say(&note);
                told.ask(&Request::PrestopSays(note)).await;
                tokio::time::sleep(self.fallback.saturating_sub(clock::now().since(began))).await;
                format!("{fallback} instead of the EndpointSlices")
            }
        }
    }

    async fn wait_for_silence(&self, listener: Option<u16>, on_hosts_network: bool) -> String {
        let began = clock::now();
        if on_hosts_network && self.ports.is_empty() {
            tokio::time::sleep(self.settle).await;
            return "on its node's network, where it listens for no silence without --ports".into();
        }
        let counted = Counted {
            ports: &self.ports,
            but: listener,
            not_from: &self.ignore_from,
            among_others: on_hosts_network,
        };
        match silence::wait(counted, self.settle).await {
            Ok(None) => "nothing listens here".into(),
            Ok(Some(connections)) => {
                let took = Human(rounded(clock::now().since(began)));
                format!("silence after {took}, {connections} new connections")
            }
            Err(error) => {
                tokio::time::sleep(self.settle).await;
                format!("the connections cannot be seen ({error})")
            }
        }
    }
}

/// The soloist that is told, if there is one.
struct Told(Option<Running>);

impl Told {
    async fn find(identity: Option<&str>) -> Self {
        match Running::find(identity).await {
            Ok(running) => Self(Some(running)),
            Err(nobody) => {
                say(&nobody.to_string());
                Self(None)
            }
        }
    }

    async fn ask(&self, request: &Request) -> Option<Value> {
        let answer = self.0.as_ref()?.ask(request).await;
        answer
            .inspect_err(|error| say(&format!("soloist does not answer: {error}")))
            .ok()
    }
}

fn rounded(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX) / 10 * 10)
}

/// For whoever runs it by hand.
fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "soloist: {what}");
}
