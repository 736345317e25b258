//! Tests of nodes: random changes against a map, splits, images, damage.

#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Model = BTreeMap<Vec<u8>, (u8, Vec<u8>)>;

const LOW: &[u8] = b"tab1";
const HIGH: &[u8] = b"tab3";

#[derive(Clone, Debug)]
enum Change {
    Put(Vec<u8>, u8, usize),
    Remove(Vec<u8>),
    Split(usize),
    Compact,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    (b'1'..b'3', proptest::collection::vec(0..4u8, 0..6)).prop_map(|(first, rest)| {
        let mut key = b"tab".to_vec();
        key.push(first);
        key.extend(rest);
        key
    })
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (key(), 0..4u8, 0..60usize).prop_map(|(k, f, n)| Change::Put(k, f, n)),
        3 => key().prop_map(Change::Remove),
        1 => any::<usize>().prop_map(Change::Split),
        1 => Just(Change::Compact),
    ]
}

fn cell(flags: u8, row: &[u8]) -> LeafCell<'_> {
    let stamp = if flags & STAMPED != 0 {
        Stamp { txn: TxnId(77), undo_no: UndoNo(5) }
    } else {
        Stamp::default()
    };
    LeafCell { flags, stamp, row }
}

fn agrees(bytes: &[u8], model: &Model) {
    let node = Node::parse(bytes).unwrap();
    node.check().unwrap();
    assert_eq!(node.count(), model.len());
    for (i, (key, (flags, row))) in model.iter().enumerate() {
        assert_eq!(&node.key(i), key);
        assert_eq!(node.leaf_cell(i).unwrap(), cell(*flags, row));
        assert_eq!(node.lower_bound(key), (i, true));
        assert_eq!(node.lower_bound_append(key), (i, true));
    }
}

fn put(bytes: &mut [u8], model: &mut Model, key: Vec<u8>, flags: u8, row: Vec<u8>) {
    let mut node = NodeMut::parse(bytes).unwrap();
    let (i, found) = node.node().lower_bound(&key);
    let free = node.node().free_bytes();
    let cell = cell(flags, &row);
    let need = cell.cell_bytes(key.len() - node.node().prefix().len());
    let (done, fits) = if found {
        let old = node.node().cell_len(i);
        (node.replace_leaf(i, &key, &cell), need <= old + free)
    } else {
        (node.insert_leaf(i, &key, &cell), need + SLOT_BYTES <= free)
    };
    assert_eq!(done, fits);
    if done {
        model.insert(key, (flags, row));
    }
}

fn split(bytes: &mut [u8], model: &mut Model, at: usize) {
    if model.len() < 2 {
        return;
    }
    let keep = 1 + at % (model.len() - 1);
    let (left, right) = (model.keys().nth(keep - 1).unwrap(), model.keys().nth(keep).unwrap());
    let sep = separator(left, right).to_vec();
    let old = bytes.to_vec();
    let old = Node::parse(&old).unwrap();
    let mut page = vec![0xee; bytes.len()];
    let mut other = NodeMut::format(&mut page, 0, &sep, old.high()).unwrap();
    other.append_from(&old, keep..old.count()).unwrap();
    let right: Model = model.split_off(&sep);
    agrees(&page, &right);
    let mut node = NodeMut::parse(bytes).unwrap();
    node.truncate(keep, Some(&sep)).unwrap();
    agrees(bytes, model);
    // The two halves are joined again through an image.
    let left = bytes.to_vec();
    let mut whole = NodeMut::format(bytes, 0, LOW, Some(HIGH)).unwrap();
    whole.append_from(&Node::parse(&left).unwrap(), 0..keep).unwrap();
    whole.append_from(&Node::parse(&page).unwrap(), 0..right.len()).unwrap();
    let (slots, cells) = whole.image();
    let image = [slots, cells].concat();
    bytes.fill(0x55);
    NodeMut::from_image(bytes, &image).unwrap();
    model.extend(right);
}

