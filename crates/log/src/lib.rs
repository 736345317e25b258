//! The write-ahead log: segments, blocks, reservation, group commit, replay.
