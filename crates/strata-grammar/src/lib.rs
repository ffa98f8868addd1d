//! Grammars over tokens, enforced while they are drawn: JSON, JSON schemas, tool calls, Lark.
//!
//! [`Grammars`] holds what depends on the vocabulary only and is built once. [`Grammars::compile`] makes the engine's
//! [`Constraint`](strata_engine::Constraint) of a [`Spec`]. The parser is the library llguidance; here are the grammars of tool calls, the
//! phases around them (reasoning, content, call), limits, and the threads that compute masks while the model runs.
//!
//! What a mask allows follows from the accepted tokens alone: with or without drafts, whoever computes it. Only whether a grammar goes
//! past its limits may depend on what was computed before, for states of its lexer are kept.

mod ahead;
mod error;
mod limits;
mod phases;
mod pool;
#[cfg(test)]
mod tests;
mod tools;
mod vocabulary;

pub use error::GrammarError;
pub use tools::{Choice, Tools};

use ahead::Ahead;
use llguidance::api::{GrammarWithLexer, ParserLimits, TopLevelGrammar};
use llguidance::{Matcher, ParserFactory};
use phases::{Phases, Then};
use pool::Pool;
use serde_json::{Value, json};
use std::sync::Arc;
use strata_engine::Constraint;
use strata_text::Tokenizer;
use vocabulary::{END_THINK, Vocabulary};

/// Compiling follows chains of references by recursion; only what is used takes memory.
const COMPILE_STACK_BYTES: usize = 512 << 20;
/// Blanks between two parts of JSON. Without a limit a model can write blanks for ever.
const MAX_BLANKS: usize = 64;

/// What an answer must be.
#[derive(Debug, Clone)]
pub struct Spec {
    pub body: Body,
    /// The prompt ends inside of reasoning: tokens are free up to `</think>`, except those that end the answer.
    pub after_thinking: bool,
}

/// The form of an answer, or of what follows its reasoning.
#[derive(Debug, Clone)]
pub enum Body {
    /// Any JSON object.
    JsonObject,
    /// JSON that fits a schema (draft 2020-12). Keys come in the schema's order. References stay inside of it.
    JsonSchema(Value),
    /// A grammar in llguidance's form of Lark; `<name>` is a control or user-defined token.
    Lark(String),
    Tools(Tools),
}

/// Everything that depends on the vocabulary only; share it.
pub struct Grammars {
    vocabulary: Arc<Vocabulary>,
    factory: ParserFactory,
    pool: Arc<Pool>,
}

impl Grammars {
    /// Builds the trie of all tokens and starts `threads` threads (at least one) for masks.
    ///
    /// # Errors
    /// The vocabulary has no end-of-text token or is too large, or a thread could not be started.
    pub fn new(tokenizer: &Tokenizer, threads: usize) -> Result<Self, GrammarError> {
        let vocabulary = Arc::new(Vocabulary::new(tokenizer)?);
        let mut factory = ParserFactory::new_simple(&vocabulary.env()).map_err(|e| GrammarError::library("vocabulary", &e))?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits { max_lexer_states: 50_000, verbose_errors: false, ..ParserLimits::default() };
        Ok(Self { vocabulary, factory, pool: Arc::new(Pool::new(threads.max(1))?) })
    }

    /// The constraint of one answer.
    ///
    /// # Errors
    /// The grammar, schema or list of tools is of the wrong form, has a part that cannot be enforced, or is past a limit.
    pub fn compile(&self, spec: &Spec) -> Result<Box<dyn Constraint>, GrammarError> {
        let phases = self.phases(spec)?;
        Ok(Box::new(Ahead::new(phases, Arc::clone(&self.pool))))
    }

    fn phases(&self, spec: &Spec) -> Result<Phases, GrammarError> {
        let newlines = spec.after_thinking;
        let then = match &spec.body {
            Body::JsonObject => Then::Grammar(self.json("response_format", json!({"type": "object"}), newlines)?),
            Body::JsonSchema(schema) => Then::Grammar(self.json("schema", schema.clone(), newlines)?),
            Body::Lark(text) => {
                limits::lark("grammar", text)?;
                let body = GrammarWithLexer { name: Some("body".into()), lark_grammar: Some(text.clone()), ..Default::default() };
                Then::Grammar(self.matcher("grammar", vec![start("@body", newlines), body])?)
            }
            Body::Tools(tools) => tools::compile(self, tools, newlines)?,
        };
        let think = if spec.after_thinking { Some(self.vocabulary.marker(END_THINK)?) } else { None };
        Ok(Phases::new(Arc::clone(&self.vocabulary), think, then))
    }

    fn json(&self, field: &str, schema: Value, newlines: bool) -> Result<Matcher, GrammarError> {
        let body = json_grammar(field, "body", schema)?;
        self.matcher(field, vec![start("@body", newlines), body])
    }

    /// Compiles grammars, of which the first is the start.
    fn matcher(&self, field: &str, grammars: Vec<GrammarWithLexer>) -> Result<Matcher, GrammarError> {
        let top = TopLevelGrammar { grammars, max_tokens: None };
        let work = || Matcher::new(self.factory.create_parser(top));
        let matcher = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("grammar".into()).stack_size(COMPILE_STACK_BYTES);
            let thread = thread.spawn_scoped(scope, work).map_err(|e| GrammarError::Thread { detail: e.to_string() })?;
            thread.join().map_err(|_| GrammarError::Invalid { field: field.to_owned(), detail: "the parser panicked".to_owned() })
        })?;
        match matcher.get_error() {
            Some(detail) => Err(GrammarError::invalid(field, &detail)),
            None => Ok(matcher),
        }
    }
}

/// The start: `body`, behind up to two newlines if reasoning comes before it.
fn start(body: &str, newlines: bool) -> GrammarWithLexer {
    let lead = if newlines { "NEWLINES? " } else { "" };
    let rest = if newlines { "\nNEWLINES: /\\n\\n?/" } else { "" };
    GrammarWithLexer { name: Some("top".into()), lark_grammar: Some(format!("start: {lead}{body}{rest}\n")), ..Default::default() }
}

/// A grammar of JSON that fits `schema`.
fn json_grammar(field: &str, name: &str, mut schema: Value) -> Result<GrammarWithLexer, GrammarError> {
    limits::schema(field, &schema)?;
    if schema == Value::Bool(true) {
        schema = json!({});
    }
    let Value::Object(map) = &mut schema else {
        return Err(GrammarError::field(field, "a schema (an object)", &schema));
    };
    // The library takes separators and more from this key of a schema: what comes from outside must not set them.
    map.insert("x-guidance".into(), json!({"whitespace_pattern": format!("[\\x20\\x0A\\x0D\\x09]{{1,{MAX_BLANKS}}}")}));
    Ok(GrammarWithLexer { name: Some(name.to_owned()), json_schema: Some(schema), ..Default::default() })
}
