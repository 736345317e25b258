//! The name space of a simulated disk: which path leads to which file now, and which part of that
//! is durable. A creation, removal, rename or new directory is durable only after `sync_dir` of its
//! directory; before, a crash may keep any of them.

use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// Number of a file.
pub(super) type Ino = u64;

/// A change of the name space that is not yet durable. Each change names its file, so any subset of
/// changes, applied in order, is a possible state.
#[derive(Clone, Debug)]
pub(super) enum NameOp {
    Create { path: String, ino: Ino },
    Remove { path: String, ino: Ino },
    Rename { from: String, to: String, ino: Ino },
    MakeDir { path: String },
}

/// The directory part of a path ("" is the root).
pub(super) fn parent(path: &str) -> &str {
    path.rfind('/').map_or("", |i| &path[..i])
}

impl NameOp {
    fn paths(&self) -> [&str; 2] {
        match self {
            NameOp::Create { path, .. }
            | NameOp::Remove { path, .. }
            | NameOp::MakeDir { path } => [path, path],
            NameOp::Rename { from, to, .. } => [from, to],
        }
    }

    fn apply(&self, view: &mut View) {
        match self {
            NameOp::Create { path, ino } => {
                view.files.insert(path.clone(), *ino);
            }
            NameOp::Remove { path, ino } => {
                if view.files.get(path) == Some(ino) {
                    view.files.remove(path);
                }
            }
            NameOp::Rename { from, to, ino } => {
                if view.files.get(from) == Some(ino) {
                    view.files.remove(from);
                }
                view.files.insert(to.clone(), *ino);
            }
            NameOp::MakeDir { path } => {
                view.dirs.insert(path.clone());
            }
        }
    }
}

/// Paths of files and directories.
#[derive(Clone, Default)]
pub(super) struct View {
    pub files: BTreeMap<String, Ino>,
    pub dirs: BTreeSet<String>,
}

/// Which of the unsynced changes survive a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    None,
    All,
    /// The first few, in order.
    Prefix,
    /// Any.
    Subset,
}

/// The live and the durable name space, and the changes between them.
#[derive(Default)]
pub(super) struct Names {
    pub live: View,
    pub durable: View,
    unsynced: Vec<NameOp>,
}

impl From<View> for Names {
    /// A name space that is entirely durable.
    fn from(view: View) -> Names {
        Names { live: view.clone(), durable: view, unsynced: Vec::new() }
    }
}

impl Names {
    pub fn apply(&mut self, op: NameOp) {
        op.apply(&mut self.live);
        self.unsynced.push(op);
    }

    /// Makes the changes of a directory durable, and older ones on which they depend. For some of
    /// them `chosen` may return false: a failed sync has lost these for ever.
    pub fn sync(&mut self, dir: &str, mut chosen: impl FnMut() -> bool) {
        let mut paths: BTreeSet<String> = BTreeSet::new();
        let mut synced = vec![false; self.unsynced.len()];
        for (i, op) in self.unsynced.iter().enumerate().rev() {
            let of_op = op.paths();
            if of_op.iter().any(|p| parent(p) == dir || paths.contains(*p)) {
                synced[i] = true;
                paths.extend(of_op.iter().map(|p| p.to_string()));
            }
        }
        let mut rest = Vec::new();
        for (op, synced) in std::mem::take(&mut self.unsynced).into_iter().zip(synced) {
            if !synced {
                rest.push(op);
            } else if chosen() {
                op.apply(&mut self.durable);
            }
        }
        self.unsynced = rest;
    }

    /// The name space after a crash.
    pub fn survivors(&self, keep: Keep, rng: &mut Rng) -> View {
        let mut view = self.durable.clone();
        let prefix = rng.below(self.unsynced.len() as u64 + 1) as usize;
        for (i, op) in self.unsynced.iter().enumerate() {
            let kept = match keep {
                Keep::None => false,
                Keep::All => true,
                Keep::Prefix => i < prefix,
                Keep::Subset => rng.one_in(2),
            };
            if kept {
                op.apply(&mut view);
            }
        }
        let dirs = view.dirs.clone();
        let reachable = |path: &str| {
            let mut dir = parent(path);
            while !dir.is_empty() {
                if !dirs.contains(dir) {
                    return false;
                }
                dir = parent(dir);
            }
            true
        };
        view.files.retain(|path, _| reachable(path));
        view.dirs.retain(|path| reachable(path));
        view
    }

    /// The name space that the next process finds after a kill: unsynced changes are visible, and
    /// may still be lost.
    pub fn left(&self, rng: &mut Rng) -> Names {
        let live = self.survivors(Keep::All, rng);
        Names { live, durable: self.durable.clone(), unsynced: self.unsynced.clone() }
    }

    /// Files to which some name, durable or possibly surviving, leads.
    pub fn named(&self) -> BTreeSet<Ino> {
        let unsynced = self.unsynced.iter().filter_map(|op| match op {
            NameOp::Create { ino, .. }
            | NameOp::Remove { ino, .. }
            | NameOp::Rename { ino, .. } => Some(*ino),
            NameOp::MakeDir { .. } => None,
        });
        self.durable.files.values().copied().chain(unsynced).collect()
    }
}
