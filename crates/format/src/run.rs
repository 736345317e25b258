//! Run files: blocks, filters, footers.

/// A stable 64-bit hash of a key (filters, hash slots).
pub fn hash_key(key: &[u8]) -> u64 {
    const K: u64 = 0x9fb2_1c65_1e98_df25;
    let mut h = (key.len() as u64).wrapping_mul(K) ^ 0x2545_f491_4f6c_dd1d;
    let mut words = key.chunks_exact(8);
    for word in &mut words {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        h = mix(h ^ u64::from_le_bytes(bytes)).wrapping_mul(K);
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    mix(mix(h ^ u64::from_le_bytes(last)).wrapping_mul(K))
}

fn mix(mut h: u64) -> u64 {
    h = (h ^ (h >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    h ^ (h >> 29)
}
