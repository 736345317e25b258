//! Pruning: which of many parts can hold the keys of a query. A part is anything that has keys of
//! its own and is searched separately, such as a chunk of a table with its indexes. Its summary has
//! the least and the greatest key and, if wanted, a Bloom filter over the keys; parts that cannot
//! hold the key or range are not opened.
//!
//! Invariant: a part that holds a requested key is never pruned; a part without it may remain.

use evenkeel_base::Result;
use evenkeel_format::run::{Filter, FilterBuilder, hash_key};

/// The request of a query to each part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// One key.
    Key {
        /// The key.
        key: &'a [u8],
        /// Its hash, computed once for all parts.
        hash: u64,
    },
    /// Keys from `low` to `high`, both included.
    Range {
        /// The least key.
        low: &'a [u8],
        /// The greatest key.
        high: &'a [u8],
    },
}

impl<'a> Asked<'a> {
    /// One key.
    pub fn key(key: &'a [u8]) -> Asked<'a> {
        Asked::Key { key, hash: hash_key(key) }
    }
}

/// The least and the greatest key of a part.
#[derive(Debug)]
struct Bounds {
    min: Box<[u8]>,
    max: Box<[u8]>,
}

/// The facts of a part that is not opened.
#[derive(Debug)]
pub struct Summary {
    bounds: Bounds,
    filter: Option<Filter>,
}

impl Summary {
    /// False if the part holds nothing of the request.
    pub fn may_hold(&self, asked: &Asked<'_>) -> bool {
        let Bounds { min, max } = &self.bounds;
        match asked {
            Asked::Key { key, hash } => {
                let inside = **min <= **key && **key <= **max;
                inside && self.filter.as_ref().is_none_or(|f| f.may_contain(*hash))
            }
            Asked::Range { low, high } => **min <= **high && **low <= **max,
        }
    }

    /// Bytes it takes in memory.
    pub fn memory(&self) -> usize {
        let Bounds { min, max } = &self.bounds;
        min.len() + max.len() + self.filter.as_ref().map_or(0, Filter::memory)
    }
}

/// Collects the keys of a part, in any order.
#[derive(Default)]
pub struct SummaryBuilder {
    bounds: Option<Bounds>,
    filter: FilterBuilder,
}

impl SummaryBuilder {
    /// Adds a key.
    pub fn push(&mut self, key: &[u8]) {
        self.filter.push(key);
        match &mut self.bounds {
            None => self.bounds = Some(Bounds { min: key.into(), max: key.into() }),
            Some(bounds) if *key < *bounds.min => bounds.min = key.into(),
            Some(bounds) if *key > *bounds.max => bounds.max = key.into(),
            Some(_) => {}
        }
    }

    /// The summary, with or without a filter; none for a part without keys, which need not be
    /// opened.
    ///
    /// # Errors
    /// Only `Internal`.
    pub fn finish(self, with_filter: bool) -> Result<Option<Summary>> {
        let Some(bounds) = self.bounds else { return Ok(None) };
        let filter = match with_filter {
            true => Some(Filter::decode(self.filter.finish().into_boxed_slice())?),
            false => None,
        };
        Ok(Some(Summary { bounds, filter }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn summary(keys: &BTreeSet<u16>, with_filter: bool) -> Option<Summary> {
        let mut builder = SummaryBuilder::default();
        // In another order: the range must not depend on it.
        for key in keys.iter().rev() {
            builder.push(&key.to_be_bytes());
        }
        builder.finish(with_filter).expect("built")
    }

    proptest! {
        #[test]
        fn no_segment_with_a_matching_key_is_pruned(
            keys in proptest::collection::btree_set(0..2000u16, 0..60),
            asked in 0..2000u16, wide in 0..200u16, with_filter in any::<bool>(),
        ) {
            let Some(summary) = summary(&keys, with_filter) else {
                prop_assert!(keys.is_empty());
                return Ok(());
            };
            let (low, high) = (asked.to_be_bytes(), (asked + wide).to_be_bytes());
            let (least, most) = (*keys.first().expect("some"), *keys.last().expect("some"));
            let range = summary.may_hold(&Asked::Range { low: &low, high: &high });
            prop_assert_eq!(range, least <= asked + wide && asked <= most);
            let held = summary.may_hold(&Asked::key(&low));
            prop_assert!(held || !keys.contains(&asked));
            if !with_filter {
                prop_assert_eq!(held, least <= asked && asked <= most);
            }
        }
    }

    #[test]
    fn a_filter_lets_few_absent_keys_through() {
        let keys: BTreeSet<u16> = (0..30_000).step_by(3).collect();
        let summary = summary(&keys, true).expect("keys");
        let absent = (0..30_000u16).filter(|key| !keys.contains(key));
        let through =
            absent.filter(|key| summary.may_hold(&Asked::key(&key.to_be_bytes()))).count();
        assert!((1..800).contains(&through), "{through} of 20,000");
        assert!(summary.memory() > 10_000 * 10 / 8);
    }
}
