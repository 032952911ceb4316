//! A stream that breaks is opened again, later and later, and goes on where it was.

use std::time::Duration;

use soloist_worker::Shutdown;
use soloist_worker::stream::{Consumer, End, Failure, FailureKind, State, Target, Verdict};
use testbed::{Direction, Link};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::harness::{DRAIN, Nobody, Notes, Stage, note, quick, within};
use crate::server::Server;

fn is_wait(state: &State) -> bool {
    matches!(state, State::Waiting { .. })
}

fn failures(state: &State) -> u32 {
    match state {
        State::Waiting { failures, .. } => *failures,
        other => panic!("{other:?} is no wait"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_waits_are_1_2_4_8_16_30_and_30_seconds() {
    let nobody = Nobody::new();
    let consumer = Consumer::new(Target::new(&nobody.url()).unwrap());
    let mut states = consumer.states();
    let shutdown = Shutdown::new(DRAIN);
    let (notes, _works) = Notes::new(true);
    let mut waits: Vec<u64> = Vec::new();
    let watching = async {
        let mut seen = Instant::now();
        for expected in 1..=7 {
            let is_next = |state: &State| is_wait(state) && failures(state) == expected;
            let state = states.wait_for(is_next).await.unwrap().clone();
            let State::Waiting { delay, .. } = state else {
                unreachable!("it is a wait");
            };
            let waited = seen.elapsed().as_secs();
            assert!(waited >= waits.last().copied().unwrap_or(0), "{waited} s");
            seen = Instant::now();
            waits.push(delay.as_secs());
        }
        shutdown.begin();
    };
    let (ended, ()) = tokio::join!(consumer.run(&shutdown, &notes), watching);
    assert_eq!(ended.unwrap().end, End::Idle);
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
}

#[tokio::test]
async fn it_goes_on_after_what_it_has_handled_and_counts_anew_after_a_good_message() {
    let mut stage = Stage::new().await;
    for expected in 1..=3 {
        let sent = stage.opened().await;
        sent.send(Err(Status::unavailable("not yet")))
            .await
            .unwrap();
        let state = stage.state(is_wait).await;
        assert_eq!(failures(&state), expected);
        stage.state(|state| !is_wait(state)).await;
    }
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    stage.work().await.done();
    stage.acknowledged(1).await;
    sent.send(Err(Status::internal("the server has a bad day")))
        .await
        .unwrap();
    assert_eq!(failures(&stage.state(is_wait).await), 1);
    let again = stage.call("Open").await;
    assert_eq!(again.position, 1);
    drop(again);
}

#[tokio::test]
async fn what_is_in_hand_when_the_stream_breaks_is_finished_before_it_is_opened_again() {
    let mut stage = Stage::new().await;
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    let work = stage.work().await;
    drop(sent);
    let early = tokio::time::timeout(Duration::from_millis(200), stage.server.calls.recv()).await;
    assert!(
        early.is_err(),
        "opened from a position that is about to change"
    );
    work.done();
    stage.acknowledged(1).await;
    assert_eq!(stage.call("Open").await.position, 1);
}

#[tokio::test]
async fn a_server_that_was_away_is_found_again() {
    let server = Server::start().await;
    let address = server.address;
    let consumer = quick(&server.url());
    let mut stage = Stage::set(server, consumer, Shutdown::new(DRAIN), true);
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    stage.work().await.done();
    stage.acknowledged(1).await;
    // With all its connections.
    stage.server = Server::start().await;
    drop(sent);
    stage
        .state(|state| matches!(state, State::Waiting { failures: 3, .. }))
        .await;
    stage.server = Server::on(address, None).await;
    assert_eq!(stage.call("Open").await.position, 1);
}

#[tokio::test]
async fn a_peer_that_is_dead_and_does_not_say_so_is_noticed() {
    let server = Server::start().await;
    let link = Link::to(server.address).unwrap();
    let beat = Duration::from_millis(200);
    let url = format!("http://{}", link.address());
    let target = Target::new(&url).unwrap().keepalive(beat, beat).unwrap();
    let mut stage = Stage::set(server, Consumer::new(target), Shutdown::new(DRAIN), true);
    let sent = stage.opened().await;
    stage.state(|state| *state == State::Streaming).await;
    link.swallow(Direction::Both).unwrap();
    stage.state(is_wait).await;
    drop(sent);
}

#[tokio::test]
async fn codes_that_no_waiting_mends_end_it() {
    for code in [
        Code::PermissionDenied,
        Code::InvalidArgument,
        Code::OutOfRange,
    ] {
        let mut stage = Stage::new().await;
        stage
            .call("Open")
            .await
            .refuse(Status::new(code, "go away"));
        let error = stage.ended().await.unwrap_err().to_string();
        let url = stage.server.url();
        assert_eq!(
            error,
            format!("the stream of {url} failed: {code:?}: go away")
        );
    }
}

#[tokio::test]
async fn who_knows_better_may_judge() {
    fn patient(_: &Failure) -> Verdict {
        Verdict::Retry
    }
    let mut stage = Stage::with(|consumer| consumer.judge(patient), DRAIN).await;
    let denied = Status::permission_denied("the rights come in a minute");
    stage.call("Open").await.refuse(denied);
    stage.opened().await;
}

#[tokio::test]
async fn a_stream_that_the_server_ends_is_opened_again_unless_it_may_end() {
    let mut stage = Stage::new().await;
    drop(stage.opened().await);
    stage.opened().await;

    let mut stage = Stage::with(Consumer::until_end, DRAIN).await;
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    drop(sent);
    stage.work().await.done();
    stage.acknowledged(1).await;
    assert_eq!(stage.ended().await.unwrap().end, End::Finished);
    within("no more calls", async {
        assert!(stage.server.calls.try_recv().is_err());
    })
    .await;
}

#[tokio::test]
async fn an_acknowledgement_that_always_fails_is_tried_later_and_later() {
    let mut stage = Stage::new().await;
    for expected in 1..=3 {
        let sent = stage.opened().await;
        sent.send(note(expected)).await.unwrap();
        // Of the messages before, when there are some.
        loop {
            tokio::select! {
                work = stage.works.recv() => work.unwrap().done(),
                call = stage.server.calls.recv() => {
                    call.unwrap().refuse(Status::unavailable("not now"));
                    break;
                }
            }
        }
        while let Ok(work) = stage.works.try_recv() {
            work.done();
        }
        let state = stage.state(is_wait).await;
        assert_eq!(u64::from(failures(&state)), expected);
        stage.state(|state| !is_wait(state)).await;
    }
}

#[tokio::test]
async fn a_token_that_expires_is_final_at_first_and_tried_again_once_it_has_worked() {
    for code in [Code::Unauthenticated, Code::Unimplemented] {
        let mut stage = Stage::new().await;
        stage.call("Open").await.refuse(Status::new(code, "no"));
        assert!(stage.ended().await.is_err(), "{code:?} at first");

        let mut stage = Stage::new().await;
        drop(stage.opened().await);
        stage.call("Open").await.refuse(Status::new(code, "no"));
        stage.opened().await;
    }
}

#[tokio::test]
async fn who_judges_sees_failures_without_a_status_too() {
    fn impatient(failure: &Failure) -> Verdict {
        match failure.kind() {
            FailureKind::Unreachable => Verdict::Final,
            _ => Verdict::of(failure),
        }
    }
    let nobody = Nobody::new();
    let consumer = quick(&nobody.url()).judge(impatient);
    let (notes, _works) = Notes::new(true);
    let shutdown = Shutdown::new(DRAIN);
    let ended = within("an error", consumer.run(&shutdown, &notes)).await;
    let error = ended.unwrap_err().to_string();
    assert!(error.starts_with("no connection to"), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_the_call_is_told_and_left_only_if_there_is_a_limit() {
    let told = Duration::from_millis(50);
    let mut stage = Stage::with(|consumer| consumer.call_limit(told), DRAIN).await;
    let late = stage.call("Open").await;
    let state = stage
        .state(|state| matches!(state, State::Unanswered { .. }))
        .await;
    assert_eq!(
        state.to_string(),
        "connected, but the call has no answer for 50ms"
    );
    let _sent = late.stream();
    stage.state(|state| *state == State::Streaming).await;

    let limit = Duration::from_millis(150);
    let limited = |consumer: Consumer| consumer.call_limit(told).open_limit(limit);
    let mut stage = Stage::with(limited, DRAIN).await;
    let unanswered = stage.call("Open").await;
    let state = stage.state(is_wait).await.to_string();
    assert!(
        state.contains("has not answered the call within 150ms"),
        "{state}"
    );
    stage.opened().await;
    drop(unanswered);
}
