//! The simulated disk: files in memory, each with a durable image and unsynced changes, a name
//! space of the same kind, armed faults, a capacity, and a count of calls that can end in a crash.
//!
//! Invariants: a change is durable only after a `sync` of its file (content and length) or a
//! `sync_dir` of its directory (names) that began after the change. After the crash nothing reaches
//! the disk. The call at which the crash strikes is in flight: its change is unsynced, so each
//! crash policy decides how much of it survives, and its caller gets an error.
//!
//! A `SimDisk` is a handle: clones mean the same disk. Used by `SimEnv`, and by tests to arm faults
//! and to make the disks that survive a crash.

use super::fault::{Fault, FaultKind, Faults, Noted};
use super::inode::{Data, DataOp, Inode, SECTOR};
use super::names::{Ino, NameOp, Names, parent};
use crate::OpenMode;
use crate::blocks::BLOCK;
use crate::errno::{self, OsCall};
use crate::rng::{Rng, mix};
use evenkeel_base::{Code, Error, Result, sync::Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A simulated disk; clones share it.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<DiskState>,
    crashed: AtomicBool,
}

/// Everything on the disk.
pub(super) struct DiskState {
    pub names: Names,
    pub inodes: BTreeMap<Ino, Inode>,
    pub rng: Rng,
    next_ino: Ino,
    /// Order of changes of content over all files.
    seq: u64,
    /// From here on changes are of this process; earlier ones were left by a killed one.
    own_from: u64,
    /// From here on changes are of the call in flight at the crash.
    pub in_flight_from: u64,
    faults: Faults,
    capacity_blocks: Option<u64>,
    used_blocks: u64,
    calls: u64,
    changes: u64,
    crash_at_call: u64,
    crash_at_change: u64,
    /// No block is free from this call on.
    full_at_call: u64,
    /// Changes for which there was no space.
    refused: u64,
    /// Calls that faults could strike, if they are recorded.
    noted: Option<Vec<Noted>>,
    crashed: bool,
    /// The file or directory of the call in flight at the crash.
    crashed_in: Option<String>,
    /// Hears of the crash.
    at_crash: Option<Tell>,
}

type Tell = Box<dyn FnOnce(&Error) + Send>;

/// The kind of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    /// Reads only.
    Look,
    /// Changes what is stored or what is durable.
    Change,
}

/// The text by which an error of a crashed disk is known.
const CRASHED: &str = "simulated crash";

/// True if the error says that the simulated machine has crashed.
pub fn is_crash(error: &Error) -> bool {
    error.context("os") == Some(CRASHED)
}

fn failure(code: Code, path: &str, why: &str) -> Error {
    Error::new(code).with("file", path).with("os", why)
}

/// The error of a call that a fault has struck.
fn struck(fault: FaultKind, code: Code, path: &str) -> Error {
    match fault {
        FaultKind::Os(call, number) => {
            failure(errno::code(call, number), path, &format!("simulated error {number}"))
        }
        FaultKind::NoSpace | FaultKind::NoSpaceForSync | FaultKind::NoSpaceForName => {
            failure(Code::DiskFull, path, "simulated ENOSPC")
        }
        _ => failure(code, path, "simulated EIO"),
    }
}

/// An open file of the disk.
pub(super) struct Handle {
    disk: SimDisk,
    ino: Ino,
    path: String,
    mode: OpenMode,
}

