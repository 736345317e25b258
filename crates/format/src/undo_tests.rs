//! Round trips, and mutated bytes that must neither panic nor pass.

use super::*;
use proptest::prelude::*;

const DB: DatabaseId = DatabaseId(5);

fn record(no: u32, key: &[u8], row: Option<&[u8]>) -> Vec<u8> {
    let before = row.map(|row| Before {
        flags: cell_flags::STAMPED,
        stamp: Stamp { txn: TxnId(900), undo_no: UndoNo(3) },
        row,
    });
    let kind = if row.is_some() { RowKind::Update } else { RowKind::Insert };
    let mut out = Vec::new();
    UndoRecord { undo_no: UndoNo(no), kind, tree: TreeId(5), key, before }.encode(&mut out);
    out
}

fn frame_of(payload: &[u8]) -> (FrameId, Vec<u8>) {
    let id = FrameId {
        database: DB,
        segment: 7,
        offset: 32,
        txn: TxnId(11),
        first: UndoNo(1),
        last: UndoNo(9),
    };
    let mut bytes = frame_header(&id, payload).to_vec();
    bytes.extend_from_slice(payload);
    (id, bytes)
}

#[test]
fn finds_each_record_of_a_chunk() {
    let mut chunk = Vec::new();
    for no in [1, 2, 3, 200, 70_000] {
        chunk.extend(record(no, b"key", (no % 2 == 0).then_some(&b"row"[..])));
    }
    let all: Vec<_> = records(&chunk).map(|r| r.expect("decodes").undo_no.0).collect();
    assert_eq!(all, [1, 2, 3, 200, 70_000]);
    let found = find_record(&chunk, UndoNo(200)).expect("decodes").expect("is there");
    assert_eq!(found.before.expect("update").row, b"row");
    assert_eq!(find_record(&chunk, UndoNo(4)).expect("decodes"), None);
    assert_eq!(find_record(&chunk, UndoNo(70_001)).expect("decodes"), None);
}

#[test]
fn a_segment_header_is_bound_to_its_number() {
    let header = segment_header(12, DB);
    check_segment_header(&header, 12, DB).expect("own number");
    assert!(check_segment_header(&header, 13, DB).is_err());
    for at in 0..header.len() {
        let mut bad = header;
        bad[at] ^= 1;
        assert!(check_segment_header(&bad, 12, DB).is_err(), "byte {at}");
    }
}

#[test]
fn a_frame_is_bound_to_its_place() {
    let (id, bytes) = frame_of(&record(1, b"k", None));
    check_frame(&bytes, &id).expect("own place");
    assert!(check_frame(&bytes, &FrameId { offset: 64, ..id }).is_err());
    assert!(check_frame(&bytes, &FrameId { segment: 8, ..id }).is_err());
    assert!(check_frame(&bytes, &FrameId { txn: TxnId(12), ..id }).is_err());
    assert!(check_frame(&bytes, &FrameId { last: UndoNo(8), ..id }).is_err());
}

proptest! {
    #[test]
    fn records_round_trip(
        no in 1u32.., tree: u32, key: Vec<u8>, row: Option<Vec<u8>>, txn: u64, flags in 0u8..8
    ) {
        let before = row.as_deref().map(|row| Before {
            flags, stamp: Stamp { txn: TxnId(txn), undo_no: UndoNo(no) }, row,
        });
        let rec = UndoRecord {
            undo_no: UndoNo(no), kind: RowKind::Delete, tree: TreeId(tree), key: &key, before,
        };
        let mut bytes = Vec::new();
        rec.encode(&mut bytes);
        prop_assert!(bytes.len() <= UndoRecord::encoded_len_max(
            key.len(), row.as_ref().map_or(0, Vec::len)));
        prop_assert_eq!(find_record(&bytes, UndoNo(no)).expect("decodes"), Some(rec));
        for cut in 1..bytes.len() {
            prop_assert!(records(&bytes[..cut]).any(|r| r.is_err()));
        }
    }

    #[test]
    fn mutated_chunks_never_panic(at in 0usize..200, byte: u8, wanted in 0u32..10) {
        let mut chunk = Vec::new();
        for no in 1..9 {
            chunk.extend(record(no, b"some key", Some(b"some row")));
        }
        let at = at % chunk.len();
        chunk[at] = byte;
        let _ = records(&chunk).count();
        let _ = find_record(&chunk, UndoNo(wanted));
    }

    #[test]
    fn a_mutated_frame_is_refused(at: prop::sample::Index, bit in 0u8..8) {
        let (id, mut bytes) = frame_of(&record(1, b"key", Some(b"row")));
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(check_frame(&bytes, &id).is_err());
    }

    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>) {
        let _ = records(&bytes).count();
        let (id, _) = frame_of(b"");
        let _ = check_frame(&bytes, &id);
        let _ = check_segment_header(&bytes, 1, DB);
    }
}
