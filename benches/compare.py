"""Runs `strata bench` and `llama-bench` in turn on the same files and compares medians; the samples are kept as CSV.

    compare.py --strata BIN --llama BIN [--rounds N] [--threads N] [--out FILE] MODEL.gguf[:DEPTH,...] ...

    compare.py --report FILE      prints the table of samples that were kept

Every round measures every model with one program and then the other, each in a process of its own; the program that begins changes
from round to round. Only the standard library is used."""
import argparse, csv, datetime, json, os, statistics, subprocess, sys


def strata(a, model, depth):
    command = [a.strata, "bench", "-m", model, "-p", "512", "-n", "64", "-d", str(depth), "-t", str(a.threads), "-r", "1", "--json"]
    out = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    return [("pp512" if t["n_prompt"] else "tg64", t["tok_s_median"]) for t in out["tests"]]


def llama(a, model, depth):
    command = [a.llama, "-m", model, "-p", "512", "-n", "64", "-d", str(depth), "-t", str(a.threads), "-r", "1", "-o", "json"]
    out = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    return [("pp512" if t["n_prompt"] else "tg64", t["avg_ts"]) for t in out]


def cpu():
    try:
        with open("/proc/cpuinfo") as f:
            return next(line.split(":", 1)[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        return "unknown CPU"


def report(rows):
    """Medians, ranges and ratios; the ratio of medians, and the range of the ratios of each round."""
    samples = {}
    for r in rows:
        samples.setdefault((r["model"], int(r["depth"]), r["test"]), {}).setdefault(r["engine"], []).append(float(r["tok_s"]))
    show = lambda v: f"{statistics.median(v):,.1f} ({min(v):,.1f} to {max(v):,.1f})"
    lines = ["| model | depth | test | strata | llama.cpp | ratio of medians | of rounds |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for (model, depth, test), of in samples.items():
        s, l = of.get("strata", []), of.get("llama.cpp", [])
        if not s or not l:
            continue
        pairs = [x / y for x, y in zip(s, l)]
        ratio = statistics.median(s) / statistics.median(l)
        lines.append(f"| {model} | {depth} | {test} | {show(s)} | {show(l)} | {ratio:.2f} | {min(pairs):.2f} to {max(pairs):.2f} |")
    return "\n".join(lines)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*")
    p.add_argument("--strata")
    p.add_argument("--llama")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--out")
    p.add_argument("--report")
    a = p.parse_args()
    if a.report:
        with open(a.report) as f:
            print(report(csv.DictReader(line for line in f if not line.startswith("#"))))
        return
    tests = []
    for m in a.models:
        path, _, depths = m.rpartition(":") if ":" in m else (m, "", "0")
        tests += [(path, int(d)) for d in depths.split(",")]
    fields, rows = ["round", "model", "depth", "engine", "test", "tok_s"], []
    out = open(a.out, "w", newline="") if a.out else sys.stdout
    out.write(f"# {datetime.date.today()}, {cpu()}, {os.cpu_count()} cores, {a.threads} threads, tokens a second\n")
    writer = csv.DictWriter(out, fields, lineterminator="\n")
    writer.writeheader()
    for number in range(1, a.rounds + 1):
        for path, depth in tests:
            engines = [("strata", strata), ("llama.cpp", llama)]
            for engine, run in engines if number % 2 else engines[::-1]:
                for test, rate in run(a, path, depth):
                    row = dict(zip(fields, [number, os.path.basename(path).removesuffix(".gguf"), depth, engine, test, f"{rate:.3f}"]))
                    rows.append(row)
                    writer.writerow(row)
                    out.flush()
                    print(*row.values(), file=sys.stderr, flush=True)
    print(report(rows))


main()