impl SimDisk {
    /// An empty disk. `seed` determines the effects of faults.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk::from_state(DiskState {
            names: Names::default(),
            inodes: BTreeMap::new(),
            rng: Rng::new(seed),
            next_ino: 1,
            seq: 0,
            own_from: 0,
            in_flight_from: u64::MAX,
            faults: Faults::default(),
            capacity_blocks: None,
            used_blocks: 0,
            calls: 0,
            changes: 0,
            crash_at_call: u64::MAX,
            crash_at_change: u64::MAX,
            full_at_call: u64::MAX,
            refused: 0,
            noted: None,
            crashed: false,
            crashed_in: None,
            at_crash: None,
        })
    }

    fn from_state(state: DiskState) -> SimDisk {
        let crashed = AtomicBool::new(state.crashed);
        SimDisk { shared: Arc::new(Shared { state: Mutex::new(state), crashed }) }
    }

    /// A disk with these files; unsynced changes were left by a killed process.
    pub(super) fn from_survivors(
        seed: u64,
        names: Names,
        inodes: BTreeMap<Ino, Inode>,
        capacity_blocks: Option<u64>,
    ) -> SimDisk {
        let disk = SimDisk::new(seed);
        let mut state = disk.shared.state.lock();
        let linked = inodes.values().filter(|i| i.linked);
        state.used_blocks = linked.map(|i| i.live.allocated()).sum();
        state.next_ino = inodes.keys().max().map_or(1, |i| i + 1);
        let seqs = inodes.values().flat_map(|i| i.unsynced.iter().map(|(seq, _)| seq + 1));
        state.seq = seqs.max().unwrap_or(0);
        state.own_from = state.seq;
        state.names = names;
        state.inodes = inodes;
        state.capacity_blocks = capacity_blocks;
        drop(state);
        disk
    }

    pub(super) fn with<R>(&self, f: impl FnOnce(&mut DiskState) -> R) -> R {
        f(&mut self.shared.state.lock())
    }

    pub(super) fn capacity_blocks(&self) -> Option<u64> {
        self.with(|s| s.capacity_blocks)
    }

    /// I/O calls so far, reads included.
    pub fn calls(&self) -> u64 {
        self.with(|s| s.calls)
    }

    /// Calls so far that changed stored or durable data. These are enough to enumerate crash
    /// points, because a crash at a read leaves the same disk as a crash at the next change.
    pub fn changes(&self) -> u64 {
        self.with(|s| s.changes)
    }

    /// Crashes at call number `call` (1 is the first of this disk): it and every later one fails
    /// with an error for which [`is_crash`] is true.
    pub fn crash_at(&self, call: u64) {
        self.with(|s| s.crash_at_call = call);
    }

    /// Crashes at change number `change` (see [`SimDisk::changes`]; 1 is the first).
    pub fn crash_at_change(&self, change: u64) {
        self.with(|s| s.crash_at_change = change);
    }

    /// From call number `call` on no block is free except freed ones, until
    /// [`SimDisk::set_capacity`].
    pub fn full_at(&self, call: u64) {
        self.with(|s| s.full_at_call = call);
    }

    /// Records from now on which calls faults could strike.
    pub fn note_calls(&self) {
        self.with(|s| s.noted = Some(Vec::new()));
    }

    /// The calls recorded so far.
    pub fn noted(&self) -> Vec<Noted> {
        self.with(|s| s.noted.clone().unwrap_or_default())
    }

    /// Crashes now, between two calls.
    pub fn crash_now(&self) {
        self.with(|s| s.crashed = true);
        self.shared.crashed.store(true, Ordering::SeqCst);
    }

    /// True after the crash.
    pub fn is_crashed(&self) -> bool {
        self.shared.crashed.load(Ordering::SeqCst)
    }

    /// Path of the call in which it crashed, if it crashed in one.
    pub fn crashed_in(&self) -> Option<String> {
        self.with(|s| s.crashed_in.clone())
    }

    /// If the disk crashes in a call, `tell` hears the error that the caller gets, in the caller's
    /// thread and before anything else continues. It must not use the disk.
    pub fn at_crash(&self, tell: impl FnOnce(&Error) + Send + 'static) {
        self.with(|s| s.at_crash = Some(Box::new(tell)));
    }

    /// Unsynced changes, left by killed processes, of files whose paths begin in this way.
    pub fn unsynced_of_killed(&self, path: &str) -> usize {
        self.with(|s| {
            let named = s.names.live.files.iter().filter(|(name, _)| name.starts_with(path));
            let inodes = named.filter_map(|(_, ino)| s.inodes.get(ino));
            let left = inodes.flat_map(|i| i.unsynced.iter().filter(|(seq, _)| *seq < s.own_from));
            left.count()
        })
    }

    /// Arms a fault.
    pub fn inject(&self, fault: Fault) {
        self.with(|s| s.faults.arm(fault));
    }

    /// Disarms all faults.
    pub fn clear_faults(&self) {
        self.with(|s| s.faults.clear());
    }

    /// The error of starting a thread, if a fault strikes it.
    pub(super) fn thread_fault(&self, name: &str) -> Result<()> {
        let fault = self.with(|s| {
            let DiskState { calls, faults, rng, .. } = s;
            faults.strike(*calls, OsCall::Thread, &[], name, rng)
        });
        fault.map_or(Ok(()), |fault| Err(struck(fault, Code::ThreadSpawn, name)))
    }

    /// How many times a fault has struck.
    pub fn faults_struck(&self) -> u64 {
        self.with(|s| s.faults.struck)
    }

    /// True once a fault has struck, space was lacking, or the disk has crashed.
    pub fn is_disturbed(&self) -> bool {
        self.with(|s| s.crashed || s.faults.struck > 0 || s.refused > 0)
    }

    /// How many changes have found no space on a disk of limited capacity.
    pub fn refused(&self) -> u64 {
        self.with(|s| s.refused)
    }

    /// Limits the disk to `bytes` (rounded down to 4 KiB); `None` lifts the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.with(|s| {
            s.full_at_call = u64::MAX;
            s.capacity_blocks = bytes.map(|b| b / BLOCK as u64);
        });
    }

    /// Bytes that files occupy, in blocks of 4 KiB.
    pub fn used_bytes(&self) -> u64 {
        self.with(|s| s.used_blocks * BLOCK as u64)
    }

    /// Paths of all files, sorted.
    pub fn paths(&self) -> Vec<String> {
        self.with(|s| s.names.live.files.keys().cloned().collect())
    }

    /// The content of a file as reads see it; not counted as a call.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        self.with(|s| {
            let inode = s.inodes.get(s.names.live.files.get(path)?)?;
            let mut bytes = vec![0; inode.live.len() as usize];
            inode.live.read(&mut bytes, 0);
            Some(bytes)
        })
    }

    /// Overwrites stored bytes without the engine's knowledge (rot), durably at once. False if
    /// there is no such file or the range exceeds it.
    pub fn corrupt(&self, path: &str, offset: u64, bytes: &[u8]) -> bool {
        self.with(|s| {
            let Some(ino) = s.names.live.files.get(path) else { return false };
            let Some(inode) = s.inodes.get_mut(ino) else { return false };
            if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > inode.live.len()) {
                return false;
            }
            inode.live.write(bytes, offset);
            if inode.durable.len() >= offset + bytes.len() as u64 {
                inode.durable.write(bytes, offset);
            }
            true
        })
    }

    /// Flips one stored bit, as `corrupt` does.
    pub fn flip_bit(&self, path: &str, offset: u64, bit: u8) -> bool {
        let byte = self.content(path).and_then(|c| c.get(offset as usize).copied());
        byte.is_some_and(|b| self.corrupt(path, offset, &[b ^ (1 << (bit & 7))]))
    }

    /// Cuts a file without the engine's knowledge, durably at once. False if there is no such file.
    pub fn truncate(&self, path: &str, len: u64) -> bool {
        self.with(|s| {
            let Some(ino) = s.names.live.files.get(path) else { return false };
            let Some(inode) = s.inodes.get_mut(ino) else { return false };
            let before = inode.live.allocated();
            inode.live.set_len(len);
            inode.durable.set_len(len);
            s.used_blocks = s.used_blocks + inode.live.allocated() - before;
            true
        })
    }

    /// A hash of all names and contents: equal disks have equal hashes.
    pub fn hash(&self) -> u64 {
        self.with(|s| {
            let mut hash = 0;
            for dir in &s.names.live.dirs {
                hash = hash_text(hash, dir);
            }
            for (path, ino) in &s.names.live.files {
                hash = hash_text(hash, path);
                if let Some(inode) = s.inodes.get(ino) {
                    hash = inode.live.hash(hash);
                }
            }
            hash
        })
    }

    /// Begins a call: counts it and crashes if its turn has come. `Ok(true)`: the crash strikes
    /// this call while it is in flight.
    fn enter(&self, state: &mut DiskState, call: Call, code: Code, path: &str) -> Result<bool> {
        if state.crashed {
            return Err(failure(code, path, CRASHED));
        }
        state.calls += 1;
        state.changes += u64::from(call == Call::Change);
        if state.calls == state.full_at_call {
            state.capacity_blocks = Some(state.used_blocks);
        }
        let crashes = state.calls >= state.crash_at_call || state.changes >= state.crash_at_change;
        if crashes {
            state.crashed = true;
            state.in_flight_from = state.seq;
            state.crashed_in = Some(path.to_string());
            self.shared.crashed.store(true, Ordering::SeqCst);
            if let Some(tell) = state.at_crash.take() {
                tell(&failure(code, path, CRASHED));
            }
            if call == Call::Look {
                return Err(failure(code, path, CRASHED));
            }
        }
        Ok(crashes)
    }

    /// The error of the call in flight at the crash, else Ok.
    fn leave(crashed: bool, code: Code, path: &str) -> Result<()> {
        if crashed { Err(failure(code, path, CRASHED)) } else { Ok(()) }
    }

    pub(super) fn open(&self, path: &str, mode: OpenMode) -> Result<Handle> {
        let mut guard = self.shared.state.lock();
        let s = &mut *guard;
        let found = s.names.live.files.get(path).copied();
        let creates = found.is_none() && mode.create;
        let call = if creates { Call::Change } else { Call::Look };
        let crashed = self.enter(s, call, Code::FileOpen, path)?;
        let ino = match found {
            Some(_) if mode.create && mode.exclusive => {
                return Err(failure(Code::FileOpen, path, "file exists"));
            }
            Some(ino) => {
                s.look_fault(OsCall::Open, Code::FileOpen, path)?;
                ino
            }
            None if !mode.create => return Err(Error::new(Code::FileMissing).with("file", path)),
            None => s.create(path)?,
        };
        Self::leave(crashed, Code::FileOpen, path)?;
        let inode = s.inode(ino, path)?;
        if mode.lock && inode.locked {
            return Err(Error::new(Code::DirectoryBusy).with("file", path));
        }
        inode.locked |= mode.lock;
        inode.handles += 1;
        drop(guard);
        Ok(Handle { disk: self.clone(), ino, path: path.to_string(), mode })
    }

    pub(super) fn list(&self, dir: &str) -> Result<Vec<String>> {
        let mut s = self.shared.state.lock();
        self.enter(&mut s, Call::Look, Code::ReadFailed, dir)?;
        s.look_fault(OsCall::List, Code::ReadFailed, dir)?;
        let live = &s.names.live;
        let mut names: Vec<String> = live
            .files
            .keys()
            .chain(&live.dirs)
            .filter(|p| !p.is_empty() && parent(p) == dir)
            .map(|p| p.rsplit('/').next().unwrap_or(p).to_string())
            .collect();
        names.sort();
        Ok(names)
    }

    pub(super) fn remove(&self, path: &str) -> Result<()> {
        let mut s = self.shared.state.lock();
        let crashed = self.enter(&mut s, Call::Change, Code::WriteFailed, path)?;
        s.name_fault(OsCall::Name, path, false)?;
        if let Some(ino) = s.names.live.files.get(path).copied() {
            s.names.apply(NameOp::Remove { path: path.to_string(), ino });
            s.unlink(ino);
        }
        Self::leave(crashed, Code::WriteFailed, path)
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut s = self.shared.state.lock();
        let crashed = self.enter(&mut s, Call::Change, Code::WriteFailed, from)?;
        s.name_fault(OsCall::Name, from, true)?;
        let Some(ino) = s.names.live.files.get(from).copied() else {
            return Err(Error::new(Code::FileMissing).with("file", from));
        };
        s.check_parent(to)?;
        let replaced = s.names.live.files.get(to).copied();
        s.names.apply(NameOp::Rename { from: from.to_string(), to: to.to_string(), ino });
        if let Some(old) = replaced.filter(|old| *old != ino) {
            s.unlink(old);
        }
        Self::leave(crashed, Code::WriteFailed, from)
    }

    pub(super) fn create_dir(&self, dir: &str) -> Result<()> {
        let mut s = self.shared.state.lock();
        let missing: Vec<String> = std::iter::successors(Some(dir), |d| Some(parent(d)))
            .take_while(|d| !d.is_empty())
            .filter(|d| !s.names.live.dirs.contains(*d))
            .map(str::to_string)
            .collect();
        let call = if missing.is_empty() { Call::Look } else { Call::Change };
        let crashed = self.enter(&mut s, call, Code::FileOpen, dir)?;
        s.name_fault(OsCall::Name, dir, call == Call::Change)?;
        for path in missing.into_iter().rev() {
            s.names.apply(NameOp::MakeDir { path });
        }
        Self::leave(crashed, Code::FileOpen, dir)
    }

    pub(super) fn sync_dir(&self, dir: &str) -> Result<()> {
        let mut guard = self.shared.state.lock();
        let s = &mut *guard;
        let crashed = self.enter(s, Call::Change, Code::SyncFailed, dir)?;
        Self::leave(crashed, Code::SyncFailed, dir)?;
        if !dir.is_empty() && !s.names.live.dirs.contains(dir) {
            return Err(Error::new(Code::FileMissing).with("file", dir));
        }
        if let Some(error) = s.sync_fault(dir) {
            s.names.sync(dir, || s.rng.one_in(2));
            return Err(error);
        }
        s.names.sync(dir, || true);
        s.forget_unnamed();
        Ok(())
    }
}

