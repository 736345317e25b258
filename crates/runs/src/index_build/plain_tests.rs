//! Plain entries against a sort of whole keys.

use super::*;
use evenkeel_io::Rng;
use proptest::prelude::*;

/// Keys with long equal parts, keys that are prefixes of others, and zeros that look like the end
/// of a key.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        3 => Just(vec![b'a'; 30]),
        2 => Just(vec![0; 13]),
        2 => Just(vec![0]),
        2 => Just(b"b".to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ];
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

/// Sorted pieces of `each` entries.
fn pieces(keys: &[Vec<u8>], each: usize) -> Vec<SortedPlain> {
    let mut plain = Plain::default();
    let piece = |keys: &[Vec<u8>]| {
        for key in keys {
            let (columns, pk) = key.split_at(key.len().div_ceil(2));
            plain.push(columns, pk, &key[..key.len().min(5)]).unwrap();
        }
        plain.sort().unwrap()
    };
    keys.chunks(each).map(piece).collect()
}

fn read(stretches: &Stretches) -> Vec<Vec<u8>> {
    let (mut found, mut entries) = (Vec::new(), Plain::default());
    for stretch in 0..stretches.count() {
        let take = |key: &[u8], pk_len: usize, value: &[u8]| {
            assert_eq!((pk_len, value), (key.len() / 2, &key[..key.len().min(5)]));
            found.push(key.to_vec());
            Ok(())
        };
        stretches.read(stretch, &mut entries, take).unwrap();
    }
    found
}

proptest! {
    #[test]
    fn entries_come_in_the_order_of_their_keys(
        keys in prop::collection::hash_set(key(), 0..600), each in 1..400usize,
    ) {
        let mut keys: Vec<Vec<u8>> = keys.into_iter().collect();
        let stretches = Stretches::new(pieces(&keys, each)).unwrap();
        keys.sort();
        prop_assert_eq!(read(&stretches), keys);
    }
}

/// Keys whose first bytes are equal, level after level, in many stretches and in one piece.
#[test]
fn keys_of_equal_parts_are_told_apart() {
    let mut rng = Rng::new(3);
    for letters in [1, 2, 26] {
        let letter = |rng: &mut Rng| b'a' + rng.below(letters) as u8;
        let mut keys: Vec<Vec<u8>> = (0..40_000u32)
            .map(|n| {
                let mut key: Vec<u8> = Vec::new();
                for _ in 0..3 {
                    key.extend_from_slice(&[letter(&mut rng); 40]);
                }
                key.extend_from_slice(&n.to_be_bytes());
                key
            })
            .collect();
        for i in (1..keys.len()).rev() {
            keys.swap(i, rng.below(i as u64 + 1) as usize);
        }
        for each in [1_000, 40_000] {
            let stretches = Stretches::new(pieces(&keys, each)).unwrap();
            assert!(stretches.count() > 8, "{}", stretches.count());
            let mut sorted = keys.clone();
            sorted.sort();
            assert!(read(&stretches) == sorted, "{letters} letters, pieces of {each}");
        }
    }
}

/// More levels than the sort examines: the keys differ in one byte each time.
#[test]
fn keys_with_more_equal_parts_than_levels_are_compared_in_full() {
    let mut keys = Vec::new();
    for n in 0..40 * LEVELS {
        let mut key = vec![b'a'; n * 13];
        key.resize(13 * 40 * LEVELS, b'b');
        keys.push(key);
    }
    let stretches = Stretches::new(pieces(&keys, keys.len())).unwrap();
    keys.sort();
    assert!(read(&stretches) == keys);
}

/// Each stretch is sorted in memory of its own: it exceeds its intended size by at most a mark, or
/// an entry, of each piece, however long the entries are.
#[test]
fn sort_stretches_stay_near_their_intended_size() {
    let mut rng = Rng::new(9);
    for (entry, pieces, of_piece) in
        [(40, 64, 256 << 10), (2_000, 32, 1 << 20), (20_000, 32, 1 << 20)]
    {
        let value = vec![7; entry];
        let mut plain = Plain::default();
        let mut piece = || {
            for _ in 0..of_piece / entry {
                plain.push(&rng.next_u64().to_be_bytes(), b"1", &value).unwrap();
            }
            plain.sort().unwrap()
        };
        let stretches = Stretches::new((0..pieces).map(|_| piece()).collect()).unwrap();
        let (mut longest, mut entries) = (0, Plain::default());
        for stretch in 0..stretches.count() {
            stretches.read(stretch, &mut entries, |_, _, _| Ok(())).unwrap();
            longest = longest.max(entries.arena.len());
        }
        let most = STRETCH_BYTES_MIN + pieces * (MARK_BYTES + entry + 20);
        assert!(longest <= most, "{longest} bytes of at most {most}, entries of {entry}");
    }
}
