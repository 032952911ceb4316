//! `soloist doctor`: looks at all that an election needs, and says what is wrong and what to do.

mod capabilities;
mod changes;
mod clock_rate;
mod cluster;
mod control_group;
mod etcd;
mod file;
mod history;
mod lease;
mod machine;
mod prestop_hook;
mod rights;
mod workload;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use soloist_core::ladder::{Ladder, LadderRequest};
use soloist_core::timings::{Preset, Timings};
use soloist_elector::kubernetes::{Options, Resource};

use crate::cli::{StopArgs, TimingArgs};
use crate::duration::parse as duration;
use crate::etcd::EtcdArgs;
use crate::report::{Report, Summary, Verdict, read};
use crate::settings;
use crate::store::{StoreChoice, default_path};
use cluster::{Cluster, Failure, text};
use rights::Whose;
use workload::Workload;

const SETTINGS: &str = "settings";
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

const SUMMARY: Summary = Summary {
    well: "Nothing is broken",
    not_well: "Something is broken",
};

/// Durations are written as 15s, 750ms or 1m30s.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The lease's name [default: what the Deployment or StatefulSet says]
    #[arg(long, env = "SOLOIST_NAME")]
    pub(crate) name: Option<String>,
    /// Where the lease lives: kubernetes, etcd:HOST:PORT[,HOST:PORT…]/PREFIX, file, or file:PATH [default: kubernetes with a kubeconfig or in a Pod, file elsewhere]
    #[arg(long, env = "SOLOIST_STORE", value_name = "STORE")]
    pub(crate) store: Option<StoreChoice>,
    /// The lease's namespace [default: $NAMESPACE, $POD_NAMESPACE, the service account's, the context's]
    #[arg(long, env = "SOLOIST_NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// A kubeconfig file [default: $KUBECONFIG, the Pod's service account, ~/.kube/config]
    #[arg(long, env = "SOLOIST_KUBECONFIG", value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig instead of its current one
    #[arg(long, env = "SOLOIST_CONTEXT")]
    pub(crate) context: Option<String>,
    /// Look at this Deployment's Pods, too, and at the rights of its service account
    #[arg(long, value_name = "NAME", conflicts_with = "statefulset")]
    pub(crate) deployment: Option<String>,
    /// Look at this StatefulSet's Pods, too, and at the rights of its service account
    #[arg(long, value_name = "NAME")]
    pub(crate) statefulset: Option<String>,
    /// Look at this user's rights, such as system:serviceaccount:NAMESPACE:NAME [default: the workload's account, else our own]
    #[arg(long = "as", value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Wait so long for somebody to lead; nobody by then is a failure
    #[arg(long, value_parser = duration, default_value = "0s", value_name = "DURATION")]
    pub(crate) wait: Duration,
    /// How the findings are written
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,

    #[command(flatten)]
    pub(crate) etcd: EtcdArgs,
    #[command(flatten)]
    pub(crate) timings: TimingArgs,
    #[command(flatten)]
    pub(crate) stopping: StopArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Output {
    /// Lines for people
    Text,
    /// One JSON object
    Json,
}

/// What was found: the text, and whether nothing is broken.
pub(crate) struct Findings {
    pub(crate) text: String,
    pub(crate) is_well: bool,
}

impl DoctorArgs {
    pub(crate) async fn examine(&self) -> anyhow::Result<Findings> {
        let mut report = Report::default();
        let timings = self.settings(&mut report);
        match self.store() {
            StoreChoice::None => self.everywhere(&timings, &mut report).await?,
            StoreChoice::Kubernetes(Resource::Lease) => {
                self.kubernetes(&timings, &mut report).await?;
            }
            StoreChoice::Kubernetes(legacy) | StoreChoice::Pair(legacy) => bail!(
                "only Leases are looked at, not locks on {}: move to a Lease (docs/kubernetes.md)",
                legacy.kind()
            ),
            StoreChoice::Etcd(address) => {
                let name = self.name.as_deref().context("which lease? Give --name")?;
                etcd::check(self.etcd.lease(&address, name), &timings, &mut report).await;
            }
            StoreChoice::File(path) => {
                let name = self.name.as_deref();
                let path = match (path, name) {
                    (Some(path), _) => path,
                    (None, Some(name)) => default_path(name)?,
                    (None, None) => bail!("which lease? Give --name, or --store file:PATH"),
                };
                file::check(&path, &mut report).await;
            }
        }
        machine::check(&mut report);
        Ok(Findings {
            is_well: report.is_well(),
            text: match self.output {
                Output::Text => report.to_text(SUMMARY),
                Output::Json => report.to_json(),
            },
        })
    }

