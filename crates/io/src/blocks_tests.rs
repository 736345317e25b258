//! Sparse content against a plain vector of bytes.
use crate::Rng;
use crate::blocks::{BLOCK, Blocks};

const MAX: u64 = 5 * BLOCK as u64;

fn range(rng: &mut Rng) -> (u64, u64) {
    let offset = rng.below(MAX);
    // Often whole blocks, which take other paths.
    if rng.one_in(3) {
        let block = BLOCK as u64;
        return (offset / block * block, (rng.below(3) + 1) * block);
    }
    (offset, rng.below(MAX - offset) + 1)
}

fn grow(model: &mut Vec<u8>, len: u64) {
    let len = model.len().max(len as usize);
    model.resize(len, 0);
}

#[test]
fn content_matches_a_vector() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let (mut blocks, mut model) = (Blocks::default(), Vec::new());
        let (mut other, mut other_model) = (Blocks::default(), Vec::new());
        for _ in 0..60 {
            let (offset, len) = range(&mut rng);
            let (at, end) = (offset as usize, (offset + len) as usize);
            match rng.below(7) {
                0 | 1 => {
                    let fill = if rng.one_in(3) { 0 } else { rng.next_u64() as u8 };
                    grow(&mut model, offset + len);
                    model[at..end].fill(fill);
                    blocks.write(&vec![fill; len as usize], offset);
                }
                2 => {
                    grow(&mut model, offset + len);
                    model[at..end].fill(0);
                    blocks.write_zeros(offset, len);
                }
                3 => {
                    model.resize(at, 0);
                    blocks.set_len(offset);
                }
                4 => {
                    let end = end.min(model.len());
                    if at < end {
                        model[at..end].fill(0);
                    }
                    blocks.punch(offset, len);
                }
                5 => {
                    grow(&mut model, offset + len);
                    let missing = blocks.missing(offset, len);
                    let before = blocks.allocated();
                    blocks.allocate(offset, len);
                    assert_eq!(blocks.allocated(), before + missing, "seed {seed}");
                    assert_eq!(blocks.missing(offset, len), 0, "seed {seed}");
                }
                _ => {
                    // `other` becomes equal to a range of this one.
                    grow(&mut other_model, offset + len);
                    let mut wanted = model.clone();
                    grow(&mut wanted, offset + len);
                    other_model[at..end].copy_from_slice(&wanted[at..end]);
                    other.share(&blocks, offset, len);
                }
            }
            for (blocks, model) in [(&blocks, &model), (&other, &other_model)] {
                let mut got = vec![1; model.len()];
                blocks.read(&mut got, 0);
                assert_eq!(blocks.len(), model.len() as u64, "seed {seed}");
                assert!(got == *model, "seed {seed}");
            }
        }
        let mut copy = Blocks::default();
        copy.write(&model, 0);
        assert_eq!(copy.hash(1), blocks.hash(1), "seed {seed}");
    }
}

#[test]
fn space_is_counted() {
    let mut blocks = Blocks::default();
    blocks.set_len(1 << 30);
    assert_eq!(blocks.allocated(), 0);
    blocks.write(b"x", 1 << 20);
    blocks.allocate(0, 4 * BLOCK as u64);
    assert_eq!(blocks.allocated(), 5);
    blocks.punch(1, 3 * BLOCK as u64);
    assert_eq!(blocks.allocated(), 3, "only whole blocks are given back");
    blocks.set_len(BLOCK as u64 + 1);
    assert_eq!(blocks.allocated(), 1);
}
