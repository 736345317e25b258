//! Memory for a copy of a page, reused by its thread: the allocator takes as long to find 16 KiB as
//! it takes to fill them, and an edit of a full node needs that once or twice.
//!
//! Invariant: a thread keeps no more than `KEPT` buffers of `KEPT_BYTES`.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// A page to edit, and its source.
const KEPT: usize = 2;
/// The largest page.
const KEPT_BYTES: usize = 64 << 10;

thread_local! {
    static KEPT_HERE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes that return to the thread when they are dropped.
pub struct Scratch(Vec<u8>);

impl Scratch {
    fn empty() -> Scratch {
        let kept = KEPT_HERE.try_with(|kept| kept.borrow_mut().pop());
        let mut bytes = kept.ok().flatten().unwrap_or_default();
        bytes.clear();
        Scratch(bytes)
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Scratch {
        let mut scratch = Scratch::empty();
        scratch.0.extend_from_slice(bytes);
        scratch
    }

    /// `len` zeros.
    pub fn zeros(len: usize) -> Scratch {
        let mut scratch = Scratch::empty();
        scratch.0.resize(len, 0);
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        if bytes.capacity() > KEPT_BYTES {
            return;
        }
        // A thread that ends may have no place to keep it.
        let _ = KEPT_HERE.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT {
                kept.push(bytes);
            }
        });
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_two_empty_buffers() {
        let (a, b, c) = (Scratch::copy_of(b"abc"), Scratch::copy_of(b"de"), Scratch::zeros(4));
        assert_eq!((&*a, &*b, &*c), (&b"abc"[..], &b"de"[..], &[0; 4][..]));
        drop((a, b, c));
        assert_eq!(KEPT_HERE.with(|kept| kept.borrow().len()), KEPT);
        assert_eq!(*Scratch::zeros(3), [0; 3]);
        drop(Scratch::zeros(KEPT_BYTES + 1));
        KEPT_HERE.with(|kept| assert!(kept.borrow().iter().all(|v| v.capacity() <= KEPT_BYTES)));
    }
}
