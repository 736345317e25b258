//! The treap against a list that is searched linearly.

use crate::intervals::*;
use proptest::prelude::*;

fn span(low: u8, high: u8) -> KeySpan {
    KeySpan { low: vec![low], high: vec![high] }
}

type Taker<'a> = &'a mut dyn FnMut(u64) -> bool;

fn found(visit: &dyn Fn(Taker<'_>)) -> Vec<u64> {
    let mut names = Vec::new();
    visit(&mut |name| {
        names.push(name);
        true
    });
    names.sort_unstable();
    names
}

proptest! {
    #[test]
    fn intervals_agree_with_a_list(
        steps in prop::collection::vec((0u8..6, 0u8..20, 0u8..20), 1..120),
    ) {
        let (mut tree, mut list) = (Intervals::default(), Vec::<(u64, KeySpan)>::new());
        for (name, (step, a, b)) in (0u64..).zip(steps) {
            if step < 2 && !list.is_empty() {
                let at = usize::from(a) % list.len();
                let (name, moved) = &mut list[at];
                moved.high = vec![b];
                tree.set_high(&moved.low, *name, &moved.high);
            } else if step < 4 || list.is_empty() {
                tree.insert(span(a, b), name);
                list.push((name, span(a, b)));
            } else {
                let (name, gone) = list.swap_remove(usize::from(a) % list.len());
                tree.remove(&gone.low, name);
            }
            let met = span(a.min(b), a.max(b));
            let names = |is: &dyn Fn(&KeySpan) -> bool| {
                let mut names: Vec<_> =
                    list.iter().filter(|(_, s)| !s.is_empty() && is(s)).map(|(n, _)| *n).collect();
                names.sort_unstable();
                names
            };
            let holds = |s: &KeySpan| s.low[0] <= a && a < s.high[0];
            prop_assert_eq!(found(&|f| tree.holding(&[a], f)), names(&holds));
            let meets = |s: &KeySpan| s.low < met.high && met.low < s.high;
            prop_assert_eq!(found(&|f| tree.meeting(&met, f)), names(&meets));
            let touches = |s: &KeySpan| s.low <= met.high && met.low < s.high;
            prop_assert_eq!(found(&|f| tree.touching(&met.low, &met.high, f)), names(&touches));
        }
    }
}

/// A lookup of one key among many adjacent ranges visits few of them.
#[test]
fn a_lookup_visits_few_of_many_intervals() {
    let mut tree = Intervals::default();
    let key = |n: u32| n.to_be_bytes().to_vec();
    for n in 0..10_000u32 {
        tree.insert(KeySpan { low: key(2 * n), high: key(2 * n + 1) }, u64::from(n));
    }
    tree.take_looked_at();
    assert_eq!(found(&|f| tree.holding(&key(10_000), f)), [5_000]);
    let looked_at = tree.take_looked_at();
    assert!(looked_at <= 60, "{looked_at} of 10,000");
    assert_eq!(found(&|f| tree.holding(&key(10_001), f)), [0u64; 0]);
    assert!(tree.take_looked_at() <= 60);
}
