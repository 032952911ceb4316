//! A client that may misbehave.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::harness::{LIMIT, Replica};

/// For replicas that are to listen.
pub(crate) const LISTEN: &str = "--listen=127.0.0.1:0";

/// Where a replica listens.
pub(crate) fn address(replica: &Replica) -> SocketAddr {
    let line = replica.wait_log("listening address=");
    let (_, address) = line.split_once("address=").unwrap();
    address.trim().parse().unwrap()
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value)
    }

    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Self {
            code: code.unwrap_or_else(|| panic!("no answer: {text:?}")),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, LIMIT).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Sends this, and reads until the other side closes.
pub(crate) fn exchange(address: SocketAddr, request: &str) -> Reply {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    Reply::parse(&answer)
}

pub(crate) fn request(address: SocketAddr, method: &str, path: &str) -> Reply {
    let head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    exchange(address, &head)
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Reply {
    request(address, "GET", path)
}
