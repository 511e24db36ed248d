"""The alert rules and the dashboard: each alert fires on the series that it is for, alone."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboard.json"
RUNBOOK = ROOT / "docs" / "operations.md"
METRICS = ROOT / "docs" / "metrics.md"

GROUP = '{topic="orders",group="billing"'
# A system in which nothing is wrong, with a value for each minute.
HEALTHY = {
    f'qframe_messages{GROUP},state="waiting"}}': "5x70",
    f'qframe_messages{GROUP},state="todo"}}': "10 40 0 20 10x70",
    f'qframe_messages{GROUP},state="doing"}}': "2x70",
    f"qframe_oldest_due_seconds{GROUP}}}": "2x70",
    f"qframe_dead{GROUP}}}": "3x70",
    f"qframe_workers{GROUP}}}": "2x70",
    f"qframe_slots_unowned{GROUP}}}": "0x20 1 0x70",
    f"qframe_paused{GROUP}}}": "0x70",
    f"qframe_spark{GROUP}}}": "0x70",
    f"qframe_damaged{GROUP}}}": "0x70",
    f'qframe_longest_running_seconds{GROUP},process="1"}}': "0+20x40 0+20x40",
    f'qframe_handled_total{GROUP},outcome="ack"}}': "0+600x70",
    f'qframe_handled_total{GROUP},outcome="retry"}}': "0+90x70",
    f"qframe_lease_lost_total{GROUP}}}": "5x70",
    f'qframe_breaker_open{GROUP},process="1"}}': "0x20 1 0x70",
    f'qframe_lateness_seconds_bucket{GROUP},le="1.0"}}': "0+90x70",
    f'qframe_lateness_seconds_bucket{GROUP},le="60.0"}}': "0+100x70",
    f'qframe_lateness_seconds_bucket{GROUP},le="+Inf"}}': "0+100x70",
    'qframe_outbox_refused{outbox="shop"}': "0x70",
    'qframe_store_errors_total{op="pull"}': "4x70",
    "qframe_schedule_overdue_seconds": "0 30 0x70",
    'qframe_schedule_ticks_total{outcome="fired"}': "0+60x70",
    'qframe_schedule_ticks_total{outcome="missed"}': "3x70",
    "qframe_store_up": "1x70",
    "qframe_clock_skew_seconds": "0.1x70",
}
# Which alert is for which series, in place of those of the healthy system.
TROUBLES: dict[str, dict[str, str]] = {
    "QframeOldestDueTooOld": {f"qframe_oldest_due_seconds{GROUP}}}": "0+60x70"},
    "QframeLagGrows": {f'qframe_messages{GROUP},state="todo"}}': "2000+50x70"},
    "QframeDeadGrows": {f"qframe_dead{GROUP}}}": "3x50 9x20"},
    "QframeNoWorker": {f"qframe_workers{GROUP}}}": "2x50 0x20"},
    "QframeQueryBehind": {
        f"qframe_spark{GROUP}}}": "1x70",
        f"qframe_workers{GROUP}}}": "0x70",
        f"qframe_oldest_due_seconds{GROUP}}}": "90000+60x70",
    },
    "QframeSlotsUnowned": {f"qframe_slots_unowned{GROUP}}}": "0x50 2x20"},
    "QframeStuckHandler": {f'qframe_longest_running_seconds{GROUP},process="1"}}': "0+60x70"},
    "QframeRetryStorm": {
        f'qframe_handled_total{GROUP},outcome="ack"}}': "0+60x70",
        f'qframe_handled_total{GROUP},outcome="retry"}}': "0+300x70",
    },
    "QframeLeaseLost": {f"qframe_lease_lost_total{GROUP}}}": "5x50 7x20"},
    "QframeTimersLate": {
        f'qframe_lateness_seconds_bucket{GROUP},le="60.0"}}': "0+80x70",
        f'qframe_lateness_seconds_bucket{GROUP},le="300.0"}}': "0+100x70",
    },
    "QframeOutboxRefused": {'qframe_outbox_refused{outbox="shop"}': "0x50 1x20"},
    "QframeScheduleMissed": {"qframe_schedule_overdue_seconds": "0+60x70"},
    "QframeBreakerOpen": {f'qframe_breaker_open{GROUP},process="1"}}': "0x50 1x20"},
    "QframeStoreErrors": {'qframe_store_errors_total{op="pull"}': "4x50 5+10x20"},
    "QframeDamaged": {f"qframe_damaged{GROUP}}}": "0x50 1x20"},
    "QframeClockSkew": {"qframe_clock_skew_seconds": "0.1x50 -7x20"},
}
# What looks like trouble, and is none.
HARMLESS: dict[str, dict[str, str]] = {
    "healthy": {},
    "paused": {
        f"qframe_paused{GROUP}}}": "1x70",
        f"qframe_oldest_due_seconds{GROUP}}}": "0+60x70",
        f'qframe_messages{GROUP},state="todo"}}': "2000+50x70",
    },
    "a Spark query between two runs": {
        f"qframe_spark{GROUP}}}": "1x70",
        f"qframe_workers{GROUP}}}": "0x70",
        f"qframe_oldest_due_seconds{GROUP}}}": "0+60x70",
    },
    "a worker that is restarted": {f"qframe_workers{GROUP}}}": "2x58 0 2x10"},
    "nothing to do, and nobody there": {
        f"qframe_workers{GROUP}}}": "0x70",
        f"qframe_slots_unowned{GROUP}}}": "8x70",
        f'qframe_messages{GROUP},state="todo"}}': "0x70",
        f'qframe_messages{GROUP},state="doing"}}': "0x70",
        f"qframe_oldest_due_seconds{GROUP}}}": "0x70",
    },
    "ticks that were missed an hour ago": {
        'qframe_schedule_ticks_total{outcome="missed"}': "3 5x70",
    },
    "a topic that no group has subscribed to": {
        'qframe_messages{topic="audit",group="",state="todo"}': "2000+50x70",
        'qframe_messages{topic="audit",group="",state="waiting"}': "5x70",
        'qframe_oldest_due_seconds{topic="audit",group=""}': "0+60x70",
        'qframe_workers{topic="audit",group=""}': "0x70",
        'qframe_slots_unowned{topic="audit",group=""}': "1x70",
        'qframe_paused{topic="audit",group=""}': "0x70",
        'qframe_dead{topic="audit",group=""}': "0x70",
    },
    "dead letters that are retried": {f"qframe_dead{GROUP}}}": "9x50 2x20"},
}
FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'


def recorded(series: dict[str, str], alert: str | None) -> dict[str, Any]:
    """A test of promtool: an hour of series, and the one alert that is to fire at its end."""
    samples = [] if alert is None else [{"labels": f'{{alertname="{alert}"}}', "value": 1}]
    return {
        "interval": "1m",
        "input_series": [
            {"series": name, "values": values} for name, values in (HEALTHY | series).items()
        ],
        "promql_expr_test": [{"expr": FIRING, "eval_time": "60m", "exp_samples": samples}],
    }


def test_each_alert_fires_on_what_it_is_for_and_on_nothing_else(tmp_path: Path) -> None:
    tests = [recorded(series, alert) for alert, series in TROUBLES.items()]
    tests += [recorded(series, None) for series in HARMLESS.values()]
    away = recorded({"qframe_store_up": "1x50 0x20"}, "QframeStoreErrors")
    content = {"rule_files": [str(RULES)], "tests": [*tests, away]}
    (tmp_path / "tests.yaml").write_text(json.dumps(content))  # which is YAML too
    done = subprocess.run(
        ["promtool", "test", "rules", "tests.yaml"],
        cwd=tmp_path, capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def alerts() -> list[str]:
    return re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8"))


def test_every_alert_is_tested_and_has_a_section_of_the_runbook() -> None:
    assert sorted(alerts()) == sorted(TROUBLES)
    sections = re.findall(r"^### (Qframe\w+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)
    assert sections == alerts()
    text = RULES.read_text(encoding="utf-8")
    for alert in alerts():
        assert f"runbook: docs/operations.md#{alert.lower()}" in text


@pytest.mark.parametrize("file", [RULES, DASHBOARD], ids=lambda file: file.name)
def test_rules_and_dashboard_ask_for_metrics_that_there_are(file: Path) -> None:
    known = set(re.findall(r"`(qframe_\w+)`", METRICS.read_text(encoding="utf-8")))
    asked = set(re.findall(r"qframe_\w+", file.read_text(encoding="utf-8")))
    assert {name.removesuffix("_bucket") for name in asked} <= known


def test_the_dashboard_is_json_with_a_query_in_each_panel() -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert all(target["expr"] for panel in board["panels"] for target in panel["targets"])
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)
