use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client, api::ObjectMeta, api::PostParams};

pub(crate) fn lease(name: &str, holder: &str) -> Lease {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    let spec = LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        ..LeaseSpec::default()
    };
    Lease {
        metadata,
        spec: Some(spec),
    }
}

pub(crate) fn api(client: Client, namespace: &str) -> Api<Lease> {
    Api::namespaced(client, namespace)
}

pub(crate) async fn create(api: &Api<Lease>, name: &str) -> Result<Lease, kube::Error> {
    api.create(&PostParams::default(), &lease(name, "me")).await
}

pub(crate) async fn replace(
    api: &Api<Lease>,
    current: &Lease,
    holder: &str,
) -> Result<Lease, kube::Error> {
    let mut next = current.clone();
    next.spec.get_or_insert_default().holder_identity = Some(holder.to_owned());
    let name = current.metadata.name.as_deref().unwrap_or_default();
    api.replace(name, &PostParams::default(), &next).await
}

pub(crate) fn holder(lease: &Lease) -> &str {
    lease
        .spec
        .as_ref()
        .and_then(|spec| spec.holder_identity.as_deref())
        .unwrap_or_default()
}

/// The HTTP status with which the API server refused.
pub(crate) fn code<T: std::fmt::Debug>(outcome: Result<T, kube::Error>) -> u16 {
    match outcome {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("not refused: {other:?}"),
    }
}
