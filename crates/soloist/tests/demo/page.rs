//! The demo's page: who may look, and who may press a button.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use crate::{Demo, LIMIT, SOLOIST};

struct Page {
    host: String,
    secret: String,
}

impl Page {
    fn of(demo: &mut Demo) -> Self {
        let line = demo.wait_line("page: http://");
        let address = line.split_once("http://").unwrap().1;
        let (host, path) = address.split_once('/').unwrap();
        let secret = path.strip_suffix('/').unwrap().to_owned();
        assert!(secret.len() == 32 && secret.bytes().all(|byte| byte.is_ascii_hexdigit()));
        Self {
            host: host.to_owned(),
            secret,
        }
    }

    /// The answer's head and body, to these headers alone.
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        let address: SocketAddr = self.host.parse().unwrap();
        assert_eq!(address.ip(), Ipv4Addr::LOCALHOST);
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: 0\r\n");
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        stream.write_all((request + "\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn only_its_own_page_with_the_secret_may_press_a_button() {
    let mut demo = Demo::start(&[]);
    let page = Page::of(&mut demo);
    demo.wait_line("leads, its child consumes the feed");
    let host = page.host.as_str();
    let (own, kill) = (format!("http://{host}"), format!("/{}/kill", page.secret));
    let here = ("host", host);
    let wrong_secret = format!("/{}/kill", "0".repeat(32));
    for (method, path, headers, code) in [
        ("POST", kill.as_str(), &[here][..], 403),
        (
            "POST",
            &kill,
            &[here, ("origin", "http://example.com")],
            403,
        ),
        ("POST", &kill, &[here, ("origin", "null")], 403),
        ("POST", &kill, &[here, ("origin", "http://127.0.0.1")], 403),
        (
            "POST",
            &kill,
            &[here, ("origin", &own), ("origin", "http://example.com")],
            403,
        ),
        (
            "POST",
            &kill,
            &[here, ("origin", &own), ("sec-fetch-site", "cross-site")],
            403,
        ),
        (
            "POST",
            &kill,
            &[here, ("origin", &own), ("sec-fetch-site", "same-site")],
            403,
        ),
        // A name that was made to lead here.
        (
            "POST",
            &kill,
            &[("host", "example.com"), ("origin", "http://example.com")],
            403,
        ),
        ("GET", &kill, &[here, ("origin", &own)], 405),
        ("PUT", &kill, &[here, ("origin", &own)], 405),
        ("POST", "/kill", &[here, ("origin", &own)], 404),
        ("POST", &wrong_secret, &[here, ("origin", &own)], 404),
        ("GET", "/", &[here], 404),
        ("GET", "/events", &[here], 404),
        (
            "GET",
            &format!("/{}/", page.secret),
            &[("host", "example.com")],
            403,
        ),
        ("GET", &format!("/{}/nothing", page.secret), &[here], 404),
        ("GET", &format!("/{}/", page.secret), &[here], 200),
    ] {
        let answer = page.ask(method, path, headers);
        let begin = format!("HTTP/1.1 {code} ");
        assert!(
            answer.starts_with(&begin),
            "{method} {path} {headers:?}: {answer}"
        );
        assert!(!answer.contains("access-control-allow"), "{answer}");
    }
    let renamed = page.ask("POST", &kill, &[("host", "example.com")]);
    assert!(
        renamed.contains("this is asked for by another name than its own"),
        "{renamed}"
    );
    let elsewhere = page.ask("POST", &kill, &[here, ("origin", "null")]);
    assert!(
        elsewhere.contains("this is asked for from elsewhere than its own page"),
        "{elsewhere}"
    );
    let accepted = page.ask(
        "POST",
        &kill,
        &[here, ("origin", &own), ("sec-fetch-site", "same-origin")],
    );
    assert!(accepted.starts_with("HTTP/1.1 202 "), "{accepted}");
    demo.wait_line("is killed (SIGKILL)");
    let second = page.ask("POST", &kill, &[here, ("origin", &own)]);
    assert!(
        second.starts_with("HTTP/1.1 409 "),
        "one at a time: {second}"
    );
    demo.wait_line("so far messages");
    let end = format!("/{}/end", page.secret);
    let ended = page.ask("POST", &end, &[here, ("origin", &own)]);
    assert!(ended.starts_with("HTTP/1.1 202 "), "{ended}");
    let (code, said) = demo.end();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.matches("leader killed").count(), 1, "{said}");
    demo.nothing_is_left();
}

#[test]
fn a_port_that_is_taken_is_refused_with_what_to_do() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = Command::new(SOLOIST)
        .args(["demo", "--port", &port])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("the port is in use"), "{said}");
    assert!(said.contains("Name another one"), "{said}");
}
