//! Pages that a cleaner takes from the engine's buckets, oldest bucket first: where the engine has
//! frames with latches, experiments have numbers.

use evenkeel_pages::dirty::Dirty;

/// A dirty page: its bucket and its frame.
pub type Page = (u64, u32);

/// What is left of the bucket that is being drained, last page first.
#[derive(Debug, Default)]
pub struct Draining(Vec<Page>);

impl Draining {
    /// Appends up to `count` of the oldest pages; how many.
    pub fn take(&mut self, count: u64, dirty: &Dirty, out: &mut Vec<Page>) -> u64 {
        for taken in 0..count {
            if self.0.is_empty() {
                let Some((bucket, frames)) = dirty.take_below(u64::MAX) else { return taken };
                self.0 = frames.into_iter().rev().map(|frame| (bucket, frame)).collect();
            }
            out.extend(self.0.pop());
        }
        count
    }
}
