//! HTTP/2, without an upgrade: the server tells it by its first bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use axum::body::Bytes;
use axum::http::{Request, StatusCode};
use h2::client::{self, SendRequest};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{ANSWER_LIMIT, Client, Question, REFUSED_PAUSE, add};

pub(super) fn ask(
    client: &Client,
    many: usize,
    questions: &Arc<Vec<Question>>,
    is_over: &Arc<AtomicBool>,
) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    while !is_over.load(Ordering::Relaxed) {
        let Some(stream) = client.connect() else {
            thread::sleep(REFUSED_PAUSE);
            continue;
        };
        stream.set_nonblocking(true).unwrap();
        runtime.block_on(async {
            let stream = TcpStream::from_std(stream).unwrap();
            let (sender, connection) = match client::handshake(stream).await {
                Ok(shaken) => shaken,
                Err(error) => return client.cut("the first bytes", &error),
            };
            let connection = tokio::spawn(connection);
            let mut streams = JoinSet::new();
            for _ in 0..many {
                let (client, sender) = (client.clone(), sender.clone());
                let (questions, is_over) = (questions.clone(), is_over.clone());
                streams.spawn(async move {
                    ask_until_told(&client, sender, &questions, &is_over).await;
                });
            }
            drop(sender);
            streams.join_all().await;
            connection.abort();
        });
    }
}

/// Until the server says that the connection ends.
async fn ask_until_told(
    client: &Client,
    mut sender: SendRequest<Bytes>,
    questions: &[Question],
    is_over: &AtomicBool,
) {
    for question in questions.iter().cycle() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        // Not written yet: what fails here was not asked.
        sender = match sender.ready().await {
            Ok(sender) => sender,
            Err(error) => return end(client, &error),
        };
        let request = request(client.address, &question.path);
        let answer = match sender.send_request(request, true) {
            Ok((answer, _)) => answer,
            Err(error) => return end(client, &error),
        };
        let read = async {
            let (head, mut body) = answer.await?.into_parts();
            let mut bytes = Vec::new();
            while let Some(data) = body.data().await {
                let data = data?;
                body.flow_control().release_capacity(data.len())?;
                bytes.extend_from_slice(&data);
            }
            Ok::<_, h2::Error>((head.status, bytes))
        };
        match timeout(ANSWER_LIMIT, read).await {
            Ok(Ok((StatusCode::OK, body))) if body == question.body => add(&client.counts.answered),
            Ok(Ok((status, _))) => client.cut(&question.path, &format!("a wrong answer: {status}")),
            Ok(Err(error)) => client.cut(&question.path, &error),
            Err(error) => client.cut(&question.path, &error),
        }
    }
}

/// The connection can be used no more, and nothing was asked.
fn end(client: &Client, error: &h2::Error) {
    match error.is_go_away() && error.is_remote() {
        true => add(&client.counts.announced),
        false => add(&client.counts.closed_idle),
    }
}

fn request(address: SocketAddr, path: &str) -> Request<()> {
    let url = format!("http://{address}{path}");
    Request::get(url).body(()).unwrap()
}
