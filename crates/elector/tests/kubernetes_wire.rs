//! The Kubernetes store against a server that answers as it is told.
#![allow(clippy::unwrap_used, reason = "a failing test says where")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use soloist_elector::core::election::{Answer, Purpose};
use soloist_elector::core::ids::Version;
use soloist_elector::kubernetes::{KubernetesStore, Options};
use soloist_elector::testing::{absent, held_by, in_time};
use soloist_elector::{LeaseStore, StoreError, Stored};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What the server does with one request.
#[derive(Clone)]
enum Reply {
    Status(u16, Value),
    /// A code, a wait as a header, and a page.
    Wait(u16, &'static str),
    /// Closes the connection without an answer.
    Hangup,
    /// Never answers.
    Silence,
    /// Sends lines, then ends the stream.
    Lines(Vec<Value>),
    /// The same, after a while.
    LinesThenEnd(Vec<Value>, Duration),
}

/// One line for each request: the number of its connection, the method and the path.
type Log = Arc<Mutex<Vec<(usize, String)>>>;

struct Server {
    log: Log,
    store: KubernetesStore,
}

impl Server {
    async fn replying(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let log = Log::default();
        let replies = Arc::new(Mutex::new(replies.into_iter()));
        let seen = log.clone();
        tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (log, replies) = (seen.clone(), replies.clone());
                let next = move || replies.lock().unwrap().next();
                tokio::spawn(serve(stream, connection, log, next));
            }
        });
        let kubeconfig = tempfile::NamedTempFile::new().unwrap();
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
            "clusters": [{"name": "c", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        });
        std::fs::write(kubeconfig.path(), text.to_string()).unwrap();
        let options = Options::lease("demo")
            .namespace("shop")
            .kubeconfig(kubeconfig.path());
        let store = KubernetesStore::connect(options).await.unwrap();
        Self { log, store }
    }

    fn requests(&self) -> usize {
        self.log.lock().unwrap().len()
    }

    async fn create(&self) -> Result<Stored<Value>, StoreError> {
        let record = held_by("a", 1, 1);
        in_time(self.store.write(&absent(), &record, Purpose::Acquire)).await
    }
}

async fn serve(
    stream: TcpStream,
    connection: usize,
    log: Log,
    next: impl Fn() -> Option<Reply>,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut first = String::new();
        stream.read_line(&mut first).await.ok().filter(|n| *n > 0)?;
        let mut length = 0;
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).await.ok()?;
            if let Some(value) = header.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if header.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        log.lock().unwrap().push((connection, first));
        let answer = match next()? {
            Reply::Hangup => return None,
            Reply::Silence => std::future::pending().await,
            Reply::Status(code, body) => {
                let body = body.to_string();
                let length = body.len();
                format!(
                    "HTTP/1.1 {code} x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
                )
            }
            Reply::Wait(code, wait) => {
                format!("HTTP/1.1 {code} x\r\nretry-after: {wait}\r\ncontent-length: 4\r\n\r\nbusy")
            }
            Reply::Lines(lines) => stream_of(&lines),
            Reply::LinesThenEnd(lines, after) => {
                stream.write_all(stream_of(&lines).as_bytes()).await.ok()?;
                tokio::time::sleep(after).await;
                return None;
            }
        };
        let closes = answer.contains("connection: close");
        stream.write_all(answer.as_bytes()).await.ok()?;
        if closes {
            return None;
        }
    }
}

fn stream_of(lines: &[Value]) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    format!("HTTP/1.1 200 x\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{lines}")
}

fn failure(code: u16) -> Reply {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "message": "no", "reason": "Reason", "details": {"retryAfterSeconds": 1},
    });
    Reply::Status(code, status)
}

/// Of somebody who has read the lease.
fn at_version_3() -> Stored<Value> {
    Stored::missing(Version::new(3))
}

fn lease(version: &str) -> Value {
    json!({"metadata": {"name": "demo", "resourceVersion": version}, "spec": {}})
}

