//! As much of systemd-logind as the kubelet asks for, on a bus of its own: that a node shuts down.
//!
//! It speaks D-Bus to one client that knows what it wants: no names, no rules, no types but those of the four answers below. The
//! lock that the kubelet is given is a number and no descriptor, so nobody waits for it to be released.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use crate::Error;

/// How long a shutdown may be delayed, in microseconds: more than any kubelet here asks for.
const LONGEST_DELAY: u64 = 300_000_000;
/// A descriptor that nobody has.
const LOCK: u32 = 1_000_000;
/// More than the kubelet ever says.
const LONGEST_MESSAGE: usize = 64 * 1024;

mod kind {
    pub(super) const CALL: u8 = 1;
    pub(super) const ANSWER: u8 = 2;
    pub(super) const SIGNAL: u8 = 4;
}

mod field {
    pub(super) const PATH: u8 = 1;
    pub(super) const INTERFACE: u8 = 2;
    pub(super) const MEMBER: u8 = 3;
    pub(super) const ANSWER_TO: u8 = 5;
    pub(super) const SENDER: u8 = 7;
    pub(super) const SIGNATURE: u8 = 8;
}

/// A node's logind. It ends with the process.
#[derive(Debug)]
pub(super) struct Logind {
    socket: PathBuf,
    clients: Arc<Mutex<Vec<UnixStream>>>,
}

impl Logind {
    /// On a socket in this folder.
    pub(super) fn start(folder: &Path) -> Result<Self, Error> {
        let socket = folder.join("bus");
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).map_err(Error::io("listen on", &socket))?;
        let clients: Arc<Mutex<Vec<UnixStream>>> = Arc::default();
        let all = clients.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let all = all.clone();
                thread::spawn(move || serve(stream, &all));
            }
        });
        Ok(Self { socket, clients })
    }

    /// For `DBUS_SYSTEM_BUS_ADDRESS`.
    pub(super) fn address(&self) -> String {
        format!("unix:path={}", self.socket.display())
    }

    /// Says that the node is about to shut down, or that it does not after all. An error if nobody listens.
    pub(super) fn prepare_for_shutdown(&self, is_near: bool) -> io::Result<()> {
        let mut message = Message::new(kind::SIGNAL, 1);
        message.text(field::PATH, b'o', "/org/freedesktop/login1");
        message.text(field::INTERFACE, b's', "org.freedesktop.login1.Manager");
        message.text(field::MEMBER, b's', "PrepareForShutdown");
        message.text(field::SENDER, b's', "org.freedesktop.login1");
        let bytes = message.finish("b", &u32::from(is_near).to_le_bytes());
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|mut client| client.write_all(&bytes).is_ok());
        match clients.is_empty() {
            true => Err(io::Error::other("the kubelet does not listen to logind")),
            false => Ok(()),
        }
    }
}

fn serve(stream: UnixStream, clients: &Mutex<Vec<UnixStream>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    shake_hands(&mut reader, &stream).ok()?;
    loop {
        let call = read(&mut reader).ok()?;
        let (signature, body) = answer_to(&call.member);
        let mut message = Message::new(kind::ANSWER, call.serial);
        message.number(field::ANSWER_TO, call.serial);
        (&stream)
            .write_all(&message.finish(signature, &body))
            .ok()?;
        if call.member == "AddMatch" {
            let mut clients = clients.lock().unwrap_or_else(PoisonError::into_inner);
            clients.push(stream.try_clone().ok()?);
        }
    }
}

fn answer_to(member: &str) -> (&'static str, Vec<u8>) {
    match member {
        "Hello" => ("s", [&4_u32.to_le_bytes()[..], b":1.1\0"].concat()),
        // InhibitDelayMaxUSec, the only property that anybody reads. The number begins at a multiple of 8.
        "Get" => {
            let variant = b"\x01t\0\0\0\0\0\0";
            ("v", [&variant[..], &LONGEST_DELAY.to_le_bytes()].concat())
        }
        "Inhibit" => ("u", LOCK.to_le_bytes().to_vec()),
        _ => ("", Vec::new()),
    }
}

/// Everybody is who they say.
fn shake_hands(reader: &mut impl BufRead, mut stream: &UnixStream) -> io::Result<()> {
    reader.read_exact(&mut [0])?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let answer = match line.trim_end() {
            "BEGIN" => return Ok(()),
            "AUTH" => "REJECTED EXTERNAL",
            line if line.starts_with("AUTH EXTERNAL") => "OK 00000000000000000000000000000001",
            _ => "ERROR",
        };
        stream.write_all(format!("{answer}\r\n").as_bytes())?;
    }
}

struct Call {
    serial: u32,
    member: String,
}

