//! HTTP/1.1, as plain as can be.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{ANSWER_LIMIT, Client, Manner, Question, REFUSED_PAUSE, add};

pub(super) fn ask(client: &Client, questions: &[Question], is_over: &AtomicBool) {
    let mut kept = None;
    for question in questions.iter().cycle() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let Some(stream) = kept.take().or_else(|| client.connect()) else {
            thread::sleep(REFUSED_PAUSE);
            continue;
        };
        match ask_once(client, stream, question) {
            Ok(stream) => {
                add(&client.counts.answered);
                kept = stream.and_then(|stream| keep(client, stream));
            }
            Err(error) => client.cut(&question.path, &error),
        }
    }
}

/// The connection, if it can be used once more.
fn ask_once(
    client: &Client,
    mut stream: TcpStream,
    question: &Question,
) -> io::Result<Option<TcpStream>> {
    let is_kept = !matches!(client.manner, Manner::Fresh);
    let wish = if is_kept { "keep-alive" } else { "close" };
    let (path, address) = (&question.path, client.address);
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: {wish}\r\n\r\n");
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.write_all(request.as_bytes())?;
    let (head, mut body) = read_head(&mut stream)?;
    let length = field(&head, "content-length").and_then(|text| text.parse().ok());
    let length: usize = length.ok_or_else(|| io::Error::other(format!("no length: {head}")))?;
    let begun = body.len();
    body.resize(length.max(begun), 0);
    stream.read_exact(&mut body[begun..])?;
    if !head.starts_with("http/1.1 200 ") || body != question.body {
        return Err(io::Error::other(format!("a wrong answer: {head}")));
    }
    let may_go_on = field(&head, "connection") != Some("close");
    if is_kept && !may_go_on {
        add(&client.counts.announced);
    }
    Ok(may_go_on.then_some(stream))
}

/// Pauses. The connection, if it can be used once more.
fn keep(client: &Client, stream: TcpStream) -> Option<TcpStream> {
    let pause = match client.manner {
        Manner::KeepAlive(pause) => {
            thread::sleep(pause);
            return Some(stream);
        }
        Manner::Idle(pause) => pause,
        Manner::Fresh | Manner::Http2(_) => return None,
    };
    stream.set_read_timeout(Some(pause)).unwrap();
    match stream.peek(&mut [0]) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(stream),
        Ok(0) => {
            add(&client.counts.closed_idle);
            None
        }
        other => {
            client.cut("nothing", &format!("{other:?}"));
            None
        }
    }
}

/// The head in lower case, and what has come of the body with it.
fn read_head(stream: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    const END: &[u8] = b"\r\n\r\n";
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let end = bytes.windows(END.len()).position(|bytes| bytes == END);
        if let Some(end) = end {
            let body = bytes.split_off(end + END.len());
            let head = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
            return Ok((head, body));
        }
        let length = stream.read(&mut chunk)?;
        if length == 0 {
            let text = format!("closed after {} bytes of the answer's head", bytes.len());
            return Err(io::Error::other(text));
        }
        bytes.extend_from_slice(&chunk[..length]);
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(found, _)| *found == name)?;
    Some(value.trim())
}