fn list(version: &str, items: &[Value]) -> Reply {
    Reply::Status(
        200,
        json!({"metadata": {"resourceVersion": version}, "items": items}),
    )
}

#[tokio::test]
async fn nothing_is_tried_again_behind_the_elections_back() {
    for (code, answer) in [
        (
            429,
            Answer::Throttled {
                wait: Duration::from_secs(1),
            },
        ),
        (500, Answer::Unknown),
        (503, Answer::Unknown),
        (504, Answer::Unknown),
        (409, Answer::LostRace),
    ] {
        let server = Server::replying(vec![failure(code), failure(code)]).await;
        let error = server.create().await.unwrap_err();
        assert_eq!(error.answer(), answer, "{error}");
        assert_eq!(server.requests(), 1, "{code}");
        let server = Server::replying(vec![failure(code), failure(code)]).await;
        in_time(server.store.read()).await.unwrap_err();
        assert_eq!(server.requests(), 1, "{code}");
    }
}

#[tokio::test]
async fn a_wait_that_only_the_header_asks_for_is_honoured_and_proves_nothing_about_a_write() {
    let wait = Duration::from_secs(7);
    let throttled = Answer::Throttled { wait };
    for (code, on_read, on_write) in [
        (429, throttled.clone(), throttled.clone()),
        (503, throttled, Answer::Unknown),
    ] {
        let server = Server::replying(vec![Reply::Wait(code, "7"), Reply::Wait(code, "7")]).await;
        let error = in_time(server.store.read()).await.unwrap_err();
        assert_eq!(error.answer(), on_read, "{code}: {error}");
        assert!(error.to_string().contains("busy"), "{error}");
        let error = server.create().await.unwrap_err();
        assert_eq!(error.answer(), on_write, "{code}: {error}");
    }
    let server = Server::replying(vec![Reply::Wait(429, "tomorrow")]).await;
    let error = in_time(server.store.read()).await.unwrap_err();
    assert_eq!(error.answer(), Answer::Unavailable, "{error}");
}

#[tokio::test]
async fn a_connection_that_breaks_during_a_write_proves_nothing() {
    let server = Server::replying(vec![Reply::Hangup]).await;
    let error = server.create().await.unwrap_err();
    assert_eq!(error.answer(), Answer::Unknown, "{error}");
    let garbage = Server::replying(vec![Reply::Status(200, json!("what?"))]).await;
    let error = garbage.create().await.unwrap_err();
    assert_eq!(error.answer(), Answer::Unknown, "{error}");
}

#[tokio::test]
async fn an_abandoned_request_is_followed_by_a_new_connection() {
    let replies = vec![
        list("5", &[]),
        list("6", &[]),
        Reply::Silence,
        list("7", &[]),
    ];
    let server = Server::replying(replies).await;
    for _ in 0..2 {
        in_time(server.store.read()).await.unwrap();
    }
    let wait = tokio::time::timeout(Duration::from_millis(50), server.store.read());
    assert!(wait.await.is_err());
    server.store.abandon_connections();
    in_time(server.store.read()).await.unwrap();
    let connections: Vec<_> = server.log.lock().unwrap().iter().map(|(n, _)| *n).collect();
    assert_eq!(connections, [0, 0, 0, 1]);
}

#[tokio::test]
async fn a_version_that_is_no_number_is_refused_with_the_reason() {
    let server = Server::replying(vec![list("v7", &[])]).await;
    let error = in_time(server.store.read()).await.unwrap_err();
    assert_eq!(error.answer(), Answer::Refused);
    assert!(
        error.to_string().contains("not a decimal number"),
        "{error}"
    );
}

#[tokio::test]
async fn reads_are_never_served_from_a_cache_and_ask_for_one_name() {
    let server = Server::replying(vec![list("5", &[lease("3")])]).await;
    let found = in_time(server.store.read()).await.unwrap();
    assert_eq!(found.version, Version::new(3));
    let request = server.log.lock().unwrap()[0].1.clone();
    assert!(
        request.contains("fieldSelector=metadata.name%3Ddemo"),
        "{request}"
    );
    assert!(!request.contains("resourceVersion"), "{request}");
}

