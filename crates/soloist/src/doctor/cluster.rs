//! The way to the API server, and requests to it.

use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use soloist_core::time::Human;
use soloist_core::timings::Timings;
use soloist_elector::clock;
use soloist_elector::kubernetes::{ConnectError, KubernetesStore, Options};
use tokio::time::timeout;

use crate::report::{Report, Verdict, read};

const GROUP: &str = "API server";

/// Nobody waits longer for one answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many questions show how fast it answers.
const SAMPLES: usize = 5;

/// A cluster that answers.
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) store: KubernetesStore,
    /// Who we are there.
    pub(super) user: String,
    /// The slowest of some answers.
    pub(super) slowest: Duration,
}

/// Why a request has failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{message} ({code})")]
    Answered { code: u16, message: String },
    #[error("{0}")]
    Broken(String),
    #[error("no answer within {}", Human(PATIENCE))]
    Silence,
}

impl Failure {
    pub(super) fn is(&self, wanted: u16) -> bool {
        matches!(self, Self::Answered { code, .. } if *code == wanted)
    }
}

impl Cluster {
    /// Finds it, and checks that it answers and knows us. `None` when it is of no use to ask further.
    pub(super) async fn find(
        options: Options,
        has_lease: bool,
        timings: &Timings,
        report: &mut Report,
    ) -> Option<Self> {
        let store = match KubernetesStore::connect(options).await {
            Ok(store) => store,
            Err(error) => {
                let advice = match error {
                    ConnectError::Name(_) => "Give the name that the replicas have",
                    _ => {
                        "Give --kubeconfig and --context, or run it in a Pod with a service account"
                    }
                };
                report.add(
                    GROUP,
                    "it is configured",
                    Verdict::bad(error.to_string(), advice, read::CLUSTER),
                );
                return None;
            }
        };
        let client = match store.client().await {
            Ok(client) => client,
            Err(error) => {
                let reason = causes(&error);
                report.add(
                    GROUP,
                    "it is configured",
                    Verdict::bad(reason, "Log in again", read::CLUSTER),
                );
                return None;
            }
        };
        let mut cluster = Self {
            client,
            store,
            user: String::new(),
            slowest: Duration::ZERO,
        };
        report.add(
            GROUP,
            "it is configured",
            Verdict::good(match has_lease {
                true => soloist_elector::LeaseStore::describe(&cluster.store),
                false => format!("namespace {}", cluster.namespace()),
            }),
        );
        let reached = cluster.answers(timings).await;
        let is_reached = !matches!(reached, Verdict::Bad(_));
        report.add(GROUP, "it answers in time", reached);
        if !is_reached {
            return None;
        }
        match cluster.who_are_we().await {
            Ok(user) => {
                report.add(GROUP, "it knows who we are", Verdict::good(&user));
                cluster.user = user;
                Some(cluster)
            }
            Err(failure) => {
                let advice = "The token or certificate is missing, wrong or expired. In a Pod: is the service account's token mounted \
                     (automountServiceAccountToken), and is the account still there? Elsewhere: does the context name a user that the \
                     kubeconfig does not have? Else log in again";
                let reason = match failure.to_string() {
                    reason if reason.contains("system:anonymous") => {
                        format!("it takes us for nobody, as no credentials are sent: {reason}")
                    }
                    reason => reason,
                };
                report.add(
                    GROUP,
                    "it knows who we are",
                    Verdict::bad(reason, advice, read::TROUBLES),
                );
                None
            }
        }
    }

    /// Another lease on the same cluster.
    pub(super) async fn rename(&mut self, options: Options) -> Result<(), ConnectError> {
        self.store = KubernetesStore::connect(options).await?;
        Ok(())
    }

    pub(super) fn namespace(&self) -> &str {
        self.store.namespace()
    }

    pub(super) fn lease(&self) -> &str {
        self.store.name()
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.ask(Method::GET, path, None).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.ask(Method::POST, path, Some(body)).await
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", "application/json")
            .body(body.into_bytes())
            .map_err(|error| Failure::Broken(error.to_string()))?;
        match timeout(PATIENCE, self.client.request::<Value>(request)).await {
            Err(_) => Err(Failure::Silence),
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => Err(Failure::Answered {
                code: status.code,
                message: status.message.clone(),
            }),
            Ok(Err(error)) => Err(Failure::Broken(causes(&error))),
        }
    }

    /// Whether an attempt to renew would have its answer in time.
    async fn answers(&mut self, timings: &Timings) -> Verdict {
        let mut slowest = Duration::ZERO;
        let mut version = Value::Null;
        for _ in 0..SAMPLES {
            let asked_at = clock::now();
            match self.get("/version").await {
                Ok(answer) => version = answer["gitVersion"].clone(),
                // It has answered.
                Err(Failure::Answered {
                    code: 401 | 403, ..
                }) => {}
                Err(failure) => {
                    let advice =
                        "Check the address, the network (a NetworkPolicy?) and the server itself";
                    return Verdict::bad(
                        format!("cannot reach it: {failure}"),
                        advice,
                        read::TROUBLES,
                    );
                }
            }
            slowest = slowest.max(clock::now().since(asked_at));
        }
        self.slowest = slowest;
        let limit = timings.attempt_limit();
        let found = format!(
            "the slowest of {SAMPLES} answers took {}",
            Human(rounded(slowest))
        );
        if slowest > limit / 2 {
            let advice = "Renewals may miss the renew deadline, and the leader would change again and again. Take longer timings \
                 (--preset low-load), or look at the API server and the way to it";
            let reason = format!("{found}, and a renewal is given up after {}", Human(limit));
            return Verdict::warning(reason, advice, read::TROUBLES);
        }
        let version = version
            .as_str()
            .map_or(String::new(), |version| format!("{version}, "));
        Verdict::good(format!("{version}{found}"))
    }

    async fn who_are_we(&self) -> Result<String, Failure> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let answer = self
            .post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
            .await;
        match answer {
            Ok(answer) => Ok(text(&answer, "/status/userInfo/username").to_owned()),
            // Before Kubernetes 1.28.
            Err(failure) if failure.is(404) => Ok("somebody".to_owned()),
            Err(failure) => Err(failure),
        }
    }
}

/// All causes in one line, each once.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

/// A string in an object, or an empty one.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub(super) fn rounded(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