fn hash_text(seed: u64, text: &str) -> u64 {
    text.bytes().fold(mix(seed ^ text.len() as u64), |h, b| mix(h ^ u64::from(b)))
}

impl DiskState {
    fn inode(&mut self, ino: Ino, path: &str) -> Result<&mut Inode> {
        let found = self.inodes.get_mut(&ino);
        found.ok_or_else(|| Error::internal(format!("simulated file {path} has vanished")))
    }

    fn check_parent(&self, path: &str) -> Result<()> {
        let dir = parent(path);
        if dir.is_empty() || self.names.live.dirs.contains(dir) {
            return Ok(());
        }
        Err(Error::new(Code::FileMissing).with("file", path).with("os", "no such directory"))
    }

    /// The fault that strikes the present call, if any. `needs`: blocks that it will take, or more
    /// than zero if it creates a name.
    fn strike(
        &mut self,
        of: OsCall,
        kinds: &'static [FaultKind],
        path: &str,
        needs: u64,
    ) -> Option<FaultKind> {
        let call = self.calls;
        if let Some(noted) = &mut self.noted {
            let path = path.to_string();
            noted.push(Noted { call, path, of, kinds, needs_space: needs > 0 });
        }
        self.faults.strike(call, of, kinds, path, &mut self.rng)
    }

