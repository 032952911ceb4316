//! What can be done to the replicas.

/// In the order in which they come by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Kill,
    HandOver,
    CrashChild,
    Freeze,
    CutOff,
    KillGuard,
    Stop,
}

impl Fault {
    pub(super) const ALL: [Self; 7] = [
        Self::Kill,
        Self::HandOver,
        Self::CrashChild,
        Self::Freeze,
        Self::CutOff,
        Self::KillGuard,
        Self::Stop,
    ];

    pub(super) const fn key(self) -> char {
        match self {
            Self::Kill => 'k',
            Self::HandOver => 'h',
            Self::CrashChild => 'c',
            Self::Freeze => 'f',
            Self::CutOff => 'o',
            Self::KillGuard => 'g',
            Self::Stop => 's',
        }
    }

    /// For the page's requests.
    pub(super) const fn id(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::HandOver => "hand-over",
            Self::CrashChild => "crash-child",
            Self::Freeze => "freeze",
            Self::CutOff => "cut-off",
            Self::KillGuard => "kill-guard",
            Self::Stop => "stop",
        }
    }

    /// For the table.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kill => "leader killed",
            Self::HandOver => "handed over",
            Self::CrashChild => "child crashed",
            Self::Freeze => "leader frozen",
            Self::CutOff => "leader cut off",
            Self::KillGuard => "guard killed",
            Self::Stop => "leader stopped",
        }
    }

    /// For the story, after the leader's name.
    pub(super) const fn told(self) -> &'static str {
        match self {
            Self::Kill => "leads and is killed (SIGKILL)",
            Self::HandOver => "leads and is told to hand over (soloist handover)",
            Self::CrashChild => "leads and its child crashes (SIGKILL)",
            Self::Freeze => "leads and is frozen (SIGSTOP)",
            Self::CutOff => {
                "leads and is cut off from the lease (its way to the file leads nowhere)"
            }
            Self::KillGuard => "leads and its child's guard is killed (SIGKILL)",
            Self::Stop => "leads and is stopped in order (SIGTERM)",
        }
    }
}
