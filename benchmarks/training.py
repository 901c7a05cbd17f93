"""How long a step of the published autoencoder takes, where the time goes, and whether the fast loop learns the same.

A step is everything: a batch is gathered from images that lie on the device as bytes, forward, backward, clipped
gradients, AdamW. It is timed for the plain loop in float32, for the loss compiled in bfloat16, and for the whole step
as one CUDA graph, with and without compiling; each after a warm-up, waiting for the device only at the end. Then the
losses of the plain and of the fast loop are followed for three seeds each, on the same batches and first weights: the
difference of their means is compared with the spread of the seeds (Student's t, 4 degrees of freedom).

    python benchmarks/training.py            # on a GPU; writes training.csv, training_curves.csv, training_profile.txt
    python benchmarks/training.py --quick    # seconds on a CPU, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import statistics
import time
from pathlib import Path

import torch
import torch._dynamo
import torch._inductor.config

from congruence.experiments.data import rooms, sprites
from congruence.experiments.models import AutoEncoder
from congruence.experiments.runs import start_run
from congruence.experiments.training import Training
from congruence.experiments.training._step import Stepper
from congruence.experiments.training.loop import optimise
from congruence.experiments.training.settings import row_order
from congruence.rows.devices import kernels

# engine and precision of each variant; the last is what `train` takes on a GPU
FULL = (
    ("eager", "float32"), ("graph", "float32"), ("compiled", "bfloat16"), ("graph", "bfloat16"),
    ("compiled graph", "bfloat16"),
)  # fmt: skip
QUICK = (("eager", "float32"), ("eager", "bfloat16"))
SEEDS = (0, 1, 2)
STUDENT = 2.78  # 97.5 % of t with 4 degrees of freedom
COLUMNS = (
    "what", "engine", "precision", "batch", "steps", "ms_per_step", "images_per_second", "ready_s", "loss_plain",
    "loss_fast", "spread", "largest_t", "agree", "machine", "versions",
)  # fmt: skip


def settings(precision, engine, **others):
    base = {"optimiser": "adamw", "weight_decay": 0.1, "clip_value": 1.0}
    return Training(**base | {"precision": precision, "engine": engine, "check_every": 50} | others)


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def prepare(net, images, device, precision, engine, batch):
    """A stepper that has made its first steps, and how long those took; nothing has been compiled before."""
    torch._dynamo.reset()
    torch._inductor.config.force_disable_caches = True
    model = AutoEncoder(12, net=net, shape=images.shape[1:]).to(device).train()
    start = time.perf_counter()
    stepper = Stepper(model, [images], settings(precision, engine, steps=1, batch=batch), engine)
    stepper.begin(row_order(len(images), 0, 0), 0)
    for place in range(3):
        stepper.step(place, 1e-3)
    wait(device)
    return stepper, time.perf_counter() - start


def timed(stepper, device, steps):
    """Milliseconds a step, the median of five parts."""
    batches = len(stepper.data[0]) // stepper.how.batch
    found = []
    for _ in range(5):
        stepper.begin(row_order(len(stepper.data[0]), 1, 0), 0)
        wait(device)
        start = time.perf_counter()
        for step in range(steps):
            place = step % batches
            if place == 0 and step:
                stepper.begin(row_order(len(stepper.data[0]), 1, step), 0)
            stepper.step(place, 1e-3)
        wait(device)
        found.append(1000 * (time.perf_counter() - start) / steps)
    return statistics.median(found)


def profiled(stepper, device, path, steps=10):
    """Write the table of the kernels that take most of the time."""
    from torch.profiler import ProfilerActivity, profile

    stepper.begin(row_order(len(stepper.data[0]), 2, 0), 0)
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with profile(activities=kinds) as found:
        for place in range(steps):
            stepper.step(place, 1e-3)
        wait(device)
    key = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    events = sorted(found.key_averages(), key=lambda event: -getattr(event, key))
    total = sum(getattr(event, key) for event in events) / steps
    lines = [f"{total / 1000:.3f} ms of kernels a step, {steps} steps; microseconds a step, calls a step, kernel"]
    for event in events[:40]:
        lines.append(f"{getattr(event, key) / steps:9.1f} {event.count / steps:6.1f}  {event.key[:140]}")
    path.write_text("\n".join(lines) + "\n")
    print("\n".join(lines[:25]), flush=True)


def curve(net, images, device, variant, seed, steps, batch, folder):
    """The mean loss of each tenth of a training."""
    engine, precision = variant
    model = AutoEncoder(12, net=net, shape=images.shape[1:], seed=seed)
    how = settings(precision, engine, steps=steps, batch=batch, log_every=max(1, steps // 10), seed=seed,
                   checkpoint_every=10 * steps)  # fmt: skip
    run = start_run(folder / f"{engine}-{precision}-{seed}".replace(" ", "-"), {"seed": seed})
    optimise(model, [images], how, run=run, device=device)
    return [(line["step"], line["loss"]) for line in run.metrics()]


def compared(plain, fast):
    """Of curves of three seeds each: steps, means, the spread of seeds, and t at each line."""
    rows = []
    for lines in zip(*plain, *fast, strict=True):
        values = [loss for _, loss in lines]
        a, b = values[: len(plain)], values[len(plain) :]
        spread = ((statistics.variance(a) + statistics.variance(b)) / 2) ** 0.5
        t = (statistics.mean(b) - statistics.mean(a)) / (spread * (1 / len(a) + 1 / len(b)) ** 0.5)
        rows.append({"step": lines[0][0], "plain": statistics.mean(a), "fast": statistics.mean(b), "spread": spread})
        rows[-1] |= {"t": t} | {f"plain_{i}": value for i, value in enumerate(a)}
        rows[-1] |= {f"fast_{i}": value for i, value in enumerate(b)}
    return rows


def write(path, rows, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, default=48_000, help="images of rooms")
    parser.add_argument("--parts", default="steps,profile,curves")
    parser.add_argument("--curve-steps", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "training.csv")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if arguments.quick or device == "cpu":
        variants, net, images, batch, steps, curve_steps = QUICK, "small", sprites(64).images, 8, 2, 10
        torch.set_num_threads(1)
    else:
        variants, net, images, batch, steps = FULL, "published", rooms(arguments.rows).images, 128, 100
        curve_steps = arguments.curve_steps
    images = images.to(device)
    name = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, {os.cpu_count()} cores"
    about = {"machine": name, "versions": f"torch {torch.__version__}"}
    rows = []
    with kernels(device, deterministic=False):
        for engine, precision in variants if "steps" in arguments.parts else variants[-1:]:
            if "steps" not in arguments.parts and "profile" not in arguments.parts:
                break
            stepper, ready = prepare(net, images, device, precision, engine, batch)
            ms = timed(stepper, device, steps)
            row = {"what": "step", "engine": engine, "precision": precision, "batch": batch, "steps": 5 * steps}
            row |= {"ms_per_step": round(ms, 3), "images_per_second": round(1000 * batch / ms), **about}
            rows.append(row | {"ready_s": round(ready, 1)})
            print("  ".join(f"{key}={value}" for key, value in rows[-1].items() if key not in about), flush=True)
            write(arguments.out, rows, COLUMNS)
        if "profile" in arguments.parts:
            profiled(stepper, device, arguments.out.with_name(f"{arguments.out.stem}_profile.txt"))
    stepper = None  # its memory is wanted
    torch._inductor.config.force_disable_caches = False  # here compiling is not timed
    if "curves" not in arguments.parts:
        return
    import tempfile

    plain, fast = [], []
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS:  # interleaved, so that what is there after each seed can be used
            for variant, curves in ((variants[0], plain), (variants[-1], fast)):
                curves.append(curve(net, images, device, variant, seed, curve_steps, batch, Path(folder)))
            print(f"seed {seed}: plain {plain[-1][-1][1]:.5f}, fast {fast[-1][-1][1]:.5f}", flush=True)
            if seed:
                lines = compared(plain, fast)
                write(arguments.out.with_name(f"{arguments.out.stem}_curves.csv"), lines, list(lines[0]))
    worst = max(abs(line["t"]) for line in lines)
    row = {"what": "curves", "engine": variants[-1][0], "precision": variants[-1][1], "batch": batch}
    row |= {"steps": curve_steps, "loss_plain": f"{lines[-1]['plain']:.5f}", "loss_fast": f"{lines[-1]['fast']:.5f}"}
    row |= {"spread": f"{lines[-1]['spread']:.5f}", "largest_t": round(worst, 2), "agree": worst < STUDENT, **about}
    rows.append(row)
    print("  ".join(f"{key}={value}" for key, value in row.items() if key not in about), flush=True)
    write(arguments.out, rows, COLUMNS)


if __name__ == "__main__":
    main()
