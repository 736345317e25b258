//! Heads: the first bytes of memcomparable keys as numbers, for searches in arrays that stay in the
//! inner caches. If two heads are equal, the keys decide.

const WAYS: usize = 8;

/// The number of these sorted numbers below `head`. An eight-way search: the loads of a round do
/// not wait for each other, and most of them miss the inner caches.
#[inline]
pub fn count_below(mut heads: &[u128], head: u128) -> usize {
    let mut below = 0;
    while heads.len() > WAYS {
        let step = heads.len().div_ceil(WAYS);
        let part = step * heads.iter().step_by(step).skip(1).filter(|h| **h < head).count();
        heads = &heads[part..heads.len().min(part + step)];
        below += part;
    }
    below + heads.iter().filter(|h| **h < head).count()
}

/// The first 16 bytes of a key as a number, padded with zeros: two different heads have the order
/// of their keys.
#[inline]
pub fn head_of(key: &[u8]) -> u128 {
    match key.first_chunk() {
        Some(head) => u128::from_be_bytes(*head),
        None => {
            let mut head = [0; 16];
            head[..key.len()].copy_from_slice(key);
            u128::from_be_bytes(head)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_keep_the_order_of_keys() {
        let keys: [&[u8]; 8] =
            [b"", b"\0", b"\0\x01", b"a", b"aa", &[b'a'; 16], &[b'a'; 17], &[0xff; 16]];
        assert!(keys.is_sorted());
        assert!(keys.map(head_of).is_sorted());
        assert_eq!(head_of(&[b'a'; 16]), head_of(&[b'a'; 17]));
    }

    #[test]
    fn counting_heads_agrees_with_binary_search() {
        for len in 0..300u128 {
            let heads: Vec<u128> = (0..len).map(|i| i / 3 * 2).collect();
            for head in 0..len + 2 {
                let plain = heads.partition_point(|h| *h < head);
                assert_eq!(count_below(&heads, head), plain, "{head} of {len}");
            }
        }
    }
}
