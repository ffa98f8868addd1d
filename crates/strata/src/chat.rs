//! `strata chat`: a conversation on the terminal, or line by line through a pipe.

use crate::cli::ChatArgs;
use crate::error::CliError;
use crate::generate::{Answer, Finish, Limits, Watch, generate};
use crate::load::Loaded;
use crate::{memory, output, progress, prompt};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use serde_json::{Value, json};
use signal_hook::consts::SIGINT;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strata_cpu::backend::Cpu;
use strata_engine::sampler::SamplingParams;
use strata_engine::{Engine, EngineError};
use strata_text::ChatTemplate;
use strata_tiers::Tiers;

/// The context without `--ctx`, where the model has that much.
pub const CONTEXT: usize = 32_768;
/// Bytes of one line of input.
const MAX_LINE: u64 = 4 << 20;
/// What ends the thinking of models that do.
const END_OF_THINKING: &str = "</think>";

const HELP: &str = "\
/think [on|off]  let the model think before it answers, or not
/reset           start over
/help            this list
/exit            leave (as Ctrl-D does)
Ctrl-C stops an answer.";

/// Holds a conversation until the input ends.
///
/// # Errors
/// Bad settings or files. With a terminal, an answer that fails is reported and the conversation goes on.
pub fn run(args: ChatArgs) -> Result<ExitCode, CliError> {
    let params = args.sampling.params(None)?;
    let model = Loaded::open(&args.engine)?;
    let template = model.template("`strata run --raw` needs none")?;
    let capacity = args.engine.ctx.unwrap_or(model.config.context.min(CONTEXT));
    let stop = CtrlC::install()?;
    let (engine, tiers) = model.engine(&args.engine, capacity)?;
    let mut chat =
        Chat { model: &model, template, engine, tiers, params, capacity, messages: Vec::new(), think: args.think, args: &args, stop };
    chat.reset();
    let mut input = Input::new()?;
    if input.is_terminal() {
        output::note(&format!("{}, {capacity} tokens of context. /help lists the commands.", model.name()));
    }
    while let Some(line) = input.line()? {
        match line.trim() {
            "" => {}
            "/exit" | "/quit" => break,
            "/reset" => {
                chat.reset();
                output::note("A new conversation.");
            }
            "/help" => output::note(HELP),
            "/think" => chat.set_thinking(!chat.think),
            "/think on" => chat.set_thinking(true),
            "/think off" => chat.set_thinking(false),
            other if other.starts_with('/') => output::note(&format!("There is no command {other:?}.\n{HELP}")),
            _ => match chat.turn(&line) {
                Err(e) if input.is_terminal() => output::note(&format!("error: {}", e.line().unwrap_or_default())),
                result => result?,
            },
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The conversation so far and what it runs on.
struct Chat<'a> {
    model: &'a Loaded,
    template: ChatTemplate,
    engine: Engine<Cpu>,
    tiers: Tiers,
    params: SamplingParams,
    capacity: usize,
    messages: Vec<Value>,
    think: bool,
    args: &'a ChatArgs,
    stop: CtrlC,
}

impl Chat<'_> {
    fn reset(&mut self) {
        self.messages = self.args.system.iter().map(|s| json!({"role": "system", "content": s})).collect();
        self.engine.clear();
    }

    fn set_thinking(&mut self, on: bool) {
        self.think = on;
        output::note(&format!("Thinking is {}.", if on { "on" } else { "off" }));
    }

    /// One message and its answer. After an error the message is not part of the conversation.
    fn turn(&mut self, text: &str) -> Result<(), CliError> {
        self.messages.push(json!({"role": "user", "content": text}));
        match self.answer() {
            Ok(answer) if answer.tokens.is_empty() => {
                self.messages.pop();
            }
            Ok(answer) => self.messages.push(assistant(&answer.text)),
            Err(e) => {
                self.messages.pop();
                return Err(e);
            }
        }
        Ok(())
    }

    fn answer(&mut self) -> Result<Answer, CliError> {
        let ids = prompt::chat_ids(self.model, &self.template, self.messages.clone(), self.think)?;
        if ids.len() >= self.capacity {
            return Err(EngineError::PromptTooLong { found: ids.len(), capacity: self.capacity }.into());
        }
        let s = &self.args.sampling;
        let limits = Limits { n: s.n.unwrap_or(usize::MAX), ignore_eos: s.ignore_eos, stop: &s.stop };
        self.stop.begin();
        let mut watch = Screen { stop: &self.stop, progress: progress::Prompt::default() };
        let answer = generate(&mut self.engine, &self.model.tokenizer, &ids, &self.params, &limits, &mut watch);
        self.stop.end();
        let answer = answer?;
        output::print("\n")?;
        match answer.finish {
            Finish::Interrupted => output::note("(stopped)"),
            Finish::Context => output::note(&format!("(the context of {} tokens is full; /reset starts over)", self.capacity)),
            Finish::Length | Finish::StopString | Finish::StopToken => {}
        }
        if self.args.stats {
            output::note(&output::statistics(ids.len(), &answer));
            memory::line(&self.tiers).iter().for_each(|l| output::note(l));
        }
        Ok(answer)
    }
}

/// An answer as a message, its thinking apart.
fn assistant(text: &str) -> Value {
    match text.split_once(END_OF_THINKING) {
        Some((thinking, answer)) => json!({"role": "assistant", "reasoning_content": thinking.trim(), "content": answer.trim_start()}),
        None => json!({"role": "assistant", "content": text}),
    }
}

/// Prints an answer as it comes.
struct Screen<'a> {
    stop: &'a CtrlC,
    progress: progress::Prompt,
}

