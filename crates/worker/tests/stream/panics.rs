//! A subscriber that panics, wherever it does, ends the consumer in order.

use prost::Message;
use soloist_worker::Shutdown;
use soloist_worker::stream::{Drain, Failure, Link, Subscriber, Verdict};
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic::{Status, Streaming};
use tonic_prost::ProstEncoder;

use crate::harness::{DRAIN, Nobody, Notes, note, open_with, quick, within};
use crate::server::{Note, Server};

/// Panics in one of its methods, with the second message if it is about messages.
struct Panics {
    notes: Notes,
    method: &'static str,
    /// Before there is a future, as a method may that is no `async fn`.
    at_once: bool,
}

impl Panics {
    fn new(method: &'static str, at_once: bool) -> Self {
        let (notes, _) = Notes::new(true);
        Self {
            notes,
            method,
            at_once,
        }
    }

    /// Panics now, or says whether to do so later.
    fn panics_in(&self, method: &str) -> bool {
        let is_it = self.method == method;
        assert!(!(is_it && self.at_once), "{method} broke");
        is_it
    }
}

impl Subscriber for Panics {
    type Message = Note;
    type Receipt = u64;
    type Error = String;

    fn open(
        &self,
        link: Link,
        _: Option<&u64>,
    ) -> impl Future<Output = Result<Streaming<Note>, Status>> + Send {
        let panics = self.panics_in("open");
        async move {
            assert!(!panics, "open broke");
            match self.method {
                "decode" => open_with(FragileCodec, link).await,
                _ => self.notes.open(link, None).await,
            }
        }
    }

    fn handle(&self, message: Note) -> impl Future<Output = Result<u64, String>> + Send {
        let panics = message.position == 2 && self.panics_in("handle");
        async move {
            assert!(!panics, "handle broke");
            Ok(message.position)
        }
    }

    fn commit(&self, position: u64) -> impl Future<Output = Result<u64, String>> + Send {
        let panics = position == 2 && self.panics_in("commit");
        async move {
            assert!(!panics, "commit broke");
            Ok(position)
        }
    }

    fn acknowledge(
        &self,
        link: Link,
        receipts: &[u64],
    ) -> impl Future<Output = Result<(), Status>> + Send {
        let panics = receipts.last() == Some(&2) && self.panics_in("acknowledge");
        async move {
            assert!(!panics, "acknowledge broke");
            self.notes.acknowledge(link, receipts).await
        }
    }

    fn drain(&self, _: Link) -> impl Future<Output = Result<Drain, Status>> + Send {
        let panics = self.panics_in("drain");
        async move {
            assert!(!panics, "drain broke");
            Ok(Drain::StopReading)
        }
    }
}

/// Decodes all messages but the second.
#[derive(Clone, Copy)]
struct FragileCodec;

impl Codec for FragileCodec {
    type Encode = Note;
    type Decode = Note;
    type Encoder = ProstEncoder<Note>;
    type Decoder = Self;

    fn encoder(&mut self) -> ProstEncoder<Note> {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Decoder for FragileCodec {
    type Item = Note;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Note>, Status> {
        let note = Note::decode(buffer).unwrap();
        assert_ne!(note.position, 2, "decode broke");
        Ok(Some(note))
    }
}

/// What it says in the end, and how many messages it has acknowledged.
async fn end_of(method: &'static str, at_once: bool) -> (String, u64) {
    let mut server = Server::start().await;
    let consumer = quick(&server.url());
    let progress = consumer.progress();
    let shutdown = Shutdown::new(DRAIN);
    let subscriber = Panics::new(method, at_once);
    let playing = async {
        if method == "open" {
            return std::future::pending().await;
        }
        let open = server.calls.recv().await.unwrap();
        let sent = open.stream();
        sent.send(note(1)).await.unwrap();
        server.calls.recv().await.unwrap().confirm();
        match method {
            "drain" => shutdown.begin(),
            _ => sent.send(note(2)).await.unwrap(),
        }
        std::future::pending::<()>().await;
    };
    let ended = async {
        tokio::select! {
            ended = consumer.run(&shutdown, &subscriber) => ended,
            () = playing => unreachable!("it never ends"),
        }
    };
    let error = within("the end", ended).await.unwrap_err();
    (error.to_string(), progress.acknowledged())
}

#[tokio::test]
async fn a_panic_in_any_method_is_told_and_what_came_before_is_acknowledged() {
    for at_once in [false, true] {
        for (method, called, acknowledged) in [
            ("open", "open", 0),
            ("handle", "handle or commit", 1),
            ("commit", "handle or commit", 1),
            ("acknowledge", "acknowledge", 1),
            ("drain", "drain", 1),
            ("decode", "the stream", 1),
        ] {
            let (told, done) = end_of(method, at_once).await;
            assert!(told.starts_with(&format!("{called} panicked: ")), "{told}");
            assert!(told.contains(&format!("{method} broke")), "{told}");
            assert_eq!(done, acknowledged, "{told}");
        }
    }
}

#[tokio::test]
async fn a_judge_that_panics_is_told() {
    fn broken(_: &Failure) -> Verdict {
        panic!("nobody can tell")
    }
    let nobody = Nobody::new();
    let consumer = quick(&nobody.url()).judge(broken);
    let (notes, _works) = Notes::new(true);
    let shutdown = Shutdown::new(DRAIN);
    let ended = within("the end", consumer.run(&shutdown, &notes)).await;
    let error = ended.unwrap_err().to_string();
    assert_eq!(error, "judge panicked: nobody can tell");
}