#[tokio::test]
async fn a_watch_begins_where_the_last_read_found_nothing_new() {
    let replies = vec![
        list("900", &[lease("3")]),
        Reply::Lines(vec![json!({"type": "MODIFIED", "object": lease("901")})]),
    ];
    let server = Server::replying(replies).await;
    let found = in_time(server.store.read()).await.unwrap();
    let mut changes = Box::pin(server.store.watch(&found));
    let change = in_time(changes.next()).await.unwrap().unwrap();
    assert_eq!(change.version, Version::new(901));
    let request = server.log.lock().unwrap()[1].1.clone();
    assert!(request.contains("resourceVersion=900"), "{request}");
    assert!(request.contains("allowWatchBookmarks=true"), "{request}");
}

#[tokio::test]
async fn a_watch_ends_where_it_might_miss_something() {
    let forgotten = json!({"type": "ERROR", "object":
        {"kind": "Status", "code": 410, "message": "too old resource version", "reason": "Expired"}});
    for reply in [
        Reply::Lines(vec![forgotten]),
        Reply::Lines(vec![
            json!({"type": "MODIFIED", "object": {"metadata": {}}}),
        ]),
        Reply::Lines(vec![json!("nonsense")]),
        Reply::Lines(vec![]),
        failure(410),
        failure(403),
        Reply::Hangup,
    ] {
        let server = Server::replying(vec![reply]).await;
        let mut changes = Box::pin(server.store.watch(&at_version_3()));
        assert!(in_time(changes.next()).await.unwrap().is_err());
        assert!(in_time(changes.next()).await.is_none());
        assert_eq!(server.requests(), 1);
    }
}

#[tokio::test]
async fn a_watch_that_ends_before_its_time_is_not_resumed_for_the_server_may_come_back_with_former_data()
 {
    let later = Duration::from_millis(1200);
    let replies = vec![Reply::LinesThenEnd(vec![], later), list("2", &[])];
    let server = Server::replying(replies).await;
    let mut changes = Box::pin(server.store.watch(&at_version_3()));
    assert!(in_time(changes.next()).await.unwrap().is_err());
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn a_watch_ends_when_the_server_is_before_what_it_had_told() {
    let bookmark = |version| {
        json!({"type": "BOOKMARK", "object":
        {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"resourceVersion": version}}})
    };
    let changed = json!({"type": "MODIFIED", "object": lease("7")});
    let lines = vec![changed, bookmark("9"), bookmark("6")];
    let replies = vec![Reply::LinesThenEnd(lines, Duration::from_secs(60))];
    let server = Server::replying(replies).await;
    let mut changes = Box::pin(server.store.watch(&at_version_3()));
    assert!(in_time(changes.next()).await.unwrap().is_ok());
    let ended = in_time(changes.next()).await.unwrap().unwrap_err();
    assert!(ended.to_string().contains("before 7"), "{ended}");
}

#[tokio::test]
async fn a_deletion_has_the_version_of_the_deletion_and_nothing_is_told_twice() {
    let event = |kind: &str, version| json!({"type": kind, "object": lease(version)});
    let bookmark = json!({"type": "BOOKMARK", "object":
        {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"resourceVersion": "9"}}});
    let server = Server::replying(vec![Reply::Lines(vec![
        event("ADDED", "3"),
        event("MODIFIED", "5"),
        event("MODIFIED", "5"),
        event("DELETED", "8"),
        bookmark,
        event("ADDED", "12"),
    ])])
    .await;
    let mut changes = Box::pin(server.store.watch(&at_version_3()));
    let mut seen = Vec::new();
    while let Some(Ok(change)) = in_time(changes.next()).await {
        seen.push((change.version.get(), change.record.is_some()));
    }
    assert_eq!(seen, [(5, true), (8, false), (12, true)]);
}
