//! A path to a server, over a TCP proxy on loopback, that can fail in the ways networks fail.

mod connection;
mod listener;

use std::{
    net::SocketAddr,
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::sync::{mpsc as inbox, watch};

use crate::Error;
use listener::Proxy;

/// Which half of a connection a fault is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Both halves.
    Both,
    /// What the client sends: the server never sees the requests.
    ToServer,
    /// What the server sends: requests are carried out and their answers are lost.
    ToClient,
}

/// What happens to bytes on one half of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Pass { delay: Duration },
    Swallow,
    Hold,
}

/// The state of the link; connections follow it.
#[derive(Debug, Clone, Copy)]
struct State {
    to_server: Way,
    to_client: Way,
    cut: bool,
    resets: u64,
}

const CLEAR: Way = Way::Pass {
    delay: Duration::ZERO,
};

impl State {
    const CLEAR: Self = Self {
        to_server: CLEAR,
        to_client: CLEAR,
        cut: false,
        resets: 0,
    };

    fn set(&mut self, direction: Direction, way: Way) {
        if direction != Direction::ToClient {
            self.to_server = way;
        }
        if direction != Direction::ToServer {
            self.to_client = way;
        }
    }
}

#[derive(Debug)]
enum Command {
    Cut,
    Heal,
    Reset,
    Set(Direction, Way),
    StallFor(Duration),
}

type Order = (Command, mpsc::Sender<Result<(), Error>>);

/// One client's own path to a server.
///
/// It runs on a thread of its own, so it works on while a test blocks. Each method returns once its effect is
/// there. A fault lasts until [`Link::heal`] or until another fault replaces it; dropping the link resets its
/// connections.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    orders: Option<inbox::UnboundedSender<Order>>,
    state: watch::Receiver<State>,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    /// Opens a path to `server`, on a free port of 127.0.0.1.
    pub fn to(server: SocketAddr) -> Result<Self, Error> {
        let (orders, order_inbox) = inbox::unbounded_channel::<Order>();
        let (state, state_view) = watch::channel(State::CLEAR);
        let (opened, open) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("testbed-link".to_owned())
            .spawn(move || Proxy::run(server, state, order_inbox, &opened))
            .map_err(Error::io("start a thread for", "a link"))?;
        let address = open
            .recv()
            .expect("the link's thread says whether it is open")?;
        Ok(Self {
            address,
            orders: Some(orders),
            state: state_view,
            thread: Some(thread),
        })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Resets all connections and refuses new ones.
    pub fn cut(&self) -> Result<(), Error> {
        self.order(Command::Cut)
    }

    /// Ends every fault. A connection that lost bytes stays silent, as behind a middlebox that forgot it, and
    /// goes when either side closes it; new ones work.
    pub fn heal(&self) -> Result<(), Error> {
        self.order(Command::Heal)
    }

    /// Resets the connections that exist now; new ones work.
    pub fn reset(&self) -> Result<(), Error> {
        self.order(Command::Reset)
    }

    /// Loses all bytes silently, closing included; connections stay open and new ones can be opened.
    pub fn swallow(&self, direction: Direction) -> Result<(), Error> {
        self.order(Command::Set(direction, Way::Swallow))
    }

    /// Delivers each byte this much later, in each direction.
    pub fn delay(&self, delay: Duration) -> Result<(), Error> {
        self.order(Command::Set(Direction::Both, Way::Pass { delay }))
    }

    /// Holds all bytes back, and delivers them when healed.
    pub fn stall(&self) -> Result<(), Error> {
        self.order(Command::Set(Direction::Both, Way::Hold))
    }

    /// Like [`Link::stall`], and heals itself after `time`, unless another order comes first.
    pub fn stall_for(&self, time: Duration) -> Result<(), Error> {
        self.order(Command::StallFor(time))
    }

    /// Whether bytes pass without any fault.
    pub fn is_clear(&self) -> bool {
        let state = *self.state.borrow();
        !state.cut && state.to_server == CLEAR && state.to_client == CLEAR
    }

    fn order(&self, command: Command) -> Result<(), Error> {
        let (done, outcome) = mpsc::channel();
        let orders = self.orders.as_ref().expect("only drop takes it");
        orders
            .send((command, done))
            .expect("the link's thread lives as long as the link");
        outcome
            .recv()
            .expect("the link's thread answers every order")
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
