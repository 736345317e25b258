//! Leaves of a short range are read together: neighbours in the file by one read, before the first
//! of them is needed. Read one after the other they would each cost the latency of the device; a
//! range of 100 rows of 200 bytes lies in six or seven pages of 4 KiB (RFC 0021).
//!
//! Used where the end of a range is known: by cursors with an end, and by estimates, which come
//! first.

use crate::tree::Tree;
use evenkeel_base::PageNo;
use evenkeel_format::node::Node;
use std::ops::RangeInclusive;

/// Leaves that are read together, at most; a longer range is prefetched as the scan advances.
pub(crate) const TOGETHER_MAX: usize = 8;

impl Tree {
    /// The children of a node above the leaves at `slots`, ascending, if they are few and two or
    /// more of them have to be read; else none. The caller reads them after releasing the node's
    /// latch.
    pub(crate) fn to_read_together(
        &self,
        node: &Node<'_>,
        slots: RangeInclusive<usize>,
    ) -> Vec<PageNo> {
        let (first, last) = slots.into_inner();
        if node.level() != 1 || last <= first || last - first >= TOGETHER_MAX {
            return Vec::new();
        }
        let pages = self.pages();
        let child = |slot| node.inner_cell(slot).ok().map(|cell| cell.child);
        let missing = |page: &PageNo| !pages.is_cached(*page);
        if (first..=last).filter_map(child).filter(missing).take(2).count() < 2 {
            return Vec::new();
        }
        (first..=last).filter_map(child).collect()
    }
}
