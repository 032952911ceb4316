//! The demo's page. What it has acts, so it is on loopback only, below a secret path, and what acts wants this page's own origin.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::Context;
use futures_util::stream::{self, Stream};
use hyper::body::{Bytes, Frame};
use hyper::header::{ALLOW, HOST, HeaderName, HeaderValue, ORIGIN};
use hyper::{Method, Request, StatusCode};
use soloist_elector::random;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet, spawn_local};
use tokio::time::{sleep, timeout};

use super::board::Picture;
use super::faults::Fault;
use crate::http1::{self, Answer};
use crate::web_page::WebPage;

const CONNECTIONS: usize = 32;
const PAUSE: Duration = Duration::from_millis(100);
/// For readers to take the last picture.
const LAST_WITHIN: Duration = Duration::from_secs(1);

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const EVENTS: &str = "text/event-stream";

static PAGE: LazyLock<WebPage> = LazyLock::new(|| WebPage::new(include_str!("page.html")));

/// What a visitor wants to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Hurt(Fault),
    End,
}

/// A port that nobody is answered on yet.
pub(super) struct Door {
    socket: std::net::TcpListener,
    address: SocketAddr,
    secret: String,
}

/// The port cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum DoorError {
    #[error(
        "--port {0}: the port is in use on 127.0.0.1. Name another one, or none for any that is free"
    )]
    InUse(u16),
    #[error("--port {0}: {1}. Name a port that this user may have, or none for any that is free")]
    Refused(u16, #[source] io::Error),
}

impl Door {
    pub(super) fn open(port: u16) -> anyhow::Result<Self> {
        let bound = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let socket = bound.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => DoorError::InUse(port),
            _ => DoorError::Refused(port, error),
        })?;
        socket.set_nonblocking(true).context("the page's port")?;
        Ok(Self {
            address: socket.local_addr().context("the page's address")?,
            secret: format!("{:032x}", random::bits128()?),
            socket,
        })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/{}/", self.address, self.secret)
    }

    /// On a `LocalSet`.
    pub(super) fn serve(self, picture: watch::Receiver<Picture>) -> anyhow::Result<Site> {
        let socket = TcpListener::from_std(self.socket).context("the page's port")?;
        // One wish at a time is taken, and none is kept.
        let (wish, wishes) = mpsc::channel(1);
        let house = Arc::new(House {
            hosts: [
                self.address.to_string(),
                format!("localhost:{}", self.address.port()),
            ],
            secret: self.secret,
            picture,
            wish,
        });
        let (close, mut closed) = watch::channel(false);
        let task = spawn_local(async move {
            let places = Arc::new(Semaphore::new(CONNECTIONS));
            let mut visits = JoinSet::new();
            loop {
                let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                    return;
                };
                let accepted = tokio::select! {
                    accepted = socket.accept() => accepted,
                    _ = closed.changed() => break,
                };
                let Ok((stream, _)) = accepted else {
                    sleep(PAUSE).await;
                    continue;
                };
                while visits.try_join_next().is_some() {}
                let house = Arc::clone(&house);
                visits.spawn_local(async move {
                    converse(stream, house).await;
                    drop(place);
                });
            }
            // Whoever only keeps a connection is not waited for.
            let _ = timeout(LAST_WITHIN, visits.join_all()).await;
        });
        Ok(Site {
            wishes,
            close,
            task,
        })
    }
}

