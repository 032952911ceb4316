//! The TCP connections of a network namespace, as the kernel's tables show them: `/proc/net/tcp`, `/proc/net/tcp6` and the counter
//! of connections that came in, in `/proc/net/snmp`. They can be read without any right.
//!
//! Between two looks at the table a connection may come and go; if its client closed it first, nothing is left of it. The counter
//! has it all the same. So what the counter has and the table never showed is a connection of which nobody knows whose it was.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// As `/proc/net/tcp` names the states.
mod state {
    pub(super) const SYN_SENT: u8 = 0x02;
    pub(super) const SYN_RECV: u8 = 0x03;
    pub(super) const CLOSE: u8 = 0x07;
    pub(super) const LISTEN: u8 = 0x0A;
}

/// One look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// That something listens on, but for loopback only.
    pub(super) ports: BTreeSet<u16>,
    /// All that something listens on.
    listening: BTreeSet<u16>,
    /// Both ends of each connection that has been made, whoever made it: ours, theirs.
    connections: BTreeSet<(SocketAddr, SocketAddr)>,
    /// So many have come in since the namespace was made.
    opened: u64,
}

impl Look {
    /// The counter is read first: what comes in between two readings is then in the table before it is in the counter.
    pub(super) fn parse(snmp: &str, tables: &[&str]) -> Option<Self> {
        let mut look = Self {
            opened: passive_opens(snmp)?,
            ..Self::default()
        };
        for line in tables.iter().flat_map(|table| table.lines().skip(1)) {
            let Some((local, remote, state)) = entry(line) else {
                continue;
            };
            match state {
                state::LISTEN => {
                    look.listening.insert(local.port());
                    if !local.ip().is_loopback() {
                        look.ports.insert(local.port());
                    }
                }
                // Not yet, or no more.
                state::SYN_SENT | state::SYN_RECV | state::CLOSE => {}
                _ => {
                    look.connections.insert((local, remote));
                }
            }
        }
        Some(look)
    }

    /// Those that somebody made to us. On loopback either end may be what is left.
    fn incoming(&self) -> impl Iterator<Item = (SocketAddr, SocketAddr)> {
        let known = &self.listening;
        self.connections.iter().filter_map(move |&(local, remote)| {
            if known.contains(&local.port()) {
                return Some((local, remote));
            }
            let is_here = local.ip().is_loopback() || local.ip() == remote.ip();
            (is_here && known.contains(&remote.port())).then_some((remote, local))
        })
    }
}

/// Counts the connections that come in from look to look.
#[derive(Debug)]
pub(super) struct Counting {
    ports: BTreeSet<u16>,
    ignored: Vec<IpAddr>,
    before: BTreeSet<(SocketAddr, SocketAddr)>,
    listening: BTreeSet<u16>,
    opened_at_first: u64,
    shown: u64,
    most_unseen: u64,
    /// What nobody knows whose it was does not count.
    only_shown: bool,
}

impl Counting {
    pub(super) fn begin(first: &Look, ports: BTreeSet<u16>, ignored: Vec<IpAddr>) -> Self {
        Self {
            only_shown: false,
            ports,
            ignored,
            before: first.incoming().collect(),
            listening: first.listening.clone(),
            opened_at_first: first.opened,
            shown: 0,
            most_unseen: 0,
        }
    }

    /// In a network that others use, too, what the table does not show is theirs as likely as ours.
    pub(super) const fn only_shown(mut self, only_shown: bool) -> Self {
        self.only_shown = only_shown;
        self
    }

    /// How many have come since the last look, of those that count.
    pub(super) fn count(&mut self, look: &Look) -> u64 {
        // Whoever has ceased to listen still has connections that came in.
        self.listening.extend(&look.listening);
        let look = &Look {
            listening: self.listening.clone(),
            ..look.clone()
        };
        let now: BTreeSet<_> = look.incoming().collect();
        let new: Vec<_> = now.difference(&self.before).copied().collect();
        let counted = new
            .iter()
            .filter(|(local, remote)| self.counts(*local, *remote));
        let mut counted = counted.count() as u64;
        self.shown += new.len() as u64;
        // The table may be ahead of the counter, never behind it.
        let opened = look.opened.saturating_sub(self.opened_at_first);
        let unseen = opened.saturating_sub(self.shown);
        if unseen > self.most_unseen && !self.only_shown {
            counted += unseen - self.most_unseen;
            self.most_unseen = unseen;
        }
        self.before = now;
        counted
    }

    fn counts(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let from = remote.ip();
        self.ports.contains(&local.port()) && !from.is_loopback() && !self.ignored.contains(&from)
    }
}

/// Of a line of names and a line of numbers.
fn passive_opens(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|name| name == "PassiveOpens")?;
    numbers.split(' ').nth(at)?.parse().ok()
}

fn entry(line: &str) -> Option<(SocketAddr, SocketAddr, u8)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (address(words.next()?)?, address(words.next()?)?);
    Some((local, remote, u8::from_str_radix(words.next()?, 16).ok()?))
}

