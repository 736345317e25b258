//! Leaves of a short range are read together: neighbours in the file by one read, before the first
//! of them is needed. One after the other they cost a reader the latency of the device each; a
//! range of 100 rows of 200 bytes lies in six or seven pages of 4 KiB (RFC 0021).
//!
//! Used by whoever knows where a range ends: cursors with an end, and estimates, which come first.

use crate::tree::Tree;
use evenkeel_base::PageNo;
use evenkeel_format::node::Node;
use std::ops::RangeInclusive;

/// Leaves that are read together at most; of a longer range they are read ahead as it goes on.
pub(crate) const TOGETHER_MAX: usize = 8;

impl Tree {
    /// The children of a node above the leaves at `slots`, ascending, if they are few and two or
    /// more of them are to be read; else none. Read them once the node's latch is gone.
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
