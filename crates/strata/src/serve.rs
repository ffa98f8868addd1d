//! `strata serve`: the model behind HTTP.

use crate::cli::ServeArgs;
use crate::error::CliError;
use crate::load::{Loaded, Space};
use crate::{memory, output};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use strata_engine::prefix_cache::{CacheOptions, DiskOptions};
use strata_engine::{Runner, RunnerOptions};
use strata_server::config::{Limits, Times};
use strata_server::{ModelInfo, ServeOptions, Server};

/// Serves until a signal ends it.
///
/// # Errors
/// Bad settings or files, an address that is taken or must not be open, or memory that is short.
pub fn run(args: &ServeArgs) -> Result<ExitCode, CliError> {
    strata_tiers::give_back_large_blocks();
    // the address first: a mistake there shows before a large model is loaded, and clients hear that it is loading
    let server = Server::start(options(args))?;
    let model = Loaded::open(&args.engine)?;
    let template = match model.has_template() {
        true => Some((model.template("/v1/completions needs none")?, model.template_source())),
        false => None,
    };
    let capacity = args.engine.ctx.unwrap_or(model.config.context.min(crate::chat::CONTEXT));
    let space = Space { slots: args.max_seqs, prefix_cache: args.cache, ..Space::of(capacity) };
    let (batch, tiers) = model.batch(&args.engine, space)?;
    let cache = cache(args, &model)?;
    let runner = Runner::start_with_cache(batch, RunnerOptions { queue: args.queue }, &cache)?;
    strata_server::warm(&runner)?;
    tiers.sample();
    let name = name(&model.name());
    server.ready(ModelInfo {
        name: name.clone(),
        aliases: args.alias.clone(),
        runner,
        queue: args.queue,
        tokenizer: Arc::clone(&model.tokenizer),
        template,
        memory: Box::new(move || memory::report_json(&tiers)),
    });
    output::note(&summary(args, &name, capacity, server.addr()));
    server.wait()?;
    output::note(&format!("ending; answers have {} s to end, another signal cuts them", args.grace));
    server.stop(Duration::from_secs(args.grace));
    Ok(ExitCode::SUCCESS)
}

/// What the prefix cache may take; the model is identified only where files must be told apart.
fn cache(args: &ServeArgs, model: &Loaded) -> Result<CacheOptions, CliError> {
    let disk = args.cache_dir.as_ref().map(|dir| DiskOptions { dir: dir.clone(), bytes: args.cache_disk });
    for dir in args.cache_dir.iter().chain(&args.slot_save_path) {
        std::fs::create_dir_all(dir).map_err(|error| CliError::File { path: dir.clone(), error })?;
    }
    let filed = args.cache_dir.is_some() || args.slot_save_path.is_some();
    let model = if filed { model.identity(&args.engine, args.cache_dir.as_deref())? } else { 0 };
    Ok(CacheOptions { bytes: args.cache, model, disk })
}

fn options(args: &ServeArgs) -> ServeOptions {
    ServeOptions {
        listen: SocketAddr::new(args.host, args.port),
        key_file: args.api_key_file.clone(),
        insecure: args.insecure,
        allowed_hosts: args.allowed_host.clone(),
        cors_origins: args.cors_origin.clone(),
        slot_save_path: args.slot_save_path.clone(),
        log: args.log,
        limits: Limits { body: args.max_body as usize, bodies: Limits::default().bodies.max(args.max_body as usize), ..Limits::default() },
        times: Times { request: args.request_timeout.map(Duration::from_secs), grace: Duration::from_secs(args.grace), ..Times::default() },
    }
}

/// What the model is called in the API: its file's name without the ending.
fn name(file: &str) -> String {
    let file = file.strip_suffix(" (bundled)").unwrap_or(file);
    Path::new(file).file_name().map_or(file.to_owned(), |n| {
        let n = n.to_string_lossy();
        n.strip_suffix(".gguf").unwrap_or(&n).to_owned()
    })
}

/// What to know at the start, on one screen.
fn summary(args: &ServeArgs, name: &str, capacity: usize, addr: SocketAddr) -> String {
    let host = match addr.ip() {
        ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    let at = SocketAddr::new(host, addr.port());
    let e = &args.engine;
    let open = if addr.ip().is_loopback() { "this machine" } else { "every machine that reaches it" };
    let key = match &args.api_key_file {
        Some(file) => format!("{open}, with a key of {} (SIGHUP reads it again)", file.display()),
        None => format!("{open}, without a key"),
    };
    format!(
        "\
{name} is ready: {} at a time, {capacity} tokens each, {} wait at most; {} threads, {}
  page           http://{at}/
  OpenAI API     http://{at}/v1
  Anthropic API  http://{at}
  metrics        http://{at}/metrics
  open to        {key}
Ctrl-C ends it.",
        args.max_seqs,
        args.queue,
        e.threads,
        e.simd.name()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_models() {
        for (file, want) in [
            ("refmodel-q8_0 (bundled)", "refmodel-q8_0"),
            ("/data/Big-Model.Q4_K.gguf", "Big-Model.Q4_K"),
            ("synth:refmodel:Q4_K", "synth:refmodel:Q4_K"),
        ] {
            assert_eq!(name(file), want);
        }
    }
}
