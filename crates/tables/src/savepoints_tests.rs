//! Savepoints against a list of them.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Change,
    Set(u8),
    RollBackTo(u8),
    Release(u8),
    RollBackStatement(u8),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let name = 0u8..6;
    let op = prop_oneof![
        Just(Op::Change),
        name.clone().prop_map(Op::Set),
        name.clone().prop_map(Op::RollBackTo),
        name.clone().prop_map(Op::Release),
        any::<u8>().prop_map(Op::RollBackStatement),
    ];
    prop::collection::vec(op, 0..60)
}

proptest! {
    #[test]
    fn savepoints_agree_with_a_list(ops in ops()) {
        let mut savepoints = Savepoints::default();
        let mut list: Vec<(u8, u32)> = Vec::new();
        let mut mark = 0;
        for op in ops {
            match op {
                Op::Change => mark += 1,
                Op::Set(name) => {
                    list.retain(|(n, _)| *n != name);
                    list.push((name, mark));
                    savepoints.set(&name.to_string(), UndoNo(mark));
                }
                Op::RollBackTo(name) => {
                    let at = list.iter().position(|(n, _)| *n == name);
                    let expected = at.map(|at| UndoNo(list[at].1));
                    at.into_iter().for_each(|at| list.truncate(at + 1));
                    let found = savepoints.roll_back_to(&name.to_string());
                    prop_assert_eq!(found.as_ref().ok(), expected.as_ref());
                    if let Ok(to) = found {
                        mark = to.0;
                    }
                }
                Op::Release(name) => {
                    let at = list.iter().position(|(n, _)| *n == name);
                    at.into_iter().for_each(|at| list.truncate(at));
                    prop_assert_eq!(savepoints.release(&name.to_string()).is_ok(), at.is_some());
                }
                Op::RollBackStatement(by) => {
                    mark = mark.saturating_sub(u32::from(by % 4));
                    list.retain(|(_, at)| *at <= mark);
                    savepoints.forget_behind(UndoNo(mark));
                }
            }
            let held: Vec<_> = savepoints.by_age.values().cloned().collect();
            let listed = list.iter().map(|(n, at)| (n.to_string(), UndoNo(*at)));
            let expected: Vec<_> = listed.collect();
            prop_assert_eq!(held, expected);
            prop_assert_eq!(savepoints.by_name.len(), list.len());
        }
    }
}