    fn look_fault(&mut self, of: OsCall, code: Code, path: &str) -> Result<()> {
        let fault = self.strike(of, &[FaultKind::LookError], path, 0);
        fault.map_or(Ok(()), |fault| Err(struck(fault, code, path)))
    }

    fn sync_fault(&mut self, path: &str) -> Option<Error> {
        let kinds = &[FaultKind::SyncError, FaultKind::NoSpaceForSync];
        let fault = self.strike(OsCall::Sync, kinds, path, 0)?;
        Some(struck(fault, Code::SyncFailed, path))
    }

    fn name_fault(&mut self, of: OsCall, path: &str, makes: bool) -> Result<()> {
        let kinds = &[FaultKind::NameError, FaultKind::NoSpaceForName];
        let fault = self.strike(of, kinds, path, makes.into());
        fault.map_or(Ok(()), |fault| Err(struck(fault, Code::WriteFailed, path)))
    }

    fn create(&mut self, path: &str) -> Result<Ino> {
        self.check_parent(path)?;
        self.name_fault(OsCall::Create, path, true)?;
        let ino = self.next_ino;
        self.next_ino += 1;
        self.inodes.insert(ino, Inode { linked: true, ..Inode::default() });
        self.names.apply(NameOp::Create { path: path.to_string(), ino });
        Ok(ino)
    }

