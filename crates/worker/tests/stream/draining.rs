//! A shutdown in order, and within its time.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use soloist_worker::stream::{End, Link, State, Subscriber};
use soloist_worker::{Backoff, Shutdown};
use tonic::{Status, Streaming};

use crate::harness::{DRAIN, Nobody, Notes, Stage, note, quick, within};
use crate::server::{Note, Server};

#[tokio::test]
async fn the_server_is_told_the_rest_is_handled_the_end_confirmed_and_the_connection_closed() {
    let mut stage = Stage::new().await;
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    let first = stage.work().await;
    stage.shutdown.begin();
    stage.state(|state| *state == State::Draining).await;
    let drain = stage.call("Drain").await;
    // Under way when the server was told: still handled.
    sent.send(note(2)).await.unwrap();
    first.done();
    let second = stage.work().await;
    assert_eq!(second.position, 2);
    drain.confirm();
    let gone = sent.clone();
    drop(sent);
    second.done();
    drop(gone);
    stage.acknowledged(2).await;
    let summary = stage.ended().await.unwrap();
    assert_eq!(summary.end, End::Confirmed);
    assert_eq!(
        (summary.received, summary.handled, summary.acknowledged),
        (2, 2, 2)
    );
}

#[tokio::test]
async fn a_thousand_in_flight_are_all_handled_and_acknowledged() {
    const MANY: u64 = 1000;
    let many = NonZeroUsize::new(1000).unwrap();
    let mut stage = Stage::with(|consumer| consumer.concurrency(many), DRAIN).await;
    let sent = stage.opened().await;
    for position in 1..=MANY {
        sent.send(note(position)).await.unwrap();
    }
    let mut works = Vec::new();
    for _ in 0..MANY {
        works.push(stage.work().await);
    }
    stage.shutdown.begin();
    stage.call("Drain").await.confirm();
    drop(sent);
    for work in works {
        work.done();
    }
    stage.acknowledged(MANY).await;
    let summary = stage.ended().await.unwrap();
    assert_eq!(summary.end, End::Confirmed);
    assert_eq!((summary.handled, summary.acknowledged), (MANY, MANY));
}

#[tokio::test]
async fn when_the_time_runs_out_what_is_not_handled_is_not_acknowledged() {
    let many = NonZeroUsize::new(1000).unwrap();
    let drain = Duration::from_millis(300);
    let mut stage = Stage::with(|consumer| consumer.concurrency(many), drain).await;
    let sent = stage.opened().await;
    for position in 1..=1000 {
        sent.send(note(position)).await.unwrap();
    }
    let mut works = Vec::new();
    for _ in 0..1000 {
        works.push(stage.work().await);
    }
    let rest = works.split_off(400);
    stage.shutdown.begin();
    let begun = Instant::now();
    stage.call("Drain").await.confirm();
    for work in works {
        work.done();
    }
    stage.acknowledged(400).await;
    let summary = stage.ended().await.unwrap();
    assert!(begun.elapsed() >= drain);
    assert_eq!(summary.end, End::Cut);
    assert_eq!(
        (summary.received, summary.handled, summary.acknowledged),
        (1000, 400, 400)
    );
    assert!(rest.iter().all(crate::harness::Work::is_given_up));
    assert!(
        stage.server.calls.try_recv().is_err(),
        "more was acknowledged"
    );
}

#[tokio::test]
async fn what_was_handled_when_the_time_runs_out_is_still_acknowledged() {
    let drain = Duration::from_millis(300);
    let rarely = Duration::from_secs(3600);
    let mut stage = Stage::with(|consumer| consumer.acknowledge_every(rarely), drain).await;
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    stage.work().await.done();
    stage.acknowledged(1).await;
    for position in 2..=3 {
        sent.send(note(position)).await.unwrap();
    }
    stage.work().await.done();
    let never = stage.work().await;
    stage.shutdown.begin();
    stage.call("Drain").await.confirm();
    stage.acknowledged(2).await;
    let summary = stage.ended().await.unwrap();
    assert_eq!(summary.end, End::Cut);
    assert_eq!(
        (summary.received, summary.handled, summary.acknowledged),
        (3, 2, 2)
    );
    drop(never);
}

#[tokio::test]
async fn a_server_that_cannot_be_told_is_read_no_further() {
    let server = Server::start().await;
    let consumer = quick(&server.url());
    let mut stage = Stage::set(server, consumer, Shutdown::new(DRAIN), false);
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    let work = stage.work().await;
    stage.shutdown.begin();
    stage.state(|state| *state == State::Draining).await;
    work.done();
    stage.acknowledged(1).await;
    let summary = stage.ended().await.unwrap();
    assert_eq!(summary.end, End::Drained);
    within("the stream's end at the server", sent.closed()).await;
}

