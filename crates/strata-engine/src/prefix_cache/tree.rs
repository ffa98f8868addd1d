//! A radix tree over token ids: values at the ends of sequences, edges of many tokens.

use std::collections::BTreeMap;

/// Names a value, as long as it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeId(usize);

const ROOT: usize = 0;

struct Node<T> {
    /// Tokens between the parent and here; none at the root only.
    label: Vec<u32>,
    parent: usize,
    /// By the first token of their labels.
    children: BTreeMap<u32, usize>,
    value: Option<T>,
}

/// The tree. A node without a value has at least two children, but for the root.
pub(crate) struct RadixTree<T> {
    nodes: Vec<Node<T>>,
    /// Places in `nodes` that are not used.
    free: Vec<usize>,
}

impl<T> RadixTree<T> {
    pub fn new() -> RadixTree<T> {
        RadixTree { nodes: vec![Node { label: Vec::new(), parent: ROOT, children: BTreeMap::new(), value: None }], free: Vec::new() }
    }

    pub fn get(&self, id: NodeId) -> Option<&T> {
        self.nodes[id.0].value.as_ref()
    }

    pub fn get_mut(&mut self, id: NodeId) -> Option<&mut T> {
        self.nodes[id.0].value.as_mut()
    }

    /// The value of exactly these tokens.
    pub fn find(&self, tokens: &[u32]) -> Option<NodeId> {
        let (node, matched, whole) = self.walk(tokens, |_, _| {});
        (matched == tokens.len() && whole && self.nodes[node].value.is_some()).then_some(NodeId(node))
    }

    /// The value of the longest beginning of `tokens` that has at most `most` of them.
    pub fn longest(&self, tokens: &[u32], most: usize) -> Option<NodeId> {
        let mut best = None;
        self.walk(tokens, |node, depth| {
            if depth <= most && self.nodes[node].value.is_some() {
                best = Some(NodeId(node));
            }
        });
        best
    }

    /// A value whose tokens have as many first tokens in common with `tokens` as any, and at least one.
    pub fn nearest(&self, tokens: &[u32]) -> Option<NodeId> {
        let (mut node, matched, _) = self.walk(tokens, |_, _| {});
        if matched == 0 {
            return None;
        }
        // all that is below the node begins with the same tokens
        while self.nodes[node].value.is_none() {
            node = *self.nodes[node].children.values().next()?;
        }
        Some(NodeId(node))
    }

    /// Goes down along `tokens` and calls `at(node, depth)` for every node whose tokens are all among them, the root included. Gives
    /// the last node that has any of its label in common with them, the tokens matched, and whether that label is matched to its end.
    fn walk(&self, tokens: &[u32], mut at: impl FnMut(usize, usize)) -> (usize, usize, bool) {
        let (mut node, mut depth) = (ROOT, 0);
        loop {
            at(node, depth);
            let Some(child) = tokens.get(depth).and_then(|t| self.nodes[node].children.get(t)) else { return (node, depth, true) };
            let label = &self.nodes[*child].label;
            let n = label.iter().zip(&tokens[depth..]).take_while(|(a, b)| a == b).count();
            if n < label.len() {
                return (*child, depth + n, false);
            }
            (node, depth) = (*child, depth + n);
        }
    }

    /// Puts a value at the end of `tokens`; `None`, and nothing changes, if there is one.
    pub fn insert(&mut self, tokens: &[u32], value: T) -> Option<NodeId> {
        let (mut node, matched, whole) = self.walk(tokens, |_, _| {});
        if !whole {
            node = self.split(node, tokens, matched);
        }
        if matched < tokens.len() {
            let leaf = self.make(Node { label: tokens[matched..].to_vec(), parent: node, children: BTreeMap::new(), value: None });
            self.nodes[node].children.insert(tokens[matched], leaf);
            node = leaf;
        }
        if self.nodes[node].value.is_some() {
            return None;
        }
        self.nodes[node].value = Some(value);
        Some(NodeId(node))
    }

    /// Cuts the label of `node` where `tokens`, of which `matched` lead into it, part from it; the new node before it.
    fn split(&mut self, node: usize, tokens: &[u32], matched: usize) -> usize {
        let parent = self.nodes[node].parent;
        let depth = self.depth(parent);
        let rest = self.nodes[node].label.split_off(matched - depth);
        let label = std::mem::replace(&mut self.nodes[node].label, rest);
        let (first, next) = (tokens[depth], self.nodes[node].label[0]);
        let middle = self.make(Node { label, parent, children: BTreeMap::from([(next, node)]), value: None });
        self.nodes[node].parent = middle;
        self.nodes[parent].children.insert(first, middle);
        middle
    }

    fn depth(&self, mut node: usize) -> usize {
        let mut depth = 0;
        while node != ROOT {
            depth += self.nodes[node].label.len();
            node = self.nodes[node].parent;
        }
        depth
    }

    fn make(&mut self, node: Node<T>) -> usize {
        match self.free.pop() {
            Some(i) => {
                self.nodes[i] = node;
                i
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        }
    }

    /// Takes a value out.
    pub fn remove(&mut self, id: NodeId) -> Option<T> {
        let value = self.nodes[id.0].value.take();
        let mut node = id.0;
        if node != ROOT && self.nodes[node].children.is_empty() {
            let parent = self.nodes[node].parent;
            let first = self.nodes[node].label[0];
            self.nodes[parent].children.remove(&first);
            self.drop_node(node);
            node = parent;
        }
        self.join(node);
        value
    }

    /// Joins a node that says nothing with its only child, which keeps its name.
    fn join(&mut self, node: usize) {
        let n = &mut self.nodes[node];
        if node == ROOT || n.value.is_some() || n.children.len() != 1 {
            return;
        }
        let (parent, mut label) = (n.parent, std::mem::take(&mut n.label));
        let Some((_, child)) = n.children.pop_first() else { return };
        self.nodes[parent].children.insert(label[0], child);
        label.append(&mut self.nodes[child].label);
        self.nodes[child].label = label;
        self.nodes[child].parent = parent;
        self.drop_node(node);
    }

    fn drop_node(&mut self, node: usize) {
        self.nodes[node].label = Vec::new();
        self.free.push(node);
    }

    /// Nodes, the root included.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Tokens in labels.
    #[cfg(test)]
    pub fn tokens(&self) -> usize {
        self.nodes.iter().map(|n| n.label.len()).sum()
    }
}
