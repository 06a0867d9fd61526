"""GPUs' own account, from the text of an exporter to the figures, by hand; and real text of the DCGM exporter."""

import itertools
from functools import partial

import polars as pl
import pytest

from bench.parse.devices import device_figures, device_samples
from bench.parse.scrapes import TELEMETRY_SCHEMA
from tests.support import scrapes
from tests.support.study import ROOT

scraped = partial(scrapes.scraped, endpoint="http://n:9400/metrics", step_s=0.5)


def published(name):
    return (ROOT / f"tests/data/dcgm-exporter-{name}.prom").read_text()


def test_a_published_exposition_is_read_whole(tmp_path):
    result = device_samples(scraped(tmp_path, published("t4")))
    assert set(result["gpu"]) == {"0"}
    assert dict(result.select("metric", "value").iter_rows()) == {
        "gpu_sm_clock_hz": 300e6, "gpu_temperature_c": 25, "gpu_power_w": 8.969,
        "gpu_energy_j": pytest.approx(128_996.013), "gpu_utilisation": 0, "gpu_memory_utilisation": 0,
        "gpu_memory_free_bytes": 15109 * 2**20, "gpu_memory_bytes": 0,
    }  # fmt: skip
    # What DCGM leaves blank is no value.
    for blank in ["9223372036854775794", "140737488355328.000000", "140737488355330.0", "NaN"]:
        text = published("t4").replace("} 8.969000", f"}} {blank}").replace("} 15109", f"}} {blank}")
        result = set(device_samples(scraped(tmp_path, text))["metric"])
        assert {"gpu_power_w", "gpu_memory_free_bytes"}.isdisjoint(result) and "gpu_energy_j" in result, blank


def test_a_divided_gpu_is_counted_once_and_as_a_whole(tmp_path):
    result = device_samples(scraped(tmp_path, published("mig")))
    found = dict(result.select("metric", "value").iter_rows())
    assert (set(result["gpu"]), found["gpu_memory_bytes"], found["gpu_power_w"]) == ({"0"}, 4845 * 2**20, 409.692)
    assert found["gpu_energy_j"] == pytest.approx(319_159.391)  # no line says that it is a counter
    assert "gpu_utilisation" not in found  # a divided GPU does not tell it
    memory = 'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-3",GPU_I_PROFILE="1g.5gb",GPU_I_ID="%d"} %d\n'
    parts = "".join(memory % (number, 10 * number) for number in (7, 13))
    instances = device_samples(scraped(tmp_path, parts))
    assert instances.select("gpu", "value").rows() == [("0:7", 70 * 2**20), ("0:13", 130 * 2**20)]
    whole = device_samples(scraped(tmp_path, parts + 'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-3"} 500\n'))
    assert whole.select("gpu", "value").rows() == [("0", 500 * 2**20)]


COURSE = [(20, 60.0), (90, 300.0), (100, 310.0), (100, 320.0), (95, 310.0), (60, 200.0), (0, 80.0), (0, 60.0)]  # percent, W


def energies():
    """The counter that belongs to COURSE, mJ: the integral of lines between its powers."""
    result = [50_000_000.0]
    for (_, before), (_, after) in itertools.pairwise(COURSE):
        result.append(result[-1] + 1000 * 0.5 * (before + after) / 2)
    return result


def dcgm_texts():
    """The published exposition, over COURSE."""
    texts = []
    for (percent, watts), energy in zip(COURSE, energies(), strict=True):
        text = published("t4").replace("} 8.969000", f"}} {watts:.6f}").replace("} 128996013", f"}} {energy:.0f}")
        lines = [f"{line[:-2]} {percent}" if line.startswith("DCGM_FI_DEV_GPU_UTIL{") else line for line in text.splitlines()]
        texts.append("\n".join(line.replace("} 0", "} 12288") if "FB_USED{" in line else line for line in lines) + "\n")
    return texts


WINDOW = (0.75, 2.75)  # holds the samples at 1.0, 1.5, 2.0 and 2.5 s, and 0.75 s lies between those of 60 and 300 W
BY_HAND = {
    "gpu_count_seen": 1,
    "gpu_utilisation_mean": pytest.approx((1.0 + 1.0 + 0.95 + 0.6) / 4),
    "gpu_memory_peak_bytes": 12288 * 2**20,
    "gpu_power_mean_w": pytest.approx((310 + 320 + 310 + 200) / 4),
    "gpu_energy_j": pytest.approx(0.25 * 305 + 0.5 * 315 + 0.5 * 315 + 0.5 * 255 + 0.25 * 140, rel=1e-4),
}


