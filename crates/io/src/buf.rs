//! Byte buffers aligned for direct I/O.
#![allow(unsafe_code)]

use crate::IO_ALIGN;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};

/// A zeroed byte buffer whose start is aligned to `IO_ALIGN`. Its length is the requested one.
pub struct AlignedBuf {
    /// The first byte of the buffer.
    ptr: std::ptr::NonNull<u8>,
    len: usize,
    /// The offset of its start in its allocation.
    skipped: usize,
}

// SAFETY: the buffer owns its memory alone; `&AlignedBuf` only gives `&[u8]`.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A buffer of `len` zero bytes. The allocation is a little larger and its start is aligned
    /// here. For an alignment greater than its own the system's allocator clears memory by writing
    /// to it; without one, large memory comes from the system, which provides pages on first use.
    pub fn new(len: usize) -> AlignedBuf {
        let layout = Self::layout(len);
        // SAFETY: the layout has a size above zero (see `layout`).
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(raw) = std::ptr::NonNull::new(raw) else { handle_alloc_error(layout) };
        let skipped = raw.addr().get().next_multiple_of(IO_ALIGN) - raw.addr().get();
        // SAFETY: less than `IO_ALIGN` is skipped, and the allocation exceeds `len` by that much.
        let ptr = unsafe { raw.add(skipped) };
        AlignedBuf { ptr, len, skipped }
    }

    fn layout(len: usize) -> Layout {
        let bytes = len.saturating_add(IO_ALIGN);
        let Ok(layout) = Layout::from_size_align(bytes, align_of::<u64>()) else {
            panic!("buffer of {len} bytes is beyond the address space")
        };
        layout
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout, this far before `ptr`.
        unsafe { dealloc(self.ptr.as_ptr().sub(self.skipped), Self::layout(self.len)) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` points to `len` initialised bytes that live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_buffer_is_aligned_zeroed_and_its_own() {
        for len in [0, 1, IO_ALIGN - 1, IO_ALIGN, 3 * IO_ALIGN + 5] {
            let mut buf = AlignedBuf::new(len);
            assert_eq!((buf.len(), buf.as_ptr().addr() % IO_ALIGN), (len, 0));
            assert!(buf.iter().all(|byte| *byte == 0));
            buf.fill(7);
            let sum = |buf: AlignedBuf| buf.iter().map(|byte| usize::from(*byte)).sum::<usize>();
            let elsewhere = std::thread::spawn(move || sum(buf));
            assert_eq!(elsewhere.join().expect("no panic"), 7 * len);
        }
    }
}
