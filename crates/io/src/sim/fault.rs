//! Faults that a test arms on a simulated disk, and when they strike.

use crate::errno::OsCall;
use crate::rng::Rng;

/// The kind of a fault.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// A read fails with EIO.
    ReadError,
    /// A read finds one bit flipped, and it stays flipped (rot).
    ReadFlip,
    /// A write, allocation, punch or change of length fails with EIO, nothing applied.
    WriteError,
    /// A write applies some of its first sectors and fails.
    ShortWrite,
    /// A write is acknowledged and never applied.
    LostWrite,
    /// A write is acknowledged and applied to another place of the file.
    MisdirectedWrite,
    /// A write stores one flipped bit.
    WriteFlip,
    /// A write or allocation fails with ENOSPC, nothing applied.
    NoSpace,
    /// A sync of a file or directory fails; each unsynced change has become durable or never will.
    SyncError,
    /// As `SyncError` with ENOSPC, as on file systems that allocate blocks late.
    NoSpaceForSync,
    /// Creating, renaming, removing or making a directory fails with EIO.
    NameError,
    /// As `NameError` with ENOSPC.
    NoSpaceForName,
    /// Opening an existing file, listing a directory, or reading a length fails with EIO.
    LookError,
    /// A call of this kind fails with this error number, nothing applied (for a sync: as
    /// `SyncError`); its code is the one of `errno`.
    Os(OsCall, i32),
}

/// When a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At the n-th matching call from now (1: the next), once.
    Nth(u64),
    /// At each matching call from the n-th on.
    From(u64),
    /// At this call of the disk (1 is its first), if it matches.
    Call(u64),
    /// At each matching call from this one of the disk on.
    FromCall(u64),
    /// At each matching call with this chance in a million.
    Chance(u32),
}

/// A fault to arm.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// When.
    pub when: When,
    /// Only for paths that start with this ("" for all).
    pub path: String,
}

impl Fault {
    /// A fault on any file.
    pub fn new(kind: FaultKind, when: When) -> Fault {
        Fault { kind, when, path: String::new() }
    }

    /// A fault on paths that start with `path`.
    pub fn on(path: &str, kind: FaultKind, when: When) -> Fault {
        Fault { kind, when, path: path.to_string() }
    }
}

/// A call that faults can strike.
#[derive(Clone, Debug)]
pub struct Noted {
    /// Its number among all calls of the disk.
    pub call: u64,
    /// Its file or directory.
    pub path: String,
    /// The call of the operating system that it stands for.
    pub of: OsCall,
    /// The faults that can strike it.
    pub kinds: &'static [FaultKind],
    /// It fails on a full disk, because it needs blocks or creates a name.
    pub needs_space: bool,
}

/// Armed faults.
#[derive(Default)]
pub(super) struct Faults {
    armed: Vec<(Fault, u64)>,
    pub struck: u64,
}

impl Faults {
    pub fn arm(&mut self, fault: Fault) {
        self.armed.push((fault, 0));
    }

    pub fn clear(&mut self) {
        self.armed.clear();
    }

    /// The armed fault of one of `kinds`, or of this system call, that strikes a call on `path`, if
    /// any.
    pub fn strike(
        &mut self,
        call: u64,
        of: OsCall,
        kinds: &[FaultKind],
        path: &str,
        rng: &mut Rng,
    ) -> Option<FaultKind> {
        let mut hit = None;
        for (fault, seen) in &mut self.armed {
            let fits = kinds.contains(&fault.kind)
                || matches!(fault.kind, FaultKind::Os(call, _) if call == of);
            if !fits || !path.starts_with(&fault.path) {
                continue;
            }
            *seen += 1;
            let strikes = match fault.when {
                When::Nth(n) => *seen == n,
                When::From(n) => *seen >= n,
                When::Call(n) => call == n,
                When::FromCall(n) => call >= n,
                When::Chance(c) => rng.below(1_000_000) < u64::from(c),
            };
            if strikes && hit.is_none() {
                hit = Some(fault.kind);
            }
        }
        self.struck += u64::from(hit.is_some());
        hit
    }
}
