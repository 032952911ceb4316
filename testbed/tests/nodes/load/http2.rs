//! HTTP/2 without an upgrade: one connection for as long as the server has it.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use http::{Request, StatusCode};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::{CONNECT_WITHIN, Client, LIMIT, Lost, PAUSE};

pub(super) fn ask(mut client: Client) -> Vec<Lost> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    while !client.is_over.load(Ordering::Relaxed) {
        runtime.block_on(use_connection(&mut client));
        thread::sleep(PAUSE);
    }
    client.lost
}

/// Until the server says that the connection ends. What was not asked is not lost: a client asks it elsewhere.
async fn use_connection(client: &mut Client) {
    let began = Instant::now();
    let stream = match timeout(CONNECT_WITHIN, TcpStream::connect(client.address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return client.lose(began, false, &error),
        Err(error) => return client.lose(began, false, &error),
    };
    stream.set_nodelay(true).unwrap();
    let (mut sender, connection) = match h2::client::handshake(stream).await {
        Ok(shaken) => shaken,
        Err(error) => return client.lose(began, true, &error),
    };
    let connection = tokio::spawn(connection);
    while !client.is_over.load(Ordering::Relaxed) {
        sender = match sender.ready().await {
            Ok(sender) => sender,
            Err(_) => break,
        };
        let began = Instant::now();
        let request = Request::post("http://web/count").body(()).unwrap();
        let Ok((answer, _)) = sender.send_request(request, true) else {
            break;
        };
        let read = async {
            let (head, mut body) = answer.await?.into_parts();
            while let Some(data) = body.data().await {
                body.flow_control().release_capacity(data?.len())?;
            }
            Ok::<_, h2::Error>(head.status)
        };
        match timeout(LIMIT, read).await {
            Ok(Ok(StatusCode::OK)) => client.count(),
            Ok(Ok(status)) => client.lose(began, true, &status),
            // The server promises that it has not seen it, and any client may ask it elsewhere.
            Ok(Err(error)) if error.is_go_away() && error.is_remote() => break,
            Ok(Err(error)) => client.lose(began, true, &error),
            Err(error) => client.lose(began, true, &error),
        }
        sleep(PAUSE.max(Duration::from_millis(1))).await;
    }
    connection.abort();
}