/// Words of the machine's own byte order, in hexadecimal.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let word = host.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
    };
    let host = match host.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    fn snmp(opened: u64) -> String {
        format!(
            "Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: RtoAlgorithm ActiveOpens PassiveOpens CurrEstab\nTcp: 1 77 {opened} 3\nUdp: In\nUdp: 1\n"
        )
    }

    /// As the kernel writes it on this machine.
    fn hex(address: &str) -> String {
        let address: SocketAddr = address.parse().unwrap();
        let word = |bytes: &[u8]| format!("{:08X}", u32::from_ne_bytes(bytes.try_into().unwrap()));
        let host: String = match address.ip() {
            IpAddr::V4(ip) => word(&ip.octets()),
            IpAddr::V6(ip) => ip.octets().chunks(4).map(word).collect(),
        };
        format!("{host}:{:04X}", address.port())
    }

    fn look(opened: u64, entries: &[(&str, &str, u8)]) -> Look {
        let mut table = HEAD.to_owned();
        for (local, remote, state) in entries {
            let (local, remote) = (hex(local), hex(remote));
            table += &format!(
                "   0: {local} {remote} {state:02X} 00000000:00000000 00:00000000 00000000 65532 0 4711 1 0 100\n"
            );
        }
        Look::parse(&snmp(opened), &[&table, HEAD]).unwrap()
    }

    const LISTENING: (&str, &str, u8) = ("0.0.0.0:8080", "0.0.0.0:0", 0x0A);
    const ADMIN: (&str, &str, u8) = ("127.0.0.1:9999", "0.0.0.0:0", 0x0A);
    const ESTABLISHED: u8 = 1;
    const TIME_WAIT: u8 = 6;

    fn from(remote: &str, state: u8) -> (&str, &str, u8) {
        ("10.1.0.7:8080", remote, state)
    }

    fn begin(first: &Look) -> Counting {
        Counting::begin(
            first,
            first.ports.clone(),
            vec!["10.1.0.1".parse().unwrap()],
        )
    }

    #[test]
    fn the_ports_are_those_that_others_can_reach() {
        let v6 = ("[::]:9090", "[::]:0", 0x0A);
        let look = look(0, &[LISTENING, ADMIN, v6]);
        assert_eq!(Vec::from_iter(look.ports), [8080, 9090]);
    }

    #[test]
    fn a_connection_is_new_once() {
        let mut counting = begin(&look(5, &[LISTENING, from("10.2.0.9:40000", ESTABLISHED)]));
        let old = from("10.2.0.9:40000", TIME_WAIT);
        let new = from("10.2.0.9:40001", ESTABLISHED);
        assert_eq!(counting.count(&look(6, &[LISTENING, old, new])), 1);
        assert_eq!(counting.count(&look(6, &[LISTENING, new])), 0);
        // Nobody listens any more, and the last client has come just before.
        let last = from("10.2.0.9:40002", ESTABLISHED);
        assert_eq!(counting.count(&look(7, &[last])), 1);
    }

    #[test]
    fn one_that_came_and_went_between_two_looks_counts() {
        let mut counting = begin(&look(5, &[LISTENING]));
        assert_eq!(counting.count(&look(7, &[LISTENING])), 2);
        assert_eq!(counting.count(&look(7, &[LISTENING])), 0);
    }

    #[test]
    fn among_others_only_what_the_table_shows_counts() {
        let mut counting = begin(&look(5, &[LISTENING])).only_shown(true);
        assert_eq!(counting.count(&look(7, &[LISTENING])), 0);
        let new = from("10.2.0.9:40001", ESTABLISHED);
        assert_eq!(counting.count(&look(9, &[LISTENING, new])), 1);
    }

    #[test]
    fn one_that_the_table_shows_before_the_counter_does_counts_once() {
        let mut counting = begin(&look(5, &[LISTENING]));
        let new = from("10.2.0.9:40001", ESTABLISHED);
        assert_eq!(counting.count(&look(5, &[LISTENING, new])), 1);
        assert_eq!(counting.count(&look(6, &[LISTENING, new])), 0);
    }

    #[test]
    fn what_goes_out_is_of_loopback_or_comes_from_an_address_to_ignore_does_not_count() {
        let mut counting = begin(&look(5, &[LISTENING, ADMIN]));
        let out = ("10.1.0.7:50000", "10.9.0.1:443", ESTABLISHED);
        let probe = from("10.1.0.1:40001", TIME_WAIT);
        // What is left of a connection that its client closed first.
        let own = ("127.0.0.1:50001", "127.0.0.1:8080", TIME_WAIT);
        let other = ("127.0.0.1:9999", "127.0.0.1:50002", ESTABLISHED);
        let other_end = ("127.0.0.1:50002", "127.0.0.1:9999", ESTABLISHED);
        let now = look(8, &[LISTENING, ADMIN, out, probe, own, other, other_end]);
        assert_eq!(counting.count(&now), 0);
    }

    #[test]
    fn a_connection_that_is_not_made_yet_is_not_counted_yet() {
        let mut counting = begin(&look(5, &[LISTENING]));
        let coming = from("10.2.0.9:40001", 3);
        assert_eq!(counting.count(&look(5, &[LISTENING, coming])), 0);
        let there = from("10.2.0.9:40001", ESTABLISHED);
        assert_eq!(counting.count(&look(6, &[LISTENING, there])), 1);
    }

    #[test]
    fn addresses_of_both_families_are_read() {
        for text in ["10.1.0.7:8080", "[2001:db8::17]:443"] {
            assert_eq!(address(&hex(text)), text.parse().ok(), "{text}");
        }
        assert_eq!(
            address(&hex("[::ffff:10.1.0.7]:80")),
            "10.1.0.7:80".parse().ok()
        );
        for nonsense in ["", ":", "0100007F", "XX00007F:0050", "01:0050"] {
            assert_eq!(address(nonsense), None, "{nonsense}");
        }
    }
}
