use super::*;
use crate::checkpoint::Page;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

/// Makes checkpoints without a model: a page for every two tokens, shared by all that begin with them.
#[derive(Default)]
struct Maker {
    pages: HashMap<Vec<u32>, Arc<Page>>,
}

impl Maker {
    fn make(&mut self, tokens: &[u32]) -> Arc<Checkpoint> {
        let page =
            |n: &usize| Arc::clone(self.pages.entry(tokens[..n + 2].to_vec()).or_insert_with(|| Arc::new(Page(vec![0; 10 * n + 40]))));
        let ends: Vec<usize> = (0..tokens.len() - tokens.len() % 2).step_by(2).collect();
        let pages = ends.iter().map(page).collect();
        Arc::new(Checkpoint { tokens: tokens.to_vec(), states: vec![0.0; 20], pages, mtp: None })
    }
}

/// The same cache as a list, which is looked through.
struct Naive {
    /// Checkpoint, pinned, when it was used last.
    entries: Vec<(Arc<Checkpoint>, bool, u64)>,
    uses: u64,
    budget: u64,
}

impl Naive {
    fn bytes(&self) -> u64 {
        let pages: HashMap<_, _> = self.entries.iter().flat_map(|e| e.0.all_pages()).map(|p| (Arc::as_ptr(p), p.0.len() as u64)).collect();
        self.entries.iter().map(|e| e.0.own_bytes()).sum::<u64>() + pages.values().sum::<u64>()
    }

    fn touch(&mut self, i: usize, pin: bool) {
        self.uses += 1;
        let e = &mut self.entries[i];
        (e.1, e.2) = (e.1 || pin, self.uses);
        loop {
            let pinned = self.entries.iter().filter(|e| e.1).map(|e| e.0.bytes()).sum::<u64>();
            if pinned <= self.budget / 2 {
                return;
            }
            self.entries.iter_mut().filter(|e| e.1).min_by_key(|e| e.2).unwrap().1 = false;
        }
    }

    fn lookup(&mut self, tokens: &[u32]) -> Option<Vec<u32>> {
        let proper = |e: &(Arc<Checkpoint>, bool, u64)| e.0.tokens().len() < tokens.len() && tokens.starts_with(e.0.tokens());
        let i = (0..self.entries.len()).filter(|i| proper(&self.entries[*i])).max_by_key(|i| self.entries[*i].0.tokens().len())?;
        self.touch(i, false);
        Some(self.entries[i].0.tokens().to_vec())
    }

    fn insert(&mut self, c: Arc<Checkpoint>, pinned: bool) -> bool {
        if c.tokens().is_empty() || c.bytes() > self.budget {
            return false;
        }
        if let Some(i) = self.entries.iter().position(|e| e.0.tokens() == c.tokens()) {
            self.touch(i, pinned);
            return false;
        }
        self.uses += 1;
        self.entries.push((c, false, self.uses));
        let new = self.uses;
        while self.bytes() > self.budget {
            let others = (0..self.entries.len()).filter(|i| self.entries[*i].2 != new);
            let i = others.min_by_key(|i| (self.entries[*i].1, self.entries[*i].2)).unwrap();
            self.entries.swap_remove(i);
        }
        if pinned {
            self.touch(self.entries.iter().position(|e| e.2 == new).unwrap(), true);
        }
        true
    }
}

