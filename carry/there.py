"""Measure the deployments of a study one after another, without the workflow: engine, checkpoint, launch, session; then pack."""
import os, subprocess, sys, time
from pathlib import Path

STUDY, DEADLINE = Path(sys.argv[1]), float(sys.argv[2])
T0 = time.time()
def say(text): print(f"{time.time()-T0:6.1f} {text}", flush=True)

from bench.engine import prepare_engine, write_launch
from bench.measure.own_gpus import own_gpus
from bench.measure.session import measure
from bench.models import write_checkpoint
from bench.store import Store, write_index
from bench.study import Paths, Plan, load_file
from bench.records.engine import read_engine

def one(name):
    plan = Plan.of(load_file(STUDY))
    spec = plan.deployments[name]
    engine = Path(Paths.ENGINE.format(engine=spec.deployment.engine))
    record = Path(Paths.CHECKPOINT.format(model=spec.deployment.model))
    launch = Path(Paths.LAUNCH.format(deployment=name))
    prepare_engine(spec.deployment.engine, spec.engine, engine, say)
    if not record.exists():
        write_checkpoint(spec.deployment.model, spec.model, record)
    write_launch(spec, plan.longest_request(name), engine=engine, checkpoint=record, launch=launch)
    store = Store(owner=name)
    log = Path(f"logs/measure/{name}/1.log"); log.parent.mkdir(parents=True, exist_ok=True)
    with own_gpus(spec, os.environ, say), log.open("a") as file:
        def both(text):
            say(text); print(text, file=file, flush=True)
        measure(plan, name, plan.listed_of(name, 1), session=1, launch=launch, facts=Path(Paths.facts(name, 1)), store=store, say=both)
    write_index(plan, name, 1, store)

if __name__ == "__main__":
    if len(sys.argv) > 3 and sys.argv[3] == "--one":
        one(sys.argv[4])
    else:
        for name in sys.argv[3:] or Plan.of(load_file(STUDY)).deployments:
            left = DEADLINE - (time.time() - T0)
            if left < 25:
                say(f"no time for {name}"); continue
            say(f"== {name}, {left:.0f} s left")
            child = subprocess.Popen([sys.executable, __file__, str(STUDY), str(DEADLINE), "--one", name])
            try:
                child.wait(left)
            except subprocess.TimeoutExpired:
                say("time is up"); child.terminate()
                try: child.wait(15)
                except subprocess.TimeoutExpired: child.kill()
            say(f"== {name} ended with {child.returncode}")
            if child.returncode not in (0, -15):
                os.system(f"tail -n 60 results/deployments/{name}/server.log | cut -c1-300")
                break  # what is wrong here is wrong with the next, too
