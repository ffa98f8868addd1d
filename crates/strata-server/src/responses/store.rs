//! Responses that are kept, in memory and within bounds: the ones not used for longest go first.

use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Responses kept at most.
pub const MOST_RESPONSES: usize = 4096;
/// Bytes of JSON kept at most, items shared by several responses counted once.
pub const MOST_BYTES: usize = 64 << 20;

/// One thing that was said: JSON text with its id. Responses that follow each other share theirs.
#[derive(Debug)]
pub(super) struct Item {
    pub id: String,
    pub json: Charged,
}

/// A text that counts in its store for as long as it lives, also where it outlives its response.
#[derive(Debug)]
pub(super) struct Charged {
    text: Box<str>,
    bytes: usize,
    live: Arc<AtomicUsize>,
}

/// A response with all that was said up to its end.
#[derive(Debug)]
struct Kept {
    response: Charged,
    /// Items of the responses before, those of its input, those of its output.
    items: Vec<Arc<Item>>,
    input: Range<usize>,
    /// When it was last used.
    used: u64,
}

/// The kept responses of a server.
#[derive(Debug)]
pub(super) struct Store {
    most: usize,
    most_bytes: usize,
    live: Arc<AtomicUsize>,
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    kept: HashMap<String, Kept>,
    /// Ids by their last use.
    order: BTreeMap<u64, String>,
    clock: u64,
}

impl std::ops::Deref for Charged {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        self.live.fetch_sub(self.bytes, Relaxed);
    }
}

impl Store {
    pub fn new(most: usize, most_bytes: usize) -> Store {
        Store { most, most_bytes, live: Arc::default(), all: Mutex::default() }
    }

    /// An item with the id in its JSON.
    pub fn item(&self, json: &Value) -> Arc<Item> {
        let id = json["id"].as_str().unwrap_or_default().to_owned();
        Arc::new(Item { json: self.charged(json, id.len()), id })
    }

    /// Keeps a response. `items` end with those of its input and then `output`. What does not fit is not kept.
    pub fn keep(&self, id: &str, response: &Value, mut items: Vec<Arc<Item>>, input: Range<usize>, output: &[Value]) {
        items.extend(output.iter().map(|item| self.item(item)));
        // its list and its places in the two maps
        let response = self.charged(response, 8 * items.len() + 2 * id.len());
        let mut all = self.lock();
        all.clock += 1;
        let used = all.clock;
        all.order.insert(used, id.to_owned());
        if let Some(before) = all.kept.insert(id.to_owned(), Kept { response, items, input, used }) {
            all.order.remove(&before.used);
        }
        while all.kept.len() > self.most || self.live.load(Relaxed) > self.most_bytes {
            let Some((_, oldest)) = all.order.pop_first() else { break };
            all.kept.remove(&oldest);
        }
    }

    /// A response as it was answered.
    pub fn response(&self, id: &str) -> Option<String> {
        self.used(id, |kept| kept.response.to_string())
    }

    /// All that was said up to the end of a response.
    pub fn conversation(&self, id: &str) -> Option<Vec<Arc<Item>>> {
        self.used(id, |kept| kept.items.clone())
    }

    /// What a response was asked with, without what was said before.
    pub fn input(&self, id: &str) -> Option<Vec<Arc<Item>>> {
        self.used(id, |kept| kept.items[kept.input.clone()].to_vec())
    }

    /// An item of any response.
    pub fn find(&self, item: &str) -> Option<Arc<Item>> {
        let all = self.lock();
        all.kept.values().flat_map(|kept| &kept.items).find(|i| i.id == item).cloned()
    }

    /// False if there was no such response.
    pub fn remove(&self, id: &str) -> bool {
        let mut all = self.lock();
        match all.kept.remove(id) {
            Some(kept) => all.order.remove(&kept.used).is_some(),
            None => false,
        }
    }

    fn used<T>(&self, id: &str, take: impl FnOnce(&Kept) -> T) -> Option<T> {
        let mut all = self.lock();
        let all = &mut *all;
        let kept = all.kept.get_mut(id)?;
        all.clock += 1;
        if let Some(id) = all.order.remove(&kept.used) {
            all.order.insert(all.clock, id);
        }
        kept.used = all.clock;
        Some(take(kept))
    }

    fn charged(&self, json: &Value, more: usize) -> Charged {
        let text = json.to_string().into_boxed_str();
        let bytes = text.len() + more;
        self.live.fetch_add(bytes, Relaxed);
        Charged { text, bytes, live: Arc::clone(&self.live) }
    }

    /// No code of others runs under the lock: what a panic left is whole.
    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn keep(store: &Store, id: &str, before: Option<&str>, text: &str) {
        let mut items = before.map_or(Vec::new(), |b| store.conversation(b).unwrap());
        let start = items.len();
        items.push(store.item(&json!({"id": format!("in_{id}"), "text": text})));
        store.keep(id, &json!({"id": id}), items, start..start + 1, &[json!({"id": format!("out_{id}")})]);
    }

    fn ids(items: Option<Vec<Arc<Item>>>) -> Vec<String> {
        items.unwrap().iter().map(|i| i.id.clone()).collect()
    }

    #[test]
    fn a_response_knows_what_was_said_before_also_when_that_is_gone() {
        let store = Store::new(10, 10_000);
        keep(&store, "a", None, "x");
        keep(&store, "b", Some("a"), "y");
        assert!(store.remove("a") && !store.remove("a"));
        assert_eq!(ids(store.conversation("b")), ["in_a", "out_a", "in_b", "out_b"]);
        assert_eq!(ids(store.input("b")), ["in_b"]);
        assert_eq!(store.response("b").unwrap(), "{\"id\":\"b\"}");
        assert_eq!(&*store.find("in_a").unwrap().json, "{\"id\":\"in_a\",\"text\":\"x\"}");
        assert!(store.response("a").is_none() && store.find("in_c").is_none());
        assert!(store.remove("b"));
        assert_eq!(store.live.load(Relaxed), 0);
    }

    #[test]
    fn the_one_not_used_for_longest_goes() {
        let store = Store::new(2, 10_000);
        keep(&store, "a", None, "");
        keep(&store, "b", None, "");
        assert!(store.response("a").is_some());
        keep(&store, "c", None, "");
        assert!(store.response("a").is_some() && store.response("b").is_none() && store.response("c").is_some());
    }

    #[test]
    fn bytes_are_bounded_whatever_is_kept() {
        let store = Store::new(1000, 4000);
        let mut last = None;
        for i in 0..200_usize {
            let id = i.to_string();
            let before = last.take().filter(|_| i % 7 != 0);
            let known = before.as_deref().filter(|b| store.response(b).is_some());
            keep(&store, &id, known, &"z".repeat(i * 37 % 900));
            let all = store.lock();
            let mut seen = HashMap::new();
            for kept in all.kept.values() {
                seen.extend(kept.items.iter().map(|item| (Arc::as_ptr(item), item.json.bytes)));
            }
            let sum = seen.values().sum::<usize>() + all.kept.values().map(|k| k.response.bytes).sum::<usize>();
            assert_eq!(store.live.load(Relaxed), sum);
            assert!(sum <= 4000);
            assert_eq!(all.order.len(), all.kept.len());
            last = Some(id);
        }
        keep(&store, "huge", None, &"z".repeat(5000));
        assert!(store.response("huge").is_none());
        assert_eq!(store.live.load(Relaxed), 0);
    }
}
