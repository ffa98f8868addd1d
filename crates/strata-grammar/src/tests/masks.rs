use super::answers::schemas;
use super::*;
use crate::{Choice, Tools};
use strata_text::CallFormat;

fn specs() -> Vec<Spec> {
    let tools = |format, choice| {
        let tools = Tools { format, tools: super::calls::tools(), choice, parallel: true };
        spec(Body::Tools(tools))
    };
    let mut specs: Vec<Spec> = schemas().into_iter().map(|s| spec(Body::JsonSchema(s))).collect();
    specs.push(Spec { body: Body::JsonObject, after_thinking: true });
    specs.extend([CallFormat::Json, CallFormat::Xml].map(|f| tools(f, Choice::Required)));
    specs.extend([CallFormat::Json, CallFormat::Xml].map(|f| tools(f, Choice::Auto)));
    specs
}

/// A token is allowed if and only if the parser takes it, tried one by one.
#[test]
fn masks_are_what_the_parser_takes() {
    let mut compared = 0;
    for (s, spec) in specs().iter().enumerate() {
        let mut phases = GRAMMARS.phases(spec).unwrap();
        let mut random = Random(s as u64 + 1);
        for step in 0..40 {
            let mask = phases.mask().unwrap();
            assert!(mask.as_ref().is_none_or(|m| m.len() == TOKENIZER.vocab_size().div_ceil(32)));
            if step % 4 == 0
                && let Some(matcher) = phases.matcher()
            {
                for token in 0..TOKENIZER.vocab_size() as u32 {
                    let taken = match TOKENIZER.stop_ids().contains(&token) {
                        true => matcher.is_accepting().unwrap(),
                        false => matcher.validate_tokens(&[token]).unwrap() == 1,
                    };
                    assert_eq!(
                        taken,
                        is_set(mask.as_deref(), token),
                        "token {token} {:?} at {step} of {spec:?}",
                        TOKENIZER.token_str(token)
                    );
                    compared += usize::from(taken);
                }
            }
            let allowed = list(mask.as_deref());
            if phases.accept(allowed[random.below(allowed.len())]).unwrap() {
                break;
            }
        }
    }
    assert!(compared > 50_000, "{compared}");
}

/// The same masks whether they are computed ahead or not, whatever the drafts are.
#[test]
fn drafts_change_no_mask() {
    let mut hits = 0;
    for (s, spec) in specs().iter().enumerate() {
        for seed in 1..=3 {
            // What is drawn without drafts, and the masks on the way.
            let mut plain = compile(spec);
            let mut random = Random(seed * 101 + s as u64);
            let (mut ids, mut masks, mut sampler) = (Vec::new(), Vec::new(), Sampler::default());
            for _ in 0..80 {
                masks.push(plain.allowed().unwrap().map(<[u32]>::to_vec));
                let token = sampler.one(&mut *plain, &mut random);
                ids.push(token);
                if plain.accept(token).unwrap() {
                    break;
                }
            }
            let mut ahead = compile(spec);
            let mut at = 0;
            while at < ids.len() {
                // Right drafts, then one that is wrong or not even allowed.
                let right = random.below(4);
                let mut drafts: Vec<u32> = ids[at..].iter().copied().take(right).collect();
                drafts.extend((0..random.below(3)).map(|_| random.below(4096) as u32));
                ahead.ahead(&drafts);
                if random.below(8) == 0 {
                    ahead.ahead(&drafts);
                }
                let accepted = (at + 1 + random.below(right + 1)).min(ids.len());
                for i in at..accepted {
                    assert_eq!(ahead.allowed().unwrap(), masks[i].as_deref(), "token {i} of {spec:?}");
                    let complete = ahead.accept(ids[i]).unwrap();
                    assert!(!complete || i + 1 == ids.len());
                    hits += usize::from(i > at);
                }
                at = accepted;
            }
        }
    }
    assert!(hits > 500, "{hits}");
}

#[test]
fn a_dropped_constraint_leaves_nothing_behind() {
    let grammars = Grammars::new(&TOKENIZER, 1).unwrap();
    for _ in 0..20 {
        let mut constraint = grammars.compile(&spec(Body::JsonObject)).unwrap();
        constraint.ahead(&[id("{"), id("}")]);
    }
    let mut kept = grammars.compile(&spec(Body::JsonObject)).unwrap();
    drop(grammars);
    kept.ahead(&[id("{")]);
    assert!(is_set(kept.allowed().unwrap(), id("{")));
}