/// Answers until it is dropped.
pub(super) struct Site {
    wishes: mpsc::Receiver<Wish>,
    close: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Site {
    pub(super) async fn next(&mut self) -> Option<Wish> {
        self.wishes.recv().await
    }

    /// When those who read have been sent the last picture.
    pub(super) async fn end(mut self) {
        self.close.send_replace(true);
        let _ = (&mut self.task).await;
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn converse(stream: TcpStream, house: Arc<House>) {
    // What a visitor does wrong is its own business.
    let _ = http1::serve(stream, move |request| house.answer(request)).await;
}

struct House {
    hosts: [String; 2],
    secret: String,
    picture: watch::Receiver<Picture>,
    wish: mpsc::Sender<Wish>,
}

impl House {
    fn answer<B>(&self, request: &Request<B>) -> Answer {
        let refused = |why: &'static str| answered(StatusCode::FORBIDDEN, TEXT, why);
        // Another site whose name was made to lead here (DNS rebinding) says that name.
        let Some(host) = self.host(request) else {
            return refused("this is asked for by another name than its own\n");
        };
        let path = request.uri().path().strip_prefix('/');
        let path = path.and_then(|path| path.strip_prefix(&self.secret)?.strip_prefix('/'));
        let Some(path) = path else {
            let text = "the address has a secret part: take it from the terminal\n";
            return answered(StatusCode::NOT_FOUND, TEXT, text);
        };
        let wish = match (path, request.method()) {
            ("", &Method::GET) => return page(),
            ("events", &Method::GET) => {
                let events = events(self.picture.clone());
                return for_own_page(http1::streamed(EVENTS, events));
            }
            ("" | "events", _) => return not_allowed("GET"),
            ("end", _) => Wish::End,
            (fault, _) => match Fault::ALL.into_iter().find(|known| known.id() == fault) {
                Some(fault) => Wish::Hurt(fault),
                None => return answered(StatusCode::NOT_FOUND, TEXT, "there is no such thing\n"),
            },
        };
        if request.method() != Method::POST {
            return not_allowed("POST");
        }
        if !is_from_here(request, host) {
            return refused("this is asked for from elsewhere than its own page\n");
        }
        self.take(wish)
    }

    fn take(&self, wish: Wish) -> Answer {
        let busy = || answered(StatusCode::CONFLICT, TEXT, "one at a time\n");
        if wish != Wish::End && self.picture.borrow().is_busy {
            return busy();
        }
        match self.wish.try_send(wish) {
            Ok(()) => answered(StatusCode::ACCEPTED, TEXT, "accepted\n"),
            Err(_) => busy(),
        }
    }

    fn host<'a, B>(&self, request: &'a Request<B>) -> Option<&'a str> {
        let host = one(request, &HOST)?;
        self.hosts.iter().any(|own| own == host).then_some(host)
    }
}

/// Every browser names the origin of a POST, and every newer one how near it is.
fn is_from_here<B>(request: &Request<B>, host: &str) -> bool {
    let origin = one(request, &ORIGIN).and_then(|origin| origin.strip_prefix("http://"));
    let site = HeaderName::from_static("sec-fetch-site");
    let is_near = match request.headers().contains_key(&site) {
        true => one(request, &site) == Some("same-origin"),
        false => true,
    };
    origin == Some(host) && is_near
}

/// Its only value.
fn one<'a, B>(request: &'a Request<B>, name: &HeaderName) -> Option<&'a str> {
    let mut values = request.headers().get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn page() -> Answer {
    let mut answer = answered(StatusCode::OK, HTML, PAGE.text);
    PAGE.protect(answer.headers_mut());
    answer
}

/// How it is now whenever that changes, and the story when it has got on.
fn events(
    mut picture: watch::Receiver<Picture>,
) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
    picture.mark_changed();
    stream::unfold(
        (picture, String::new(), false),
        |(mut picture, told, is_over)| async move {
            if is_over || picture.changed().await.is_err() {
                return None;
            }
            let next = picture.borrow_and_update().clone();
            let mut text = String::new();
            if next.story != told {
                text = format!("event: story\ndata: {}\n\n", next.story);
            }
            if !next.now.is_empty() {
                text += &format!("event: now\ndata: {}\n\n", next.now);
            }
            if next.is_over {
                text += "event: over\ndata: {}\n\n";
            }
            let frame = Ok(Frame::data(Bytes::from(text)));
            Some((frame, (picture, next.story, next.is_over)))
        },
    )
}

fn not_allowed(method: &'static str) -> Answer {
    let mut answer = answered(StatusCode::METHOD_NOT_ALLOWED, TEXT, "another method\n");
    let allowed = HeaderValue::from_static(method);
    answer.headers_mut().insert(ALLOW, allowed);
    answer
}

fn answered(code: StatusCode, kind: &'static str, body: &'static str) -> Answer {
    for_own_page(http1::answered(code, kind, body))
}

/// No other site may read it.
fn for_own_page(mut answer: Answer) -> Answer {
    let near = HeaderName::from_static("cross-origin-resource-policy");
    let own = HeaderValue::from_static("same-origin");
    answer.headers_mut().insert(near, own);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_self_contained_and_has_a_button_for_each_fault() {
        crate::web_page::assert_self_contained(PAGE.text);
        for fault in Fault::ALL {
            let button = format!("data-wish=\"{}\"", fault.id());
            assert_eq!(PAGE.text.matches(&button).count(), 1, "{button}");
        }
    }
}
