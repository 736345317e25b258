//! Packing against plain sorting of the same keys.

use super::*;
use evenkeel_io::Rng;

const PK: usize = 4;

/// Keys of `len` bytes, about `vary` of which vary.
fn keys(rng: &mut Rng, len: usize, vary: usize, count: usize) -> Vec<Vec<u8>> {
    let places: Vec<usize> = (0..vary).map(|_| rng.below(len as u64) as usize).collect();
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for _ in 0..count {
        let mut key = vec![7; len];
        for place in &places {
            key[*place] = rng.below(1 + (*place as u64 % 5) * 60) as u8;
        }
        keys.push(key);
    }
    keys.sort();
    keys.dedup();
    for i in (1..keys.len()).rev() {
        keys.swap(i, rng.below(i as u64 + 1) as usize);
    }
    keys
}

fn read(stretches: &Stretches) -> Vec<Vec<u8>> {
    let (mut found, mut numbers) = (Vec::new(), Vec::new());
    for stretch in 0..stretches.count() {
        let take = |key: &[u8], pk_len: usize| {
            assert_eq!(pk_len, PK);
            found.push(key.to_vec());
            Ok(())
        };
        stretches.read(stretch, &mut numbers, take).unwrap();
    }
    found
}

#[test]
fn pieces_give_their_keys_back_in_order() {
    let mut rng = Rng::new(5);
    for round in 0..60 {
        let (len, vary) = (PK + rng.below(59) as usize, rng.below(20) as usize);
        let mut keys = keys(&mut rng, len, vary, 1 + round * 400);
        let mut collectors = [Packed::new(), Packed::new(), Packed::new()];
        let (mut pieces, mut refused) = (Vec::new(), false);
        for (i, key) in keys.iter().enumerate() {
            let collector = &mut collectors[i * 3 / keys.len()];
            let (columns, pk) = key.split_at(len - PK);
            refused |= !collector.push(columns, pk);
            if collector.bytes() > 3000 * WORD {
                pieces.push(collector.sort());
            }
        }
        pieces.extend(collectors.iter_mut().map(Packed::sort));
        pieces.retain(|piece| !piece.numbers.is_empty());
        let places: std::collections::BTreeSet<usize> =
            (0..len).filter(|at| keys.iter().any(|key| key[*at] != keys[0][*at])).collect();
        match Stretches::new(pieces) {
            Ok(stretches) if !refused => {
                assert!(places.len() <= WORD, "{places:?}");
                keys.sort();
                assert_eq!(read(&stretches), keys, "round {round}");
            }
            _ => assert!(places.len() > WORD, "{places:?}"),
        }
    }
}

#[test]
fn entries_that_do_not_fit_are_refused_and_the_others_are_kept() {
    let mut packed = Packed::new();
    assert!(packed.push(b"abc", b"1234"));
    assert!(packed.push(b"abd", b"1235"));
    assert!(!packed.push(b"abcd", b"1234"), "another length");
    assert!(!packed.push(b"ab", b"12345"), "another length of the pk");
    assert!(!packed.push(&[1; 61], &[1; 4]), "too long");
    let mut found = Vec::new();
    packed
        .drain(|key, pk_len| {
            found.push((key.to_vec(), pk_len));
            Ok(())
        })
        .unwrap();
    assert_eq!(found, [(b"abc1234".to_vec(), 4), (b"abd1235".to_vec(), 4)]);
    let mut packed = Packed::new();
    let mut key = [0; 17];
    assert!(packed.push(&key, b"1234"));
    for i in 0..16 {
        key[i] = 1;
        assert!(packed.push(&key, b"1234"), "{i}");
    }
    key[16] = 1;
    assert!(!packed.push(&key, b"1234"), "a seventeenth byte that varies");
    assert_eq!(packed.sort().numbers.len(), 17);
}