def test_exporter_and_nvml_give_the_same_figures_which_are_those_by_hand(tmp_path, monkeypatch):
    monkeypatch.setattr("bench.parse.devices.FEWEST_SCRAPES", 4)
    dcgm = device_figures(device_samples(scraped(tmp_path, *dcgm_texts())), WINDOW, tokens=1000)
    assert {key: dcgm[key] for key in BY_HAND} == BY_HAND
    assert dcgm["tokens_per_joule"] == pytest.approx(1000 / dcgm["gpu_energy_j"])
    label = 'gpu="0",UUID="GPU-x",modelName="T4"'
    texts = [
        f"DCGM_FI_DEV_GPU_UTIL{{{label}}} {percent}\nDCGM_FI_DEV_POWER_USAGE{{{label}}} {watts}\n"
        f"DCGM_FI_DEV_FB_USED{{{label}}} 12288\n# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n"
        f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{label}}} {energy:.0f}\n"
        for (percent, watts), energy in zip(COURSE, energies(), strict=True)
    ]
    assert device_figures(device_samples(scraped(tmp_path, *texts, endpoint="nvml:0")), WINDOW, tokens=1000) == dcgm
    renamed = [  # as the exporter has it since 4.9
        f'DCGM_FI_DEV_GPU_UTIL_RATIO{{gpu="0",gpu_uuid="GPU-x"}} {percent / 100}\nDCGM_FI_DEV_FB_USED_BYTES{{gpu="0",gpu_uuid="GPU-x"}} '
        f'{12288 * 2**20}\nDCGM_FI_DEV_BOARD_POWER_WATTS{{gpu="0",gpu_uuid="GPU-x"}} {watts}\n# TYPE DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL '
        f'counter\nDCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL{{gpu="0",gpu_uuid="GPU-x"}} {energy / 1000}\n'
        for (percent, watts), energy in zip(COURSE, energies(), strict=True)
    ]
    assert device_figures(device_samples(scraped(tmp_path, *renamed)), WINDOW, tokens=1000) == pytest.approx(dcgm)