    fn unlink(&mut self, ino: Ino) {
        let Some(inode) = self.inodes.get_mut(&ino) else { return };
        inode.linked = false;
        if inode.is_released() {
            self.used_blocks -= inode.live.allocated();
        }
    }

    /// Removes files to which no name, present or possibly surviving, leads.
    fn forget_unnamed(&mut self) {
        let named = self.names.named();
        self.inodes.retain(|ino, inode| !inode.is_released() || named.contains(ino));
    }

    /// Applies a change to a file. A write without enough space is partly applied, as file systems
    /// do.
    fn apply(&mut self, ino: Ino, path: &str, op: DataOp) -> Result<()> {
        let free = self.capacity_blocks.map_or(u64::MAX, |c| c.saturating_sub(self.used_blocks));
        let part = self.rng.next_u64();
        let inode = self.inode(ino, path)?;
        let needs = op.needs(&inode.live);
        if needs <= free || needs == 0 {
            self.apply_in_space(ino, path, op)?;
            return Ok(());
        }
        if let Some(fitting) = op.part_within(&inode.live, free, part) {
            self.apply_in_space(ino, path, fitting)?;
        }
        self.refused += 1;
        Err(failure(Code::DiskFull, path, "simulated ENOSPC"))
    }

    fn apply_in_space(&mut self, ino: Ino, path: &str, op: DataOp) -> Result<()> {
        let seq = self.seq;
        let inode = self.inode(ino, path)?;
        let before = inode.live.allocated();
        inode.apply(seq, op);
        let after = inode.live.allocated();
        self.seq += 1;
        self.used_blocks = self.used_blocks + after - before;
        Ok(())
    }
}

