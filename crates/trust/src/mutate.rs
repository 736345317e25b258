//! Seeded mutations of bytes: flipped bits, changed bytes, extreme numbers, cuts, copies, swaps and
//! insertions.

use evenkeel_io::Rng;

/// Changes a copy of `bytes` in one to four places.
pub fn mutate(rng: &mut Rng, bytes: &[u8], other: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..=rng.below(4) {
        once(rng, &mut out, other);
    }
    out
}

fn once(rng: &mut Rng, out: &mut Vec<u8>, other: &[u8]) {
    let len = out.len() as u64;
    if len == 0 {
        out.extend((0..rng.below(40)).map(|_| rng.next_u64() as u8).collect::<Vec<_>>());
        return;
    }
    let at = rng.below(len) as usize;
    let span = 1 + rng.below(16.min(len - at as u64)) as usize;
    match rng.below(9) {
        0 | 1 => out[at] ^= 1 << rng.below(8),
        2 => out[at] = rng.next_u64() as u8,
        3 => out[at] = [0, 1, 0x7f, 0x80, 0xfe, 0xff][rng.below(6) as usize],
        4 => out.truncate(at),
        5 => {
            let from = rng.below(len - span as u64 + 1) as usize;
            out.copy_within(from..from + span, at);
        }
        6 => out[at..at + span].fill([0, 0xff][rng.below(2) as usize]),
        7 => {
            let piece: Vec<u8> = (0..span).map(|_| rng.next_u64() as u8).collect();
            out.splice(at..at, piece);
        }
        _ => {
            let end = other.len().min(at + span);
            if at < end {
                out[at..end].copy_from_slice(&other[at..end]);
            }
        }
    }
}
