//! Leaving out the oldest turns of a conversation that is too long.

use serde_json::Value;

/// Removes turns from the front, each with all that answers it, until the text is at most `capacity / found` of what it was: at
/// least one turn, never the system's and never the last of the user. False if there is none to remove.
pub(super) fn drop_oldest(messages: &mut Vec<Value>, found: usize, capacity: usize) -> bool {
    let begin = messages.iter().take_while(|m| m["role"] == "system").count();
    let turns: Vec<usize> = (begin + 1..messages.len()).filter(|i| messages[*i]["role"] == "user").collect();
    let sizes: Vec<usize> = messages.iter().map(|m| m.to_string().len()).collect();
    let mut left = sizes.iter().sum::<usize>();
    let wanted = (left as u128 * capacity as u128 / found.max(1) as u128) as usize;
    let mut begun = begin;
    let enough = turns.iter().find(|end| {
        left -= sizes[begun..**end].iter().sum::<usize>();
        begun = **end;
        left <= wanted
    });
    match enough.or(turns.last()) {
        Some(end) => {
            messages.drain(begin..*end);
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn contents(messages: &[Value]) -> String {
        messages.iter().map(|m| m["content"].as_str().unwrap()).collect()
    }

    #[test]
    fn the_oldest_turns_go_and_the_systems_and_the_last_stay() {
        let m = |role: &str, content: &str| json!({"role": role, "content": content});
        let all =
            [m("system", "S"), m("user", "1"), m("assistant", "a"), m("tool", "t"), m("user", "2"), m("assistant", "b"), m("user", "3")];
        let mut messages = all.to_vec();
        assert!(drop_oldest(&mut messages, 101, 100));
        assert_eq!(contents(&messages), "S2b3");
        assert!(drop_oldest(&mut messages, 101, 100));
        assert_eq!(contents(&messages), "S3");
        assert!(!drop_oldest(&mut messages, 101, 100));
        let mut messages = all.to_vec();
        assert!(drop_oldest(&mut messages, 1000, 1));
        assert_eq!(contents(&messages), "S3");
    }
}
