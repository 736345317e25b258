//! Round trips, and decoders on mutated bytes: errors, never panics.

use super::*;
use evenkeel_base::{Generation, Lsn, Stamp, TxnId, UndoNo};

const DB: DatabaseId = DatabaseId(5);

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *state >> 33
}

type Item = (Vec<u8>, usize, u8, RunVersion, Vec<u8>);

fn entries() -> Vec<Item> {
    let mut x = 5;
    let mut keys: Vec<Vec<u8>> = (0..400)
        .map(|_| {
            let mut key = (random(&mut x) % 300).to_be_bytes().to_vec();
            key.extend_from_slice(&random(&mut x).to_be_bytes()[4..]);
            key
        })
        .collect();
    keys.sort();
    let entry = |(i, key): (usize, Vec<u8>)| {
        let version = match i % 5 {
            0 => RunVersion::Committed(Lsn::ZERO),
            1 => RunVersion::Pending(Stamp { txn: TxnId(i as u64), undo_no: UndoNo(7) }),
            _ => RunVersion::Committed(Lsn(1000 + i as u64)),
        };
        (key, 1 + i % 4, 1 + (i % 2) as u8, version, vec![i as u8; i % 3])
    };
    keys.into_iter().enumerate().map(entry).collect()
}

fn block() -> Vec<u8> {
    let mut builder = BlockBuilder::new(Lsn(1000));
    for (key, pk_len, op, version, value) in entries() {
        builder.push(&key, pk_len, op, version, &value);
    }
    builder.finish().to_vec()
}

fn read_all(block: &DataBlock) -> Result<Vec<Item>> {
    let (mut at, mut key, mut pk_len) = (block.start(), Vec::new(), 0);
    let mut all = Vec::new();
    while at < block.end() {
        let e = block.decode(at, &mut key, pk_len)?;
        (at, pk_len) = (e.next, e.pk_len);
        let value = block.value(&e).to_vec();
        all.push((key.clone(), e.pk_len as usize, e.op, e.version, value));
    }
    Ok(all)
}

#[test]
fn block_round_trip_and_search() {
    let block = DataBlock::parse(block()).expect("parses");
    let all = entries();
    assert_eq!(read_all(&block).expect("decodes"), all);
    for (key, ..) in &all {
        let restart = block.restart_before(key).expect("decodes");
        assert!(restart == 0 || block.restart_key(restart).expect("key") < &key[..]);
        if restart + 1 < block.restarts() {
            assert!(block.restart_key(restart + 1).expect("key") >= &key[..]);
        }
    }
}

#[test]
fn entries_below_a_key_are_counted() {
    let block = DataBlock::parse(block()).expect("parses");
    let all = entries();
    let below = |key: &[u8]| all.partition_point(|(of, ..)| &of[..] < key) as u64;
    for (key, ..) in &all {
        // A key, a key behind it, and one before it that no entry has.
        let behind = [&key[..], &[0]].concat();
        let before = &key[..key.len() - 1];
        for at in [&key[..], &behind[..], before] {
            assert_eq!(block.entries_below(Some(at)).expect("decodes"), below(at));
        }
    }
    assert_eq!(block.entries_below(Some(&[])).expect("decodes"), 0);
    assert_eq!(block.entries_below(Some(&[0xff; 20])).expect("decodes"), all.len() as u64);
    assert_eq!(block.entries_below(None).expect("decodes"), all.len() as u64);
}

