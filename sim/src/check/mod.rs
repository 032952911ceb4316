//! What must hold after every step, and what must come about when the faults are over.

mod calm;
mod erased;
mod excuse;
mod orders;
mod overlap;
mod probe;
mod replica;
mod terms;
mod violation;

pub(crate) use calm::RESTART;
pub(crate) use erased::Eraser;
pub(crate) use replica::Source;
pub use violation::Violation;

use soloist_core::ids::{InstanceId, Term};

use crate::clock::Nanos;
use crate::plan::WAKE_UP;
use crate::queue::TreeIndex;

use erased::Erased;
use orders::Orders;
use probe::Phase;
use terms::Terms;

/// A guard or soloist that can run again has killed a tree that is overdue within this time: it wakes,
/// reads what it missed, kills, and the kernel takes the processes away.
pub(crate) const ONE_WAKE_UP: Nanos = 4 * WAKE_UP;

/// One holding of the lease by one process.
pub(crate) type Holding = (InstanceId, Term);

/// What the checks remember.
#[derive(Default)]
pub(crate) struct Checks {
    pub(crate) terms: Terms,
    erased: Vec<Erased>,
    /// Overlaps that have been counted.
    excused: Vec<(TreeIndex, TreeIndex)>,
    phase: Phase,
    pub(crate) orders: Orders,
}