    fn cluster_is_named(&self) -> bool {
        self.kubeconfig.is_some()
            || self.context.is_some()
            || self.deployment.is_some()
            || self.statefulset.is_some()
            || std::env::var_os("KUBECONFIG").is_some()
    }

    fn store(&self) -> StoreChoice {
        match &self.store {
            Some(store) => store.clone(),
            None if self.cluster_is_named() => StoreChoice::Kubernetes(Resource::Lease),
            None => StoreChoice::fitting(),
        }
    }

    /// The settings of here; bad ones are told, and the standard's are taken for what follows.
    fn settings(&self, report: &mut Report) -> Timings {
        let timings = settings::timings(&self.timings);
        let advice = "Change the flags or the SOLOIST_ variables";
        // They are those of a lease.
        if self.store() != StoreChoice::None {
            report.add(
                SETTINGS,
                "the timings fit together",
                match &timings {
                    Ok(_) => Verdict::good(""),
                    Err(error) => Verdict::bad(format!("{error:#}"), advice, read::OPERATIONS),
                },
            );
        }
        let ladder = Ladder::try_new(LadderRequest {
            prestop: self.stopping.prestop,
            stop: self.stopping.stop_timeout,
            ..LadderRequest::from_grace(self.stopping.grace_period)
        });
        report.add(
            SETTINGS,
            "the timeouts fit into the grace period",
            match ladder {
                Ok(_) => Verdict::good(""),
                Err(error) => Verdict::bad(error.to_string(), advice, read::OPERATIONS),
            },
        );
        timings.unwrap_or(Timings::preset(Preset::Standard))
    }

    fn owner(&self) -> Option<(&'static str, &str)> {
        match (&self.deployment, &self.statefulset) {
            (Some(name), _) => Some(("deployments", name)),
            (None, Some(name)) => Some(("statefulsets", name)),
            (None, None) => None,
        }
    }

    /// Without an election a cluster matters to what serves in it alone: to its Pods, and to their end.
    async fn everywhere(&self, timings: &Timings, report: &mut Report) -> anyhow::Result<()> {
        no_election(report);
        let has_token = Path::new(TOKEN).exists();
        if !self.cluster_is_named() && !has_token {
            return Ok(());
        }
        let options = self.options("none");
        let Some(cluster) = Cluster::find(options, false, timings, report).await else {
            return Ok(());
        };
        let owner = self.owner();
        let workload = match owner {
            Some((resource, name)) => self.workload(&cluster, resource, name, report).await,
            None => own_pod(&cluster).await,
        };
        let whose = self.whose(&cluster, workload.as_ref());
        serving(&cluster, workload.as_ref(), &whose, report).await;
        Ok(())
    }

    fn whose(&self, cluster: &Cluster, workload: Option<&Workload>) -> Whose {
        match (&self.user, self.owner(), workload) {
            (Some(user), _, _) => Whose::User(user.clone()),
            (None, Some(_), Some(workload)) => Whose::User(format!(
                "system:serviceaccount:{}:{}",
                cluster.namespace(),
                workload.service_account()
            )),
            (None, _, _) => Whose::Ours,
        }
    }