#[tokio::test]
async fn a_server_that_fails_while_it_is_told_is_not_waited_for() {
    let mut stage = Stage::new().await;
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    let work = stage.work().await;
    stage.shutdown.begin();
    stage
        .call("Drain")
        .await
        .refuse(Status::unimplemented("no such method"));
    work.done();
    stage.acknowledged(1).await;
    let summary = stage.ended().await.unwrap();
    assert_eq!(summary.end, End::Drained);
    drop(sent);
}

#[tokio::test]
async fn a_stream_that_breaks_during_the_shutdown_is_not_opened_again() {
    let mut stage = Stage::new().await;
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    let work = stage.work().await;
    stage.shutdown.begin();
    let drain = stage.call("Drain").await;
    sent.send(Err(Status::unavailable("gone"))).await.unwrap();
    work.done();
    let summary = stage.ended().await.unwrap();
    assert_eq!((summary.handled, summary.acknowledged), (1, 0));
    assert_eq!(summary.end, End::Drained);
    drain.confirm();
}

#[tokio::test]
async fn a_shutdown_without_a_connection_is_over_at_once() {
    let (server, nobody) = (Server::start().await, Nobody::new());
    let long = Duration::from_secs(600);
    let consumer = quick(&nobody.url()).backoff(Backoff::try_new(long, long).unwrap());
    let mut stage = Stage::set(server, consumer, Shutdown::new(DRAIN), true);
    stage
        .state(|state| matches!(state, State::Waiting { .. }))
        .await;
    stage.shutdown.begin();
    assert_eq!(stage.ended().await.unwrap().end, End::Idle);
}

#[tokio::test]
async fn a_shutdown_while_the_server_does_not_answer_is_over_at_once() {
    let mut stage = Stage::new().await;
    let unanswered = stage.call("Open").await;
    stage.shutdown.begin();
    assert_eq!(stage.ended().await.unwrap().end, End::Idle);
    drop(unanswered);
}

/// Handles all but the first message at once, and begins the shutdown with the third.
struct AtOnce {
    notes: Notes,
    shutdown: Shutdown,
}

impl Subscriber for AtOnce {
    type Message = Note;
    type Receipt = u64;
    type Error = String;

    async fn open(&self, link: Link, after: Option<&u64>) -> Result<Streaming<Note>, Status> {
        self.notes.open(link, after).await
    }

    async fn handle(&self, message: Note) -> Result<u64, String> {
        match message.position {
            1 => return self.notes.handle(message).await,
            3 => self.shutdown.begin(),
            _ => {}
        }
        Ok(message.position)
    }
}

#[tokio::test]
async fn a_shutdown_is_seen_between_messages_that_are_there_and_done_at_once() {
    let mut server = Server::start().await;
    let consumer = quick(&server.url());
    let (notes, mut works) = Notes::new(false);
    let shutdown = Shutdown::new(DRAIN);
    let subscriber = AtOnce {
        notes,
        shutdown: shutdown.clone(),
    };
    let running = tokio::spawn(async move { consumer.run(&shutdown, &subscriber).await });
    let opened = within("the stream", server.calls.recv()).await.unwrap();
    let sent = opened.stream();
    for position in 1..=100 {
        sent.send(note(position)).await.unwrap();
    }
    let first = within("a message in hand", works.recv()).await.unwrap();
    first.done();
    let summary = within("the end", running).await.unwrap().unwrap();
    assert_eq!((summary.handled, summary.end), (3, End::Drained));
}

#[tokio::test]
async fn a_server_that_takes_its_time_to_say_goodbye_is_read_for_as_long_as_the_drain_lasts() {
    let limit = Duration::from_millis(50);
    let mut stage = Stage::with(|consumer| consumer.call_limit(limit), DRAIN).await;
    let sent = stage.opened().await;
    stage.state(|state| *state == State::Streaming).await;
    stage.shutdown.begin();
    let drain = stage.call("Drain").await;
    // Far longer than an acknowledgement may take.
    tokio::time::sleep(limit * 6).await;
    sent.send(note(1)).await.unwrap();
    stage.work().await.done();
    stage.acknowledged(1).await;
    drain.confirm();
    drop(sent);
    assert_eq!(stage.ended().await.unwrap().end, End::Confirmed);
}

#[tokio::test]
async fn a_handler_that_failed_is_told_also_when_the_time_runs_out() {
    let drain = Duration::from_millis(300);
    let mut stage = Stage::with(|consumer| consumer, drain).await;
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    stage.work().await.done();
    let unanswered = stage.call("Ack").await;
    sent.send(note(2)).await.unwrap();
    stage.shutdown.begin();
    stage.work().await.fail("the disk is full");
    let error = stage.ended().await.unwrap_err().to_string();
    assert_eq!(error, "a message could not be handled: the disk is full");
    drop(unanswered);
}
