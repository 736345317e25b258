//! Limits of the parts of a run file, and its version.

/// Raw bytes of a data block before it is closed.
pub const BLOCK_BYTES: usize = 8 << 10;
/// An entry (key, pk and value together) is at most this long.
pub const ENTRY_BYTES_MAX: usize = 512 << 10;
/// Raw bytes of a data block at most. Files that were written when blocks had 16 KiB are read.
pub const BLOCK_BYTES_MAX: usize = (16 << 10) + 2 * ENTRY_BYTES_MAX;
/// Raw bytes of fences, a filter or a footer at most.
pub const META_BYTES_MAX: usize = 256 << 20;
/// Format version of run files.
pub const RUN_VERSION: u32 = 1;