/// The next call. All else is passed over.
fn read(reader: &mut impl Read) -> io::Result<Call> {
    loop {
        let mut head = [0; 16];
        reader.read_exact(&mut head)?;
        let number =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (body, serial, fields) = (number(4) as usize, number(8), number(12) as usize);
        if head[0] != b'l' || body + fields > LONGEST_MESSAGE {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut rest = vec![0; fields.next_multiple_of(8) + body];
        reader.read_exact(&mut rest)?;
        if head[1] == kind::CALL
            && let Some(member) = member(&rest[..fields])
        {
            return Ok(Call { serial, member });
        }
    }
}

/// The text of the field MEMBER: each begins at a multiple of 8 with its number and, as a variant, its type.
fn member(mut fields: &[u8]) -> Option<String> {
    loop {
        let (&[number, _, kind, _], value) = fields.split_first_chunk()?;
        let length = match kind {
            b's' | b'o' => 4 + u32::from_le_bytes(*value.first_chunk()?) as usize + 1,
            b'g' => 1 + usize::from(*value.first()?) + 1,
            b'u' => 4,
            _ => return None,
        };
        if number == field::MEMBER {
            let text = value.get(4..length - 1)?;
            return Some(String::from_utf8_lossy(text).into_owned());
        }
        fields = fields.get((4 + length).next_multiple_of(8)..)?;
    }
}

/// A message, until its body: fields first.
struct Message {
    kind: u8,
    serial: u32,
    fields: Vec<u8>,
}

impl Message {
    fn new(kind: u8, serial: u32) -> Self {
        let fields = Vec::new();
        Self {
            kind,
            serial,
            fields,
        }
    }

    fn field(&mut self, number: u8, kind: u8) {
        pad(&mut self.fields);
        self.fields.extend([number, 1, kind, 0]);
    }

    fn text(&mut self, number: u8, kind: u8, text: &str) {
        self.field(number, kind);
        self.fields.extend((text.len() as u32).to_le_bytes());
        self.fields.extend(text.as_bytes());
        self.fields.push(0);
    }

    fn number(&mut self, number: u8, value: u32) {
        self.field(number, b'u');
        self.fields.extend(value.to_le_bytes());
    }

    fn finish(mut self, signature: &str, body: &[u8]) -> Vec<u8> {
        if !signature.is_empty() {
            self.field(field::SIGNATURE, b'g');
            self.fields.push(signature.len() as u8);
            self.fields.extend(signature.as_bytes());
            self.fields.push(0);
        }
        let no_answer = 1;
        let mut bytes = vec![b'l', self.kind, no_answer, 1];
        for number in [body.len(), self.serial as usize, self.fields.len()] {
            bytes.extend((number as u32).to_le_bytes());
        }
        bytes.extend(self.fields);
        pad(&mut bytes);
        bytes.extend(body);
        bytes
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_found_among_the_fields() {
        let mut call = Message::new(kind::CALL, 7);
        call.text(field::PATH, b'o', "/org/freedesktop/login1");
        call.text(field::SENDER, b's', ":1.1");
        call.text(field::MEMBER, b's', "Inhibit");
        let mut signal = Message::new(kind::SIGNAL, 6);
        signal.text(field::MEMBER, b's', "NameAcquired");
        let body = b"\x08\0\0\0shutdown\0";
        let bytes = [signal.finish("s", body), call.finish("ssss", body)].concat();
        let read = read(&mut &bytes[..]).unwrap();
        assert_eq!((read.serial, &*read.member), (7, "Inhibit"));
    }

    #[test]
    fn who_has_asked_for_signals_is_told_of_a_shutdown() {
        let folder = tempfile::tempdir().unwrap();
        let logind = Logind::start(folder.path()).unwrap();
        assert!(logind.prepare_for_shutdown(true).is_err());
        let mut client = UnixStream::connect(folder.path().join("bus")).unwrap();
        client
            .write_all(b"\0AUTH\r\nAUTH EXTERNAL 30\r\nBEGIN\r\n")
            .unwrap();
        let mut call = Message::new(kind::CALL, 9);
        call.text(field::MEMBER, b's', "AddMatch");
        client.write_all(&call.finish("", b"")).unwrap();
        let mut reader = BufReader::new(client);
        for answer in ["REJECTED EXTERNAL", "OK 0"] {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            assert!(line.starts_with(answer), "{line}");
        }
        let mut head = [0; 16];
        reader.read_exact(&mut head).unwrap();
        assert_eq!(head[1], kind::ANSWER);
        let fields = u32::from_le_bytes(head[12..].try_into().unwrap()) as usize;
        let mut fields = vec![0; fields.next_multiple_of(8)];
        reader.read_exact(&mut fields).unwrap();
        assert_eq!(fields[4..8], 9_u32.to_le_bytes());
        while logind.prepare_for_shutdown(true).is_err() {
            thread::yield_now();
        }
        reader.read_exact(&mut head).unwrap();
        assert_eq!((head[1], &head[4..8]), (kind::SIGNAL, &[4, 0, 0, 0][..]));
    }
}