impl Handle {
    fn check_aligned(&self, ptr: *const u8, len: usize, offset: u64) -> Result<()> {
        let sector = SECTOR as u64;
        let off = |n: u64| !n.is_multiple_of(sector);
        if self.mode.direct && (off(len as u64) || off(offset) || off(ptr as u64)) {
            let what = format!("direct I/O of {len} bytes at {offset} is not aligned");
            return Err(Error::internal(what).with("file", &self.path));
        }
        Ok(())
    }

    fn check_writable(&self) -> Result<()> {
        if self.mode.write {
            return Ok(());
        }
        Err(failure(Code::WriteFailed, &self.path, "the file is open for reading only"))
    }

    pub fn read(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.check_aligned(buf.as_ptr(), buf.len(), offset)?;
        let mut guard = self.disk.shared.state.lock();
        let s = &mut *guard;
        self.disk.enter(s, Call::Look, Code::ReadFailed, &self.path)?;
        let kinds = &[FaultKind::ReadError, FaultKind::ReadFlip];
        let fault = s.strike(OsCall::Read, kinds, &self.path, 0);
        let flipped = s.rng.below(buf.len() as u64 * 8);
        let inode = s.inode(self.ino, &self.path)?;
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > inode.live.len()) {
            let error = Error::new(Code::ReadShort).with("file", &self.path);
            return Err(error.with("offset", offset).with("len", buf.len()));
        }
        match fault {
            None => inode.live.read(buf, offset),
            Some(FaultKind::ReadFlip) if !buf.is_empty() => {
                inode.live.read(buf, offset);
                let at = (flipped / 8) as usize;
                buf[at] ^= 1 << (flipped % 8);
                inode.live.write(&buf[at..=at], offset + at as u64);
                if inode.durable.len() > offset + at as u64 {
                    inode.durable.write(&buf[at..=at], offset + at as u64);
                }
            }
            Some(fault) => return Err(struck(fault, Code::ReadFailed, &self.path)),
        }
        Ok(())
    }

    pub fn write(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.check_writable()?;
        self.check_aligned(buf.as_ptr(), buf.len(), offset)?;
        let mut guard = self.disk.shared.state.lock();
        let s = &mut *guard;
        let crashed = self.disk.enter(s, Call::Change, Code::WriteFailed, &self.path)?;
        let kinds = &[
            FaultKind::WriteError,
            FaultKind::ShortWrite,
            FaultKind::LostWrite,
            FaultKind::MisdirectedWrite,
            FaultKind::WriteFlip,
            FaultKind::NoSpace,
        ];
        let needs = s.inode(self.ino, &self.path)?.live.missing(offset, buf.len() as u64);
        let fault = s.strike(OsCall::Write, kinds, &self.path, needs);
        self.faulty_write(s, buf, offset, fault)?;
        SimDisk::leave(crashed, Code::WriteFailed, &self.path)
    }

    fn faulty_write(
        &self,
        s: &mut DiskState,
        buf: &[u8],
        offset: u64,
        fault: Option<FaultKind>,
    ) -> Result<()> {
        let mut data = Data::new(buf);
        let mut at = offset;
        match fault {
            None => {}
            Some(FaultKind::LostWrite) => return Ok(()),
            Some(FaultKind::WriteFlip) if !buf.is_empty() => {
                let bit = s.rng.below(buf.len() as u64 * 8);
                let mut bytes: Box<[u8]> = buf.into();
                bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
                data = Data::Bytes(bytes);
            }
            Some(FaultKind::MisdirectedWrite) => {
                // Elsewhere in the same file, so that its length stays plausible.
                let len = s.inode(self.ino, &self.path)?.live.len();
                let sectors = (len.max(offset) / SECTOR as u64).max(1);
                let place = s.rng.below(sectors) * SECTOR as u64;
                at = if place == offset { place + SECTOR as u64 } else { place };
            }
            Some(FaultKind::ShortWrite) => {
                let done = s.rng.below(buf.len().div_ceil(SECTOR) as u64) as usize * SECTOR;
                let op = DataOp::Write { offset, data: Data::new(&buf[..done]) };
                if done > 0 {
                    s.apply(self.ino, &self.path, op)?;
                }
                return Err(struck(FaultKind::ShortWrite, Code::WriteFailed, &self.path));
            }
            Some(fault) => return Err(struck(fault, Code::WriteFailed, &self.path)),
        }
        s.apply(self.ino, &self.path, DataOp::Write { offset: at, data })
    }

    pub fn sync(&self) -> Result<()> {
        let mut guard = self.disk.shared.state.lock();
        let s = &mut *guard;
        let crashed = self.disk.enter(s, Call::Change, Code::SyncFailed, &self.path)?;
        SimDisk::leave(crashed, Code::SyncFailed, &self.path)?;
        if let Some(error) = s.sync_fault(&self.path) {
            let mut rng = Rng::new(s.rng.next_u64());
            s.inode(self.ino, &self.path)?.sync(|| rng.one_in(2));
            return Err(error);
        }
        s.inode(self.ino, &self.path)?.sync_all();
        Ok(())
    }

    pub fn len(&self) -> Result<u64> {
        let mut s = self.disk.shared.state.lock();
        self.disk.enter(&mut s, Call::Look, Code::ReadFailed, &self.path)?;
        s.look_fault(OsCall::Length, Code::ReadFailed, &self.path)?;
        Ok(s.inode(self.ino, &self.path)?.live.len())
    }

    /// A change that is not a write of bytes.
    fn change(&self, op: DataOp) -> Result<()> {
        self.check_writable()?;
        let mut guard = self.disk.shared.state.lock();
        let s = &mut *guard;
        let crashed = self.disk.enter(s, Call::Change, Code::WriteFailed, &self.path)?;
        let allocates = matches!(op, DataOp::Allocate { .. });
        let kinds: &[FaultKind] = match allocates {
            true => &[FaultKind::WriteError, FaultKind::NoSpace],
            false => &[FaultKind::WriteError],
        };
        let needs = op.needs(&s.inode(self.ino, &self.path)?.live);
        match s.strike(OsCall::Reserve, kinds, &self.path, needs) {
            None => s.apply(self.ino, &self.path, op)?,
            Some(fault) => return Err(struck(fault, Code::WriteFailed, &self.path)),
        }
        SimDisk::leave(crashed, Code::WriteFailed, &self.path)
    }

    pub fn set_len(&self, len: u64) -> Result<()> {
        self.change(DataOp::SetLen(len))
    }

    pub fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.change(DataOp::Allocate { offset, len })
    }

    pub fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.change(DataOp::Punch { offset, len })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut guard = self.disk.shared.state.lock();
        let s = &mut *guard;
        let Some(inode) = s.inodes.get_mut(&self.ino) else { return };
        inode.handles -= 1;
        if self.mode.lock {
            inode.locked = false;
        }
        if inode.is_released() {
            s.used_blocks -= inode.live.allocated();
        }
    }
}