def test_an_exporter_that_reads_its_gpus_too_seldom_gives_no_mean(tmp_path):
    """Scraped every half second, read every two: its energy counter stands still in between."""
    texts = dcgm_texts()
    slow = [texts[slot // 4 * 4] for slot in range(len(texts))]
    result = device_figures(device_samples(scraped(tmp_path, *slow)), (0.0, 3.5), tokens=1)
    assert (result["gpu_count_seen"], result["gpu_memory_peak_bytes"]) == (1, 12288 * 2**20)
    assert {result[key] for key in ("gpu_utilisation_mean", "gpu_power_mean_w", "gpu_energy_j", "tokens_per_joule")} == {None}


# The figures of planted samples


def samples(*rows):
    """Rows of (endpoint, labels, name, at, value) as a table of telemetry."""
    return pl.DataFrame(
        [(0, float(at), endpoint, name, labels, float(value)) for endpoint, labels, name, at, value in rows],
        schema=TELEMETRY_SCHEMA,
        orient="row",
    )


def test_the_gpus_of_the_server_count_each_once():
    power = "DCGM_FI_DEV_POWER_USAGE"
    rows = [(endpoint, f'UUID="GPU-{gpu}",gpu="{gpu}"', power, 0.1 * t, 100 * (1 + gpu))
            for t in range(10) for endpoint, gpus in (("http://d", range(8)), ("nvml:2", (2,)), ("http://e", (2, 3))) for gpu in gpus]  # fmt: skip
    result = device_figures(device_samples(samples(*rows)), (0.0, 0.9), 0)
    assert (result["gpu_count_seen"], result["gpu_power_mean_w"]) == (1, pytest.approx(300))
    without = samples(*(row for row in rows if not row[0].startswith("nvml")))
    result = device_figures(device_samples(without), (0.0, 0.9), 0)
    assert (result["gpu_count_seen"], result["gpu_power_mean_w"]) == (8, pytest.approx(3600))  # of two that tell it one counts
    assert result["gpu_energy_j"] == pytest.approx(0.9 * 3600)
    # GPUs of two hosts are told apart.
    name = "DCGM_FI_DEV_GPU_UTIL"
    rows = [(f"http://{host}", f'Hostname="{host}",UUID="GPU-{host}",gpu="0"', name, 0, 50) for host in ("a", "b")]
    assert set(device_samples(samples(*rows))["gpu"]) == {"a:0", "b:0"}
    nameless = [(endpoint, labels.split(",", 1)[1], *rest) for endpoint, labels, *rest in rows]
    assert set(device_samples(samples(*nameless))["gpu"]) == {"GPU-a:0", "GPU-b:0"}
    shared = [(*row[:1], f'UUID="GPU-a",gpu="0",pod="{pod}"', *row[2:]) for row in rows[:1] for pod in "xy"]
    assert device_samples(samples(*shared)).rows() == [(0.0, "0", "gpu_utilisation", 0.5)]


LABEL = 'UUID="GPU-a",gpu="0"'
POWER, ENERGY = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION_total"


def test_the_counter_decides_where_it_is_one():
    for counter, expected in [
        ([1000 * (7 + 100 * 0.5 * i) for i in range(8)], 100 * 3.0),  # the counter: 100 W, where power says 200 W
        # it fell: the driver was loaded again
        ([1000 * (7 + 100 * 0.5 * i) if i < 4 else 1000 * i for i in range(8)], 200 * 3.0),
        ([1000 * joules for joules in (7, 57, 107, 106.5, 157, 207, 257, 307)], 200 * 3.0),  # by half a joule
        ([1000 * joules for joules in (7, 57, 107, 107, 157, 207, 257, 307)], 282 - 32),  # it may stand still
        ([100 * (i + 1) for i in range(8)], 0.2 * 3.0),  # it has only begun: 0.8 J at the end
        ([0] * 8, 200 * 3.0),  # never fed
        (None, 200 * 3.0),
    ]:
        rows = [("n", LABEL, POWER, 0.5 * i, 200) for i in range(8)]
        rows += [("n", LABEL, ENERGY, 0.5 * i, value) for i, value in enumerate(counter or [])]
        result = device_figures(device_samples(samples(*rows)), (0.25, 3.25), tokens=600)
        assert result["gpu_energy_j"] == pytest.approx(expected), counter
        assert result["tokens_per_joule"] == pytest.approx(600 / expected), counter
        assert result["gpu_power_mean_w"] == pytest.approx(200), counter


def test_nothing_is_extrapolated_and_a_sum_over_some_of_the_gpus_is_none():
    rows = [("n", LABEL, POWER, 1 + 0.5 * i, 200) for i in range(8)]
    for window in ((0.5, 4.0), (1.5, 6.0)):
        result = device_figures(device_samples(samples(*rows)), window, 1)
        assert (result["gpu_energy_j"], result["gpu_power_mean_w"]) == (None, pytest.approx(200))
    rows = [("n", f'UUID="GPU-{gpu}",gpu="{gpu}"', name, 0.5 * i, 50) for i in range(8) for gpu in (0, 1)
            for name in ("DCGM_FI_DEV_GPU_UTIL", POWER) if (gpu, name) != (1, POWER)]  # fmt: skip
    result = device_figures(device_samples(samples(*rows)), (0.0, 3.5), 1)
    assert (result["gpu_power_mean_w"], result["gpu_energy_j"], result["tokens_per_joule"]) == (None, None, None)
    assert (result["gpu_count_seen"], result["gpu_utilisation_mean"]) == (2, 0.5)
    assert device_figures(device_samples(samples()), (0.0, 1.0), 1) == {}
    # Five readings make a mean, and four do not.
    for readings, expected in ((5, 200), (4, None)):
        rows = [("n", LABEL, POWER, 0.5 * i, 200) for i in range(readings)]
        result = device_figures(device_samples(samples(*rows)), (0.0, 0.5 * (readings - 1)), 1)
        assert result["gpu_power_mean_w"] == expected
        assert result["gpu_energy_j"] == (None if expected is None else pytest.approx(200 * 2.0))


def test_figures_of_several_gpus_and_of_a_power_that_changes():
    rows = [("n", f'UUID="GPU-{gpu}",gpu="{gpu}"', name, 0.5 * i, value * (gpu + 1)) for i in range(8) for gpu in (0, 1, 2)
            for name, value in (("DCGM_FI_DEV_GPU_UTIL", 20), ("DCGM_FI_DEV_FB_USED", i), (POWER, 100))]  # fmt: skip
    result = device_figures(device_samples(samples(*rows)), (0.5, 3.0), 1200)
    assert {name: value for name, value in result.items() if value is not None} == {
        "gpu_count_seen": 3, "gpu_utilisation_mean": pytest.approx(0.4), "gpu_utilisation_min": pytest.approx(0.2),
        "gpu_utilisation_max": pytest.approx(0.6), "gpu_memory_peak_bytes": 6 * 3 * 2**20, "gpu_power_mean_w": pytest.approx(600),
        "gpu_energy_j": pytest.approx(600 * 2.5), "tokens_per_joule": pytest.approx(1200 / 1500),
    }  # fmt: skip
    for watts, window, expected in [
    ([100, 300, 300, 300, 300, 300, 500, 500], (0.25, 3.25), 0.25 * 250 + 2 * 300 + 0.5 * 400 + 0.25 * 500),
    ([100] * 8, (0.0, 3.5), 350),  # from the first sample to the last
]:  # fmt: skip
        rows = [("n", LABEL, POWER, 0.5 * i, value) for i, value in enumerate(watts)]
        assert device_figures(device_samples(samples(*rows)), window, 1)["gpu_energy_j"] == pytest.approx(expected), watts
