//! Ranges of keys, found by a key that they contain or a range that they overlap: a treap ordered
//! by lower bound, in which each node knows the farthest upper bound below it. A search costs the
//! logarithm of the number of ranges plus the number found.

use std::cmp::Ordering;

/// A range of keys: from `low` on, without `high`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeySpan {
    pub low: Vec<u8>,
    pub high: Vec<u8>,
}

impl KeySpan {
    /// True if it contains every key of `other`.
    pub fn covers(&self, other: &KeySpan) -> bool {
        self.low <= other.low && other.high <= self.high
    }

    pub fn is_empty(&self) -> bool {
        self.low >= self.high
    }

    /// The keys between this range and a key outside of it, and that key. Empty for a key in it.
    pub fn up_to(&self, key: &[u8]) -> KeySpan {
        match key < &self.low[..] {
            true => KeySpan { low: key.to_vec(), high: self.low.clone() },
            false => KeySpan { low: self.high.clone(), high: behind(key) },
        }
    }

    /// The range without its first or last key; none if `key` is neither.
    pub fn without_end(&self, key: &[u8]) -> Option<KeySpan> {
        let next = behind(key);
        if next == self.high {
            Some(KeySpan { low: self.low.clone(), high: key.to_vec() })
        } else if key == self.low {
            Some(KeySpan { low: next, high: self.high.clone() })
        } else {
            None
        }
    }
}

/// The next greater byte string.
pub(crate) fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// No node.
const NONE: usize = usize::MAX;

struct Node {
    span: KeySpan,
    name: u64,
    priority: u64,
    left: usize,
    right: usize,
    /// The node in this subtree whose upper bound is the farthest.
    farthest: usize,
}

/// Ranges, each with a name.
pub(crate) struct Intervals {
    nodes: Vec<Node>,
    free: Vec<usize>,
    root: usize,
    #[cfg(test)]
    looked_at: std::cell::Cell<usize>,
}

impl Default for Intervals {
    fn default() -> Self {
        Intervals {
            nodes: Vec::new(),
            free: Vec::new(),
            root: NONE,
            #[cfg(test)]
            looked_at: Default::default(),
        }
    }
}