/// Searches among keys that are spread evenly, clustered, or extremely uneven.
#[test]
fn a_key_is_found_however_keys_are_spread() {
    let spreads: [fn(u64) -> u64; 6] = [
        |i| i,
        |i| i * 1000,
        |i| i * i * i,
        |i| (i / 7) << 40 | i,
        |i| if i < 40 { i } else { u64::MAX - 100 + i },
        |i| 1 << (i % 60),
    ];
    for spread in spreads {
        let keys: std::collections::BTreeSet<u64> = (0..60).map(spread).collect();
        let mut page = vec![0; 4096];
        let mut node = NodeMut::format(&mut page, 0, b"", None).unwrap();
        for (i, key) in keys.iter().enumerate() {
            assert!(node.insert_leaf(i, &key.to_be_bytes(), &cell(0, b"row")));
        }
        for key in keys.iter().flat_map(|k| [k.saturating_sub(1), *k, k.saturating_add(1)]) {
            let expected = (keys.range(..key).count(), keys.contains(&key));
            assert_eq!(node.node().lower_bound(&key.to_be_bytes()), expected, "{key}");
        }
        let above = keys.last().unwrap().checked_add(1).map(u64::to_be_bytes);
        assert!(above.is_none_or(|key| node.node().lower_bound(&key) == (keys.len(), false)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 6 / 5))]
    #[test]
    fn agrees_with_a_map(changes in proptest::collection::vec(change(), 1..120)) {
        let mut page = vec![0xaa; 1000];
        NodeMut::format(&mut page, 0, LOW, Some(HIGH)).unwrap();
        let mut model = Model::new();
        for change in changes {
            match change {
                Change::Put(key, flags, len) => {
                    put(&mut page, &mut model, key, flags, vec![flags; len]);
                }
                Change::Remove(key) => {
                    let mut node = NodeMut::parse(&mut page).unwrap();
                    let (i, found) = node.node().lower_bound(&key);
                    prop_assert_eq!(found, model.remove(&key).is_some());
                    if found {
                        node.remove(i);
                    }
                }
                Change::Split(at) => split(&mut page, &mut model, at),
                Change::Compact => {
                    let old = page.clone();
                    let mut node = NodeMut::parse(&mut page).unwrap();
                    node.compact(&old, |_, c| {
                        (c.flags & DELETED == 0).then_some(cell(c.flags & !STAMPED, c.row))
                    }).unwrap();
                    model.retain(|_, (flags, _)| *flags & DELETED == 0);
                    model.values_mut().for_each(|(flags, _)| *flags &= !STAMPED);
                }
            }
            agrees(&page, &model);
        }
    }

    #[test]
    fn damage_never_panics(
        flips in proptest::collection::vec((0..300usize, any::<u8>()), 1..20),
        level in 0..2u8,
    ) {
        let mut page = vec![0; 300];
        let mut node = NodeMut::format(&mut page, level, LOW, Some(HIGH)).unwrap();
        for i in 0..8u8 {
            let key = if i == 0 { LOW.to_vec() } else { [b"tab2".as_slice(), &[i]].concat() };
            if level == 0 {
                assert!(node.insert_leaf(i.into(), &key, &cell(i & 3, b"row")));
            } else {
                let child = InnerCell { child: PageNo(9), dead_since: (i == 3).then_some(Lsn(4)) };
                assert!(node.insert_inner(i.into(), &key, &child));
            }
        }
        node.node().check().unwrap();
        for (at, byte) in flips {
            page[at] = byte;
        }
        for key in [b"".as_slice(), b"tab1", b"tab2\x05zz", b"tab3"] {
            let Ok(node) = Node::parse(&page) else { return Ok(()) };
            let _ = (node.check(), node.lower_bound(key), node.child_slot(key), node.used_bytes());
            let _ = (node.lower_bound_append(key), node.packed_bytes(0..node.count(), 3));
            for i in 0..node.count() + 1 {
                let _ = (node.leaf_cell(i), node.inner_cell(i), node.key(i));
            }
            let image = page.clone();
            let _ = NodeMut::from_image(&mut page.clone(), &image);
            let Ok(mut node) = NodeMut::parse(&mut page) else { return Ok(()) };
            let _ = node.insert_leaf(1, key, &cell(2, b"another row"));
            let _ = node.replace_leaf(2, key, &cell(1, &[7; 40]));
            let _ = node.replace_inner(3, &InnerCell { child: PageNo(1), dead_since: None });
            let _ = node.truncate(5, Some(b"tab25"));
            let _ = node.set_fences(b"tab0", None);
            node.remove(4);
            let _ = node.image();
        }
    }
}

#[test]
fn inner_children_partition_the_range() {
    let mut page = vec![0; 500];
    let mut node = NodeMut::format(&mut page, 1, b"b", None).unwrap();
    for (i, key) in [b"b".as_slice(), b"d", b"da", b"x"].iter().enumerate() {
        let child = InnerCell { child: PageNo(i as u64), dead_since: None };
        assert!(node.insert_inner(i, key, &child));
    }
    assert!(node.replace_inner(2, &InnerCell { child: PageNo(2), dead_since: Some(Lsn(7)) }));
    let node = node.node();
    node.check().unwrap();
    let slots = |key: &[u8]| (node.child_slot(key), node.child_slot_before(key));
    assert_eq!(slots(b"b"), (0, 0));
    assert_eq!(slots(b"c"), (0, 0));
    assert_eq!(slots(b"d"), (1, 0));
    assert_eq!(slots(b"d\0"), (1, 1));
    assert_eq!(slots(b"da"), (2, 1));
    assert_eq!(slots(b"zz"), (3, 3));
    assert_eq!(node.inner_cell(2).unwrap().dead_since, Some(Lsn(7)));
    assert!(node.covers(b"zz") && !node.covers(b"a") && !node.covers_before(b"b"));
}