#[test]
fn fences_filter_footer_manifest_round_trip() {
    let mut fences = FencesBuilder::default();
    fences.push(None, b"aaa", 10);
    fences.push(Some(b"abc"), b"abd1", 20);
    fences.push(Some(b"b"), b"b", 30);
    let fences = Fences::decode(&fences.finish(), 100, 60).expect("decodes");
    assert_eq!((fences.key(0), fences.key(1), fences.key(2)), (&b""[..], &b"abd"[..], &b"b"[..]));
    assert_eq!((fences.place(0), fences.place(2)), ((100, 10), (130, 30)));
    assert_eq!(
        (fences.block_of(b"abc"), fences.block_of(b"abd"), fences.block_of(b"abd0")),
        (0, 0, 1)
    );
    assert_eq!((fences.block_of(b"b"), fences.block_of(b"c")), (1, 2));

    let mut builder = FilterBuilder::default();
    (0..10_000u32).for_each(|i| builder.push(&i.to_be_bytes()));
    let filter = Filter::decode(builder.finish().into()).expect("decodes");
    assert!((0..10_000u32).all(|i| filter.may_contain(hash_key(&i.to_be_bytes()))));
    let wrong = (10_000..110_000u32).filter(|i| filter.may_contain(hash_key(&i.to_be_bytes())));
    let wrong = wrong.count();
    assert!(wrong < 3000, "{wrong} of 100,000 absent keys pass");

    let slice = SliceInfo {
        index: IndexId(4),
        run: 9,
        age_low: Generation(3),
        age_high: Generation(5),
        position: 8192,
        data_len: 1 << 33,
        blocks: 7,
        fences_len: 500,
        min_key: b"a".to_vec(),
        max_key: b"z".to_vec(),
        pending: vec![TxnId(1), TxnId(1 << 40)],
        ..SliceInfo::default()
    };
    let slices = vec![slice.clone(), SliceInfo { index: IndexId(u32::MAX), ..slice }];
    let raw = encode_footer(&slices);
    assert_eq!(decode_footer(&raw).expect("decodes"), slices);
    let packed = PackedFooter::parse(raw.clone().into()).expect("decodes");
    for slice in &slices {
        assert_eq!(packed.slice(slice.index).expect("decodes").as_ref(), Some(slice));
    }
    assert_eq!(packed.slice(IndexId(u32::MAX - 1)).expect("decodes"), None);
    assert!(PackedFooter::parse(raw[..raw.len() - 1].into()).is_err());
    let trailer = Trailer { file: 8, footer_position: 4096, footer_len: 77 };
    assert_eq!(Trailer::decode(&trailer.encode(DB), 8, DB).expect("decodes"), trailer);
    assert!(Trailer::decode(&trailer.encode(DB), 9, DB).is_err());
    let ops = [
        ManifestOp::AddFile(300),
        ManifestOp::RemoveFile(2),
        ManifestOp::RemoveRun(IndexId(1), 9),
        ManifestOp::Flushed(Generation(4)),
        ManifestOp::DropIndex(IndexId(6)),
        ManifestOp::NextFile(301),
        place(),
        ManifestOp::Trim(IndexId(1), 9, b"low".to_vec()),
        ManifestOp::Trim(IndexId(1), 8, Vec::new()),
    ];
    assert_eq!(decode_manifest(&encode_manifest(&ops)).expect("decodes"), ops);
}

fn place() -> ManifestOp {
    let (age_low, age_high) = (Generation(3), Generation(700));
    ManifestOp::Place { index: IndexId(1), file: 300, run: 302, age_low, age_high }
}

#[test]
fn envelopes_are_bound_to_their_place() {
    let id = EnvelopeId {
        database: DB,
        kind: EnvelopeKind::Data,
        file: 3,
        position: 4096,
        index: IndexId(2),
        number: 1,
    };
    let envelope = Envelope { is_lz4: false, has_pending: true, raw_len: 5, stored: b"bytes" };
    let mut bytes = seal(id, &envelope).to_vec();
    bytes.extend_from_slice(b"bytes and what follows");
    assert_eq!(open(id, &bytes).expect("opens"), envelope);
    for wrong in [
        EnvelopeId { file: 4, ..id },
        EnvelopeId { position: 0, ..id },
        EnvelopeId { index: IndexId(1), ..id },
        EnvelopeId { number: 0, ..id },
        EnvelopeId { kind: EnvelopeKind::Fences, ..id },
    ] {
        assert!(open(wrong, &bytes).is_err());
    }
    for bit in 0..37 * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(open(id, &flipped).is_err(), "bit {bit}");
    }
}

#[test]
fn mutated_bytes_never_panic() {
    let mut fences = FencesBuilder::default();
    (0..50u32).for_each(|i| fences.push(None, &i.to_be_bytes(), 100));
    let mut filter = FilterBuilder::default();
    filter.push(b"x");
    let slice = SliceInfo { blocks: 1, pending: vec![TxnId(3)], ..SliceInfo::default() };
    let good = [
        block(),
        fences.finish(),
        filter.finish(),
        encode_footer(&[slice]),
        encode_manifest(&[ManifestOp::RemoveRun(IndexId(1), 9)]),
        encode_manifest(&[place(), ManifestOp::Trim(IndexId(1), 9, b"low".to_vec())]),
        Trailer { file: 8, footer_position: 4096, footer_len: 77 }.encode(DB).to_vec(),
    ];
    let mut x = 99;
    for round in 0..60_000 {
        let mut bytes = good[round % good.len()].clone();
        for _ in 0..1 + random(&mut x) % 3 {
            let at = (random(&mut x) as usize) % bytes.len();
            bytes[at] = random(&mut x) as u8;
        }
        if round % 7 == 0 {
            bytes.truncate(random(&mut x) as usize % (bytes.len() + 1));
        }
        match round % good.len() {
            0 => {
                if let Ok(block) = DataBlock::parse(bytes) {
                    let _ = read_all(&block);
                    let _ = block.restart_before(b"key");
                    let _ = (block.entries_below(Some(b"key")), block.entries_below(None));
                }
            }
            1 => drop(Fences::decode(&bytes, 0, 5000)),
            2 => {
                if let Ok(filter) = Filter::decode(bytes.into()) {
                    filter.may_contain(random(&mut x));
                }
            }
            3 => drop(decode_footer(&bytes)),
            4 => drop(decode_manifest(&bytes)),
            _ => drop(Trailer::decode(&bytes, 8, DB)),
        }
    }
}
