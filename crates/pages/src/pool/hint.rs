//! Prefetching: several reads of memory are under way at a time instead of one after the other.
//! Hints only: nothing relies on them.
//!
//! Safety: a prefetch reads nothing and faults at no address.
#![allow(unsafe_code)]

/// A line of the processor's cache.
const LINE: usize = 64;

/// The cache line at an address will be read soon.
#[inline]
pub(crate) fn line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint: it reads nothing, and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// These bytes will be read soon, or the part of them in the first few lines.
#[inline]
pub fn bytes(bytes: &[u8], lines: usize) {
    bytes.chunks(LINE).take(lines).for_each(|chunk| line(chunk.as_ptr()));
}