impl Watch for Screen<'_> {
    fn text(&mut self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    fn prompt(&mut self, done: usize, all: usize) {
        self.progress.update(done, all);
    }

    fn stopped(&self) -> bool {
        self.stop.pressed.load(Ordering::Relaxed)
    }
}

/// Ctrl-C ends an answer while there is one, and the program otherwise.
struct CtrlC {
    pressed: Arc<AtomicBool>,
    idle: Arc<AtomicBool>,
}

impl CtrlC {
    fn install() -> Result<CtrlC, CliError> {
        let (pressed, idle) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
        signal_hook::flag::register_conditional_default(SIGINT, Arc::clone(&idle)).map_err(CliError::Signal)?;
        signal_hook::flag::register(SIGINT, Arc::clone(&pressed)).map_err(CliError::Signal)?;
        Ok(CtrlC { pressed, idle })
    }

    fn begin(&self) {
        self.pressed.store(false, Ordering::SeqCst);
        self.idle.store(false, Ordering::SeqCst);
    }

    fn end(&self) {
        self.idle.store(true, Ordering::SeqCst);
    }
}

/// Where lines come from.
enum Input {
    Terminal(Box<DefaultEditor>),
    Pipe(io::StdinLock<'static>),
}

impl Input {
    fn new() -> Result<Input, CliError> {
        let stdin = io::stdin();
        Ok(if stdin.is_terminal() { Input::Terminal(Box::new(DefaultEditor::new()?)) } else { Input::Pipe(stdin.lock()) })
    }

    fn is_terminal(&self) -> bool {
        matches!(self, Input::Terminal(_))
    }

    /// The next line; `None` at the end.
    fn line(&mut self) -> Result<Option<String>, CliError> {
        match self {
            Input::Terminal(editor) => loop {
                match editor.readline("> ") {
                    Ok(line) => {
                        editor.add_history_entry(&line)?;
                        return Ok(Some(line));
                    }
                    Err(ReadlineError::Interrupted) => output::note("(Ctrl-D or /exit leaves)"),
                    Err(ReadlineError::Eof) => return Ok(None),
                    Err(e) => return Err(e.into()),
                }
            },
            Input::Pipe(stdin) => {
                let mut bytes = Vec::new();
                stdin.take(MAX_LINE + 1).read_until(b'\n', &mut bytes).map_err(CliError::Input)?;
                let source_name = "standard input".to_owned();
                if bytes.len() as u64 > MAX_LINE {
                    let why = "the limit of one line".to_owned();
                    return Err(CliError::TooLong { source_name, limit: MAX_LINE, why });
                }
                if bytes.is_empty() {
                    return Ok(None);
                }
                let end = bytes.trim_ascii_end().len();
                bytes.truncate(end);
                match String::from_utf8(bytes) {
                    Ok(line) => Ok(Some(line)),
                    Err(e) => Err(CliError::Utf8 { source_name, position: e.utf8_error().valid_up_to() }),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinking_is_told_from_the_answer() {
        assert_eq!(assistant("a b"), json!({"role": "assistant", "content": "a b"}));
        let want = json!({"role": "assistant", "reasoning_content": "hm", "content": "yes </think>"});
        assert_eq!(assistant("hm\n</think>\n\nyes </think>"), want);
    }
}
