//! What the members say of themselves, for who looks whether all is well.

use super::members::Trouble;
use super::messages::{StatusRequest, StatusResponse, method};
use super::{EtcdStore, Inner};
use crate::store::StoreError;

/// What one member says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its address.
    pub endpoint: String,
    /// What it says, or why it says nothing.
    pub state: Result<MemberState, StoreError>,
}

/// A member that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberState {
    /// etcd's version.
    pub version: String,
    /// The cluster that it belongs to.
    pub cluster: u64,
    /// Whether it has a leader.
    pub has_leader: bool,
    /// Its alarms.
    pub errors: Vec<String>,
}

impl EtcdStore {
    /// What each of the members says of itself.
    pub async fn members(&self) -> Vec<Member> {
        let mut members = Vec::new();
        for (number, endpoint) in self.inner.members.endpoints.iter().enumerate() {
            members.push(Member {
                endpoint: endpoint.to_string(),
                state: self.inner.member(number).await,
            });
        }
        members
    }
}

impl Inner {
    async fn member(&self, number: usize) -> Result<MemberState, StoreError> {
        let asked = self.asked(false);
        let failed = |status| Trouble::Status(number, Box::new(status));
        let status = async {
            let connection = self.members.dial_one(number).await?;
            let token = self.members.log_in(&connection).await.map_err(failed)?;
            let status = connection
                .ask(method::STATUS, StatusRequest {}, token)
                .await;
            status.map_err(failed)
        };
        let status: StatusResponse = status.await.map_err(|trouble| asked.failed(&trouble))?;
        Ok(MemberState {
            version: status.version,
            cluster: status.header.unwrap_or_default().cluster_id,
            has_leader: status.leader != 0,
            errors: status.errors,
        })
    }
}