#[derive(Clone, Debug)]
enum Act {
    Lookup(Vec<u32>),
    Insert(Vec<u32>, bool),
    Renew(Vec<u32>),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    // few tokens, so that sequences meet and part everywhere
    let tokens = || proptest::collection::vec(0u32..3, 0..12);
    let act = prop_oneof![
        3 => tokens().prop_map(Act::Lookup),
        4 => (tokens(), proptest::bool::weighted(0.2)).prop_map(|(t, p)| Act::Insert(t, p)),
        1 => tokens().prop_map(Act::Renew),
    ];
    proptest::collection::vec(act, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_tree_is_the_list(budget in 200u64..4000, acts in acts()) {
        let mut maker = Maker::default();
        let (mut cache, mut naive) = (PrefixCache::new(budget), Naive { entries: Vec::new(), uses: 0, budget });
        for act in acts {
            match act {
                Act::Lookup(t) => {
                    prop_assert_eq!(cache.longest(&t), cache.tree.longest(&t, t.len().saturating_sub(1)).map_or(0, |id| cache.tree.get(id).unwrap().checkpoint.tokens().len()));
                    prop_assert_eq!(cache.lookup(&t).map(|c| c.tokens().to_vec()), naive.lookup(&t));
                    let most = naive.entries.iter().map(|e| crate::checkpoint::common(e.0.tokens(), &t)).max().unwrap_or(0);
                    let near = cache.nearest(&t).map_or(0, |c| crate::checkpoint::common(c.tokens(), &t));
                    prop_assert_eq!(near, most);
                }
                Act::Insert(t, pinned) => {
                    let c = maker.make(&t);
                    prop_assert_eq!(cache.insert(Arc::clone(&c), pinned), naive.insert(c, pinned));
                }
                Act::Renew(t) => {
                    let i = naive.entries.iter().position(|e| e.0.tokens() == t);
                    i.into_iter().for_each(|i| naive.touch(i, false));
                    prop_assert_eq!(cache.renew(&t, false), i.is_some());
                }
            }
            prop_assert_eq!(cache.stats().bytes, naive.bytes());
            prop_assert!(cache.stats().bytes <= budget);
            // the same entries, given up in the same order
            naive.entries.sort_by_key(|e| (e.1, e.2));
            let order: Vec<_> = cache.order.values().map(|id| cache.tree.get(*id).unwrap().checkpoint.tokens()).collect();
            prop_assert_eq!(order, naive.entries.iter().map(|e| e.0.tokens()).collect::<Vec<_>>());
            // no node more than needed: labels hold each token once
            let prefixes: HashSet<&[u32]> = naive.entries.iter().flat_map(|e| (1..=e.0.tokens().len()).map(|n| &e.0.tokens()[..n])).collect();
            prop_assert_eq!(cache.tree.tokens(), prefixes.len());
            prop_assert!(cache.tree.len() <= 2 * naive.entries.len() + 1);
        }
    }
}

#[test]
fn the_newest_turn_of_the_only_conversation_stays() {
    let mut maker = Maker::default();
    let turn = |n: u32| (0..n * 4).collect::<Vec<_>>();
    let mut cache = PrefixCache::new(maker.make(&turn(20)).bytes() + 300);
    for n in 1..=20 {
        cache.insert(maker.make(&turn(n)), n == 1);
        assert_eq!(cache.longest(&turn(n + 1)), n as usize * 4);
    }
    assert!(cache.stats().evicted > 0 && cache.tree.find(&turn(1)).is_some(), "{:?}", cache.stats());
}

#[test]
fn distances_follow_the_budget() {
    const MIB: u64 = 1 << 20;
    let full = |budget| spacing(budget, 112 * MIB, 14 * 1024, 32_768);
    assert_eq!(full(8192 * MIB), Spacing { every: Some(1024), least: 32 });
    assert_eq!(full(2048 * MIB), Spacing { every: Some(6656), least: 208 });
    assert_eq!(full(512 * MIB), Spacing { every: None, least: 256 });
    assert_eq!(full(0), Spacing { every: None, least: 256 });
    assert_eq!(spacing(u64::MAX, 0, 0, 4096).every, Some(1024));
    // a context's checkpoints fit in half of the budget, with its cells, and no smaller distance would do
    for budget in (1..200).map(|i| i * 100 * MIB) {
        for context in [4096, 32_768, 262_144] {
            let Some(every) = spacing(budget, 112 * MIB, 14 * 1024, context).every else { continue };
            let takes = |every: usize| (context / every) as u64 * 112 * MIB + context as u64 * 14 * 1024;
            assert!(takes(every) <= budget / 2 && every % 256 == 0);
            assert!(every == 1024 || (context.div_ceil(every - 256)) as u64 * 112 * MIB + context as u64 * 14 * 1024 > budget / 2);
        }
    }
}