    async fn kubernetes(&self, timings: &Timings, report: &mut Report) -> anyhow::Result<()> {
        let owner = self.owner();
        let named = self.name.as_deref();
        // The workload says which lease, and only a cluster says what the workload is.
        let lease = match (named, owner) {
            (Some(name), _) => name,
            (None, Some(_)) => "unknown",
            (None, None) => bail!("which lease? Give --name, or --deployment or --statefulset"),
        };
        let is_known = named.is_some();
        let Some(mut cluster) = Cluster::find(self.options(lease), is_known, timings, report).await
        else {
            return Ok(());
        };
        let workload = match owner {
            Some((resource, name)) => self.workload(&cluster, resource, name, report).await,
            None => own_pod(&cluster).await,
        };
        if workload.as_ref().is_some_and(Workload::elects_nobody) {
            no_election(report);
            let whose = self.whose(&cluster, workload.as_ref());
            serving(&cluster, workload.as_ref(), &whose, report).await;
            return Ok(());
        }
        if named.is_none() {
            // What is not described was told already.
            let Some(workload) = &workload else {
                return Ok(());
            };
            let lease = match workload.lease() {
                Ok(Some(lease)) => lease,
                other => {
                    let (reason, advice) = match other {
                        Err(reason) => (
                            format!("its flags and variables cannot be read: {reason}"),
                            "Change them, or give --name",
                        ),
                        Ok(_) => (
                            "the workload does not say which lease it competes for".to_owned(),
                            "Give --name, or set SOLOIST_NAME in its container",
                        ),
                    };
                    let bad = Verdict::bad(reason, advice, read::CLUSTER);
                    report.add("lease", "its name is known", bad);
                    return Ok(());
                }
            };
            cluster
                .rename(self.options(&lease))
                .await
                .context("the lease's name")?;
        }
        let whose = self.whose(&cluster, workload.as_ref());
        let wanted = workload.as_ref().map(Workload::wants).unwrap_or_default();
        rights::check(&cluster, &whose, wanted, report).await;
        if workload.as_ref().is_some_and(Workload::has_prestop) {
            rights::check_prestop(&cluster, &whose, report).await;
        }
        let theirs = workload.as_ref().and_then(Workload::timings);
        let timings = theirs.as_ref().unwrap_or(timings);
        lease::check(&cluster, timings, self.wait, report).await;
        if let Some(workload) = workload {
            workload.check(&cluster, report).await;
        }
        Ok(())
    }

    fn options(&self, lease: &str) -> Options {
        let mut options = Options::lease(lease);
        if let Some(namespace) = &self.namespace {
            options = options.namespace(namespace);
        }
        if let Some(kubeconfig) = &self.kubeconfig {
            options = options.kubeconfig(kubeconfig);
        }
        if let Some(context) = &self.context {
            options = options.context(context);
        }
        options
    }

    async fn workload(
        &self,
        cluster: &Cluster,
        resource: &str,
        name: &str,
        report: &mut Report,
    ) -> Option<Workload> {
        let namespace = cluster.namespace();
        let found = match is_object_name(name) {
            true => {
                let path = format!("/apis/apps/v1/namespaces/{namespace}/{resource}/{name}");
                cluster.get(&path).await
            }
            false => Err(Failure::Broken("nothing can be called so".into())),
        };
        match found {
            Ok(object) => Some(Workload::of_owner(object)),
            Err(failure) => {
                let reason = format!("{resource} {namespace}/{name}: {failure}");
                let advice = match failure.is(403) {
                    true => format!(
                        "Add this rule to a Role in the namespace {namespace} that is bound to {}, or give --name instead and look at the lease \
                         alone:\n- {{apiGroups: [\"apps\"], resources: [{resource:?}], verbs: [get]}}",
                        cluster.user
                    ),
                    false => "Is it the right name, and the right namespace (--namespace)?".into(),
                };
                report.add(
                    "Pod",
                    "it is described",
                    Verdict::bad(reason, advice, read::CLUSTER),
                );
                None
            }
        }
    }
}

/// Nothing else may become a part of a path.
fn is_object_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    name.chars().all(is_part) && ends(name.chars().next()) && ends(name.chars().last())
}

fn no_election(report: &mut Report) {
    let what = "there is none: every replica runs the program";
    let found = "--store none; two at once are meant, and no lease is looked at";
    report.add("election", what, Verdict::good(found));
}

async fn serving(
    cluster: &Cluster,
    workload: Option<&Workload>,
    whose: &Whose,
    report: &mut Report,
) {
    if workload.is_none_or(Workload::has_prestop) {
        rights::check_prestop(cluster, whose, report).await;
    }
    if let Some(workload) = workload {
        workload.check(cluster, report).await;
    }
}

/// The Pod that we are in, if we may look at it.
async fn own_pod(cluster: &Cluster) -> Option<Workload> {
    let name = std::env::var("POD_NAME").ok()?;
    let namespace = cluster.namespace();
    let pod = cluster
        .get(&format!("/api/v1/namespaces/{namespace}/pods/{name}"))
        .await
        .ok()?;
    (text(&pod, "/kind") == "Pod").then(|| Workload::of_pod(&pod))
}
