use std::{
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    path::Path,
};

use crate::Error;

/// Below the range from which Linux takes ports for outgoing connections, so that nothing takes them by chance.
const FIRST: u16 = 21_000;
const SLOTS: u16 = 1_000;
const PER_SLOT: u16 = 3;

/// Ports of one control plane, kept from the other control planes of this user for as long as this lives.
#[derive(Debug)]
pub(crate) struct Ports {
    pub apiserver: u16,
    pub etcd: u16,
    pub etcd_peer: u16,
    _lock: File,
}

impl Ports {
    /// Takes free ports; `apiserver` asks for a certain one for the API server.
    pub(crate) fn take(run_dir: &Path, apiserver: Option<u16>) -> Result<Self, Error> {
        if let Some(port) = apiserver.filter(|&port| !is_free(port)) {
            return Err(Error::PortTaken { port });
        }
        let folder = run_dir.join("ports");
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        for slot in 0..SLOTS {
            let first = FIRST + slot * PER_SLOT;
            let path = folder.join(first.to_string());
            let lock = File::create(&path).map_err(Error::io("create", &path))?;
            if lock.try_lock().is_ok() && (first..first + PER_SLOT).all(is_free) {
                let apiserver = apiserver.unwrap_or(first);
                return Ok(Self {
                    apiserver,
                    etcd: first + 1,
                    etcd_peer: first + 2,
                    _lock: lock,
                });
            }
        }
        Err(Error::NoFreePort {
            first: FIRST,
            last: FIRST + SLOTS * PER_SLOT - 1,
        })
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_owners_never_get_the_same_port() {
        let dir = tempfile::tempdir().unwrap();
        let one = Ports::take(dir.path(), None).unwrap();
        let two = Ports::take(dir.path(), None).unwrap();
        let all = [
            one.apiserver,
            one.etcd,
            one.etcd_peer,
            two.apiserver,
            two.etcd,
            two.etcd_peer,
        ];
        let distinct: std::collections::BTreeSet<u16> = all.into_iter().collect();
        assert_eq!(distinct.len(), all.len(), "{all:?}");
    }

    #[test]
    fn ports_come_back_when_their_owner_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let first = Ports::take(dir.path(), None).unwrap().apiserver;
        let again = Ports::take(dir.path(), None).unwrap().apiserver;
        assert_eq!(first, again);
    }

    #[test]
    fn a_port_that_was_asked_for_and_is_taken_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = holder.local_addr().unwrap().port();
        let error = Ports::take(dir.path(), Some(port)).unwrap_err();
        assert!(
            matches!(error, Error::PortTaken { port: named } if named == port),
            "{error}"
        );
    }
}