/// Pseudo-random bits, independent of the order of names.
fn scattered(name: u64) -> u64 {
    let x = (name ^ (name >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Intervals {
    /// Inserts a range; its name must be unique here.
    pub fn insert(&mut self, span: KeySpan, name: u64) {
        let priority = scattered(name);
        let node = Node { span, name, priority, left: NONE, right: NONE, farthest: NONE };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at] = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        self.pull(at);
        let low = self.nodes[at].span.low.clone();
        let (left, right) = self.split(self.root, &low, name);
        let left = self.merge(left, at);
        self.root = self.merge(left, right);
    }

    /// Removes the range of this name, which begins at `low`.
    pub fn remove(&mut self, low: &[u8], name: u64) {
        self.root = self.remove_below(self.root, low, name);
    }

    /// Calls `f` with the names of the ranges that contain `key`, until it returns false.
    pub fn holding(&self, key: &[u8], f: &mut dyn FnMut(u64) -> bool) {
        self.visit(self.root, &|low| low <= key, &|high| high > key, f);
    }

    /// Moves the upper bound of the range of this name, which begins at `low`.
    pub fn set_high(&mut self, low: &[u8], name: u64, high: &[u8]) {
        self.set_high_below(self.root, low, name, high);
    }

    fn set_high_below(&mut self, at: usize, low: &[u8], name: u64, high: &[u8]) {
        if at == NONE {
            return;
        }
        let node = &mut self.nodes[at];
        let (left, right) = (node.left, node.right);
        match (low, name).cmp(&(node.span.low.as_slice(), node.name)) {
            Ordering::Equal => {
                node.span.high.clear();
                node.span.high.extend_from_slice(high);
            }
            Ordering::Less => self.set_high_below(left, low, name, high),
            Ordering::Greater => self.set_high_below(right, low, name, high),
        }
        self.pull(at);
    }

    /// As `holding`, for the ranges that share a key with `span`.
    pub fn meeting(&self, span: &KeySpan, f: &mut dyn FnMut(u64) -> bool) {
        let (low, high) = (span.low.as_slice(), span.high.as_slice());
        self.visit(self.root, &|theirs| theirs < high, &|theirs| theirs > low, f);
    }

    /// As `holding`, for the ranges that contain a key from `low` to `last`.
    pub fn touching(&self, low: &[u8], last: &[u8], f: &mut dyn FnMut(u64) -> bool) {
        self.visit(self.root, &|theirs| theirs <= last, &|theirs| theirs > low, f);
    }

    fn visit(
        &self,
        at: usize,
        begins: &dyn Fn(&[u8]) -> bool,
        reaches: &dyn Fn(&[u8]) -> bool,
        f: &mut dyn FnMut(u64) -> bool,
    ) -> bool {
        if at == NONE || !reaches(&self.nodes[self.nodes[at].farthest].span.high) {
            return true;
        }
        #[cfg(test)]
        self.looked_at.set(self.looked_at.get() + 1);
        let node = &self.nodes[at];
        if !self.visit(node.left, begins, reaches, f) {
            return false;
        }
        if !begins(&node.span.low) {
            return true;
        }
        if reaches(&node.span.high) && !node.span.is_empty() && !f(node.name) {
            return false;
        }
        self.visit(node.right, begins, reaches, f)
    }

    fn pull(&mut self, at: usize) {
        let node = &self.nodes[at];
        let mut farthest = at;
        for child in [node.left, node.right] {
            if child != NONE {
                let theirs = self.nodes[child].farthest;
                if self.nodes[theirs].span.high > self.nodes[farthest].span.high {
                    farthest = theirs;
                }
            }
        }
        self.nodes[at].farthest = farthest;
    }

    /// Splits a subtree into the nodes before (low, name) and the others.
    fn split(&mut self, at: usize, low: &[u8], name: u64) -> (usize, usize) {
        if at == NONE {
            return (NONE, NONE);
        }
        let node = &self.nodes[at];
        if (node.span.low.as_slice(), node.name) < (low, name) {
            let (middle, right) = self.split(node.right, low, name);
            self.nodes[at].right = middle;
            self.pull(at);
            (at, right)
        } else {
            let (left, middle) = self.split(node.left, low, name);
            self.nodes[at].left = middle;
            self.pull(at);
            (left, at)
        }
    }

    fn merge(&mut self, left: usize, right: usize) -> usize {
        match (left, right) {
            (NONE, one) | (one, NONE) => one,
            _ if self.nodes[left].priority > self.nodes[right].priority => {
                self.nodes[left].right = self.merge(self.nodes[left].right, right);
                self.pull(left);
                left
            }
            _ => {
                self.nodes[right].left = self.merge(left, self.nodes[right].left);
                self.pull(right);
                right
            }
        }
    }

    fn remove_below(&mut self, at: usize, low: &[u8], name: u64) -> usize {
        if at == NONE {
            return NONE;
        }
        let node = &self.nodes[at];
        let (left, right) = (node.left, node.right);
        match (low, name).cmp(&(node.span.low.as_slice(), node.name)) {
            std::cmp::Ordering::Equal => {
                self.nodes[at].span = KeySpan { low: Vec::new(), high: Vec::new() };
                self.free.push(at);
                return self.merge(left, right);
            }
            std::cmp::Ordering::Less => self.nodes[at].left = self.remove_below(left, low, name),
            std::cmp::Ordering::Greater => {
                self.nodes[at].right = self.remove_below(right, low, name);
            }
        }
        self.pull(at);
        at
    }

    /// Nodes examined since the last call.
    #[cfg(test)]
    pub fn take_looked_at(&self) -> usize {
        self.looked_at.take()
    }
}
