//! Waits until no new connection comes.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use soloist_elector::clock;
use tokio::time::sleep;

use super::connections::{Counting, Look};

/// The tables are read so often. What comes and goes meanwhile is in the counter.
const PAUSE: Duration = Duration::from_millis(50);

/// Which connections count.
pub(super) struct Counted<'a> {
    /// To these ports; without any, to all that others can reach.
    pub(super) ports: &'a [u16],
    /// But not to this one, if no port was named.
    pub(super) but: Option<u16>,
    /// And not from these addresses.
    pub(super) not_from: &'a [IpAddr],
    /// Others have the same network.
    pub(super) among_others: bool,
}

/// How many connections have come until none came for so long; `None` if nothing listens.
pub(super) async fn wait(counted: Counted<'_>, settle: Duration) -> io::Result<Option<u64>> {
    let first = look()?;
    let mut ports = first.ports.clone();
    match counted.ports {
        [] => ports.retain(|port| Some(*port) != counted.but),
        named => ports = named.iter().copied().collect(),
    }
    if ports.is_empty() {
        return Ok(None);
    }
    let counting = Counting::begin(&first, ports, counted.not_from.to_vec());
    let mut counting = counting.only_shown(counted.among_others);
    let (mut connections, mut last) = (0, clock::now());
    loop {
        sleep(PAUSE.min(settle)).await;
        let new = counting.count(&look()?);
        let now = clock::now();
        if new > 0 {
            connections += new;
            last = now;
        } else if now.since(last) >= settle {
            return Ok(Some(connections));
        }
    }
}

fn look() -> io::Result<Look> {
    let snmp = fs::read_to_string("/proc/net/snmp")?;
    let tcp = fs::read_to_string("/proc/net/tcp")?;
    // A kernel without IPv6 has none.
    let tcp6 = fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    let look = Look::parse(&snmp, &[&tcp, &tcp6]);
    look.ok_or_else(|| io::Error::other("/proc/net/snmp has no PassiveOpens"))
}
