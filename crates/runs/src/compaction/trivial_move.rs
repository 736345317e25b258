//! Finds the segments of a compaction's inputs that overlap no segment of another input: they
//! become segments of the output unchanged. A pure function of their key ranges.

/// Keys of a segment, first and last.
pub(super) type Keys<'a> = (&'a [u8], &'a [u8]);

/// The segments, as (input, segment), in the order of their keys, that overlap no others. The
/// segments of one input never overlap each other.
pub(super) fn apart(inputs: &[Vec<Keys<'_>>]) -> Vec<(usize, usize)> {
    let mut all: Vec<(Keys<'_>, (usize, usize))> = Vec::new();
    for (i, segments) in inputs.iter().enumerate() {
        all.extend(segments.iter().enumerate().map(|(s, keys)| (*keys, (i, s))));
    }
    all.sort_unstable();
    let (mut found, mut before): (Vec<(usize, usize)>, Option<&[u8]>) = (Vec::new(), None);
    for (at, ((min, max), name)) in all.iter().enumerate() {
        let overlaps = before.is_some_and(|before| before >= *min)
            || all.get(at + 1).is_some_and(|((next, _), _)| next <= max);
        if !overlaps {
            found.push(*name);
        }
        before = before.max(Some(max));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Segments of a run: pairs of neighbours of ascending numbers.
    fn run() -> impl Strategy<Value = Vec<(u8, u8)>> {
        prop::collection::btree_set(0..60u8, 0..12).prop_map(|keys| {
            let keys: Vec<u8> = keys.into_iter().collect();
            keys.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
        })
    }

    proptest! {
        #[test]
        fn trivial_moves_equal_a_pairwise_comparison(runs in prop::collection::vec(run(), 1..6)) {
            let bytes: Vec<Vec<([u8; 1], [u8; 1])>> =
                runs.iter().map(|r| r.iter().map(|(a, b)| ([*a], [*b])).collect()).collect();
            let keys: Vec<Vec<Keys<'_>>> =
                bytes.iter().map(|r| r.iter().map(|(a, b)| (&a[..], &b[..])).collect()).collect();
            let mut expected = Vec::new();
            for (i, run) in runs.iter().enumerate() {
                for (s, (min, max)) in run.iter().enumerate() {
                    let others = runs.iter().enumerate().filter(|(j, _)| *j != i);
                    if !others.flat_map(|(_, r)| r).any(|(a, b)| a <= max && b >= min) {
                        expected.push((*min, (i, s)));
                    }
                }
            }
            expected.sort_unstable();
            let expected: Vec<(usize, usize)> = expected.into_iter().map(|e| e.1).collect();
            prop_assert_eq!(apart(&keys), expected);
        }
    }
}
