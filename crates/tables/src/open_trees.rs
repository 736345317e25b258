//! Trees by id, for users that come from a log record or an undo record and hold no table:
//! rollback, and the freeing of chains. They enter a tree while they work on it, so that its pages
//! are not freed meanwhile: a log record behind the free of its page would be meaningless.
//!
//! Invariant: the pages of a tree are freed when the tree is no longer listed here and nobody is
//! inside. Users that hold a table need no entry, because a table is closed before it is dropped.

use evenkeel_base::sync::Mutex;
use evenkeel_base::{Cause, TreeId};
use evenkeel_io::{Event, Runtime};
use evenkeel_tree::Tree;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

#[derive(Default)]
struct Book {
    trees: HashMap<TreeId, Tree>,
    /// Users inside each tree; trees without users have no entry.
    within: HashMap<TreeId, usize>,
    /// Removed while in use: their pages are still to be freed.
    leaving: Vec<Tree>,
}

/// The open trees of one database.
#[derive(Default)]
pub(crate) struct OpenTrees {
    book: Mutex<Book>,
    left: Arc<Event>,
}

/// Keeps the pages of a tree until dropped.
pub(crate) struct Within<'a> {
    trees: &'a OpenTrees,
    tree: Tree,
}

impl OpenTrees {
    /// Adds a tree.
    pub(crate) fn insert(&self, tree: Tree) {
        self.book.lock().trees.insert(tree.id(), tree);
    }

    /// True if the tree belongs to a table.
    pub(crate) fn is_known(&self, id: TreeId) -> bool {
        let book = self.book.lock();
        book.trees.contains_key(&id) || book.leaving.iter().any(|tree| tree.id() == id)
    }

    /// Enters a tree; none if it was dropped.
    pub(crate) fn enter(&self, id: TreeId) -> Option<Within<'_>> {
        let mut book = self.book.lock();
        let tree = book.trees.get(&id)?.clone();
        *book.within.entry(id).or_default() += 1;
        Some(Within { trees: self, tree })
    }

    /// Removes a tree, so that nobody enters it, and waits until nobody is inside. False after
    /// `timeout`: [`OpenTrees::left_ones`] returns the tree when it is empty.
    pub(crate) fn remove(&self, rt: &Runtime, tree: &Tree, timeout: Duration) -> bool {
        let id = tree.id();
        self.book.lock().trees.remove(&id);
        let is_empty = || !self.book.lock().within.contains_key(&id);
        if rt.wait_at_most(&self.left, Cause::Schema, timeout, is_empty) {
            return true;
        }
        let mut book = self.book.lock();
        if !book.within.contains_key(&id) {
            return true;
        }
        book.leaving.push(tree.clone());
        false
    }

    /// Removed trees that nobody is inside any more, each once.
    pub(crate) fn left_ones(&self) -> Vec<Tree> {
        let mut book = self.book.lock();
        let Book { within, leaving, .. } = &mut *book;
        leaving.extract_if(.., |tree| !within.contains_key(&tree.id())).collect()
    }
}

impl Deref for Within<'_> {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        &self.tree
    }
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        let id = self.tree.id();
        let mut book = self.trees.book.lock();
        if let Some(count) = book.within.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                book.within.remove(&id);
            }
        }
        drop(book);
        self.trees.left.notify();
    }
}