proptest! {
    #[test]
    fn keys_compare_like_slices(
        a in proptest::collection::vec(0..3u8, 0..20),
        b in proptest::collection::vec(0..3u8, 0..20),
        cut in 0..20usize,
    ) {
        let c = [&a[..cut.min(a.len())], &b].concat();
        for (a, b) in [(&a, &b), (&a, &c), (&c, &a), (&a, &a)] {
            prop_assert_eq!(compare(a, b), a.cmp(b));
            prop_assert_eq!(strip_prefix(a, b), a.strip_prefix(b.as_slice()));
        }
    }
}

#[test]
fn separators_are_short() {
    assert_eq!(separator(b"abc", b"abd"), b"abd");
    assert_eq!(separator(b"abc", b"b"), b"b");
    assert_eq!(separator(b"a", b"abcde"), b"ab");
    assert_eq!(separator(b"", b"xyz"), b"x");
}

#[test]
fn the_node_layout_is_frozen() {
    let mut page = vec![0; 64];
    let mut node = NodeMut::format(&mut page, 0, b"k", Some(b"m")).unwrap();
    assert!(node.insert_leaf(0, b"kx", &cell(STAMPED, b"R")));
    #[rustfmt::skip]
    let expected = [
        1, 0, 0, 0, 1, 0, 0, 0, 44, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0,
        0, 0, b'x', b'k', 44, 0, 18, 0,
    ];
    assert_eq!(page[..28], expected);
    #[rustfmt::skip]
    let expected = [
        2, 2, 0, 77, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, b'k', b'x', b'R', b'k', b'm',
    ];
    assert_eq!(page[44..], expected);
}

#[test]
fn a_fence_that_keeps_the_prefix_moves_the_cells_and_changes_nothing_else() {
    let mut page = vec![0xaa; 400];
    let mut node = NodeMut::format(&mut page, 0, b"key10", None).unwrap();
    node.set_prefix(3).unwrap();
    for (i, key) in [b"key11".as_slice(), b"key12", b"key13"].into_iter().enumerate() {
        assert!(node.insert_leaf(i, key, &cell(i as u8 & DELETED, b"a row")));
    }
    node.mark_dead(true);
    node.remove(0);
    let all = |bytes: &[u8]| -> Vec<(Vec<u8>, u8, Vec<u8>)> {
        let node = Node::parse(bytes).unwrap();
        node.check().unwrap();
        let of = |i| {
            let cell = node.leaf_cell(i).unwrap();
            (node.key(i), cell.flags, cell.row.to_vec())
        };
        (0..node.count()).map(of).collect()
    };
    let (before, old) = (all(&page), page.clone());
    // A prefix of another length: the node is rewritten.
    let mut anew = page.clone();
    NodeMut::parse(&mut anew).unwrap().truncate(9, Some(b"kez")).unwrap();
    // The same prefix: the cells are moved as they are.
    NodeMut::parse(&mut page).unwrap().truncate(2, Some(b"key2")).unwrap();
    assert_eq!((all(&anew), all(&page)), (before.clone(), before));
    let (was, anew, now) = (Node::parse(&old), Node::parse(&anew), Node::parse(&page));
    let (was, anew, now) = (was.unwrap(), anew.unwrap(), now.unwrap());
    assert_eq!((anew.high(), now.high()), (Some(b"kez".as_slice()), Some(b"key2".as_slice())));
    assert_eq!((anew.prefix(), now.prefix()), (b"ke".as_slice(), b"key".as_slice()));
    assert_eq!(now.free_bytes(), was.free_bytes() - 4);
    assert!(now.is_marked_dead() && now.dead_count() == was.dead_count());
}

#[test]
fn appending_no_cells_asks_nothing_of_the_prefix() {
    let (mut page, mut empty) = (vec![0; 4096], vec![0; 4096]);
    NodeMut::format(&mut empty, 0, b"ab1", Some(b"ab9")).unwrap();
    let mut node = NodeMut::format(&mut page, 0, b"xy1", Some(b"xy9")).unwrap();
    let from = Node::parse(&empty).unwrap();
    node.append_from(&from, 0..0).unwrap();
    assert_eq!((node.node().count(), node.node().prefix()), (0, &b"xy"[..]));
}
