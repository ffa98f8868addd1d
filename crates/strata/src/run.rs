//! `strata run`: one prompt, one answer.

use crate::cli::RunArgs;
use crate::error::CliError;
use crate::generate::{Limits, Watch, generate};
use crate::load::Loaded;
use crate::{memory, output, progress, prompt, settings};
use clap::ArgMatches;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::process::ExitCode;

/// The context is made a multiple of this, so that prompts of about one length take one amount of memory.
const CONTEXT_STEP: usize = 256;

/// Answers one prompt.
///
/// # Errors
/// Bad settings, files or prompts, or output that cannot be written.
pub fn run(args: RunArgs, matches: &ArgMatches) -> Result<ExitCode, CliError> {
    let params = args.sampling.params(args.logprobs)?;
    let model = Loaded::open(&args.engine)?;
    let prompt = prompt::read(&args.input, &model, args.engine.ctx.unwrap_or(model.config.context))?;
    let n = args.sampling.n.unwrap_or(usize::MAX);
    let wanted = prompt.ids.len().saturating_add(n).checked_next_multiple_of(CONTEXT_STEP).unwrap_or(usize::MAX);
    let capacity = args.engine.ctx.unwrap_or(wanted.min(model.config.context));
    model.check_prompt(&prompt.ids, capacity)?;
    let (mut engine, tiers) = model.engine(&args.engine, capacity)?;

    let limits = Limits { n, ignore_eos: args.sampling.ignore_eos, stop: &args.sampling.stop };
    let mut watch = Printer { silent: args.json, progress: progress::Prompt::default() };
    let answer = generate(&mut engine, &model.tokenizer, &prompt.ids, &params, &limits, &mut watch)?;
    if !args.json {
        watch.text("\n").map_err(CliError::Output)?;
        output::note(&output::statistics(prompt.ids.len(), &answer));
        memory::line(&tiers).iter().for_each(|l| output::note(l));
        return Ok(ExitCode::SUCCESS);
    }
    let mut values = settings::values(&args.engine);
    values.insert("ctx".into(), capacity.into());
    values.extend(settings::values(&args.sampling));
    let others: [(&str, Value); 5] = [
        ("raw", (prompt.mode != "chat").into()),
        ("chat", (prompt.mode == "chat").into()),
        ("system", json!(args.input.system)),
        ("think", args.input.think.into()),
        ("logprobs", json!(args.logprobs)),
    ];
    values.extend(others.map(|(name, v)| (name.to_owned(), v)));
    let settings = settings::report("run", matches, &values);
    let mut report =
        output::answer_json(&model.name(), prompt.mode, prompt.ids.len(), &answer, &model.tokenizer, &settings, args.logprobs.is_some());
    report["memory"] = memory::report_json(&tiers);
    output::print_json(&report)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints text as it comes.
struct Printer {
    silent: bool,
    progress: progress::Prompt,
}

impl Watch for Printer {
    fn text(&mut self, text: &str) -> io::Result<()> {
        if self.silent {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    fn prompt(&mut self, done: usize, all: usize) {
        self.progress.update(done, all);
    }

    fn stopped(&self) -> bool {
        false
    }
}
